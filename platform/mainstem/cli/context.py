"""What every command gets: its settings, and the ways in which it prints and asks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mainstem.cli.errors import err, fail, message_text, say_error, without_controls
from mainstem.cli.options import (
    DEFAULT_SERVERS,
    Settings,
    current_settings,
    parse_pairs,
)
from mainstem.errors import InvalidConfigError, MainstemError

if TYPE_CHECKING:
    import grpc

    from mainstem.client import AdminClient

P = ParamSpec("P")
R = TypeVar("R")

__all__ = [
    "EXIT_INTERRUPTED",
    "Settings",
    "admin_client",
    "bootstrap_servers",
    "confirm",
    "err",
    "fail",
    "no_confirm_option",
    "open_channel",
    "out",
    "parse_pairs",
    "pass_settings",
    "print_object",
    "print_rows",
    "reports_errors",
    "run_each",
    "say",
    "say_dry_run",
    "say_error",
    "say_if_empty",
    "split_flags",
    "status_columns",
    "status_of",
    "unit_of",
]

#: What a shell expects of a process that SIGINT ended.
EXIT_INTERRUPTED: Final = 130

#: How protobuf refuses a number.
_OUT_OF_RANGE: Final = "Value out of range: "

#: Data goes to stdout, everything else to stderr.
out = Console(highlight=False, soft_wrap=True)


pass_settings = click.make_pass_decorator(Settings)


def _servers() -> str:
    return current_settings().bootstrap_servers or DEFAULT_SERVERS


bootstrap_servers = click.option(
    "-b",
    "--bootstrap-servers",
    default=_servers,
    metavar="HOST:PORT,...",
    help="Gateways to ask; any one that answers is enough.  [env var: MAINSTEM_BOOTSTRAP_SERVERS; "
    f"default: {DEFAULT_SERVERS}]",
)


no_confirm_option = click.option("-y", "--no-confirm", is_flag=True, help="Do not ask.")


def admin_client(servers: str) -> AdminClient:
    """The client of every command that administers something."""
    from mainstem.client import AdminClient
    from mainstem.client.settings import knows
    from mainstem.config import GATEWAY_KEYS

    # A profile may have settings of producers, consumers and gateways beside the admin's own. What
    # nobody knows is the admin's to refuse: it would have no effect, and nobody would notice.
    flags = {
        name: value
        for name, value in current_settings().flags.items()
        if knows("admin", name)
        or not (knows("producer", name) or knows("consumer", name) or name in GATEWAY_KEYS)
    }
    return AdminClient({"client.id": "mainstem-cli", **flags, "bootstrap.servers": servers})


def reports_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turns our errors into one line on stderr and exit code 1, and Ctrl-C into exit code 130."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except MainstemError as error:
            fail(error.message, error.code)
        except ValueError as error:
            refusal = _not_sendable(error)
            fail(refusal.message, refusal.code)
        except (KeyboardInterrupt, click.Abort):
            err.print("interrupted")
            raise SystemExit(EXIT_INTERRUPTED) from None

    return run


def _not_sendable(error: ValueError) -> InvalidConfigError:
    """Of an argument that no request can have: the shell gives on whatever bytes it is given, and
    numbers have no end. Raises any other error again."""
    if isinstance(error, UnicodeEncodeError):
        return InvalidConfigError(f"{error.object[:250]!r} has bytes that are no text in UTF-8")
    _, is_range, number = str(error).partition(_OUT_OF_RANGE)
    if not is_range:
        raise error
    return InvalidConfigError(f"{number[:50]} is too large for a request")


def say(message: str) -> None:
    """A message for people, on stderr."""
    err.print(message_text(message))


def say_dry_run() -> None:
    """Said at the end of every dry run."""
    say("this was a dry run: nothing was changed")


def confirm(question: str) -> bool:
    """Asks before something is destroyed. False: the answer was no.

    Raises:
        click.UsageError: Nobody is there to answer.
    """
    try:
        return click.confirm(question, err=True)
    except click.Abort as abort:
        if isinstance(abort.__context__, EOFError):
            click.echo(err=True)  # ends the line of the question
            raise click.UsageError(
                "stdin is not a terminal and has no answer: use -y (--no-confirm)"
            ) from None
        raise


def open_channel(address: str, options: Sequence[tuple[str, int]] = ()) -> grpc.Channel:
    """A connection to one gateway, as `-X security.protocol` and its kin say."""
    from mainstem.client.admin import ADMIN_KEYS
    from mainstem.client.channels import NO_PROXY
    from mainstem.client.connection_security import (
        Security,
        connection_of,
        connection_settings,
    )
    from mainstem.client.settings import read_settings

    reading = read_settings("admin", ADMIN_KEYS, connection_of(current_settings().flags))
    connection = connection_settings(reading.values, reading.faults, reading.functions)
    reading.faults.tell()
    return Security(connection).open(address, [NO_PROXY, *options])


def split_flags(flags: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """`-X` of a command that produces and consumes: the producer's, and the consumer's.

    What both have goes to both; what neither has is the producer's to refuse.
    """
    from mainstem.client.settings import knows

    consumer = {name: value for name, value in flags.items() if knows("consumer", name)}
    producer = {n: v for n, v in flags.items() if knows("producer", n) or n not in consumer}
    return producer, consumer


def run_each(
    settings: Settings,
    noun: str,
    targets: Iterable[str],
    action: Callable[[str], Mapping[str, object]],
    *,
    columns: Sequence[str] = (),
) -> None:
    """Does one thing to each target and prints a row for each; exit code 1 if one failed.

    Ctrl-C ends it with the rows of what was done, and says which target it came at.

    Args:
        noun: The name of the first column.
        action: Gives the values of `columns`; raises MainstemError.
    """
    names = list(targets)
    rows: list[list[object]] = []
    failed = False

    def tell() -> None:
        print_rows(settings, [noun, *columns, *status_columns(settings)], rows, numbers=columns)

    for number, target in enumerate(names, start=1):
        values: Mapping[str, object] = {}
        error: MainstemError | None = None
        try:
            values = action(target)
        except MainstemError as failure:
            error = failure
        except ValueError as failure:
            error = _not_sendable(failure)
        except KeyboardInterrupt:
            tell()
            left = len(names) - number
            more = f"; {left} more {'was' if left == 1 else 'were'} not begun" if left else ""
            say(f"{noun} {target}: no answer yet: it may have been done{more}")
            raise
        failed = failed or error is not None
        rows.append([target, *map(values.get, columns), *status_of(settings, error)])
    tell()
    if failed:
        raise SystemExit(1)


def status_columns(settings: Settings) -> list[str]:
    """The last columns of a row that says how something went; JSON has code and message apart."""
    return ["status", "message"] if settings.format == "json" else ["status"]


def status_of(settings: Settings, error: MainstemError | None) -> list[object]:
    """Their values: OK, or the error's code and message."""
    if error is None:
        return ["OK", ""] if settings.format == "json" else ["OK"]
    if settings.format == "json":
        return [error.code, error.message]
    return [f"{error.code}: {' '.join(error.message.splitlines())}"]


def print_rows(
    settings: Settings,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    numbers: Sequence[str] = (),
    titles: Sequence[str] | None = None,
    keep_lines: bool = False,
) -> None:
    """Prints rows as a table, or with `--format json` as one object a line.

    A terminal's table is folded to its width. In a pipe, and with `--format wide`, a row is always
    one line.

    Args:
        numbers: The columns to set flush right.
        titles: The heads of the columns; by default their names in capitals.
        keep_lines: A value may have several lines, such as a plan of Spark's.
    """
    if settings.format == "json":
        for row in rows:
            print_object(settings, dict(zip(columns, row, strict=True)))
        return
    if titles is None:
        titles = [column.upper().replace("_", " ") for column in columns]
    kept = "\n\t" if keep_lines else ""
    texts = [
        ["" if value is None else without_controls(str(value), kept) for value in row]
        for row in rows
    ]
    if settings.format == "wide" or not out.is_terminal:
        _print_lines(titles, texts, [column in numbers for column in columns])
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, title in zip(columns, titles, strict=True):
        table.add_column(title, justify="right" if column in numbers else "left", overflow="fold")
    for line in texts:
        table.add_row(*map(Text, line))
    out.print(table, soft_wrap=False)


def _print_lines(
    titles: Sequence[str], texts: Sequence[Sequence[str]], right: Sequence[bool]
) -> None:
    widths = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
    for index, line in enumerate([titles, *texts]):
        cells = [
            text.rjust(width) if flush_right else text.ljust(width)
            for text, width, flush_right in zip(line, widths, right, strict=True)
        ]
        out.print(Text("  ".join(cells).rstrip(), style="bold" if index == 0 else ""))


def say_if_empty(settings: Settings, rows: Sequence[object], message: str) -> None:
    """What to do where a table has no rows, for people: who sees titles alone wonders."""
    if not rows and settings.format != "json" and out.is_terminal:
        say(message)


def unit_of(value: str, unit: str) -> str:
    """The unit, and what the value is in a larger one that fits: `ms (7 days)`."""
    from mainstem.config import larger_unit

    larger = larger_unit(int(value), unit) if value.isdecimal() else ""
    return f"{unit} ({larger})" if larger else unit


def print_object(settings: Settings, value: Mapping[str, Any]) -> None:
    """Prints one object: `name: value` lines, or JSON."""
    if settings.format == "json":
        out.print_json(json.dumps(value, default=str), indent=None)
        return
    width = max(map(len, value), default=0)
    for name, item in value.items():
        shown = f"{name.replace('_', ' '):<{width}}"
        out.print(Text.assemble((shown, "bold"), "  ", without_controls(str(item))))

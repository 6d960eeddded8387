"""`mainstem sql --stream`: a statement as a streaming query, and those that the warehouse keeps."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from mainstem.cli.context import (
    Settings,
    bootstrap_servers,
    fail,
    print_rows,
    say,
    say_if_empty,
)
from mainstem.cli.options import refuse_transactions
from mainstem.cli.signals import signals_set

if TYPE_CHECKING:
    from mainstem.delta_log.store import CloudPrefix, LocalDirectory
    from mainstem.jobs.kept_streams import KeptStream, KeptStreams

C = TypeVar("C", bound=Callable[..., Any])

#: Of the options, those that are for a statement, and those that are in place of one.
_OF_A_RUN: Final = ("name", "starting", "every", "once")
_INSTEAD: Final = ("list_", "stop", "forget")


def stream_options(command: C) -> C:
    """The options of `--stream`."""
    options = (
        click.option("--name", metavar="NAME", help="Of the stream.  [default: the target's]"),
        click.option(
            "--from",
            "starting",
            type=click.Choice(["earliest", "latest"]),
            help="Where a new stream begins.  [default: earliest]",
        ),
        click.option(
            "--every", metavar="TIME", help="A batch so often, as '10 seconds'.  [default: at once]"
        ),
        click.option("--once", is_flag=True, help="End with what is there when it begins."),
        click.option("--list", "list_", is_flag=True, help="Print the streams."),
        click.option("--stop", metavar="NAME", help="Stop a stream; it goes on when run again."),
        click.option(
            "--forget",
            metavar="NAME",
            help="Remove a stream's checkpoint, not what it wrote: run again, it begins anew.",
        ),
        bootstrap_servers,
    )
    for option in reversed(options):
        command = option(command)
    return command


def run_stream_command(
    settings: Settings,
    place: LocalDirectory | CloudPrefix,
    statement: str | None,
    *,
    stream: bool,
    **options: Any,
) -> None:
    """What `mainstem sql` does where it was given one of `stream_options`, or `--stream`."""
    instead = [name for name in _INSTEAD if options[name]]
    if not stream:
        raise click.UsageError("that option is for --stream")
    if len(instead) > 1 or (instead and (statement or any(options[name] for name in _OF_A_RUN))):
        raise click.UsageError("--list, --stop and --forget stand alone")
    if not instead:
        if statement is None:
            raise click.UsageError("the statement is missing; `-` reads it from stdin")
        _run(settings, place, statement, options)
    elif options["list_"]:
        _list(settings, _kept(place))
    elif options["stop"]:
        name = options["stop"]
        stopped = _kept(place).stop(name, settings.timeout_s)
        say(f"stream {name} is stopped" if stopped else f"stream {name} was not running")
    else:
        _kept(place).forget(options["forget"])
        say(f"stream {options['forget']} is forgotten; what it wrote is as it was")


def _kept(place: LocalDirectory | CloudPrefix) -> KeptStreams:
    from mainstem.delta_log.store import LocalDirectory, open_warehouse
    from mainstem.jobs.kept_streams import KeptStreams

    open_warehouse(place).close()  # a mistyped path is an error, and has no streams
    if not isinstance(place, LocalDirectory):
        fail("a warehouse in an object storage service has no streams of SQL")
    return KeptStreams(Path(place.path))


def _list(settings: Settings, streams: KeptStreams) -> None:
    from mainstem.records import format_timestamp_ms

    columns = ["name", "state", "table", "topic", "started_ms", "ended_ms", "host", "pid", "error"]
    columns.append("statement")
    rows = []
    found = streams.all()
    for one in found:
        facts = {name: getattr(one, name) for name in columns}
        for name in ("started_ms", "ended_ms"):
            facts[name] = facts[name] or None
            if settings.format != "json" and facts[name]:
                facts[name] = format_timestamp_ms(facts[name])
        if settings.format != "json":
            facts["statement"] = " ".join(one.statement.split())
        rows.append([facts[name] for name in columns])
    titles = [name.removesuffix("_ms").upper() for name in columns]
    print_rows(settings, columns, rows, numbers=["pid"], titles=titles)
    say_if_empty(settings, found, 'there are none: mainstem sql --stream "INSERT INTO ..."')


def _run(
    settings: Settings,
    place: LocalDirectory | CloudPrefix,
    statement: str,
    options: dict[str, Any],
) -> None:
    from mainstem.client.settings import knows
    from mainstem.jobs.sql import SqlError
    from mainstem.jobs.sql_streams import run_sql_stream

    stopping = threading.Event()

    def started(stream: KeptStream) -> None:
        # After Spark, which has its own idea of Ctrl-C.
        at_end.enter_context(signals_set(stopping))
        into = f"topic {stream.topic}" if stream.topic else f"table {stream.table}"
        say(f"stream {stream.name} runs, into the {into}; Ctrl-C stops it")

    refuse_transactions(settings)
    producer = {name: value for name, value in settings.flags.items() if knows("producer", name)}
    producer["bootstrap.servers"] = options["bootstrap_servers"]
    with contextlib.ExitStack() as at_end:
        try:
            ended = run_sql_stream(
                place,
                statement,
                name=options["name"],
                starting_offsets=options["starting"] or "earliest",
                every=options["every"],
                available_now=options["once"],
                producer=producer,
                should_stop=stopping.is_set,
                on_start=started,
            )
        except SqlError as error:
            fail(error.message)
    say(f"stream {ended.name} is stopped; the same statement goes on where it was")

"""What every command gets: the global options, and the ways in which it prints and fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

import click
from rich.console import Console
from rich.table import Table

from mainstem.config import GatewayConfig, load_gateway_config
from mainstem.errors import MainstemError

P = ParamSpec("P")
R = TypeVar("R")

#: Data goes to stdout, everything else to stderr.
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Settings:
    """The global options."""

    config_file: str | None = None
    flags: Mapping[str, str] = field(default_factory=dict)
    format: str = "text"
    verbose: bool = False
    timeout_s: float = 30.0

    def gateway_config(self, more: Mapping[str, object] | None = None) -> GatewayConfig:
        """The gateway's settings with the global `-X` and a command's own flags on top."""
        return load_gateway_config(self.config_file, flags={**self.flags, **(more or {})})


pass_settings = click.make_pass_decorator(Settings)


def fail(message: str) -> NoReturn:
    """Ends with `message` on stderr and exit code 1."""
    err.print(f"[bold red]error:[/] {escape(message)}")
    raise SystemExit(1)


def reports_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turns our errors into one line on stderr and exit code 1."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except MainstemError as error:
            fail(f"{error.code}: {error.message}")

    return run


def escape(text: str) -> str:
    """Text that rich must print as it is."""
    return text.replace("[", "\\[")


def print_rows(
    settings: Settings,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    numbers: Sequence[str] = (),
) -> None:
    """Prints rows as a table, or with `--format json` as one object a line.

    Args:
        numbers: The columns to set flush right.
    """
    if settings.format == "json":
        for row in rows:
            out.print_json(
                json.dumps(dict(zip(columns, row, strict=True)), default=str), indent=None
            )
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            column.upper().replace("_", " "),
            justify="right" if column in numbers else "left",
            overflow="fold",
            no_wrap=settings.format == "wide",
        )
    for row in rows:
        table.add_row(*(escape("" if value is None else str(value)) for value in row))
    out.print(table)


def print_object(settings: Settings, value: Mapping[str, Any]) -> None:
    """Prints one object: `name: value` lines, or JSON."""
    if settings.format == "json":
        out.print_json(json.dumps(value, default=str), indent=None)
        return
    width = max(map(len, value), default=0)
    for name, item in value.items():
        out.print(f"[bold]{name:<{width}}[/]  {escape(str(item))}")

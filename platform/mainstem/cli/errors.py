"""How a command fails: one line on stderr, or with `--format json` one object."""

from __future__ import annotations

import json
from typing import Final, NoReturn

import click
from rich.console import Console

#: Everything that is not data.
err: Final = Console(stderr=True, highlight=False, soft_wrap=True)

_state = {"json": False}


class FormatError(ValueError):
    """A format, or a text that does not fit one; the message is for people."""


def as_json(enabled: bool) -> None:
    """Whether errors are objects from now on. Known before any command runs, and after it ended."""
    _state["json"] = enabled


def escape(text: str) -> str:
    """Text that rich must print as it is."""
    return text.replace("[", "\\[")


def say_error(code: str, message: str) -> None:
    """An error on stderr: `error: CODE: message`, or {"status": CODE, "message": ...}."""
    if _state["json"]:
        err.print_json(json.dumps({"status": code, "message": message}), indent=None)
    else:
        err.print(f"[bold red]error:[/] {escape(f'{code}: {message}' if code else message)}")


def fail(message: str, code: str = "") -> NoReturn:
    """Ends with `message` on stderr and exit code 1."""
    say_error(code or ("FAILED" if _state["json"] else ""), message)
    raise SystemExit(1)


def show_usage_error(error: click.ClickException) -> None:
    """Wrong usage: click's words, or an object."""
    if _state["json"]:
        say_error("WRONG_USAGE", error.format_message())
    else:
        error.show()

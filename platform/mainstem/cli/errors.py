"""How a command fails: one line on stderr, or with `--format json` one object."""

from __future__ import annotations

import json
import unicodedata
from typing import Final, NoReturn

import click
from rich.console import Console
from rich.text import Text

#: Everything that is not data.
err: Final = Console(stderr=True, highlight=False, soft_wrap=True)

#: Unicode's categories of what moves a cursor: controls, and what ends a line or a paragraph; and
#: of what stands for bytes that are no text.
_CONTROLS: Final = ("Cc", "Zl", "Zp", "Cs")

_state = {"json": False}


class FormatError(ValueError):
    """A format, or a text that does not fit one; the message is for people."""


def as_json(enabled: bool) -> None:
    """Whether errors are objects from now on. Known before any command runs, and after it ended."""
    _state["json"] = enabled


def without_controls(text: str, kept: str = "") -> str:
    """With escapes for what would break a line or command a terminal.

    Clients choose the names of groups, and their own: one might end a line early, so that it looks
    like two rows, or clear the screen of who operates the gateways.
    """
    return "".join(
        repr(one)[1:-1] if unicodedata.category(one) in _CONTROLS and one not in kept else one
        for one in text
    )


def message_text(message: str) -> Text:
    """A message as rich prints it as it is: names in it may look like rich's markup, or emoji."""
    return Text(without_controls(message, "\n\t"))


def say_error(code: str, message: str) -> None:
    """An error on stderr: `error: CODE: message`, or {"status": CODE, "message": ...}."""
    if _state["json"]:
        err.print_json(json.dumps({"status": code, "message": message}), indent=None)
    else:
        said = message_text(f"{code}: {message}" if code else message)
        err.print(Text.assemble(("error:", "bold red"), " ", said))


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

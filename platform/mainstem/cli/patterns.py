"""Names of topics and groups that are given as patterns: `ord*`, or `^ord.*s$`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

import click

#: No name of a topic has one of these.
_WILDCARDS: Final = re.compile(r"[*?\[]")


def is_pattern(text: str) -> bool:
    """Whether a text stands for all names that fit it."""
    return text.startswith("^") or _WILDCARDS.search(text) is not None


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that fit a pattern, sorted.

    Raises:
        click.UsageError: It is not a regular expression.
    """
    if not pattern.startswith("^"):
        return sorted(name for name in names if fnmatchcase(name, pattern))
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise click.UsageError(f"{pattern!r} is not a regular expression: {error}") from None
    return sorted(name for name in names if compiled.search(name))


def chosen(texts: Sequence[str], names: Iterable[str], what: str) -> list[str]:
    """Each name that was given, and those that fit the patterns, once.

    Args:
        texts: Names, which need not exist, and patterns.
        names: All that exist.
        what: Of what they are, for messages: `topic`.

    Raises:
        click.UsageError: Nothing fits a pattern.
    """
    known = list(names)
    found: list[str] = []
    for text in texts:
        fitting = matching(text, known) if is_pattern(text) else [text]
        if not fitting:
            raise click.UsageError(f"no {what} fits {text!r}")
        found += fitting
    return list(dict.fromkeys(found))

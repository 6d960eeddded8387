"""Times and sizes as people write them: `90s`, `7d`, `1d12h`, `10GiB`, and the way back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

_TIMES: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_SIZES: Final = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}

#: By the unit of a setting, what may follow a number, in that unit.
UNITS: Final[Mapping[str, Mapping[str, int]]] = {"ms": _TIMES, "bytes": _SIZES}

#: By the unit of a setting, how such a value may be written.
EXAMPLES: Final = {"ms": "90s, 12h or 7d", "bytes": "64KiB, 10GiB or 10GB"}

_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")

#: Larger units that a value is shown in, the largest first: singular, plural, size.
_SHOWN: Final = {
    "ms": (
        ("day", "days", 86_400_000),
        ("hour", "hours", 3_600_000),
        ("min", "min", 60_000),
        ("s", "s", 1_000),
    ),
    "bytes": (
        ("TiB", "TiB", 2**40),
        ("GiB", "GiB", 2**30),
        ("MiB", "MiB", 2**20),
        ("KiB", "KiB", 2**10),
    ),
}

#: Beyond it a value is for ever, or no limit: nobody is helped by its size.
_SHOWN_MAX: Final = 10_000


def parse_amount(text: str, unit: str) -> int | None:
    """What `text` is in `unit`; None: it is not an amount in it, or not a whole number of it.

    Args:
        text: Numbers with units, such as `1d12h`. Without a unit it is none of ours.
        unit: Of the setting. None but `ms` and `bytes` have larger ones.
    """
    sizes = UNITS.get(unit, {})
    text = text.strip()
    total, end = Decimal(0), 0
    while end < len(text):
        part = _PART.match(text, end)
        if part is None or part[2] not in sizes:
            return None
        total += Decimal(part[1]) * sizes[part[2]]
        end = part.end()
    return int(total) if end and total == int(total) else None


def larger_unit(value: int, unit: str) -> str:
    """The value in the largest unit in which it is a whole number, such as `7 days`; or empty."""
    for one, many, size in _SHOWN.get(unit, ()):
        if value >= size and value % size == 0 and value < _SHOWN_MAX * size:
            count = value // size
            return f"{count} {one if count == 1 else many}"
    return ""


def with_unit(value: int, unit: str) -> str:
    """The value, its unit, and what it is in a larger one: `604800000 ms (7 days)`."""
    larger = larger_unit(value, unit)
    return f"{value} {unit} ({larger})" if larger else f"{value} {unit}".rstrip()

"""Delta's way to write a length of time."""

from __future__ import annotations

import re
from typing import Final

#: What we take of it: one whole number with a unit.
INTERVAL_PATTERN: Final = r"interval [1-9][0-9]{0,5} (seconds|minutes|hours|days|weeks)"

_UNIT_MS: Final = {
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}


def interval_ms(text: str) -> int:
    """Milliseconds of `interval 2 hours`.

    Raises:
        ValueError: It has another form, for example one with months, which Delta does not take here
            either.
    """
    match = re.fullmatch(r"interval (\d+) (second|minute|hour|day|week)s?", text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not of the form 'interval 2 hours'")
    return int(match[1]) * _UNIT_MS[match[2]]

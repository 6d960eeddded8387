"""Places in a log as the command line takes them: offsets, times, ranges of both. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from mainstem.cli.errors import FormatError

_WORDS: Final = {
    "start": "start",
    "beginning": "start",
    "earliest": "start",
    "end": "end",
    "latest": "end",
}

#: For messages and help.
PLACES: Final = (
    "start, end, an offset, -N for the last N records, or @TIME (2026-01-31T12:00:00Z, @-1h for an "
    "hour ago, or since 1970: 10 digits are seconds, 13 are milliseconds)"
)

_DIGITS: Final = re.compile(r"[0-9]+")
_AGO: Final = re.compile(r"-((?:\d+(?:\.\d+)?(?:ms|[smhdw]))+)")
_AGO_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_UNIT_MS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}

#: A number of so many digits is of this unit: from 1973 to 5138, each reads as a year of its own
#: only in the right one. Shorter ones are milliseconds of 1970's first day.
_SECONDS_MIN: Final = 10**8
_MS_MIN: Final = 10**11
_US_MIN: Final = 10**14
_NS_MIN: Final = 10**17

#: 20260131, and with hours and minutes: a date that forgot its dashes. As a number it would be a
#: time of 1970 or 1976.
_DATE_DIGITS: Final = re.compile(
    r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:(?:[01]\d|2[0-3])(?:[0-5]\d){1,2})?"
)


@dataclass(frozen=True, slots=True)
class Where:
    """A place in each partition. `kind`: start, end, offset, last or time.

    Attributes:
        number: The offset; how many from the end; or the time, in ms since 1970.
    """

    kind: str
    number: int = 0

    def __str__(self) -> str:
        match self.kind:
            case "time":
                return _shown(self.number)
            case "last":
                return f"-{self.number}"
            case "offset":
                return str(self.number)
        return self.kind


def parse_where(text: str, now_ms: int, option: str = "-o") -> Where:
    """Reads one place.

    Args:
        now_ms: The time now; a later one is refused, as no record can be expected there.

    Raises:
        FormatError: It means nothing, or a time that cannot be meant; says what it would be.
    """
    if text in _WORDS:
        return Where(_WORDS[text])
    if _DIGITS.fullmatch(text):
        return Where("offset", int(text))
    if re.fullmatch(r"-[0-9]+", text):
        return Where("last", int(text[1:]))
    if text.startswith("@"):
        return Where("time", parse_time_ms(text[1:], now_ms, option))
    if text.startswith("P"):
        return Where("time", _before(now_ms, _duration_ms(text, option)))
    raise FormatError(f"{option} is {text!r}; it must be {PLACES}, or PT1H for an hour ago")


def parse_range(text: str, now_ms: int, option: str = "-o") -> tuple[Where, Where | None]:
    """Reads a place, or a range A:B from A up to, and not including, B; either may be left out.

    Raises:
        FormatError: As of `parse_where`.
    """
    refusal: FormatError | None = None
    try:
        return parse_where(text, now_ms, option), None
    except FormatError as error:
        refusal = error
    for at in (found.start() for found in re.finditer(":", text)):
        left, right = text[:at], text[at + 1 :]
        if not right and not left:
            continue
        try:
            begin = parse_where(left, now_ms, option) if left else Where("start")
        except FormatError:
            continue
        if not right:
            return begin, None
        if begin.kind == "time" and right not in _WORDS and not right.startswith(("@", "P")):
            right = f"@{right}"  # @t1:t2, as rpk writes it
        try:
            return begin, parse_where(right, now_ms, option)
        except FormatError as error:
            refusal = error  # more to the point: the first half makes sense
    raise refusal


def parse_time_ms(text: str, now_ms: int, option: str = "-o") -> int:
    """Reads a time: ISO 8601 (UTC where it names no zone), a duration ago, or a number since 1970.

    Returns:
        Milliseconds since 1970, not after `now_ms`, not below 0.

    Raises:
        FormatError: It is none, in micro- or nanoseconds, or in the future; says what it means.
    """
    from mainstem.records import parse_timestamp_ms

    if found := _AGO.fullmatch(text):
        ago_ms = sum(
            float(number) * _UNIT_MS[unit] for number, unit in _AGO_PART.findall(found.group(1))
        )
        return _before(now_ms, ago_ms)
    if text.startswith("-P"):
        return _before(now_ms, _duration_ms(text[1:], option))
    if _DIGITS.fullmatch(text):
        time_ms = _number_ms(text, option)
    else:
        try:
            time_ms = max(0, parse_timestamp_ms(text))
        except ValueError:
            raise FormatError(
                f"{option}: {text!r} is not a time; write 2026-01-31T12:00:00Z (UTC where no zone "
                "is named), -1h for an hour ago, or a number since 1970 (10 digits: seconds, 13: "
                "milliseconds)"
            ) from None
    if time_ms > now_ms:
        raise FormatError(
            f"{option}: {text} is {_shown(time_ms)}, which is in the future: no record is that "
            "late. It is now "
            f"{_shown(now_ms)}; `end` is the place after the last record"
        )
    return time_ms


def _number_ms(text: str, option: str) -> int:
    number = int(text)
    if _DATE_DIGITS.fullmatch(text):
        raise FormatError(
            f"{option}: is {text} a date? Write {text[:4]}-{text[4:6]}-{text[6:8]}. As a number it "
            f"would be {_shown(number * 1000 if _SECONDS_MIN <= number < _MS_MIN else number)}"
        )
    if number < _SECONDS_MIN or _MS_MIN <= number < _US_MIN:
        return number
    if number < _MS_MIN:
        return number * 1000
    unit, number_ms = ("microseconds", number // 10**3)
    if number >= _NS_MIN:
        unit, number_ms = "nanoseconds", number // 10**6
    raise FormatError(
        f"{option}: {text} has {len(text)} digits; as {unit} since 1970 it would be "
        f"{_shown(number_ms)}. Give milliseconds: @{number_ms}"
    )


def _duration_ms(text: str, option: str) -> int:
    from mainstem.records import parse_duration_ms

    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise FormatError(f"{option}: {error}") from None


def _before(now_ms: int, ago_ms: float) -> int:
    return max(0, int(now_ms - ago_ms))


def _shown(time_ms: int) -> str:
    from mainstem.records import format_timestamp_ms

    try:
        return format_timestamp_ms(time_ms)
    except OverflowError:
        return "a time after the year 9999"

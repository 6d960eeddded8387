"""What a query's filters leave of the topics: which ranges and which times it can use at all. Pure.

Only ever a superset: Spark looks at every row that comes all the same.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from pyspark_mainstem._offsets import OffsetRange, TopicPartition

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_OFFSET_MAX: Final = 2**63 - 1

#: Beyond every timestamp that a record can have, in ms: there are as many microseconds as offsets.
_TIME_MAX: Final = -(-_OFFSET_MAX // 1000)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What can be in the answer.

    Attributes:
        constants: Filters on `topic` and `partition`, which are the same for a whole range.
        offset_min, offset_max: Both inclusive; the same in every partition.
        timestamp_ms_min, timestamp_ms_max: Both inclusive, in ms since 1970.
    """

    constants: tuple[Filter, ...] = ()
    offset_min: int = 0
    offset_max: int = _OFFSET_MAX
    timestamp_ms_min: int = -_TIME_MAX
    timestamp_ms_max: int = _TIME_MAX

    @classmethod
    def of(cls, filters: Sequence[Filter]) -> Wanted:
        """What all of the filters together leave; one that says nothing here is passed over."""
        wanted = cls()
        for one in filters:
            match _column(one):
                case "topic" | "partition":
                    wanted = replace(wanted, constants=(*wanted.constants, one))
                case "offset":
                    least, most = _bounds(one, _integer)
                    wanted = replace(
                        wanted,
                        offset_min=max(wanted.offset_min, least),
                        offset_max=min(wanted.offset_max, most),
                    )
                case "timestamp":
                    least, most = _bounds(one, _micros)
                    wanted = replace(
                        wanted,
                        timestamp_ms_min=max(wanted.timestamp_ms_min, least // 1000),
                        timestamp_ms_max=min(wanted.timestamp_ms_max, -(-most // 1000)),
                    )
        return wanted

    def part_of(self, one: OffsetRange) -> OffsetRange:
        """What is left of the range, without regard to times; perhaps nothing."""
        where, start, end = one
        start = max(start, self.offset_min)
        end = min(end, self.offset_max + 1)
        if not self._takes(where) or start >= end:
            return OffsetRange(where, one.start, one.start)
        return OffsetRange(where, start, end)

    def takes_times(self, least_ms: int, most_ms: int) -> bool:
        """Whether a record with a time between these, both inclusive, may be wanted."""
        return least_ms <= self.timestamp_ms_max and most_ms >= self.timestamp_ms_min

    def _takes(self, where: TopicPartition) -> bool:
        columns: dict[str, str | int] = {"topic": where.topic, "partition": where.partition}
        return all(_holds(one, columns[str(_column(one))]) is not False for one in self.constants)


def _column(one: Filter) -> str | None:
    inner = one.child if isinstance(one, Not) else one
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    return path[0] if len(path) == 1 else None


def _holds(one: Filter, value: Any) -> bool | None:
    """Whether the filter is true of a string or an int; None: it cannot be told here."""
    if isinstance(one, Not):
        inner = _holds(one.child, value)
        return None if inner is None else not inner
    kind = type(value)
    if isinstance(one, In):
        return value in one.value if all(type(item) is kind for item in one.value) else None
    other = getattr(one, "value", None)
    if type(other) is not kind:
        return None
    match one:
        case EqualTo() | EqualNullSafe():
            return bool(value == other)
        case GreaterThan():
            return bool(value > other)
        case GreaterThanOrEqual():
            return bool(value >= other)
        case LessThan():
            return bool(value < other)
        case LessThanOrEqual():
            return bool(value <= other)
        case StringStartsWith():
            return bool(value.startswith(other))
        case StringEndsWith():
            return bool(value.endswith(other))
        case StringContains():
            return other in value
    return None


def _bounds(one: Filter, number: Any) -> tuple[int, int]:
    """The least and the greatest value of which the filter may be true, both inclusive.

    Args:
        number: Of a filter's value, a function: int, or None where it is no such value.
    """
    everything = (-_OFFSET_MAX, _OFFSET_MAX)
    if isinstance(one, In):
        numbers = [number(item) for item in one.value if item is not None]
        if not numbers or None in numbers:
            return everything
        return min(numbers), max(numbers)
    value = number(getattr(one, "value", None))
    if value is None:
        return everything
    match one:
        case EqualTo() | EqualNullSafe():
            return value, value
        case GreaterThan():
            return value + 1, _OFFSET_MAX
        case GreaterThanOrEqual():
            return value, _OFFSET_MAX
        case LessThan():
            return -_OFFSET_MAX, value - 1
        case LessThanOrEqual():
            return -_OFFSET_MAX, value
    return everything


def _integer(value: object) -> int | None:
    return value if type(value) is int else None


def _micros(value: object) -> int | None:
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // dt.timedelta(microseconds=1)

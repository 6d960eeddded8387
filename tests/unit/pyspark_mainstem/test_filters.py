"""Filters of a query leave out data files and row groups, and never a record of its answer."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from tests.unit.pyspark_mainstem.topic_log import START_MS, Record, TopicLog

from mainstem.delta_log.files import data_file_writer
from pyspark_mainstem._filters import Wanted
from pyspark_mainstem._options import SourceOptions
from pyspark_mainstem._planner import Planner
from pyspark_mainstem._range_plan import RangePlan
from pyspark_mainstem._range_reader import read_range

COLUMNS = ("topic", "partition", "offset", "timestamp", "key")

_COMPARISONS = (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
_EQUALITIES = (EqualTo, EqualNullSafe)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics of two partitions: many files, or one of many row groups; times out of order."""
    root = tmp_path_factory.mktemp("filters") / "warehouse"
    log = TopicLog(root)
    for topic in ("a", "ab"):
        log.create(topic, 2)
        for partition in range(2):
            log.append(topic, *((partition, _records(first)) for first in range(0, 30, 5)))
    with patch.object(data_file_writer, "ROW_GROUP_ROWS_MAX", 4):
        log.merge("ab", 1)
    log.close()
    return root


def _records(first: int) -> list[Record]:
    """Five whose times go back once in a while, some of them far."""
    seconds = {number: number if number % 7 else 29 - number for number in range(first, first + 5)}
    return [
        Record(b"value", b"k%d" % (number % 3), START_MS + 1000 * second)
        for number, second in seconds.items()
    ]


@pytest.fixture(scope="module")
def all_rows(warehouse: Path) -> list[dict[str, Any]]:
    """What is read without filters."""
    return _rows(_plans(warehouse, []))


def _plans(warehouse: Path, filters: Sequence[Filter]) -> list[RangePlan]:
    given = {"mainstem.warehouse": str(warehouse), "subscribe": "a,ab"}
    planner = Planner(SourceOptions.parse(given).for_batch())
    try:
        return planner.plan_batch(Wanted.of(filters))
    finally:
        planner.close()


def _rows(plans: list[RangePlan]) -> list[dict[str, Any]]:
    return [
        row for plan in plans for batch in read_range(plan, COLUMNS) for row in batch.to_pylist()
    ]


def _holds(one: Filter, row: dict[str, Any]) -> bool | None:
    """What SQL says; None: null."""
    if isinstance(one, Not):
        inner = _holds(one.child, row)
        return None if inner is None else not inner
    value = row[one.attribute[0]]  # type: ignore[attr-defined]
    match one:
        case IsNull():
            return value is None
        case IsNotNull():
            return value is not None
        case EqualNullSafe():
            return bool(value == one.value)
        case In():
            return True if value in one.value else None if None in one.value else False
        case EqualTo() if one.value is not None:
            return bool(value == one.value)
        case GreaterThan():
            return bool(value > one.value)
        case GreaterThanOrEqual():
            return bool(value >= one.value)
        case LessThan():
            return bool(value < one.value)
        case LessThanOrEqual():
            return bool(value <= one.value)
        case StringStartsWith():
            return bool(value.startswith(one.value))
        case StringEndsWith():
            return bool(value.endswith(one.value))
        case StringContains():
            return one.value in value
    return None


def _time(ms: int, micros: int = 0) -> dt.datetime:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC) + dt.timedelta(microseconds=micros)


def _of(column: str, values: st.SearchStrategy[Any], *more: type) -> st.SearchStrategy[Filter]:
    path = st.just((column,))
    plain = st.one_of(
        *(st.builds(kind, path, values) for kind in (*_EQUALITIES, *_COMPARISONS, *more)),
        st.builds(In, path, st.lists(values | st.none(), max_size=3).map(tuple)),
        *(st.builds(kind, path, st.none()) for kind in _EQUALITIES),
        st.builds(IsNull, path),
        st.builds(IsNotNull, path),
    )
    return plain | plain.map(Not)


_filters = st.lists(
    _of("offset", st.integers(-2, 32))
    | _of("partition", st.integers(-1, 3))
    | _of(
        "topic",
        st.sampled_from(["", "a", "ab", "b"]),
        StringStartsWith,
        StringEndsWith,
        StringContains,
    )
    | _of(
        "timestamp",
        st.builds(
            lambda second, micros: _time(START_MS + 1000 * second, micros),
            st.integers(-2, 32),
            st.integers(-1, 1),
        ),
    )
    | _of("key", st.sampled_from([b"k0", b"k1"])),
    max_size=4,
)


@given(_filters)
@example([LessThan(("offset",), -1)])
@example([GreaterThan(("timestamp",), _time(START_MS + 29_000, -1))])
def test_a_query_has_the_same_answer_with_filters_pushed_down_and_without(
    warehouse: Path, all_rows: list[dict[str, Any]], filters: list[Filter]
) -> None:
    def answer(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in rows if all(_holds(one, row) for one in filters)]

    assert answer(_rows(_plans(warehouse, filters))) == answer(all_rows)


def _read(warehouse: Path, *filters: Filter) -> list[tuple[str, int, list[int]]]:
    """Topic, partition and how many records of each file are read."""
    return [
        (plan.topic, plan.partition, [batch.num_rows for batch in read_range(plan, COLUMNS)])
        for plan in _plans(warehouse, filters)
    ]


def test_topics_and_partitions_that_cannot_match_are_not_read(warehouse: Path) -> None:
    read = _read(warehouse, EqualTo(("topic",), "a"), Not(EqualTo(("partition",), 0)))
    assert read == [("a", 1, [30])]
    assert _read(warehouse, StringStartsWith(("topic",), "b")) == []


def test_of_a_range_only_the_offsets_that_can_match_are_read(warehouse: Path) -> None:
    plans = _plans(
        warehouse,
        [
            In(("offset",), (7, 11)),
            LessThanOrEqual(("partition",), 0),
            Not(EqualTo(("topic",), "ab")),
        ],
    )
    assert [(plan.start, plan.end, len(plan.files)) for plan in plans] == [(7, 12, 2)]


def test_files_and_row_groups_without_a_time_that_can_match_are_not_read(warehouse: Path) -> None:
    # Offset 0 has the last time, and 28 the second one.
    filters = [GreaterThan(("timestamp",), _time(START_MS + 27_500))]
    plans = _plans(warehouse, filters)
    assert [len(plan.files) for plan in plans] == [2, 2, 2, 1]
    assert [row["offset"] for row in _rows(plans[:1])] == [*range(5), *range(25, 30)]
    in_groups = [row["offset"] for row in _rows(plans[3:])]
    assert in_groups == [*range(4), *range(28, 30)]


def test_a_time_without_a_zone_and_values_of_other_types_say_nothing() -> None:
    naive = dt.datetime(2024, 1, 1)  # noqa: DTZ001
    for one in (
        EqualTo(("timestamp",), naive),
        EqualTo(("offset",), None),
        EqualTo(("offset",), True),
        In(("offset",), (1, "x")),
        In(("offset",), ()),
        EqualTo(("headers", "key"), "x"),
        IsNull(("offset",)),
    ):
        assert Wanted.of([one]) == Wanted(), one

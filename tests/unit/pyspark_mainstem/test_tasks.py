"""How ranges are cut into pieces, and which of them share a task."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_mainstem._offsets import OffsetRange, TopicPartition
from pyspark_mainstem._range_plan import RangePlan
from pyspark_mainstem._tasks import share_tasks, split_ranges

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)

_ranges = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 4)),
    st.tuples(st.integers(0, 1000), st.integers(0, 1000)),
    min_size=1,
).map(
    lambda found: [
        OffsetRange(where, first, first + size) for where, (first, size) in sorted(found.items())
    ]
)
_count_min = st.none() | st.integers(1, 40)
_records_max = st.none() | st.integers(1, 500)


def _plan(one: OffsetRange) -> RangePlan:
    (topic, partition), start, end = one
    return RangePlan(
        table_uri="", topic_id="", topic=topic, partition=partition, start=start, end=end, files=()
    )


def _offsets(ranges: list[OffsetRange]) -> list[tuple[TopicPartition, int]]:
    return [(one.topic_partition, offset) for one in ranges for offset in range(one.start, one.end)]


def test_by_default_each_partition_is_one_piece_and_empty_ones_are_left_out() -> None:
    ranges = [OffsetRange(A0, 0, 10), OffsetRange(A1, 5, 5), OffsetRange(B0, 1, 2)]
    assert split_ranges(ranges, None, None, {}) == [ranges[0], ranges[2]]
    assert split_ranges(ranges, 2, 10, {}) == [ranges[0], ranges[2]]


def test_more_pieces_than_partitions_are_cut_from_the_large_ones() -> None:
    ranges = [OffsetRange(A0, 0, 900), OffsetRange(A1, 0, 10)]
    assert split_ranges(ranges, 4, None, {}) == [
        OffsetRange(A0, 0, 300),
        OffsetRange(A0, 300, 600),
        OffsetRange(A0, 600, 900),
        OffsetRange(A1, 0, 10),
    ]


@pytest.mark.timeout(5)
def test_more_pieces_than_records_are_one_for_each_record_and_no_more_work() -> None:
    assert split_ranges([OffsetRange(A0, 0, 3), OffsetRange(B0, 7, 8)], 10**12, None, {}) == [
        OffsetRange(A0, 0, 1),
        OffsetRange(A0, 1, 2),
        OffsetRange(A0, 2, 3),
        OffsetRange(B0, 7, 8),
    ]


def test_a_range_with_too_many_records_is_cut_into_equal_pieces() -> None:
    assert split_ranges([OffsetRange(A0, 5, 15)], None, 4, {}) == [
        OffsetRange(A0, 5, 9),
        OffsetRange(A0, 9, 12),
        OffsetRange(A0, 12, 15),
    ]


def test_a_cut_goes_to_a_near_beginning_of_a_file() -> None:
    pieces = [OffsetRange(A0, 0, 420), OffsetRange(A0, 420, 1000)]
    assert split_ranges([OffsetRange(A0, 0, 1000)], 2, None, {A0: [0, 420, 990]}) == pieces
    assert split_ranges([OffsetRange(A0, 0, 1000)], None, 600, {A0: [0, 420, 990]}) == pieces


@given(_ranges, _count_min, _records_max, st.lists(st.integers(0, 2000), unique=True).map(sorted))
def test_pieces_are_the_ranges_in_order_without_gap_or_overlap_and_none_is_too_large(
    ranges: list[OffsetRange],
    count_min: int | None,
    records_max: int | None,
    boundaries: list[int],
) -> None:
    everywhere = {one.topic_partition: boundaries for one in ranges}
    pieces = split_ranges(ranges, count_min, records_max, everywhere)
    assert _offsets(pieces) == _offsets(ranges)
    assert all(0 < piece.size <= (records_max or piece.size) for piece in pieces)


def test_small_ranges_share_a_task_only_with_a_limit_and_down_to_the_minimum() -> None:
    plans = [_plan(OffsetRange(TopicPartition("a", number), 0, 10)) for number in range(12)]
    assert [len(task) for task in share_tasks(plans, None, None)] == [1] * 12
    assert [len(task) for task in share_tasks(plans, 2, None)] == [1] * 12
    assert [len(task) for task in share_tasks(plans, None, 49)] == [4, 4, 4]
    assert [len(task) for task in share_tasks(plans, 6, 49)] == [2] * 6


@given(_ranges, _count_min, _records_max)
def test_tasks_have_the_plans_in_order_and_no_more_records_than_allowed(
    ranges: list[OffsetRange], count_min: int | None, records_max: int | None
) -> None:
    plans = [_plan(piece) for piece in split_ranges(ranges, count_min, records_max, {})]
    tasks = share_tasks(plans, count_min, records_max)
    assert [plan for task in tasks for plan in task] == plans
    for task in tasks:
        together = sum(plan.size for plan in task)
        assert len(task) == 1 or (records_max is not None and together <= records_max)
    if count_min is not None and plans:
        largest = max(plan.size for plan in plans)
        even = largest * count_min <= sum(plan.size for plan in plans)
        assert not even or len(tasks) >= count_min

"""Offsets of many partitions: JSON, rate limit."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.errors import InvalidConfigError
from pyspark_mainstem._offsets import (
    TopicPartition,
    check_all_named,
    from_checkpoint,
    limit_rate,
    to_checkpoint,
)

A0, A1, A10, B0 = (
    TopicPartition("a", 0),
    TopicPartition("a", 1),
    TopicPartition("a", 10),
    TopicPartition("b", 0),
)

_sizes = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 4)),
    st.tuples(st.integers(0, 1000), st.integers(0, 1000)),
    min_size=1,
)


def test_the_checkpoint_has_kafkas_form_with_partitions_in_numerical_order() -> None:
    text = json.dumps(to_checkpoint({B0: 5, A10: 3, A1: 2, A0: 1}))
    assert text == '{"a": {"0": 1, "1": 2, "10": 3}, "b": {"0": 5}}'
    assert from_checkpoint(json.loads(text)) == {A0: 1, A1: 2, A10: 3, B0: 5}


def test_a_limit_is_split_in_proportion_to_what_waits() -> None:
    assert limit_rate(100, {A0: 0, A1: 1000}, {A0: 300, A1: 1100}) == {A0: 75, A1: 1025}


def test_a_partition_with_little_waiting_is_not_starved() -> None:
    assert limit_rate(10, {A0: 0, A1: 0}, {A0: 1_000_000, A1: 1}) == {A0: 9, A1: 1}


def test_a_limit_above_what_waits_takes_everything() -> None:
    assert limit_rate(1000, {A0: 0, A1: 5}, {A0: 10, A1: 5}) == {A0: 10, A1: 5}


@given(_sizes, st.integers(1, 5000))
def test_a_limited_batch_moves_forward_and_stays_in_bounds(
    sizes: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
    start = {where: first for where, (first, _) in sizes.items()}
    end = {where: first + size for where, (first, size) in sizes.items()}
    limited = limit_rate(limit, start, end)
    assert limited.keys() == end.keys()
    assert all(start[where] <= limited[where] <= end[where] for where in end)
    assert all(limited[where] > start[where] for where in end if end[where] > start[where])
    assert sum(limited[where] - start[where] for where in end) <= limit + len(end)


def test_offsets_must_be_named_for_all_partitions_and_no_others() -> None:
    check_all_named("startingOffsets", [A0, A1], [A1, A0])
    with pytest.raises(InvalidConfigError, match="Specified: a-0; assigned: a-0, a-1"):
        check_all_named("startingOffsets", [A0], [A0, A1])
    with pytest.raises(InvalidConfigError, match="Specified: a-0, b-0; assigned: a-0"):
        check_all_named("startingOffsets", [A0, B0], [A0])

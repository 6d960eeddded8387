"""Plans of where a group's offsets would go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainstem.client import TopicPartition, plan_seek

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_plan_says_before_and_after_by_topic_and_partition() -> None:
    moves = plan_seek({ONE: 7, ZERO: 3}, {ZERO: 5}, {ZERO: (0, 10), ONE: (0, 10)})
    assert [(m.partition, m.before, m.after, m.moves) for m in moves] == [
        (0, 5, 3, True),
        (1, None, 7, True),
    ]
    assert moves[0].target() == ZERO
    assert moves[0].target().offset == 3


def test_what_is_not_in_the_log_becomes_its_nearest_end_and_says_so() -> None:
    before, past = plan_seek({ZERO: 2, ONE: 99}, {}, {ZERO: (4, 10), ONE: (4, 10)})
    assert (before.wanted, before.after, before.is_clamped) == (2, 4, True)
    assert (past.wanted, past.after, past.is_clamped) == (99, 10, True)


def test_the_end_itself_is_in_range_and_an_offset_that_stays_does_not_move() -> None:
    (move,) = plan_seek({ZERO: 10}, {ZERO: 10}, {ZERO: (10, 10)})
    assert not move.is_clamped
    assert not move.moves


@given(st.integers(0, 50), st.integers(0, 20), st.integers(0, 20))
def test_whatever_is_asked_for_the_result_is_in_the_log(wanted: int, low: int, size: int) -> None:
    (move,) = plan_seek({ZERO: wanted}, {}, {ZERO: (low, low + size)})
    assert low <= move.after <= low + size
    assert move.after == wanted or move.is_clamped

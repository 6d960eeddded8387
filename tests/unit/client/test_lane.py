"""When a small request of a topic may go out beside those in flight."""

from __future__ import annotations

import pytest

from mainstem.client.producer.accumulator import Lane


def test_before_the_first_answer_nothing_waits() -> None:
    lane = Lane()
    lane.sent(10.0, 5)
    assert lane.next_at == 10.0


def test_requests_are_spread_over_the_time_of_the_longest_answer_of_a_commit() -> None:
    lane = Lane()
    for version in range(100):
        for seconds in (0.1, 0.06, 0.02):  # who came late had to wait least
            lane.answered(seconds, version)
    lane.sent(10.0, 5)
    assert lane.next_at == pytest.approx(10.0 + 0.1 / 5)


def test_each_answer_counts_that_waited_for_no_commit() -> None:
    lane = Lane()
    lane.answered(0.1, -1)
    for _ in range(100):
        lane.answered(0.002, -1)
    lane.sent(10.0, 5)
    assert lane.next_at == pytest.approx(10.0 + 0.002 / 5)


def test_a_stall_never_spreads_requests_far_and_some_commits_forget_it() -> None:
    lane = Lane()
    lane.answered(30.0, 1)
    lane.sent(10.0, 5)
    assert lane.next_at == pytest.approx(10.05)
    for version in range(2, 60):
        lane.answered(0.004, version)
    lane.sent(20.0, 5)
    assert lane.next_at == pytest.approx(20.0 + 0.004 / 5, abs=0.0001)

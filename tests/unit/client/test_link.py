"""When a small request may go out beside those in flight."""

from __future__ import annotations

import pytest

from mainstem.client._connection import Link


def test_before_the_first_answer_nothing_waits() -> None:
    link = Link("a:1")
    link.sent(10.0, 5)
    assert link.next_at == 10.0


def test_slots_are_spread_over_the_time_of_the_longest_answer_of_a_commit() -> None:
    link = Link("a:1")
    for version in range(100):
        for seconds in (0.1, 0.06, 0.02):  # who came late had to wait least
            link.answered(seconds, ("t", version))
    link.sent(10.0, 5)
    assert link.next_at == pytest.approx(10.0 + 0.1 / 5)


def test_each_answer_counts_that_waited_for_no_commit() -> None:
    link = Link("a:1")
    link.answered(0.1, None)
    for _ in range(100):
        link.answered(0.002, None)
    link.sent(10.0, 5)
    assert link.next_at == pytest.approx(10.0 + 0.002 / 5)


def test_a_stall_never_spreads_requests_far_and_some_commits_forget_it() -> None:
    link = Link("a:1")
    link.answered(30.0, ("t", 1))
    link.sent(10.0, 5)
    assert link.next_at == pytest.approx(10.05)
    for version in range(2, 60):
        link.answered(0.004, ("t", version))
    link.sent(20.0, 5)
    assert link.next_at == pytest.approx(20.0 + 0.004 / 5, abs=0.0001)

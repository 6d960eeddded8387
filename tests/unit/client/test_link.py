"""When a small request may go out beside those in flight."""

from __future__ import annotations

import pytest

from mainstem.client._connection import Link


def test_before_the_first_answer_nothing_waits() -> None:
    link = Link("a:1")
    link.sent(10.0, 5)
    assert link.next_at == 10.0


def test_slots_are_spread_over_the_time_of_the_longest_answer() -> None:
    link = Link("a:1")
    for seconds in (0.02, 0.1, 0.06):  # of one table commit: who came late had to wait least
        link.answered(seconds)
    link.sent(10.0, 5)
    assert link.next_at == pytest.approx(10.0 + 0.1 * 0.97 / 5)


def test_a_stall_is_forgotten_and_never_spreads_requests_far() -> None:
    link = Link("a:1")
    link.answered(30.0)
    link.sent(10.0, 5)
    assert link.next_at == pytest.approx(10.05)
    for _ in range(400):
        link.answered(0.004)
    link.sent(20.0, 5)
    assert link.next_at == pytest.approx(20.0 + 0.004 / 5)

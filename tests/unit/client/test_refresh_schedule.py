"""When metadata is asked for again."""

from __future__ import annotations

from mainstem.client.metadata import RefreshSchedule

FIRST_S, AGE_S_MAX = 2.0, 10.0


def schedule() -> RefreshSchedule:
    return RefreshSchedule(100.0, AGE_S_MAX)


def test_the_wait_doubles_from_answer_to_answer_up_to_the_age() -> None:
    refresh, now = schedule(), 100.0
    waits = []
    for _ in range(5):
        waits.append(refresh.next_call() - now)
        assert not refresh.begin(refresh.next_call() - 0.1)
        now = refresh.next_call()
        assert refresh.begin(now)
        refresh.answered(now)
    assert waits == [FIRST_S, FIRST_S, 4.0, 8.0, AGE_S_MAX]


def test_one_call_at_a_time_is_under_way() -> None:
    refresh = schedule()
    assert refresh.begin(102.0)
    assert not refresh.begin(200.0)
    assert refresh.next_call() == float("inf")


def test_where_a_leader_may_have_moved_it_is_asked_at_once() -> None:
    refresh = schedule()
    refresh.soon(100.5)
    assert refresh.begin(100.5)


def test_after_a_failure_nothing_is_asked_before_its_wait_is_over_however_urgent() -> None:
    refresh = schedule()
    refresh.begin(102.0)
    refresh.failed(102.0, 0.4)
    assert refresh.failures == 1
    refresh.soon(102.1)
    assert refresh.next_call() == 102.4
    assert not refresh.begin(102.3)
    assert refresh.begin(102.4)
    refresh.answered(102.4)
    assert refresh.failures == 0

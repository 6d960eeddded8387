"""Calls that are refused for a quota are made again, as long as there is time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mainstem.client.backoff import again_when_throttled
from mainstem.errors import BackPressureError, QuotaExceededError


class Clock:
    def __init__(self) -> None:
        self.now_s = 50.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, wait_s: float) -> None:
        self.slept.append(wait_s)
        self.now_s += wait_s


def throttled(times: int, retry_ms: int) -> tuple[Callable[[float], float], list[float]]:
    """A call that is refused so often, and then gives the time that it had; and those times."""
    had: list[float] = []

    def call(left_s: float) -> float:
        had.append(left_s)
        if len(had) <= times:
            raise QuotaExceededError("too much", retry_delay_ms=retry_ms)
        return left_s

    return call, had


def test_a_call_is_made_again_after_the_time_that_the_gateway_names() -> None:
    clock = Clock()
    call, had = throttled(2, 2_000)
    left_s = again_when_throttled(call, 10.0, clock=clock, sleep=clock.sleep)
    assert clock.slept == [2.0, 2.0]
    assert had == [10.0, 8.0, 6.0]
    assert left_s == 6.0


def test_a_gateway_that_names_no_time_is_not_asked_again_at_once() -> None:
    clock = Clock()
    call, _ = throttled(20, 0)
    again_when_throttled(call, 60.0, clock=clock, sleep=clock.sleep)
    assert clock.slept[0] >= 0.08
    assert all(wait_s <= 1.2 for wait_s in clock.slept)
    assert sum(clock.slept) > 10.0


def test_where_the_time_would_be_over_the_caller_is_told_at_once() -> None:
    clock = Clock()
    call, had = throttled(5, 4_000)
    with pytest.raises(QuotaExceededError):
        again_when_throttled(call, 10.0, clock=clock, sleep=clock.sleep)
    assert clock.slept == [4.0, 4.0]
    assert len(had) == 3


def test_any_other_error_is_the_callers() -> None:
    def call(_: float) -> None:
        raise BackPressureError("full", retry_delay_ms=1)

    with pytest.raises(BackPressureError):
        again_when_throttled(call, 10.0, sleep=lambda _: pytest.fail("it waited"))

"""Clocks for the ages of files: of processes that sleep, on machines whose clock is set."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from mainstem.delta_log.table.committer import wall_clock_ms

#: A clock that moves by more than this beside one that cannot be set was set. Less is what keeps it
#: right: 43 s a day at most.
_STEP_MS_MIN: Final = 60_000


def time_elapsed_ms() -> int:
    """Milliseconds since some moment, by a clock that nobody can set and that goes on while the
    machine is suspended."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000


def time_elapsed_s() -> float:
    """The same in seconds: in place of `time.monotonic`, which on Linux stands still while the
    machine is suspended, so that what is gone long since looks young."""
    return time_elapsed_ms() / 1000


class SteadyClock:
    """The wall clock without its recent steps forward, for the ages of files.

    A clock that is set forward by a day makes every file a day older. This one runs on by what a
    clock says that cannot be set and that counts the time of a suspended machine, until the step is
    longer ago than files are kept. A step from before the process began cannot be told from time
    that passed. May be used by several threads.
    """

    def __init__(
        self,
        wall_ms: Callable[[], int] = wall_clock_ms,
        elapsed_ms: Callable[[], int] | None = None,
    ) -> None:
        self._wall_ms = wall_ms
        self._elapsed_ms = elapsed_ms or time_elapsed_ms
        self._lock = threading.Lock()
        self._last = (self._wall_ms(), self._elapsed_ms())
        #: When, by the clock that cannot be set, and how far the wall clock was set forward.
        self._steps: list[tuple[int, int]] = []

    def now_ms(self, kept_ms: int) -> int:
        """Milliseconds since 1970, less the steps forward of the last `kept_ms`."""
        with self._lock:
            wall, elapsed = self._wall_ms(), self._elapsed_ms()
            step = (wall - self._last[0]) - (elapsed - self._last[1])
            self._last = (wall, elapsed)
            if step >= _STEP_MS_MIN:
                self._steps.append((elapsed, step))
            return wall - sum(size for at, size in self._steps if elapsed - at < kept_ms)

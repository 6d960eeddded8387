"""Clocks for the ages of files: of processes that sleep, on machines whose clock is set."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

#: A clock that moves by more than this beside one that cannot be set was set. Less is what keeps it
#: right: 43 s a day at most.
_STEP_MS_MIN: Final = 60_000


#: Linux has a clock that goes on while the machine is suspended. Elsewhere the monotonic one does.
_ELAPSED: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

#: So far ahead of the newest sign of life a clock is believed, at least and at most.
_LEAD_MS_MIN: Final = 600_000
_LEAD_MS_MAX: Final = 86_400_000
#: Steps that are remembered, of a clock that is set all the time.
_STEPS_MAX: Final = 1_000


def wall_clock_ms() -> int:
    """Milliseconds since 1970-01-01 UTC: for record and commit timestamps, never for deadlines."""
    return time.time_ns() // 1_000_000


def time_elapsed_ms() -> int:
    """Milliseconds since some moment, by a clock that nobody can set and that goes on while the
    machine is suspended."""
    return time.clock_gettime_ns(_ELAPSED) // 1_000_000


def time_elapsed_s() -> float:
    """The same in seconds: in place of `time.monotonic`, which on Linux stands still while the
    machine is suspended, so that what is gone long since looks young."""
    return time.clock_gettime(_ELAPSED)


def clock_lead_ms(kept_ms: int) -> int:
    """How far ahead of the newest sign of life a clock is believed that decides what is deleted.

    Half of the time that something is kept, so that a clock that is a year ahead takes nothing
    that is younger than the other half; a day at most, and at least some minutes, by which clocks
    may be apart.
    """
    return min(max(kept_ms // 2, _LEAD_MS_MIN), _LEAD_MS_MAX)


class LogClock:
    """The time of day as one log has it: for the ages of what lies in it.

    It begins with the machine's clock, but not before the newest record of the log, nor further
    after it than `clock_lead_ms`, and goes on by what passes. So a clock that is wrong when a
    process begins does little, and one that is set meanwhile nothing.

    Args:
        newest_ms: The time of the newest record; 0: there is none.
        kept_ms: For how long something is kept.
    """

    def __init__(
        self,
        newest_ms: int,
        kept_ms: int,
        wall_ms: Callable[[], int] = wall_clock_ms,
        elapsed_ms: Callable[[], int] = time_elapsed_ms,
    ) -> None:
        began_ms = wall_ms()
        if newest_ms:
            began_ms = min(max(began_ms, newest_ms), newest_ms + clock_lead_ms(kept_ms))
        self._elapsed_ms = elapsed_ms
        self._ahead_ms = began_ms - elapsed_ms()

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._elapsed_ms() + self._ahead_ms


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
        #: When, by the clock that cannot be set, and how far the wall clock was set; back, less
        #: than nothing.
        self._steps: deque[tuple[int, int]] = deque(maxlen=_STEPS_MAX)

    def now_ms(self, kept_ms: int) -> int:
        """Milliseconds since 1970, less the steps forward of the last `kept_ms`."""
        with self._lock:
            wall, elapsed = self._wall_ms(), self._elapsed_ms()
            step = (wall - self._last[0]) - (elapsed - self._last[1])
            self._last = (wall, elapsed)
            if abs(step) >= _STEP_MS_MIN:
                self._steps.append((elapsed, step))
            forward = sum(size for at, size in self._steps if elapsed - at < kept_ms)
            return wall - max(forward, 0)


#: One that has seen every step since the process began.
STEADY_CLOCK: Final = SteadyClock()

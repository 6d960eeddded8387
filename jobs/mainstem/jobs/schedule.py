"""When jobs are due: cron text, one run of a job at a time, jitter, pauses. No I/O, no clock.

What was missed while nobody looked, however much, is caught up with one run. What comes due while
the job still runs is left out: a job that takes longer than its interval does not fill the machine.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from cronsim import CronSim, CronSimError

#: A wall clock that goes back by less is being adjusted; by more, it was wrong before.
CLOCK_STEP_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Cron:
    """Cron text, in UTC: minute, hour, day, month, weekday, or six fields with the second first.

    Raises:
        ValueError: It is malformed, or there is no such day; the message says which field.
    """

    text: str

    def __post_init__(self) -> None:
        try:
            next(CronSim(self.text, datetime(2024, 1, 1, tzinfo=UTC)))
        except CronSimError as error:
            raise ValueError(str(error).lower()) from None
        except StopIteration:
            raise ValueError("there is no such day in the next fifty years") from None

    def after(self, time_ms: int) -> int:
        """The first time of the schedule after `time_ms`, both in ms since 1970 UTC."""
        found = next(CronSim(self.text, datetime.fromtimestamp(time_ms // 1000, UTC)))
        return int(found.timestamp()) * 1000


@dataclass(frozen=True, slots=True)
class JobTimes:
    """What the schedule has to know of a job.

    Attributes:
        after_ms: What came due until then has been dealt with; None: the job is new.
    """

    name: str
    cron: Cron
    after_ms: int | None = None
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Due:
    """A job to run now.

    Attributes:
        due_ms: The time of the schedule that it runs for; the first one of several that were
            missed.
    """

    name: str
    due_ms: int


@dataclass(slots=True)
class _Entry:
    cron: Cron
    paused: bool
    due_ms: int = 0
    start_ms: int = 0
    running: bool = field(default=False)


class Schedule:
    """When each job starts. Times are ms since 1970 UTC and may go back: wall clocks do.

    Args:
        jobs: With what is known of them from before.
        now_ms: The time of the start.
        jitter_ms: A job starts up to so much later than its time, so that not all start at once;
            never as late as its next time, and without delay when its time was missed.
        running_max: Jobs that may run at a time; more wait, the longest due first.
        rng: For the jitter.
    """

    def __init__(
        self,
        jobs: Iterable[JobTimes],
        *,
        now_ms: int,
        jitter_ms: int,
        running_max: int,
        rng: random.Random,
    ) -> None:
        assert running_max >= 1
        self._jitter_ms = jitter_ms
        self._running_max = running_max
        self._rng = rng
        self._latest_ms = now_ms
        self._entries: dict[str, _Entry] = {}
        for job in jobs:
            entry = _Entry(job.cron, job.paused)
            # A time in the future is of a clock that was wrong.
            after_ms = now_ms if job.after_ms is None else min(job.after_ms, now_ms)
            self._plan(entry, after_ms)
            if entry.due_ms <= now_ms:
                entry.start_ms = entry.due_ms
            self._entries[job.name] = entry

    def take(self, now_ms: int) -> list[Due]:
        """The jobs to start now; they count as running until `ended`."""
        self._note_time(now_ms)
        ready = sorted(
            (entry.start_ms, name)
            for name, entry in self._entries.items()
            if _may_start(entry) and entry.start_ms <= now_ms
        )
        started = []
        for _, name in ready[: self._running_max - self._running_count()]:
            entry = self._entries[name]
            started.append(Due(name, entry.due_ms))
            entry.running = True
            self._plan(entry, now_ms)
        return started

    def ended(self, name: str, now_ms: int) -> None:
        """The job's run is over, well or not: it comes again at its next time."""
        self._note_time(now_ms)
        entry = self._entries[name]
        assert entry.running, name
        entry.running = False
        if entry.due_ms <= now_ms:
            self._plan(entry, now_ms)

    def put_back(self, due: Due) -> None:
        """The job was not started after all: it is due as before."""
        entry = self._entries[due.name]
        assert entry.running, due.name
        entry.running = False
        entry.due_ms = entry.start_ms = min(entry.due_ms, due.due_ms)

    def set_paused(self, name: str, paused: bool, now_ms: int) -> None:
        """Pauses or resumes a job. One that runs is not stopped; what a pause left out is not
        caught up.
        """
        self._note_time(now_ms)
        entry = self._entries[name]
        if entry.paused and not paused and entry.due_ms <= now_ms:
            self._plan(entry, now_ms)
        entry.paused = paused

    def is_running(self, name: str) -> bool:
        return self._entries[name].running

    def is_paused(self, name: str) -> bool:
        return self._entries[name].paused

    def next_start_ms(self, name: str) -> int | None:
        """When the job starts next, if a place is free and its run ends by then; None: paused."""
        entry = self._entries[name]
        return None if entry.paused else entry.start_ms

    def wake_ms(self) -> int | None:
        """When `take` may have something to start; None: not before a job ends or is resumed."""
        if self._running_count() >= self._running_max:
            return None
        return min(
            (entry.start_ms for entry in self._entries.values() if _may_start(entry)), default=None
        )

    def _plan(self, entry: _Entry, after_ms: int) -> None:
        entry.due_ms = entry.cron.after(after_ms)
        room_ms = min(self._jitter_ms + 1, entry.cron.after(entry.due_ms) - entry.due_ms)
        entry.start_ms = entry.due_ms + self._rng.randrange(room_ms)

    def _note_time(self, now_ms: int) -> None:
        """After a clock was set back, jobs must not wait until it is where it was."""
        if now_ms < self._latest_ms - CLOCK_STEP_MS:
            for entry in self._entries.values():
                self._plan(entry, now_ms)
            self._latest_ms = now_ms
        self._latest_ms = max(self._latest_ms, now_ms)

    def _running_count(self) -> int:
        return sum(entry.running for entry in self._entries.values())


def _may_start(entry: _Entry) -> bool:
    return not entry.paused and not entry.running

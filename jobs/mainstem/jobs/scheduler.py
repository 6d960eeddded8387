"""Runs jobs at their times: one active scheduler for each warehouse, others wait to take over.

One thread decides: it renews the lease, looks for pauses, starts what is due and writes down how
runs ended. Jobs run in threads beside it.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Final

import structlog

from mainstem.delta_log.store import ObjectStore, wall_clock_ms
from mainstem.delta_log.upkeep import write_checkpoint
from mainstem.errors import MainstemError
from mainstem.jobs.job import OutcomeKind
from mainstem.jobs.jobs_config import JobsConfig, JobSettings
from mainstem.jobs.schedule import CLOCK_STEP_MS, Due, JobTimes, Schedule
from mainstem.jobs.scheduler_lease import Lease, LeaseLost
from mainstem.jobs.scheduler_metrics import SchedulerMetrics
from mainstem.jobs.scheduler_table import (
    Changes,
    JobRow,
    Rows,
    SchedulerTable,
    job_key,
    jobs_of,
)
from mainstem.jobs.spark_runs import RunEnd
from mainstem.limits import CHECKPOINT_INTERVAL_COMMITS

log = structlog.get_logger()

#: The outcome of a run that the scheduler did not see to its end.
ABANDONED: Final = "abandoned"

#: What was cancelled has a few seconds to notice.
_ABANDON_S_MAX: Final = 5.0

#: How often the clock is looked at whatever happens: it may have been set.
_LOOK_S_MAX: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Ended:
    """A run is over."""

    name: str
    end: RunEnd
    seconds: float


class Scheduler:
    """One scheduler: `run` until `stop`.

    Args:
        store: The warehouse.
        run_job: Runs a job once, in a thread; raises what stops it.
        abandon: Makes the runs at work end soon.
    """

    def __init__(
        self,
        store: ObjectStore,
        config: JobsConfig,
        run_job: Callable[[str, JobSettings], RunEnd],
        abandon: Callable[[], None] = lambda: None,
        *,
        metrics: SchedulerMetrics | None = None,
        rng: random.Random | None = None,
        clock_ms: Callable[[], int] = wall_clock_ms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._jobs = {name: job for name, job in config.jobs.items() if job.enabled}
        self._run_job = run_job
        self._abandon = abandon
        self._metrics = metrics or SchedulerMetrics()
        self._rng = rng or random.Random()
        self._clock_ms = clock_ms
        self._monotonic = monotonic
        self._beat_s = config.number("heartbeat.interval.ms") / 1000
        self._table = SchedulerTable(store)
        self._lease = Lease(
            self._table,
            session_timeout_ms=config.number("session.timeout.ms"),
            clock_ms=clock_ms,
            monotonic=monotonic,
        )
        self._events: SimpleQueue[_Ended | None] = SimpleQueue()
        self._stopping = False
        self._abandoning = False
        #: None: another scheduler runs the jobs.
        self._schedule: Schedule | None = None
        #: What this scheduler knows of the jobs, to be written with the next heartbeat.
        self._rows: dict[str, JobRow] = {}
        #: Also those that began while the lease was ours and are still at work.
        self._running: set[str] = set()
        self._holder = ""
        self._beat_at = monotonic()
        self._turned_at = monotonic()
        #: Why the lease could not be asked for; empty: it could.
        self._failure = "the scheduler starts"

    @property
    def is_active(self) -> bool:
        """Whether this scheduler runs the jobs."""
        return self._schedule is not None

    @property
    def not_ready(self) -> str:
        """Why it neither runs jobs nor waits for another scheduler's end; empty: it does."""
        return "the scheduler ends" if self._stopping else self._failure

    @property
    def silent_s(self) -> float:
        """Seconds since its thread last did something; half a minute is usual at most."""
        return self._monotonic() - self._turned_at

    def jobs(self) -> dict[str, JobRow]:
        """The jobs that this scheduler runs, as far as it knows. From any thread."""
        return {} if self._schedule is None else dict(self._rows)

    def stop(self) -> None:
        """Makes `run` end. Safe in a signal handler, and from another thread."""
        self._stopping = True
        self._events.put(None)

    def run(self) -> bool:
        """Runs the jobs, or waits for its turn, until `stop`; then drains.

        Returns:
            Whether every run has ended. If not, a thread hangs, which Python would wait for.

        Raises:
            Exception: A fault of ours. The lease expires, and another scheduler takes over.
        """
        threads = ThreadPoolExecutor(self._config.number("max.running.jobs"), "mainstem-job")
        try:
            while not self._stopping:
                self._turned_at = self._monotonic()
                self._beat()
                self._start_due(threads)
                self._wait(self._next_look_s())
            return self._drain()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

    # -- the lease and the rows --------------------------------------------------------------------

    def _beat(self, *, now: bool = False) -> None:
        """Renews the lease, or asks for it, when it is time to; with it go all changes."""
        if not now and self._monotonic() < self._beat_at:
            return
        self._beat_at = self._monotonic() + self._beat_s
        schedule = self._schedule

        def change(rows: Rows) -> Changes:
            nonlocal schedule
            if self._schedule is None:  # again after each conflict, until the lease is ours
                schedule = self._plan(jobs_of(rows))
            assert schedule is not None
            return self._merged(schedule, jobs_of(rows))

        try:
            self._lease.renew(change)
        except LeaseLost as lost:
            self._failure = ""
            self._wait_for_turn(lost)
            return
        except MainstemError as error:
            self._failure = error.message
            log.warning("the scheduler's lease was not renewed", error=error.message)
            return
        if self._schedule is None:
            log.info("the scheduler runs the jobs", jobs=sorted(self._jobs))
        self._schedule = schedule
        self._failure = ""
        self._metrics.active.set(1)
        self._checkpoint()

    def _plan(self, theirs: Mapping[str, JobRow]) -> Schedule:
        """Begins where the scheduler before ended, or was interrupted."""
        now_ms = self._clock_ms()
        self._rows = {}
        for name in self._jobs:
            row = theirs.get(name, JobRow())
            if row.running and name not in self._running:
                error = "the scheduler that ran it has ended"
                row = replace(row, running="", ended_ms=now_ms, outcome=ABANDONED, error=error)
            if row.last_success_ms is not None:
                self._metrics.last_success.labels(name).set(row.last_success_ms / 1000)
            self._rows[name] = row
        schedule = Schedule(
            [
                JobTimes(name, self._jobs[name].cron, row.after_ms, row.paused)
                for name, row in self._rows.items()
            ],
            now_ms=now_ms,
            jitter_ms=self._config.number("jitter.ms"),
            running_max=self._config.number("max.running.jobs"),
            rng=self._rng,
        )
        for name, row in self._rows.items():
            if row.after_ms is None:  # what comes due from now on is owed, also after a restart
                self._rows[name] = replace(row, after_ms=now_ms)
        return schedule

    def _merged(self, schedule: Schedule, theirs: Mapping[str, JobRow]) -> dict[str, JobRow]:
        """The rows to write: what we know, with the pauses that others wrote."""
        now_ms = self._clock_ms()
        changed: dict[str, JobRow] = {}
        for name in theirs.keys() | self._rows.keys():
            row = theirs.get(name, JobRow())
            merged = replace(row, cron="", next_ms=None)
            if name in self._rows:
                schedule.set_paused(name, row.paused, now_ms)
                after_ms = max(self._rows[name].after_ms or 0, row.after_ms or 0)
                if after_ms > now_ms + CLOCK_STEP_MS:  # of a clock that was wrong
                    after_ms = now_ms
                    self._rows[name] = replace(self._rows[name], after_ms=now_ms)
                merged = replace(
                    self._rows[name],
                    paused=row.paused,
                    after_ms=after_ms,
                    cron=self._jobs[name].cron.text,
                    next_ms=schedule.next_start_ms(name),
                )
            if merged != row:
                changed[job_key(name)] = merged
        return changed

    def _wait_for_turn(self, lost: LeaseLost) -> None:
        if self._schedule is not None:
            log.warning("the scheduler has lost its lease", holder=str(lost))
        elif self._holder != lost.holder.incarnation:
            log.info("the scheduler waits for its turn", holder=str(lost))
        self._holder = lost.holder.incarnation
        self._schedule = None
        self._metrics.active.set(0)

    def _checkpoint(self) -> None:
        """Our heartbeats are most of this table's log, and perhaps no gateway looks after it."""
        state = self._table.opened.state
        if state.version - state.checkpoint_version < CHECKPOINT_INTERVAL_COMMITS:
            return
        try:
            state.note_checkpoint(write_checkpoint(self._table.opened.store))
        except Exception:
            log.warning("no checkpoint of the scheduler's table", exc_info=True)

    # -- runs --------------------------------------------------------------------------------------

    def _start_due(self, threads: ThreadPoolExecutor) -> None:
        if self._schedule is None or self._failure:
            return
        now_ms = self._clock_ms()
        # A run of before the lease was lost may still be at work: no overlap with that either.
        due: list[tuple[Due, JobRow]] = []
        for one in self._schedule.take(now_ms):
            if one.name in self._running:
                self._schedule.ended(one.name, now_ms)
                continue
            due.append((one, self._rows[one.name]))
            self._rows[one.name] = replace(
                self._rows[one.name],
                after_ms=now_ms,
                running=self._lease.incarnation,
                started_ms=now_ms,
            )
        if not due:
            return
        # Written down first, so that a scheduler that this run brings down does not begin with it.
        self._beat(now=True)
        if self._schedule is None:
            return
        if self._failure:  # by now another may have the lease
            for one, row in due:
                self._schedule.put_back(one)
                self._rows[one.name] = row
            return
        for one, _ in due:
            log.info("job started", job=one.name, late_s=(now_ms - one.due_ms) / 1000)
            self._running.add(one.name)
            threads.submit(self._run, one.name)

    def _run(self, name: str) -> None:
        """In a thread."""
        started = self._monotonic()
        try:
            end = self._run_job(name, self._jobs[name])
        except MainstemError as error:
            end = RunEnd(OutcomeKind.FAILED, f"{error.code}: {error.message}")
        except Exception as error:
            # Cancelled work fails in any of many ways.
            log.warning("job failed", job=name, exc_info=not self._abandoning)
            end = RunEnd(OutcomeKind.FAILED, f"{type(error).__name__}: {error}")
        self._events.put(_Ended(name, end, self._monotonic() - started))

    def _take_end(self, ended: _Ended) -> None:
        now_ms = self._clock_ms()
        name, end = ended.name, ended.end
        failed = end.outcome is OutcomeKind.FAILED
        outcome = ABANDONED if failed and self._abandoning else end.outcome.value
        self._running.discard(name)
        self._metrics.runs.labels(name, outcome).inc()
        self._metrics.seconds.labels(name).observe(ended.seconds)
        tell = log.error if failed else log.info
        facts = {"error": end.error} if end.error else {}
        tell("job ended", job=name, outcome=outcome, seconds=round(ended.seconds, 3), **facts)
        if not failed:
            self._metrics.last_success.labels(name).set(now_ms / 1000)
        if self._schedule is None:
            return
        if self._schedule.is_running(name):
            self._schedule.ended(name, now_ms)
        row = self._rows[name]
        if row.running == self._lease.incarnation:
            self._rows[name] = replace(
                row,
                running="",
                ended_ms=now_ms,
                outcome=outcome,
                error=end.error,
                last_success_ms=row.last_success_ms if failed else now_ms,
            )

    # -- waiting and ending ------------------------------------------------------------------------

    def _next_look_s(self) -> float:
        until = [_LOOK_S_MAX, self._beat_at - self._monotonic()]
        wake_ms = None
        if self._schedule is not None and not self._failure:  # else nothing starts, due or not
            wake_ms = self._schedule.wake_ms()
        if wake_ms is not None:
            until.append((wake_ms - self._clock_ms()) / 1000)
        return max(min(until), 0.0)

    def _wait(self, timeout_s: float) -> None:
        """Until a run ends, `stop` is called, or `timeout_s` are over."""
        with contextlib.suppress(Empty):
            ended = self._events.get(timeout=timeout_s)
            if ended is not None:
                self._take_end(ended)
                self._beat(now=True)

    def _drain(self) -> bool:
        grace_s = self._config.number("shutdown.grace.ms") / 1000
        log.info("the scheduler ends", running=sorted(self._running), grace_s=grace_s)
        self._finish_until(self._monotonic() + grace_s)
        if self._running:
            log.warning("jobs are abandoned", jobs=sorted(self._running))
            self._abandoning = True
            stopper = threading.Thread(target=self._abandon, name="abandon", daemon=True)
            stopper.start()
            self._finish_until(self._monotonic() + _ABANDON_S_MAX)
        with contextlib.suppress(MainstemError):
            self._lease.release()
        log.info("the scheduler has ended", clean=not self._running)
        return not self._running

    def _finish_until(self, ends_at: float) -> None:
        while self._running and self._monotonic() < ends_at:
            self._beat()
            self._wait(min(self._beat_s, max(ends_at - self._monotonic(), 0.0)))

"""The schedule against arithmetic: cron text of the form `*/n` seconds has its times at the
multiples of n.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mainstem.jobs.schedule import Cron, JobTimes, Schedule

#: Seconds between the times of each job.
EVERY_S = {"a": 1, "b": 5, "c": 12, "d": 30}
JITTER_MS = 7_000
START_MS = 1_700_000_000_000


@dataclass
class Job:
    """What the model knows: everything up to `dealt_ms` ran, or was left out for a reason."""

    every_ms: int
    dealt_ms: int
    paused: bool = False
    running: bool = False
    downtime: bool = False

    def first_due_ms(self) -> int:
        return (self.dealt_ms // self.every_ms + 1) * self.every_ms


class Schedules(RuleBasedStateMachine):
    """Time goes on, jobs end, are paused and resumed, and the scheduler is down for a while."""

    @initialize(
        seed=st.integers(0, 2**32), running_max=st.integers(1, 4), offset_ms=st.integers(0, 60_000)
    )
    def begin(self, seed: int, running_max: int, offset_ms: int) -> None:
        self.rng = random.Random(seed)
        self.running_max = running_max
        self.now_ms = START_MS + offset_ms
        self.jobs = {name: Job(every * 1000, self.now_ms) for name, every in EVERY_S.items()}
        self.schedule = self._schedule(known=False)

    def _schedule(self, known: bool) -> Schedule:
        return Schedule(
            [
                JobTimes(
                    name,
                    Cron(f"*/{EVERY_S[name]} * * * * *"),
                    after_ms=job.dealt_ms if known else None,
                    paused=job.paused,
                )
                for name, job in self.jobs.items()
            ],
            now_ms=self.now_ms,
            jitter_ms=JITTER_MS,
            running_max=self.running_max,
            rng=self.rng,
        )

    @rule(ms=st.integers(0, 90_000))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def time_passes_until_woken(self) -> None:
        wake_ms = self.schedule.wake_ms()
        if wake_ms is not None:
            self.now_ms = max(self.now_ms, wake_ms)

    @rule()
    def take(self) -> None:
        wake_ms = self.schedule.wake_ms()
        running = sum(job.running for job in self.jobs.values())
        taken = self.schedule.take(self.now_ms)
        assert bool(taken) == (wake_ms is not None and wake_ms <= self.now_ms)
        for due in taken:
            job = self.jobs[due.name]
            assert not job.running, "a job overlaps itself"
            assert not job.paused
            assert due.due_ms == job.first_due_ms(), "not for the first time that was missed"
            assert due.due_ms <= self.now_ms, "too early"
            job.running = True
            job.dealt_ms = self.now_ms
            job.downtime = False
        assert running + len(taken) <= self.running_max
        if running + len(taken) < self.running_max:
            for name, job in self.jobs.items():
                if not job.running and not job.paused:
                    # Jitter ends before the next time comes; after a downtime there is none.
                    room_ms = 0 if job.downtime else min(JITTER_MS, job.every_ms - 1)
                    assert job.first_due_ms() + room_ms > self.now_ms, f"{name} did not start"

    @precondition(lambda self: any(job.running for job in self.jobs.values()))
    @rule(data=st.data())
    def a_job_ends(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([n for n, job in self.jobs.items() if job.running]))
        self.schedule.ended(name, self.now_ms)
        self.jobs[name].running = False
        self._leave_out(self.jobs[name])

    @rule(name=st.sampled_from(sorted(EVERY_S)), paused=st.booleans())
    def pause_or_resume(self, name: str, paused: bool) -> None:
        job = self.jobs[name]
        self.schedule.set_paused(name, paused, self.now_ms)
        if job.paused and not paused:
            self._leave_out(job)
        job.paused = paused

    @rule(ms=st.integers(0, 300_000))
    def the_scheduler_is_down_for_a_while(self, ms: int) -> None:
        self.now_ms += ms
        for job in self.jobs.values():
            job.running = False
            job.downtime = job.first_due_ms() <= self.now_ms
        self.schedule = self._schedule(known=True)

    def _leave_out(self, job: Job) -> None:
        """Times that passed are no longer owed; the last one that did is not known to the model."""
        if job.first_due_ms() <= self.now_ms:
            job.dealt_ms = self.now_ms
            job.downtime = False

    @invariant()
    def the_next_start_belongs_to_the_next_time(self) -> None:
        for name, job in self.jobs.items():
            start_ms = self.schedule.next_start_ms(name)
            assert (start_ms is None) == job.paused
            if start_ms is not None:
                late_ms = start_ms - job.first_due_ms()
                assert 0 <= late_ms <= JITTER_MS
                assert late_ms < job.every_ms


TestSchedules = Schedules.TestCase

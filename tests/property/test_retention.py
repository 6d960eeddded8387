"""Random logs with retention, trims, vacuums and log clean-up in between, against a small model."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.length import FULL
from tests.unit.jobs.topic_tables import (
    NOW_MS,
    Appends,
    all_records,
    appends,
    check_verified,
    heartbeat,
)

from mainstem.delta_log import LocalStore, Topics, load_table
from mainstem.delta_log.table import TableCommit, TableState, commit_beside_leader, trim_step
from mainstem.jobs.job import OutcomeKind
from mainstem.jobs.log_cleanup import LogCleanup
from mainstem.jobs.retention import Retention
from mainstem.jobs.runner import run_job
from mainstem.jobs.task_pool import InProcessPool
from mainstem.jobs.vacuum import Vacuum

HOUR = 3_600_000
RETENTION_MS = 10 * HOUR


@dataclass
class _Model:
    """One partition: (end offset, when its retention begins, bytes) of each file, oldest first."""

    limit_bytes: int
    files: list[tuple[int, int, int]] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def retain(self, now_ms: int) -> None:
        """Until no limit asks for more: behind a file that is too much may be one too old."""
        while self.files:
            end, begins_ms, _ = self.files[0]
            left = sum(one[2] for one in self.files[1:])
            if begins_ms >= now_ms - RETENTION_MS and not 0 <= self.limit_bytes <= left:
                break
            self.cut(end)

    def cut(self, start: int) -> None:
        self.start = max(self.start, start)
        self.files = [one for one in self.files if one[0] > self.start]


#: What happens: records of so many hours before (or after) now; a trim; a job.
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4), st.integers(-40, 14)),
        st.tuples(st.just("trim"), st.integers(0, 6), st.just(0)),
        st.tuples(st.just("pass"), st.sampled_from([1, 5, 11]), st.just(0)),
        st.tuples(st.sampled_from(["retention", "vacuum", "log"]), st.just(0), st.just(0)),
    ),
    max_size=30,
)


@pytest.mark.slow
@settings(max_examples=60 if FULL else 25, deadline=None)
@given(steps=_STEPS, limit=st.sampled_from([-1, 0, 3_000, 6_000]))
@example(steps=[("append", 1, age) for age in (0, 11, 0, 0)], limit=3_000)
def test_what_survives_is_what_the_model_says_and_the_log_starts_there(
    steps: list[tuple[str, int, int]], limit: int
) -> None:
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as directory:
        store = LocalStore(Path(directory))
        log = appends(Topics(store), "t", 1, retention_ms=RETENTION_MS, retention_bytes=limit)
        try:
            _follow(store, log, _Model(limit), steps)
        finally:
            store.close()


def _follow(
    store: LocalStore, log: Appends, model: _Model, steps: list[tuple[str, int, int]]
) -> None:
    now_ms = NOW_MS
    for what, number, age in [*steps, ("retention", 0, 0)]:
        if what == "append":
            time_ms = now_ms - age * HOUR
            file = log.append(
                0, [b"v"] * number, timestamps_ms=[time_ms] * number, modified_ms=now_ms
            )
            model.end += number
            model.files.append((model.end, min(time_ms, now_ms), file.size_bytes))
        elif what == "trim":
            start = min(model.start + number, model.end)
            _trim(log, start, now_ms)
            model.cut(start)
        elif what == "pass":
            now_ms += number * HOUR
        elif what == "retention":
            heartbeat(store, now_ms)
            _run(store, Retention(), now_ms)
            model.retain(now_ms)
        else:
            _run(store, Vacuum() if what == "vacuum" else LogCleanup(1), now_ms)
        _compare(log, model)
    check_verified(log.opened.store)


def _compare(log: Appends, model: _Model) -> None:
    state = load_table(log.opened.store)
    assert (state.log_start_offset(0), state.log_end_offset(0)) == (model.start, model.end)
    assert [file.last_offset + 1 for file in state.files(0).sorted()] == [
        end for end, _, _ in model.files
    ]
    held = [one.offset for one in all_records(log.opened.store)[0] if one.offset >= model.start]
    assert held == list(range(model.start, model.end))


def _trim(log: Appends, start: int, now_ms: int) -> None:
    def build(state: TableState) -> TableCommit | None:
        actions = trim_step(state, {0: start}, now_ms)
        return TableCommit.of("TRIM", actions, timestamp_ms=now_ms) if actions else None

    commit_beside_leader(log.opened, build)


def _run(store: LocalStore, job: Retention | Vacuum | LogCleanup, now_ms: int) -> None:
    (row,) = run_job(store.uri, job, ["t"], pool=InProcessPool, clock_ms=lambda: now_ms)
    assert row.outcome.kind is not OutcomeKind.FAILED, row.outcome.error

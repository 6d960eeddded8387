"""Retention, the vacuums and log clean-up, killed at each step and at work twice at once."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.jobs.topic_tables import NOW_MS, Appends, all_records, appends, check_verified

from mainstem.delta_log import LocalStore, Topics, load_table
from mainstem.delta_log.format import last_checkpoint_version
from mainstem.jobs.catalogue import make_job
from mainstem.jobs.job import OutcomeKind
from mainstem.jobs.job_history import JobRun
from mainstem.jobs.runner import run_job
from mainstem.jobs.task_pool import InProcessPool

pytestmark = [pytest.mark.fault, pytest.mark.slow]

DEADLINE_S = 60.0

HOUR = 3_600_000

#: When the jobs run: by the time of the records. Vacuum runs later, as do all after it.
LATER_MS = NOW_MS + 2 * HOUR
MUCH_LATER_MS = NOW_MS + 48 * HOUR

#: The files whose records are too old.
OLD = 4


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Appends]:
    """The topic `t`: four files are too old, three are not; one that no version knows."""
    store = LocalStore(tmp_path / "warehouse")
    made = appends(Topics(store), partitions=1, retention_ms=HOUR)
    for n in range(OLD + 3):
        written_ms = NOW_MS - (2 * HOUR if n < OLD else 0)
        made.append(0, [b"%d" % n] * 3, timestamps_ms=[written_ms] * 3, modified_ms=written_ms)
    root = Path(made.opened.store.uri)
    (root / "partition=0" / f"{1:020d}-{'c' * 32}.parquet").write_bytes(b"left behind")
    for path in root.rglob("*"):
        os.utime(path, (NOW_MS / 1000 - 10, NOW_MS / 1000 - 10))
    yield made
    store.close()


def _run(table: Appends, name: str, now_ms: int) -> JobRun:
    warehouse = str(Path(table.opened.store.uri).parents[1])
    options = {"checkpoint.min.commits": 1} if name == "log-cleanup" else {}
    (row,) = run_job(
        warehouse,
        make_job(name, options),
        ["t"],
        pool=InProcessPool,
        clock_ms=lambda: now_ms,
    )
    assert row.outcome.kind is not OutcomeKind.FAILED, row.outcome.error
    return row


@contextlib.contextmanager
def _cleaning(table: Appends, name: str, step: str, now_ms: int) -> Iterator[subprocess.Popen[str]]:
    script = Path(__file__).with_name("cleaning_process.py")
    warehouse = str(Path(table.opened.store.uri).parents[1])
    process = subprocess.Popen(
        [sys.executable, str(script), warehouse, name, step, str(now_ms)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def _wait_for_line(process: subprocess.Popen[str], expected: str) -> None:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], DEADLINE_S)[0], f"no {expected!r}"
    assert process.stdout.readline().strip() == expected


def _stored(table: Appends) -> set[str]:
    root = Path(table.opened.store.uri)
    return {str(path.relative_to(root)) for path in root.glob("partition=*/*.parquet")}


def _active(table: Appends) -> set[str]:
    return {file.path for file in load_table(table.opened.store)}


def _run_all(table: Appends) -> None:
    """Every job, as the schedule would run them after a crash: what was begun is finished."""
    _run(table, "retention", NOW_MS)
    _run(table, "vacuum", LATER_MS)
    _run(table, "vacuum-orphans", MUCH_LATER_MS)
    _run(table, "log-cleanup", MUCH_LATER_MS)


@pytest.mark.parametrize(
    ("name", "step", "now_ms"),
    [
        ("retention", "before-commit", NOW_MS),
        ("retention", "after-commit", NOW_MS),
        ("vacuum", "delete:1", LATER_MS),
        ("vacuum", "delete:3", LATER_MS),
        ("vacuum", "before-commit", LATER_MS),
        ("vacuum", "after-commit", LATER_MS),
        ("vacuum-orphans", "delete:1", MUCH_LATER_MS),
        ("log-cleanup", "checkpoint", MUCH_LATER_MS),
    ],
)
def test_a_job_that_is_killed_loses_nothing_and_the_next_runs_finish_it(
    table: Appends, name: str, step: str, now_ms: int
) -> None:
    store = table.opened.store
    kept = all_records(store)[0][OLD * 3 :]
    if name != "retention":
        _run(table, "retention", NOW_MS)
    with _cleaning(table, name, step, now_ms) as process:
        _wait_for_line(process, "stopped")
        check_verified(store)
        assert all_records(store)[0][-len(kept) :] == kept
    check_verified(store)
    assert _active(table) <= _stored(table)
    _run_all(table)
    check_verified(store)
    state = load_table(store)
    assert (state.log_start_offset(0), state.log_end_offset(0)) == (OLD * 3, (OLD + 3) * 3)
    assert all_records(store) == {0: kept}
    assert _stored(table) == _active(table)
    # A killed run of log clean-up has written the last checkpoint, and removed nothing.
    assert last_checkpoint_version(store) >= state.version - 1


@pytest.mark.parametrize("name", ["retention", "vacuum", "vacuum-orphans", "log-cleanup"])
def test_two_at_once_do_the_work_once(table: Appends, name: str) -> None:
    now_ms = {"retention": NOW_MS, "vacuum": LATER_MS}.get(name, MUCH_LATER_MS)
    if name != "retention":
        _run(table, "retention", NOW_MS)
    kept = all_records(table.opened.store)[0][-9:]
    with (
        _cleaning(table, name, "none", now_ms) as one,
        _cleaning(table, name, "none", now_ms) as other,
    ):
        outcomes = [_outcome(one), _outcome(other)]
    assert set(outcomes) <= {"ok", "nothing", "superseded"}
    assert "ok" in outcomes
    check_verified(table.opened.store)
    assert _run(table, name, now_ms).outcome.kind is OutcomeKind.NOTHING
    assert all_records(table.opened.store) == {0: kept}


def _outcome(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], DEADLINE_S)[0], "no outcome"
    found: dict[str, str] = json.loads(process.stdout.readline())
    return found["t"]

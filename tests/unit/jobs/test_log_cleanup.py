"""Checkpoints and log clean-up of tables that no gateway looks after."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.unit.jobs.topic_tables import Appends, all_records, appends, check_verified

from mainstem.delta_log import LocalStore, Topics, load_table
from mainstem.delta_log.format import LAST_CHECKPOINT, LOG, checkpoint_path, last_checkpoint_version
from mainstem.delta_log.topics import SYSTEM, TOPICS
from mainstem.delta_log.upkeep import LiveTable
from mainstem.delta_log.upkeep import maintenance as maintenance_module
from mainstem.delta_log.verify import verify_topic
from mainstem.errors import LogDamagedError
from mainstem.jobs.catalogue import JOBS
from mainstem.jobs.job import SYSTEM_TABLES, Job, OutcomeKind, TableView
from mainstem.jobs.job_history import JobRun
from mainstem.jobs.log_cleanup import LogCleanup
from mainstem.jobs.runner import plan_job, run_job
from mainstem.jobs.task_pool import TaskPool


def no_pool() -> TaskPool:
    raise AssertionError("log clean-up has no tasks: nothing needs a pool")


def run(store: LocalStore, job: Job[Any, Any]) -> JobRun:
    """Runs a job on the topic `t`, now."""
    (row,) = run_job(store.uri, job, ["t"], pool=no_pool)
    return row


def commits(log: Appends) -> list[int]:
    """The versions whose commit files are there."""
    names = [info.name for info in log.opened.store.list_files(LOG)]
    return [int(name[:20]) for name in names if name.endswith(".json")]


def age(log: Appends, seconds: float) -> None:
    old = time.time() - seconds
    for info in log.opened.store.list_files(LOG):
        os.utime(Path(log.opened.store.uri, LOG, info.name), (old, old))


@pytest.fixture
def log(topics: Topics) -> Appends:
    """The topic `t` after ten appends: version 10."""
    made = appends(topics)
    for _ in range(10):
        made.append(0, [b"a"])
    return made


def test_a_checkpoint_is_written_after_so_many_commits_and_not_again(
    store: LocalStore, log: Appends
) -> None:
    assert run(store, LogCleanup(min_commits=12)).outcome.kind is OutcomeKind.NOTHING
    assert run(store, LogCleanup(min_commits=11)).outcome.kind is OutcomeKind.OK
    assert last_checkpoint_version(log.opened.store) == 10
    assert commits(log) == list(range(11))
    assert run(store, LogCleanup(min_commits=1)).outcome.kind is OutcomeKind.NOTHING
    check_verified(log.opened.store)


def test_commit_files_go_when_a_checkpoint_covers_them_and_they_are_old_enough(
    store: LocalStore, log: Appends
) -> None:
    before = all_records(log.opened.store)
    age(log, 2 * 3600)
    row = run(store, LogCleanup(min_commits=5))
    assert row.outcome.before.files == 11
    assert row.outcome.after.files < 11
    assert max(commits(log)) == 10
    assert all_records(log.opened.store) == before
    assert load_table(log.opened.store).checkpoint_version == 10
    log.append(0, [b"b"])
    check_verified(log.opened.store)


def test_what_a_gateways_checkpoint_left_is_removed_later_without_another_checkpoint(
    store: LocalStore, log: Appends
) -> None:
    run(store, LogCleanup(min_commits=5))
    log.append(0, [b"b"])
    age(log, 2 * 3600)
    assert run(store, LogCleanup(min_commits=5)).outcome.kind is OutcomeKind.OK
    assert min(commits(log)) > 0
    assert last_checkpoint_version(log.opened.store) == 10
    check_verified(log.opened.store)


def test_a_checkpoint_that_says_something_else_fails_the_run_and_removes_nothing(
    store: LocalStore, log: Appends, monkeypatch: pytest.MonkeyPatch
) -> None:
    age(log, 2 * 3600)

    def differs(data: bytes, path: str, live: LiveTable) -> None:
        raise LogDamagedError("it has 9 files where 10 are live")

    with monkeypatch.context() as patch:
        patch.setattr(maintenance_module, "compare_checkpoint", differs)
        row = run(store, LogCleanup(min_commits=5))
    assert (row.outcome.kind, "9 files" in row.outcome.error) == (OutcomeKind.FAILED, True)
    assert commits(log) == list(range(11))
    assert last_checkpoint_version(log.opened.store) == -1
    check_verified(log.opened.store)


def test_two_runs_at_once_leave_a_table_that_can_be_read(store: LocalStore, log: Appends) -> None:
    age(log, 2 * 3600)
    job, topics = LogCleanup(min_commits=5), Topics(store)
    runs = [topics.open("t"), topics.open("t")]
    for one in runs:
        plan = job.plan(TableView("t", TOPICS, one.state, job.examine(one, 0)), 0)
        assert job.commit(one, plan, (), 0).kind is OutcomeKind.OK
    check_verified(log.opened.store)


def test_a_plan_names_the_files_that_the_run_then_removes(store: LocalStore, log: Appends) -> None:
    run(store, LogCleanup(min_commits=5))
    log.append(0, [b"b"])
    age(log, 2 * 3600)
    job = LogCleanup(min_commits=5)
    now_ms = time.time_ns() // 1_000_000
    opened = Topics(store).open("t")
    plan = job.plan(TableView("t", TOPICS, opened.state, job.examine(opened, now_ms)), now_ms)
    assert [line.what for line in plan.lines] == ["remove commit files 0 to 9"]
    assert plan.lines[0].counts.files == 10
    before = commits(log)
    run(store, job)
    assert sorted(set(before) - set(commits(log))) == list(range(10))


def test_the_platforms_own_tables_are_looked_after_too(store: LocalStore) -> None:
    for name in SYSTEM_TABLES:
        Topics(store, folder=SYSTEM).create(name, 1)
    for name in ("vacuum", "vacuum-orphans", "log-cleanup"):
        rows = run_job(store.uri, JOBS[name].make({}), pool=no_pool)
        assert {row.topic for row in rows} == {f"system/{one}" for one in SYSTEM_TABLES}
        assert {row.outcome.kind for row in rows} <= {OutcomeKind.NOTHING}


@pytest.mark.fault
@pytest.mark.parametrize("what", ["cut", "gone", "pointer ahead"])
def test_the_advice_of_verify_for_a_damaged_checkpoint_makes_the_topic_whole_again(
    store: LocalStore, log: Appends, what: str
) -> None:
    run(store, LogCleanup(min_commits=5))
    log.append(0, [b"b"])
    before = all_records(log.opened.store)
    root = Path(log.opened.store.uri)
    if what == "cut":
        (root / checkpoint_path(10)).write_bytes((root / checkpoint_path(10)).read_bytes()[:2000])
    elif what == "gone":
        (root / checkpoint_path(10)).unlink()
    else:
        (root / LAST_CHECKPOINT).write_bytes(b'{"version":99,"size":5}')
    (finding,) = verify_topic(log.opened.store, "t").findings
    assert "mainstem job run log-cleanup -T" in str(finding)
    plans, _ = plan_job(store.uri, LogCleanup(), ["t"])
    assert plans[0].lines[0].what.startswith("mend: ")
    assert run(store, LogCleanup()).outcome.kind is OutcomeKind.OK
    check_verified(log.opened.store)
    assert DeltaTable(str(root)).version() == 11
    assert Topics(store).names() == ["t"]
    assert all_records(log.opened.store) == before
    assert run(store, LogCleanup()).outcome.kind is OutcomeKind.NOTHING


@pytest.mark.fault
def test_a_checkpoint_that_is_lost_with_its_commit_files_is_told_as_damage_of_that_file(
    store: LocalStore, log: Appends
) -> None:
    age(log, 2 * 3600)
    run(store, LogCleanup(min_commits=5))
    root = Path(log.opened.store.uri)
    (root / checkpoint_path(10)).write_bytes(b"PAR1")
    row = run(store, LogCleanup(min_commits=1))
    assert row.outcome.kind is OutcomeKind.FAILED
    assert row.outcome.error.startswith("LOG_DAMAGED")
    assert checkpoint_path(10) in row.outcome.error

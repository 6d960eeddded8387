"""Running a job over many tables: outcomes of each, shares of tasks, history."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.jobs.topic_tables import NOW_MS, all_records, appends, check_verified

from mainstem.delta_log import LocalStore, ObjectStore, OpenTopic, Topics
from mainstem.delta_log.topics import SYSTEM
from mainstem.errors import InvalidConfigError, StoreUnavailableError
from mainstem.jobs.catalogue import JOBS, make_job
from mainstem.jobs.compaction import Compaction
from mainstem.jobs.job import (
    Counts,
    Job,
    JobOutcome,
    OutcomeKind,
    Plan,
    PlanLine,
    TableView,
    Task,
    TaskResult,
)
from mainstem.jobs.job_history import JobHistory, JobRun, read_history
from mainstem.jobs.runner import Progress, plan_job, run_job, spread
from mainstem.jobs.task_pool import Answer, InProcessPool, Share, TableTask, TaskPool


def _no_pool() -> TaskPool:
    raise AssertionError("there is no task: nothing needs a pool")


@dataclass(frozen=True)
class _Echo(Task):
    text: str


@dataclass(frozen=True)
class _Echoed(TaskResult):
    text: str


class _EchoJob(Job[_Echo, _Echoed]):
    """Three tasks for each topic; what is called `bad...` fails at the point that it names."""

    name = "echo"

    def plan(self, table: TableView, now_ms: int) -> Plan[_Echo]:
        if table.topic == "bad-plan":
            raise ValueError("no plan")
        if table.topic == "idle":
            return Plan(table.topic, table.folder, table.state.version)
        tasks = tuple(_Echo(100, f"{table.topic}{n}") for n in range(3))
        return Plan(
            table.topic, table.folder, table.state.version, tasks, (PlanLine(None, "echo"),)
        )

    def run_task(self, store: ObjectStore, task: _Echo) -> _Echoed:
        if task.text == "bad-task1":
            raise StoreUnavailableError("injected: no store")
        return _Echoed(task.text)

    def commit(
        self, opened: OpenTopic, plan: Plan[_Echo], results: Sequence[_Echoed], now_ms: int
    ) -> JobOutcome:
        if opened.topic == "bad-commit":
            raise RuntimeError("no commit")
        assert [one.text for one in results] == [task.text for task in plan.tasks]
        assert self.tasks_stand_alone or len(results) == 3
        return JobOutcome(OutcomeKind.OK, Counts(3, 3, 3), Counts(1, 3, 2), 1, 7)


def test_a_table_that_fails_does_not_stop_the_others_and_each_has_a_row_in_the_history(
    store: LocalStore, topics: Topics
) -> None:
    for name in ("a", "b", "bad-plan", "bad-task", "bad-commit", "idle"):
        topics.create(name, 1)
    told: list[Progress] = []
    rows = run_job(store.uri, _EchoJob(), pool=InProcessPool, on_progress=told.append)
    assert [(row.topic, row.outcome.kind.value, row.outcome.error) for row in rows] == [
        ("a", "ok", ""),
        ("b", "ok", ""),
        ("bad-commit", "failed", "INTERNAL: RuntimeError: no commit"),
        ("bad-plan", "failed", "INTERNAL: ValueError: no plan"),
        ("bad-task", "failed", "STORE_UNAVAILABLE: injected: no store"),
        ("idle", "nothing", ""),
    ]
    assert len({row.run_id for row in rows}) == 1
    assert (told[0].bytes_done, told[-1].bytes_done) == (0, 1_200)
    assert (told[-1].tables_done, told[-1].tables_total) == (4, 4)
    # What had nothing to do is not worth a row.
    found = read_history(store)
    assert sorted(found, key=lambda row: row.topic) == rows[:-1]
    history = Topics(store, folder=SYSTEM).open("job_history")
    check_verified(history.store, "job_history")


class _LooseJob(_EchoJob):
    tasks_stand_alone = True


def test_tasks_that_stand_alone_are_committed_without_one_that_failed(
    store: LocalStore, topics: Topics
) -> None:
    for name in ("a", "bad-task"):
        topics.create(name, 1)
    rows = run_job(store.uri, _LooseJob(), pool=InProcessPool)
    assert [(row.topic, row.outcome.kind.value, row.outcome.version) for row in rows] == [
        ("a", "ok", 7),
        ("bad-task", "failed", 7),
    ]
    assert rows[1].outcome.error == (
        "1 of 3 tasks failed, the others are done: STORE_UNAVAILABLE: injected: no store"
    )


def test_named_topics_are_the_only_ones_and_one_that_is_not_there_fails(
    store: LocalStore, topics: Topics
) -> None:
    topics.create("a", 1)
    topics.create("b", 1)
    rows = run_job(store.uri, _EchoJob(), ["b", "nowhere"], pool=InProcessPool)
    assert [(row.topic, row.outcome.kind.value) for row in rows] == [
        ("b", "ok"),
        ("nowhere", "failed"),
    ]
    assert rows[1].outcome.error.startswith("UNKNOWN_TOPIC: there is no topic 'nowhere'")


class _LosingPool:
    """Loses every second share, as a Spark that loses its workers does."""

    parallelism = 2

    def __init__(self) -> None:
        self.count = 0

    def submit(self, share: Share) -> Future[list[Answer]]:
        self.count += 1
        future: Future[list[Answer]] = Future()
        if self.count % 2:
            future.set_exception(RuntimeError("the worker died\nand this is its stack"))
        else:
            future.set_result(share.run())
        return future

    def close(self) -> None:
        pass


def test_a_share_that_is_lost_fails_its_tables_and_no_other(
    store: LocalStore, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A share has the three tasks of one topic.
    monkeypatch.setattr("mainstem.jobs.runner._SHARE_BYTES_MIN", 700_000)
    for name in ("a", "b", "c", "d"):
        topics.create(name, 1)
    rows = run_job(store.uri, _EchoJob(), pool=_LosingPool)
    assert [row.outcome.kind.value for row in rows] == ["failed", "ok", "failed", "ok"]
    assert rows[0].outcome.error == "INTERNAL: the task was lost: RuntimeError: the worker died"


class _HangingPool:
    """Runs the first share, and no other before it is closed."""

    parallelism = 2

    def __init__(self) -> None:
        self.hanging: list[Future[list[Answer]]] = []

    def submit(self, share: Share) -> Future[list[Answer]]:
        future: Future[list[Answer]] = Future()
        if share.tasks[0].topic == "a":
            future.set_result(share.run())
        else:
            self.hanging.append(future)
        return future

    def close(self) -> None:
        while self.hanging:
            self.hanging.pop().set_exception(RuntimeError("the run was stopped"))


@pytest.mark.timeout(60)
def test_when_no_task_ends_any_more_the_run_ends_and_what_was_done_is_committed(
    store: LocalStore, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.jobs.runner._SHARE_BYTES_MIN", 700_000)
    for name in ("a", "b", "c"):
        topics.create(name, 1)
    rows = run_job(store.uri, _EchoJob(), pool=_HangingPool, stall_timeout_s=0.05)
    assert [row.outcome.kind.value for row in rows] == ["ok", "failed", "failed"]
    assert rows[1].outcome.error == (
        "INTERNAL: the task was lost: no task has ended for 0.05 s: look at Spark's log"
    )


def test_with_nothing_to_do_no_pool_is_made(store: LocalStore, topics: Topics) -> None:
    topics.create("idle", 1)
    (row,) = run_job(store.uri, _EchoJob(), pool=_no_pool)
    assert row.outcome.kind == OutcomeKind.NOTHING


def test_a_warehouse_that_is_not_there_is_named(tmp_path: Any) -> None:
    with pytest.raises(StoreUnavailableError, match="there is no warehouse"):
        run_job(str(tmp_path / "none"), _EchoJob(), pool=_no_pool)


def test_a_dry_run_plans_and_changes_nothing(store: LocalStore, topics: Topics) -> None:
    for name in ("a", "bad-plan", "idle"):
        topics.create(name, 1)
    plans, failed = plan_job(store.uri, _EchoJob())
    assert [(plan.name, len(plan.tasks)) for plan in plans] == [("a", 3), ("idle", 0)]
    assert failed == {"bad-plan": "INTERNAL: ValueError: no plan"}
    assert not store.list_directories("system")


def _tasks(*weights: int) -> list[TableTask]:
    return [TableTask(n, "topics", "t", Task(weight)) for n, weight in enumerate(weights)]


def test_shares_keep_the_order_and_are_about_even() -> None:
    mib = 1024 * 1024
    shares = spread(_tasks(*[10 * mib] * 80), 2)
    assert [one.number for share in shares for one in share] == list(range(80))
    assert [len(share) for share in shares] == [10] * 8
    shares = spread(_tasks(*[1] * 10), 4)
    assert len(shares) == 1, "too little to be worth a Spark job each"
    shares = spread(_tasks(1000 * mib, mib, 1000 * mib), 1)
    assert [len(share) for share in shares] == [1, 2]
    assert spread([], 4) == []


def test_compaction_runs_over_topics_and_the_history_itself(
    store: LocalStore, topics: Topics
) -> None:
    tables = {name: appends(topics, name) for name in ("a", "b")}
    job = Compaction(min_age_ms=0)

    def run() -> list[tuple[str, str]]:
        rows = run_job(store.uri, job, pool=InProcessPool, clock_ms=lambda: NOW_MS)
        return [(row.topic, row.outcome.kind.value) for row in rows]

    for _ in range(2):
        for table in tables.values():
            for n in range(4):
                table.append(n % 2, [b"%d" % n])
        before = {name: all_records(table.opened.store) for name, table in tables.items()}
        assert run()[:2] == [("a", "ok"), ("b", "ok")]
        for name, table in tables.items():
            assert all_records(table.opened.store) == before[name]
            check_verified(table.opened.store, name)
    idle = [("a", "nothing"), ("b", "nothing")]
    assert run() == [*idle, ("system/job_history", "ok")]
    assert read_history(store)[0].outcome.before.files == 2
    assert len(read_history(store, topic="a")) == 2
    assert len(read_history(store, job="compaction", limit=4)) == 4
    assert read_history(store, job="other") == []
    (named,) = run_job(store.uri, job, ["system/job_history"], pool=InProcessPool)
    assert named.topic == "system/job_history"


def test_a_run_that_finds_nothing_to_do_writes_nothing(store: LocalStore, topics: Topics) -> None:
    topics.create("idle", 1)
    for _ in range(3):
        run_job(store.uri, _EchoJob(), pool=_no_pool)
    assert not store.list_directories("system")


def test_a_history_that_cannot_be_written_is_told_and_the_job_is_done(
    store: LocalStore,
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise StoreUnavailableError("injected: no store")

    monkeypatch.setattr(JobHistory, "append", fail)
    topics.create("a", 1)
    (row,) = run_job(store.uri, _EchoJob(), pool=InProcessPool)
    assert row.outcome.kind == OutcomeKind.OK
    assert "system/job_history lacks the run" in caplog.text
    assert "injected: no store" in caplog.text


def test_histories_of_two_runners_do_not_overwrite_each_other(store: LocalStore) -> None:
    def run(n: int) -> JobRun:
        return JobRun(f"{n}", "j", "t", n, n, JobOutcome(OutcomeKind.OK))

    one, other = JobHistory(store), JobHistory(store)
    for n in range(3):
        one.append([run(2 * n)])
        other.append([run(2 * n + 1)])
    assert [row.run_id for row in read_history(store)] == ["5", "4", "3", "2", "1", "0"]


def test_a_history_that_was_never_written_is_empty_and_is_not_made(store: LocalStore) -> None:
    assert read_history(store) == []
    assert not store.list_directories("system")


def test_jobs_and_their_options_are_found_by_name_and_slips_are_told() -> None:
    assert isinstance(make_job("compaction", {"compaction.target.bytes": "1000000"}), Compaction)
    with pytest.raises(InvalidConfigError, match="no job 'compation'; did you mean compaction"):
        make_job("compation")
    with pytest.raises(InvalidConfigError, match=r"did you mean compaction\.target\.bytes"):
        make_job("compaction", {"compaction.target.byte": 1})
    with pytest.raises(InvalidConfigError, match=r"compaction\.target\.bytes is 1 bytes"):
        make_job("compaction", {"compaction.target.bytes": 1})
    assert all(kind.summary.endswith(".") for kind in JOBS.values())

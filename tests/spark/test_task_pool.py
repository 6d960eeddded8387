"""A run that is stopped from another thread, as the scheduler does when its time is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from tests.spark.conftest import WAIT_S

from mainstem.delta_log import LocalStore, ObjectStore, OpenTopic, Topics
from mainstem.jobs.job import (
    NOTHING,
    Job,
    JobOutcome,
    OutcomeKind,
    Plan,
    PlanLine,
    TableView,
    Task,
    TaskResult,
)
from mainstem.jobs.job_history import JobRun
from mainstem.jobs.runner import run_job
from mainstem.jobs.task_pool import SparkPool
from mainstem.limits import MIB


@dataclass(frozen=True)
class Nap(Task):
    """Sleeps for so long that nobody waits for it, and says that it does."""

    begun: str = ""


class Sleeper(Job[Nap, TaskResult]):
    """A job of many shares, none of which ends."""

    name = "sleeper"

    def __init__(self, begun: str) -> None:
        self._begun = begun

    def plan(self, table: TableView, now_ms: int) -> Plan[Nap]:
        naps = tuple(Nap(64 * MIB, self._begun) for _ in range(20))
        return Plan(table.topic, table.folder, table.state.version, naps, (PlanLine(0, "sleep"),))

    def run_task(self, store: ObjectStore, task: Nap) -> TaskResult:
        Path(task.begun).touch()
        time.sleep(3_600)
        return TaskResult()

    def commit(
        self, opened: OpenTopic, plan: Plan[Nap], results: Sequence[TaskResult], now_ms: int
    ) -> JobOutcome:
        return NOTHING


def test_a_run_ends_soon_when_its_pool_is_closed_by_another_thread(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = LocalStore(tmp_path / "warehouse")
    Topics(store).create("t", 1)
    begun = tmp_path / "begun"
    pools: list[SparkPool] = []
    rows: list[JobRun] = []

    def pool() -> SparkPool:
        pools.append(SparkPool(lambda: spark))
        return pools[0]

    run = threading.Thread(
        target=lambda: rows.extend(run_job(store.uri, Sleeper(str(begun)), pool=pool))
    )
    run.start()
    deadline = time.monotonic() + WAIT_S
    while not begun.exists():
        assert time.monotonic() < deadline, "no task began"
        time.sleep(0.05)
    pools[0].close()
    pools[0].close()
    run.join(WAIT_S)
    assert not run.is_alive()
    (row,) = rows
    assert row.outcome.kind is OutcomeKind.FAILED
    assert spark.range(3).count() == 3, "the session is as good as before"
    store.close()

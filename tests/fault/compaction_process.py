"""Runs compaction once, and stops at one step until a line comes on stdin, or for ever.

Usage: python compaction_process.py WAREHOUSE STEP [spark]

STEP is `written`: the files of a task are there; `before-commit`; or `after-commit`. Prints
`stopped` there, and in the end the outcome of each topic as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from unittest.mock import patch

from mainstem.delta_log import Committer, ObjectStore
from mainstem.delta_log.store import open_warehouse
from mainstem.delta_log.table import CommitOutcome, TableCommit
from mainstem.delta_log.topics import Topics
from mainstem.jobs.compaction import Compaction, Merge, Merged
from mainstem.jobs.runner import run_job
from mainstem.jobs.session import spark_session
from mainstem.jobs.task_pool import InProcessPool, SparkPool, TaskPool

WORKER_STOPS_S = 600


class _StoppedWhenWritten(Compaction):
    """Leaves a mark in the warehouse when its files are there, and goes no further."""

    def __init__(self, mark: Path) -> None:
        super().__init__(min_age_ms=0)
        self._mark = mark

    def run_task(self, store: ObjectStore, task: Merge) -> Merged:
        done = super().run_task(store, task)
        self._mark.touch()
        time.sleep(WORKER_STOPS_S)
        return done


class _StoppedCommitter(Committer):
    step = ""

    def commit(self, version: int, commit: TableCommit, after_id: str = "") -> CommitOutcome:
        if commit.info.operation != "COMPACT":
            return super().commit(version, commit, after_id)
        if self.step == "before-commit":
            _stop()
        outcome = super().commit(version, commit, after_id)
        if self.step == "after-commit":
            _stop()
        return outcome


def _stop() -> None:
    print("stopped", flush=True)
    sys.stdin.readline()


def main(warehouse: str, step: str, on_spark: bool) -> None:
    store = open_warehouse(warehouse)
    topics = Topics(store).names()
    store.close()

    def pool() -> TaskPool:
        if on_spark:
            java = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
            return SparkPool(lambda: spark_session(master="local[2]", **java))
        return InProcessPool()

    job = Compaction(min_age_ms=0)
    if step == "written":
        job = _StoppedWhenWritten(Path(warehouse) / "written")
    _StoppedCommitter.step = step
    with patch("mainstem.delta_log.table.blocking_driver.Committer", _StoppedCommitter):
        rows = run_job(warehouse, job, topics, pool=pool)
    print(json.dumps({row.topic: row.outcome.kind for row in rows}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], "spark" in sys.argv[3:])

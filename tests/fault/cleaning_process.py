"""Runs one of the jobs that remove something once, and stops at one step for ever.

Usage: python cleaning_process.py WAREHOUSE JOB STEP NOW_MS

STEP is `before-commit`, `after-commit`, `delete:N`: before the Nth data file is deleted, or
`checkpoint`: it is written, and no log file is removed yet. Prints `stopped` there, and in the end
the outcome of each topic as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from unittest.mock import patch

from mainstem.delta_log import Committer, LocalStore, ObjectStore
from mainstem.delta_log.table import CommitOutcome, TableCommit
from mainstem.delta_log.upkeep import LiveTable, create_checkpoint
from mainstem.jobs.catalogue import make_job
from mainstem.jobs.runner import run_job
from mainstem.jobs.task_pool import InProcessPool

STOPS_S = 600

#: What the commits of each job are called.
OPERATIONS = {"RETENTION", "VACUUM"}


class _StoppedCommitter(Committer):
    step = ""

    def commit(self, version: int, commit: TableCommit, after_id: str = "") -> CommitOutcome:
        ours = commit.info.operation in OPERATIONS
        if ours and self.step == "before-commit":
            _stop()
        outcome = super().commit(version, commit, after_id)
        if ours and self.step == "after-commit":
            _stop()
        return outcome


def _stop() -> None:
    print("stopped", flush=True)
    time.sleep(STOPS_S)


def main(warehouse: str, name: str, step: str, now_ms: int) -> None:
    _StoppedCommitter.step = step
    left = int(step.removeprefix("delete:")) if step.startswith("delete:") else -1
    delete = LocalStore.delete

    def counted(store: LocalStore, path: str) -> None:
        nonlocal left
        left -= path.endswith(".parquet")
        if left == 0:
            _stop()
        delete(store, path)

    def written(store: ObjectStore, live: LiveTable) -> int:
        version = create_checkpoint(store, live)
        if step == "checkpoint":
            _stop()
        return version

    options = {"checkpoint.min.commits": 1} if name == "log-cleanup" else {}
    with (
        patch("mainstem.delta_log.table.blocking_driver.Committer", _StoppedCommitter),
        patch.object(LocalStore, "delete", counted),
        patch("mainstem.jobs.log_cleanup.create_checkpoint", written),
    ):
        rows = run_job(
            warehouse,
            make_job(name, options),
            ["t"],
            pool=InProcessPool,
            clock_ms=lambda: now_ms,
        )
    print(json.dumps({row.topic: row.outcome.kind for row in rows}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))

"""Python workers of Spark that are killed in the middle of a task, and what must be so afterwards.

A worker kills itself at a call to the store, so it dies at that step and at no other. `local[n]`
tries no task twice: it is the pool that tries a share again, three times in all.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import WAIT_S
from tests.unit.jobs.topic_tables import Record, all_records, check_verified
from tests.unit.pyspark_mainstem.topic_log import TopicLog

from mainstem.delta_log import ObjectStore, load_table
from mainstem.delta_log.store import StoreFolder, wall_clock_ms
from mainstem.delta_log.topics import TOPICS
from mainstem.jobs.job import Job, OutcomeKind
from mainstem.jobs.runner import run_job
from mainstem.jobs.task_pool import SparkPool

#: Workers die in the tasks of the one topic; the other's must not notice.
VICTIM: Final = "victim"
OTHER: Final = "other"

ATTEMPTS: Final = 3

#: How many workers die: the second attempt succeeds, or none does.
ONCE: Final = 1
ALWAYS: Final = 100


@dataclass(frozen=True)
class WorkerDeaths:
    """Deaths of the workers that have a task of `VICTIM`. Pickled with the job.

    Attributes:
        marks: Where workers leave their process ids; a directory for one run.
        count: So many workers die.
        call: The store's method that they die at, by name.
        calls_done: They die when so many of a task's calls are done.
    """

    marks: Path
    count: int
    call: str
    calls_done: int

    @contextlib.contextmanager
    def near(self, store: ObjectStore) -> Iterator[None]:
        """Around a task: `store` is its own."""
        if not store.uri.endswith(f"/{VICTIM}"):
            yield
            return
        call: Callable[..., None] = getattr(store, self.call)
        left = self.calls_done

        def deadly(*arguments: Any) -> None:
            nonlocal left
            call(*arguments)
            left -= 1
            if not left:
                self._die()

        setattr(store, self.call, deadly)
        at_work = self.marks / f"at-work-{os.getpid()}"
        at_work.touch()
        try:
            yield
        finally:
            at_work.unlink()

    def dead(self) -> list[int]:
        """The process ids of those that were killed."""
        return [int(mark.read_text()) for mark in self.marks.glob("dead-*")]

    def check_none_is_left(self) -> None:
        """Who began a task has ended it, or is gone: killed, and not a zombie either."""
        deadline = time.monotonic() + WAIT_S
        at_work = {int(mark.name.rpartition("-")[2]) for mark in self.marks.glob("at-work-*")}
        while left := [pid for pid in at_work if _exists(pid)]:
            assert time.monotonic() < deadline, f"workers are left behind: {left}"
            time.sleep(0.05)
        assert at_work == set(self.dead()), "and nobody died of anything else"

    def _die(self) -> None:
        for number in range(self.count):
            with (
                contextlib.suppress(FileExistsError),
                (self.marks / f"dead-{number}").open("x") as mark,
            ):
                mark.write(f"{os.getpid()}")
                mark.flush()
                os.kill(os.getpid(), signal.SIGKILL)


class DeadlyTasks(Job[Any, Any]):
    """First among the bases of a job: its tasks run near `deaths`, which `run_deadly` sets."""

    deaths: WorkerDeaths

    def run_task(self, store: ObjectStore, task: Any) -> Any:
        with self.deaths.near(store):
            return super().run_task(store, task)


def run_deadly(
    spark: SparkSession,
    log: TopicLog,
    job: DeadlyTasks,
    deaths: WorkerDeaths,
    clock_ms: Callable[[], int] = wall_clock_ms,
) -> None:
    """Runs a job whose workers die on both topics, and checks how it ends for each."""
    job.deaths = deaths
    # A share of its own for each topic: they do not die together.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mainstem.jobs.runner._SHARE_BYTES_MIN", 1)
        outcomes = {
            row.topic: row.outcome
            for row in run_job(
                log.uri,
                job,
                [VICTIM, OTHER],
                pool=lambda: SparkPool(lambda: spark),
                clock_ms=clock_ms,
            )
        }
    assert outcomes[OTHER].kind is OutcomeKind.OK, outcomes[OTHER].error
    assert len(deaths.dead()) == min(deaths.count, ATTEMPTS), "Spark itself tried again, or nobody"
    if deaths.count < ATTEMPTS:
        assert outcomes[VICTIM].kind is OutcomeKind.OK, outcomes[VICTIM].error
    else:
        assert outcomes[VICTIM].kind is OutcomeKind.FAILED
        assert outcomes[VICTIM].error.startswith("INTERNAL: the task was lost")
    deaths.check_none_is_left()


def records(log: TopicLog, topic: str) -> dict[int, list[Record]]:
    """All records of a topic, by partition."""
    store = StoreFolder(log.store, f"{TOPICS}/{topic}")
    return all_records(store)


def check_log(log: TopicLog, expected: dict[int, list[Record]]) -> set[str]:
    """The log of `VICTIM` is sound, has these records, and each of its files is there.

    Returns:
        The data files that are stored beside those of the table, by path.
    """
    assert records(log, VICTIM) == expected
    store = StoreFolder(log.store, f"{TOPICS}/{VICTIM}")
    check_verified(store, VICTIM)
    active = {file.path for file in load_table(store)}
    stored = {f"partition=0/{info.name}" for info in store.list_files("partition=0")}
    assert active <= stored
    return stored - active


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

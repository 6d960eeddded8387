"""Where the tasks of a job run: on Spark, or in this process.

A share of tasks, of one or many tables, is one Spark job with one Spark task. So a share's end is
known at once, and a Python worker that dies takes its share along and nothing else.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from mainstem.delta_log.store import ObjectStore, Place, StoreFolder, open_warehouse
from mainstem.errors import MainstemError
from mainstem.jobs.job import Job, Task, TaskResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Attempts at a share whose Python worker or executor died, as Spark itself has for a task.
_SHARE_ATTEMPTS_MAX: Final = 3

#: How long what was cancelled may take before it is cancelled once more.
_CANCEL_AGAIN_S: Final = 0.5

#: A Python worker is killed two seconds after its task was cancelled; a JVM that hangs kills none.
_CLOSE_S_MAX: Final = 30.0

#: Threads that wait for Spark: no more shares than this are at work at once.
_THREADS_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class TableTask:
    """A task with the table that it is for, and its number among all of the run."""

    number: int
    folder: str
    topic: str
    task: Task


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """Why a task has no result."""

    message: str


Answer = tuple[int, TaskResult | TaskFailure]


@dataclass(frozen=True, slots=True)
class Share:
    """What one Spark task does; it opens the warehouse itself, from its URI."""

    job: Job[Any, Any]
    warehouse: Place
    tasks: tuple[TableTask, ...]

    def run(self) -> list[Answer]:
        """A result or a failure for each task. Nothing that goes wrong with one stops the others.

        Raises:
            StoreUnavailableError: There is no such warehouse on this machine.
        """
        store = open_warehouse(self.warehouse)
        try:
            return [(one.number, self._run_task(store, one)) for one in self.tasks]
        finally:
            store.close()

    def _run_task(self, store: ObjectStore, one: TableTask) -> TaskResult | TaskFailure:
        table = StoreFolder(store, f"{one.folder}/{one.topic}")
        try:
            result: TaskResult = self.job.run_task(table, one.task)
            return result
        except MainstemError as error:
            return TaskFailure(f"{error.code}: {error.message}")
        except Exception as error:
            return TaskFailure(f"INTERNAL: {type(error).__name__}: {error}")


class TaskPool(Protocol):
    """Runs shares."""

    @property
    def parallelism(self) -> int:
        """How many shares are at work at once."""
        ...

    def submit(self, share: Share) -> Future[list[Answer]]:
        """Begins a share. The future fails if the share could not be run at all."""
        ...

    def close(self) -> None:
        """Stops what is at work, and waits until it has stopped, but not for ever. From any thread,
        more than once.

        Futures that did not begin fail, so that the threads that wait for them hear of it.
        """
        ...


class InProcessPool:
    """Runs shares in threads of this process, without Spark: for tests, and for little work."""

    def __init__(self, parallelism: int = 2) -> None:
        self.parallelism = parallelism
        self._threads = ThreadPoolExecutor(parallelism, "mainstem-share")
        self._closing = threading.Event()

    def submit(self, share: Share) -> Future[list[Answer]]:
        return self._threads.submit(self._run, share)

    def close(self) -> None:
        self._closing.set()
        self._threads.shutdown()

    def _run(self, share: Share) -> list[Answer]:
        if self._closing.is_set():
            raise _stopped()
        return share.run()


class SparkPool:
    """Runs shares on the Spark session that `session` gives, which is started when it is needed.

    The session is its owner's to stop.
    """

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._spark = session()
        context = self._spark.sparkContext
        self.parallelism = max(1, min(context.defaultParallelism, _THREADS_MAX))
        self._threads = ThreadPoolExecutor(self.parallelism, "mainstem-share")
        self._closing = threading.Event()
        self._tag = f"mainstem-{id(self)}"
        self._futures: list[Future[list[Answer]]] = []

    def submit(self, share: Share) -> Future[list[Answer]]:
        from pyspark import inheritable_thread_target

        run = inheritable_thread_target(self._spark)(self._run_on_spark)
        future = self._threads.submit(run, share)
        self._futures.append(future)
        return future

    def close(self) -> None:
        self._closing.set()
        # Not `cancel_futures`: `wait` in another thread would not hear of those. They fail instead.
        self._threads.shutdown(wait=False)
        deadline = time.monotonic() + _CLOSE_S_MAX
        while time.monotonic() < deadline:
            with contextlib.suppress(Exception):  # the session may be lost, and so is the work
                self._spark.sparkContext.cancelJobsWithTag(self._tag)
            # Again: a share may have begun between its look at `_closing` and our cancelling.
            if not wait(self._futures, _CANCEL_AGAIN_S).not_done:
                self._threads.shutdown()
                return

    def _run_on_spark(self, share: Share) -> list[Answer]:
        context = self._spark.sparkContext
        context.addJobTag(self._tag)
        context.setInterruptOnCancel(True)
        for attempt in range(1, _SHARE_ATTEMPTS_MAX + 1):
            if self._closing.is_set():
                raise _stopped()
            try:
                return _collect(context, share)
            except Exception:
                if attempt == _SHARE_ATTEMPTS_MAX:
                    raise
        raise AssertionError("the last attempt neither returned nor raised")


def _stopped() -> RuntimeError:
    return RuntimeError("the run was stopped")


def _collect(context: Any, share: Share) -> list[Answer]:
    found: Sequence[list[Answer]] = context.parallelize([share], 1).map(Share.run).collect()
    return found[0]

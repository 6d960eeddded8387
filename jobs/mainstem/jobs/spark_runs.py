"""Runs jobs on one Spark session, which is started when a job has tasks, kept, and replaced when
it is lost.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from mainstem.delta_log.store import Place, open_warehouse
from mainstem.delta_log.topics import Topics
from mainstem.errors import ShuttingDownError
from mainstem.jobs.catalogue import make_job
from mainstem.jobs.job import OutcomeKind
from mainstem.jobs.job_history import JobRun
from mainstem.jobs.jobs_config import JobSettings
from mainstem.jobs.pipelines import COMPLETED, run_pipeline
from mainstem.jobs.quiet_tables import QuietTables
from mainstem.jobs.runner import run_job
from mainstem.jobs.session import end_session, session_is_alive, spark_session
from mainstem.jobs.task_pool import SparkPool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger()

_APP_NAME: Final = "mainstem job scheduler"


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run over all its tables ended.

    Attributes:
        outcome: `ok`, `nothing`, `superseded` or `failed`, see `OutcomeKind`; failed if one table
            did.
        error: Of the first table that failed.
        tables: Tables with something to do, those that failed too.
    """

    outcome: OutcomeKind
    error: str = ""
    tables: int = 0


class SparkRuns:
    """The session, and the runs on it. From several threads."""

    def __init__(self, warehouse: Place, spark: Mapping[str, str]) -> None:
        self._warehouse = warehouse
        self._conf = dict(spark)
        self._lock = threading.Lock()
        self._pools: dict[str, SparkPool] = {}
        #: By a job's name and options: with others it may have something to do.
        self._quiet: dict[tuple[str, frozenset[tuple[str, str]]], QuietTables] = {}
        self._abandoned = False
        self._started = False

    def run(self, name: str, settings: JobSettings) -> RunEnd:
        """Runs a job once; not twice at a time. Blocks for as long as it takes.

        Raises:
            MainstemError: It could not be run at all.
        """
        if settings.pipeline:
            return self._run_pipeline(settings.pipeline)
        topics: Sequence[str] = ()
        if not settings.takes_all:
            topics = [topic for topic in self._topics() if settings.takes(topic)]
            if not topics:
                return RunEnd(OutcomeKind.NOTHING)
        job = make_job(name, settings.options)
        key = (name, frozenset(settings.options.items()))
        quiet = self._quiet.setdefault(key, QuietTables())
        try:
            rows = run_job(self._warehouse, job, topics, pool=lambda: self._pool(name), quiet=quiet)
            return run_end(rows)
        finally:
            with self._lock:
                self._pools.pop(name, None)

    def abandon(self) -> None:
        """Cancels what runs: each run ends soon, with a failure. No other can begin."""
        with self._lock:
            self._abandoned = True
            pools = list(self._pools.values())
        for pool in pools:
            with contextlib.suppress(Exception):  # the session may be gone, and so is the work
                pool.close()

    def close(self) -> None:
        """Ends the session."""
        with self._lock:
            if self._started:
                end_session()

    def _run_pipeline(self, directory: str) -> RunEnd:
        """In processes of its own: a session of Spark Connect, which ours is not."""
        with self._lock:
            if self._abandoned:
                raise ShuttingDownError("the scheduler ends")
        run = run_pipeline(Path(directory), should_stop=lambda: self._abandoned)
        if run.state == COMPLETED:
            return RunEnd(OutcomeKind.OK)
        return RunEnd(OutcomeKind.FAILED, run.error or f"the run was {run.state}")

    def _pool(self, name: str) -> SparkPool:
        with self._lock:
            if self._abandoned:
                raise ShuttingDownError("the scheduler ends")
            self._pools[name] = SparkPool(self._session)
            return self._pools[name]

    def _session(self) -> SparkSession:
        """Under the lock."""
        if self._started and not session_is_alive():
            log.warning("the Spark session is lost; another is started")
            end_session()
        self._started = True
        return spark_session(_APP_NAME, **self._conf)

    def _topics(self) -> list[str]:
        store = open_warehouse(self._warehouse)
        try:
            return Topics(store).names()
        finally:
            store.close()


def run_end(rows: Sequence[JobRun]) -> RunEnd:
    """What a run's rows for its tables come to."""
    kinds = [row.outcome.kind for row in rows]
    failed = [row for row in rows if row.outcome.kind is OutcomeKind.FAILED]
    error = ""
    if failed:
        more = f" (and {len(failed) - 1} more of {len(rows)} tables)" if len(failed) > 1 else ""
        error = f"{failed[0].topic}: {failed[0].outcome.error}{more}"
    worst = (OutcomeKind.FAILED, OutcomeKind.OK, OutcomeKind.SUPERSEDED)
    outcome = next((kind for kind in worst if kind in kinds), OutcomeKind.NOTHING)
    return RunEnd(outcome, error, len(kinds) - kinds.count(OutcomeKind.NOTHING))

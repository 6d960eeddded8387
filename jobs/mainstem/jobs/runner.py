"""Runs a job over many tables: opens and plans, spreads the tasks, commits table by table."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mainstem.delta_log.store import (
    ObjectStore,
    Place,
    StoreFolder,
    open_warehouse,
    parse_warehouse,
    wall_clock_ms,
)
from mainstem.delta_log.table import OpenTopic, VersionMark
from mainstem.delta_log.topics import SYSTEM, TOPICS, Topics
from mainstem.errors import MainstemError, StoreUnavailableError, UnknownTopicError
from mainstem.jobs.job import (
    NOTHING,
    Job,
    JobOutcome,
    OutcomeKind,
    Plan,
    TableView,
    TaskResult,
    table_name,
)
from mainstem.jobs.job_history import JobHistory, JobRun
from mainstem.jobs.quiet_tables import QuietTables
from mainstem.jobs.task_pool import Answer, Share, TableTask, TaskFailure, TaskPool
from mainstem.limits import MIB

log = logging.getLogger(__name__)

#: Tables that are opened and planned at once: mostly waiting for the store.
_OPEN_THREADS: Final = 8

#: A share has at least so much that the start of a Spark job, some 50 ms, does not count, and at
#: most so much that progress shows and a worker that dies costs seconds.
_SHARE_BYTES_MIN: Final = 4 * MIB
_SHARE_BYTES_MAX: Final = 256 * MIB

#: Shares for each that can be at work at once: what comes last is a small part of all.
_SHARES_EACH: Final = 4

#: When no share has ended for so long, the run gives up: one takes seconds, so Spark hangs.
STALL_TIMEOUT_S: Final = 3_600.0

#: What a task costs beside what it reads.
_TASK_OVERHEAD_BYTES: Final = MIB // 4


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    Attributes:
        bytes_done, bytes_total: Of what tasks read, by their plans.
        tables_total: Tables with something to do.
    """

    bytes_done: int
    bytes_total: int
    tables_done: int
    tables_total: int


@dataclass(slots=True)
class _Table:
    """A table in a run. `opened` is None once it is closed, or where it was not opened at all.

    Attributes:
        mark: Of the version that was planned on.
    """

    folder: str
    topic: str
    mark: VersionMark | None = None
    opened: OpenTopic | None = None
    plan: Plan[Any] | None = None
    outcome: JobOutcome | None = None
    results: list[TaskResult | TaskFailure | None] = field(default_factory=list)
    missing: int = 0

    @property
    def name(self) -> str:
        return table_name(self.folder, self.topic)

    def close(self) -> None:
        self.opened = None


def plan_job(
    warehouse: Place, job: Job[Any, Any], topics: Iterable[str] = (), *, now_ms: int | None = None
) -> tuple[list[Plan[Any]], dict[str, str]]:
    """What `job` would do now. Writes nothing.

    Args:
        topics: Only these, or `system/<name>` for a system table that the job cares for. Default:
            all topics, and all of those.

    Returns:
        The plans, by table name; and why a table could not be planned, by its name.

    Raises:
        StoreUnavailableError: There is no such warehouse.
    """
    store = open_warehouse(warehouse)
    try:
        now_ms = wall_clock_ms() if now_ms is None else now_ms
        tables = _plan_tables(store, job, topics, now_ms, QuietTables(notes_max=0))
        for table in tables:
            table.close()
        plans = [table.plan for table in tables if table.plan is not None]
        failed = {table.name: table.outcome.error for table in tables if table.outcome is not None}
        return plans, failed
    finally:
        store.close()


def run_job(
    warehouse: Place,
    job: Job[Any, Any],
    topics: Iterable[str] = (),
    *,
    pool: Callable[[], TaskPool],
    clock_ms: Callable[[], int] = wall_clock_ms,
    on_progress: Callable[[Progress], None] = lambda _: None,
    stall_timeout_s: float = STALL_TIMEOUT_S,
    quiet: QuietTables | None = None,
) -> list[JobRun]:
    """Runs `job` once over the tables of a warehouse, and writes what came of it to the history.

    A table that fails does not stop the others. Each is committed as soon as its tasks are done.

    Args:
        topics: Only these, or `system/<name>` for a system table that the job cares for. Default:
            all topics, and all of those.
        pool: Called if there is at least one task.
        on_progress: Called in this thread.
        stall_timeout_s: When no task has ended for this long, what is left has failed.
        quiet: Of a process that runs this job again and again, with the same options each time:
            what it knows of the tables from earlier runs, and what it learns from this one. Those
            that have not changed, and have nothing due, are not opened.

    Returns:
        A row for each table, by name; the history has those with something to do.

    Raises:
        StoreUnavailableError: There is no such warehouse.
        SparkUnavailableError: There is something to do, and Spark cannot start.
    """
    run_id = uuid.uuid4().hex
    started_ms = clock_ms()
    place = parse_warehouse(warehouse)
    store = open_warehouse(place)
    tables: list[_Table] = []
    rows: list[JobRun] = []
    try:
        quiet = QuietTables(notes_max=0) if quiet is None else quiet
        tables = _plan_tables(store, job, topics, started_ms, quiet)
        run = _Run(place, job, tables, clock_ms, on_progress, stall_timeout_s)

        def note(table: _Table) -> None:
            assert table.outcome is not None
            rows.append(JobRun(run_id, job.name, table.name, started_ms, clock_ms(), table.outcome))

        run.run(pool, note)
    finally:
        for table in tables:
            table.close()
        done = [row for row in rows if row.outcome.kind is not OutcomeKind.NOTHING]
        if done:
            _write_history(store, done)
            with contextlib.suppress(StoreUnavailableError):
                store.fill_reserve()  # what a deletion on a full disk has used of it
        store.close()
    return sorted(rows, key=lambda row: row.topic)


def _write_history(store: ObjectStore, rows: Sequence[JobRun]) -> None:
    # What was done is done: a history that cannot be written is no failure of the job.
    try:
        JobHistory(store).append(rows)
    except MainstemError as error:
        log.warning("system/job_history lacks the run %s: %s", rows[0].run_id, error.message)


class _Run:
    """The part of a run that comes after the plans."""

    def __init__(
        self,
        warehouse: Place,
        job: Job[Any, Any],
        tables: Sequence[_Table],
        clock_ms: Callable[[], int],
        on_progress: Callable[[Progress], None],
        stall_timeout_s: float,
    ) -> None:
        self._stall_timeout_s = stall_timeout_s
        self._stalled = False
        self._warehouse = warehouse
        self._job = job
        self._tables = tables
        self._clock_ms = clock_ms
        self._on_progress = on_progress
        self._owners: list[tuple[_Table, int]] = []
        self._bytes_done = self._bytes_total = self._tables_done = 0

    def run(self, pool: Callable[[], TaskPool], note: Callable[[_Table], None]) -> None:
        """Sees every table to its outcome; `note` is told of each."""
        tasks: list[TableTask] = []
        for table in sorted(self._tables, key=_weight, reverse=True):
            self._prepare(table)
            planned = () if table.plan is None or table.outcome is not None else table.plan.tasks
            table.results = [None] * len(planned)
            table.missing = len(planned)
            for index, task in enumerate(planned):
                tasks.append(TableTask(len(self._owners), table.folder, table.topic, task))
                self._owners.append((table, index))
        self._bytes_total = sum(one.task.weight_bytes for one in tasks)
        for table in self._tables:
            if not table.missing:
                self._finish(table, note)
        if tasks:
            self._run_tasks(pool(), tasks, note)

    def _run_tasks(
        self, pool: TaskPool, tasks: Sequence[TableTask], note: Callable[[_Table], None]
    ) -> None:
        self._tell()
        try:
            pending: dict[Future[list[Answer]], Sequence[TableTask]] = {
                pool.submit(Share(self._job, self._warehouse, tuple(share))): share
                for share in spread(tasks, pool.parallelism)
            }
            while pending:
                done, _ = wait(pending, self._stall_timeout_s, FIRST_COMPLETED)
                if not done:
                    self._stalled = True
                    pool.close()  # ends every future
                for future in done:
                    for table in self._take(future, pending.pop(future)):
                        self._finish(table, note)
                self._tell()
        finally:
            pool.close()

    def _take(self, future: Future[list[Answer]], share: Sequence[TableTask]) -> list[_Table]:
        """Keeps a share's answers; returns the tables that have all of theirs now."""
        failure = future.exception()
        answers: list[Answer]
        if failure is None:
            answers = future.result()
        else:
            why = _first_line(failure)
            if self._stalled:
                why = f"no task has ended for {self._stall_timeout_s:g} s: look at Spark's log"
            lost = TaskFailure(f"INTERNAL: the task was lost: {why}")
            answers = [(one.number, lost) for one in share]
        complete = []
        for number, answer in answers:
            table, index = self._owners[number]
            table.results[index] = answer
            table.missing -= 1
            if not table.missing:
                complete.append(table)
        self._bytes_done += sum(one.task.weight_bytes for one in share)
        return complete

    def _finish(self, table: _Table, note: Callable[[_Table], None]) -> None:
        if table.outcome is None:
            table.outcome = self._commit(table)
        table.close()
        if table.plan is not None and not table.plan.nothing:
            self._tables_done += 1
        note(table)

    def _prepare(self, table: _Table) -> None:
        if table.plan is not None and table.outcome is None and not table.plan.nothing:
            assert table.opened is not None
            try:
                table.plan = self._job.prepare(table.opened, table.plan, self._clock_ms())
            except Exception as error:
                table.outcome = _failed(error)

    def _commit(self, table: _Table) -> JobOutcome:
        assert table.plan is not None
        if table.plan.nothing:
            return NOTHING
        failures = [one for one in table.results if isinstance(one, TaskFailure)]
        done = [
            (task, result)
            for task, result in zip(table.plan.tasks, table.results, strict=True)
            if isinstance(result, TaskResult)
        ]
        if failures and not (self._job.tasks_stand_alone and done):
            return JobOutcome(OutcomeKind.FAILED, error=failures[0].message)
        plan = replace(table.plan, tasks=tuple(task for task, _ in done))
        results = [result for _, result in done]
        assert table.opened is not None
        try:
            outcome = self._job.commit(table.opened, plan, results, self._clock_ms())
        except Exception as error:
            return _failed(error)
        if not failures:
            return outcome
        kept = f"{len(failures)} of {len(table.results)} tasks failed, the others are done: "
        return replace(outcome, kind=OutcomeKind.FAILED, error=kept + failures[0].message)

    def _tell(self) -> None:
        total = sum(1 for one in self._tables if one.plan is not None and not one.plan.nothing)
        self._on_progress(Progress(self._bytes_done, self._bytes_total, self._tables_done, total))


def _failed(error: Exception) -> JobOutcome:
    if isinstance(error, MainstemError):
        return JobOutcome(OutcomeKind.FAILED, error=f"{error.code}: {error.message}")
    return JobOutcome(OutcomeKind.FAILED, error=f"INTERNAL: {_first_line(error)}")


def spread(tasks: Sequence[TableTask], parallelism: int) -> list[list[TableTask]]:
    """Cuts tasks, in their order, into shares of about the same weight.

    The tasks of one table stay next to each other, so that a table is done, and committed, while
    others still wait.
    """
    weights = [one.task.weight_bytes + _TASK_OVERHEAD_BYTES for one in tasks]
    even = sum(weights) // (parallelism * _SHARES_EACH)
    share_bytes = min(max(even, _SHARE_BYTES_MIN), _SHARE_BYTES_MAX)
    shares: list[list[TableTask]] = []
    held = share_bytes
    for one, weight in zip(tasks, weights, strict=True):
        if held >= share_bytes:
            shares.append([])
            held = 0
        shares[-1].append(one)
        held += weight
    return shares


def _plan_tables(
    store: ObjectStore, job: Job[Any, Any], topics: Iterable[str], now_ms: int, quiet: QuietTables
) -> list[_Table]:
    """Opens and plans. A table with something to do stays open; one that fails has its outcome, and
    one that is passed over as well."""
    named = sorted(set(topics))
    own = {table_name(SYSTEM, name): name for name in job.system_tables}
    tables = [_Table(SYSTEM, own[name]) if name in own else _Table(TOPICS, name) for name in named]
    if not named:
        if job.on_topics:
            tables += [_Table(TOPICS, name) for name in Topics(store).names()]
        tables += [_Table(SYSTEM, name) for name in job.system_tables]
    folders = {folder: Topics(store, folder=folder) for folder in (TOPICS, SYSTEM)}
    job.begin(store)

    def plan(table: _Table) -> bool:
        if _is_quiet(store, table, quiet.mark(table.name, now_ms)):
            table.outcome = NOTHING
            return True
        try:
            table.opened = folders[table.folder].open(table.topic)
            # Before anything else is read: what is newer than the mark is looked at next time.
            table.mark = VersionMark.of(table.opened.store, table.opened.state.version)
            seen = job.examine(table.opened, now_ms)
            view = TableView(table.topic, table.folder, table.opened.state, seen)
            table.plan = job.plan(view, now_ms)
        except UnknownTopicError as error:
            if not named:
                return False  # deleted since it was listed, or a system table that nobody needed
            table.outcome = JobOutcome(OutcomeKind.FAILED, error=f"{error.code}: {error.message}")
        except MainstemError as error:
            table.outcome = JobOutcome(OutcomeKind.FAILED, error=f"{error.code}: {error.message}")
        except Exception as error:
            table.outcome = JobOutcome(OutcomeKind.FAILED, error=f"INTERNAL: {_first_line(error)}")
        if table.plan is None or table.plan.nothing:
            table.close()
        return True

    with ThreadPoolExecutor(_OPEN_THREADS, "mainstem-plan") as threads:
        found = [
            table for table, there in zip(tables, threads.map(plan, tables), strict=True) if there
        ]
    quiet.keep_only([table.name for table in found])
    for table in found:
        if table.plan is not None and table.plan.nothing:
            quiet.looked(table.name, table.mark, now_ms, table.plan.due_ms)
        elif table.outcome is not NOTHING:
            quiet.forget(table.name)
    return found


def _is_quiet(store: ObjectStore, table: _Table, mark: VersionMark | None) -> bool:
    """Whether the table still is at the version at which there was nothing to do."""
    if mark is None:
        return False
    try:
        return mark.is_newest(StoreFolder(store, f"{table.folder}/{table.topic}"))
    except StoreUnavailableError:
        return False  # to open it says why


def _weight(table: _Table) -> int:
    return 0 if table.plan is None else sum(task.weight_bytes for task in table.plan.tasks)


def _first_line(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

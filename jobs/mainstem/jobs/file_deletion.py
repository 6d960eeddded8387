"""Deleting data files from the store: a few in the driver, many in tasks. Shared by the vacuums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from mainstem.delta_log.format import Register
from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.table import (
    Landed,
    OpenTopic,
    TableCommit,
    TableState,
    commit_beside_leader,
)
from mainstem.jobs.job import (
    SYSTEM_TABLES,
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
from mainstem.limits import KIB

#: More files than this are worth tasks: deleting them takes longer than starting a Spark job.
DRIVER_FILES_MAX: Final = 5_000

#: Files of one task.
_TASK_FILES: Final = 2_000

#: What deleting one costs, in bytes of reading.
_FILE_WEIGHT_BYTES: Final = 16 * KIB


@dataclass(frozen=True)
class DeleteFiles(Task):
    """Files to delete, by path."""

    paths: tuple[str, ...]


@dataclass(frozen=True)
class FilesDeleted(TaskResult):
    """All of them are gone."""


@dataclass(frozen=True)
class DeletionPlan(Plan[DeleteFiles]):
    """A plan to delete files.

    Attributes:
        paths: What the driver deletes, where there are no tasks.
        until_ms: The newest of them was removed then, and what was removed before is dealt with,
            too (`vacuum`); files that were written up to then go (`vacuum-orphans`).
    """

    paths: tuple[str, ...] = ()
    until_ms: int = 0


class DeletionJob(Job[DeleteFiles, FilesDeleted]):
    """A job whose plans are deletion plans. Topics and tables of the platform alike."""

    system_tables: ClassVar[tuple[str, ...]] = SYSTEM_TABLES

    def run_task(self, store: ObjectStore, task: DeleteFiles) -> FilesDeleted:
        _delete(store, task.paths)
        return FilesDeleted()

    def commit(
        self,
        opened: OpenTopic,
        plan: Plan[DeleteFiles],
        results: Sequence[FilesDeleted],
        now_ms: int,
    ) -> JobOutcome:
        assert isinstance(plan, DeletionPlan)
        _delete(opened.store, plan.paths)
        return JobOutcome(OutcomeKind.OK, sum((line.counts for line in plan.lines), Counts()))


def deletion_plan(
    table: TableView, files: Sequence[tuple[str, int]], what: str, *, until_ms: int = 0
) -> DeletionPlan:
    """The plan for files, given by path and size. Pure.

    Args:
        what: What they are, in a word.
    """
    by_partition: dict[int, list[int]] = defaultdict(list)
    for path, size_bytes in files:
        by_partition[partition_of(path)].append(size_bytes)
    lines = [
        PlanLine(
            partition,
            f"delete {what} files",
            Counts(files=len(sizes), bytes=sum(sizes)),
        )
        for partition, sizes in sorted(by_partition.items())
    ]
    paths = sorted(path for path, _ in files)
    tasks: tuple[DeleteFiles, ...] = ()
    if len(paths) > DRIVER_FILES_MAX:
        tasks = tuple(
            DeleteFiles(len(part) * _FILE_WEIGHT_BYTES, tuple(part)) for part in _parts(paths)
        )
        paths = []
    version = table.state.version
    return DeletionPlan(
        table.topic,
        table.folder,
        version,
        tasks,
        tuple(lines),
        paths=tuple(paths),
        until_ms=until_ms,
    )


def raise_register(
    opened: OpenTopic, operation: str, register: Register, now_ms: int
) -> Landed | None:
    """Commits a register that says how far a vacuum is; None: the table's is as high already."""

    def build(state: TableState) -> TableCommit | None:
        if state.register_value(register.name) >= register.value:
            return None
        return TableCommit.of(
            operation,
            [register],
            timestamp_ms=now_ms,
            survives_appends=True,
            frees_space=True,
        )

    return commit_beside_leader(opened, build)


def partition_of(path: str) -> int:
    """The partition of a data file, by its path; -1 where that does not say."""
    directory = path.partition("/")[0]
    name, _, number = directory.partition("=")
    return int(number) if name == "partition" and number.isdecimal() else -1


def _delete(store: ObjectStore, paths: Iterable[str]) -> None:
    """Deletes files. One that is gone already is no error."""
    for path in paths:
        store.delete(path)


def _parts(paths: Sequence[str]) -> Iterable[Sequence[str]]:
    return (paths[start : start + _TASK_FILES] for start in range(0, len(paths), _TASK_FILES))

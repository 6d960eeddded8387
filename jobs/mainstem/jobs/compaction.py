"""Compaction: runs of small files of a partition become larger ones, every record as it was.

A file of half the target or more is left alone, and so is one with more than twice the bytes of all
that it could be merged with: to rewrite it again and again for a little more at its end would cost
many times what it holds. So a partition settles at large files and a few at its end, each of which
is several times smaller than the one before, and a record is written again some ten times at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Self

import pyarrow as pa

from mainstem.config import TOPIC_KEYS, ConfigKey, ConfigValue
from mainstem.delta_log.files import DataFileMissing, read_data_file, write_data_files
from mainstem.delta_log.format import Action, DataFile
from mainstem.delta_log.store import ObjectStore, time_elapsed_s
from mainstem.delta_log.table import (
    Landed,
    OpenTopic,
    TableCommit,
    TableState,
    file_time_ms,
    is_expired,
    replace_files,
)
from mainstem.errors import LogDamagedError
from mainstem.jobs.job import (
    NEVER_MS,
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
from mainstem.jobs.task_files import (
    COMMIT_FILES_MAX,
    COMMIT_S_MAX,
    check_superseded,
    commit_by_halves,
    commit_groups,
    commit_with_files,
    delete_files,
    file_limits,
    left_out,
)
from mainstem.limits import KIB, MIB

_TARGET: Final = "compaction.target.bytes"
_MIN_AGE: Final = "compaction.min.age.ms"

#: Files that one task makes, about: a long run is cut, so that a backlog is spread over tasks. What
#: the cut leaves too small at a task's end stays so, one file in eight at most.
_OUTPUTS_EACH: Final = 8

#: What a small file is beside its records: the footer, page headers, and a bad compression ratio.
_FILE_OVERHEAD_BYTES: Final = 2 * KIB

#: A file that is no larger costs nothing to rewrite.
_CHEAP_BYTES: Final = MIB

#: What opening a file costs, in bytes of reading.
_OPEN_WEIGHT_BYTES: Final = 64 * KIB


@dataclass(frozen=True)
class Merge(Task):
    """Consecutive files of a partition, by offset, that become fewer."""

    files: tuple[DataFile, ...]
    target_bytes: int
    compression_type: str


@dataclass(frozen=True)
class Merged(TaskResult):
    """What they became; nothing where another writer removed one of them first."""

    files: tuple[DataFile, ...]


class Compaction(Job[Merge, Merged]):
    """The job.

    Args:
        target_bytes: Of a data file, as it is stored. None: as each topic's setting says.
        min_age_ms: Younger files are left alone. None: as each topic's setting says.
    """

    name: ClassVar[str] = "compaction"
    system_tables: ClassVar[tuple[str, ...]] = ("audit", "job_history")
    tasks_stand_alone: ClassVar[bool] = True
    OPTIONS: ClassVar[tuple[ConfigKey, ...]] = (TOPIC_KEYS[_TARGET], TOPIC_KEYS[_MIN_AGE])

    def __init__(self, target_bytes: int | None = None, min_age_ms: int | None = None) -> None:
        self._target_bytes = target_bytes
        self._min_age_ms = min_age_ms

    @classmethod
    def of(cls, options: Mapping[str, ConfigValue]) -> Self:
        """From options, which have the names of the topic settings that they replace."""
        given = {name: int(value) for name, value in options.items()}
        return cls(given.get(_TARGET), given.get(_MIN_AGE))

    def plan(self, table: TableView, now_ms: int) -> Plan[Merge]:
        state = table.state
        config = state.config
        target_bytes, window_ms = file_limits(
            config, self._target_bytes or int(config.get(_TARGET))
        )
        min_age_ms = self._min_age_ms
        if min_age_ms is None:
            min_age_ms = int(config.get(_MIN_AGE))
        compression_type = str(config.get("compression.type"))
        tasks: list[Merge] = []
        lines: list[PlanLine] = []
        due_ms = NEVER_MS
        for partition in range(state.partition_count):
            files = state.files(partition).sorted()
            # Nothing else changes with time: a small file that was too young is old enough.
            old_enough = (
                file.modified_ms + min_age_ms for file in files if _is_small(file, target_bytes)
            )
            due_ms = min([due_ms, *(at_ms for at_ms in old_enough if at_ms > now_ms)])
            runs = plan_runs(
                files,
                target_bytes=target_bytes,
                not_after_ms=now_ms - min_age_ms,
                window_ms=window_ms,
            )
            for run in runs:
                counts = Counts.of(run)
                weight_bytes = counts.bytes + counts.files * _OPEN_WEIGHT_BYTES
                tasks.append(Merge(weight_bytes, tuple(run), target_bytes, compression_type))
                what = f"merge offsets {run[0].base_offset} to {run[-1].last_offset}"
                lines.append(PlanLine(partition, what, counts))
        return Plan(table.topic, table.folder, state.version, tuple(tasks), tuple(lines), due_ms)

    def run_task(self, store: ObjectStore, task: Merge) -> Merged:
        try:
            files = write_data_files(
                store,
                task.files[0].partition,
                _records(store, task.files),
                target_bytes=task.target_bytes,
                compression_type=task.compression_type,
                # Records are as old as they were: retention goes by it, see `file_time_ms`.
                now_ms=max(file.modified_ms for file in task.files),
            )
        except DataFileMissing as error:
            check_superseded(store, error)
            return Merged(())
        assert Counts.of(files).records == Counts.of(task.files).records
        return Merged(tuple(files))

    def commit(
        self, opened: OpenTopic, plan: Plan[Merge], results: Sequence[Merged], now_ms: int
    ) -> JobOutcome:
        landed: list[Landed] = []
        kept: list[tuple[Merge, Merged]] = []
        merges = zip(plan.tasks, results, strict=True)
        given_up: list[tuple[Merge, Merged]] = []

        def commit(group: Sequence[tuple[Merge, Merged]]) -> None:
            found = _Swap(opened.store, group, now_ms)
            one = commit_with_files(opened, found.build)
            if one is not None:
                landed.append(one)
            kept.extend(found.kept)
            found.delete_rest()

        ends_at = time_elapsed_s() + COMMIT_S_MAX
        for group in commit_groups(merges, lambda merge: len(merge[0].files)):
            given_up += commit_by_halves(group, commit, ends_at)
        delete_files(opened.store, [file for _, result in given_up for file in result.files])
        left = len(results) - len(kept) - len(given_up)
        error = left_out(
            f"another writer removed the files of {left} runs first" if left else "", len(given_up)
        )
        if not landed:
            return JobOutcome(OutcomeKind.SUPERSEDED, error=error)
        return JobOutcome(
            OutcomeKind.OK,
            Counts.of(file for task, _ in kept for file in task.files),
            Counts.of(file for _, result in kept for file in result.files),
            max(one.attempts for one in landed),
            landed[-1].version,
            error,
        )


class _Swap:
    """One table commit: the merges whose files are all still active; the others are left out."""

    def __init__(
        self, store: ObjectStore, merges: Sequence[tuple[Merge, Merged]], now_ms: int
    ) -> None:
        self._store = store
        self._merges = merges
        self._now_ms = now_ms
        self._kept: set[int] = set()

    @property
    def kept(self) -> list[tuple[Merge, Merged]]:
        """What the last commit that was built has."""
        return [self._merges[index] for index in sorted(self._kept)]

    def build(self, state: TableState) -> TableCommit | None:
        """The commit; None: all were superseded."""
        self._kept.clear()
        actions: list[Action] = []
        needed: list[str] = []
        for index, (task, result) in enumerate(self._merges):
            if not all(state.is_active(file.path) for file in task.files):
                continue
            if any(is_expired(state, file) for file in result.files):
                continue  # this process slept, and vacuum has taken them
            self._kept.add(index)
            needed += [file.path for file in result.files]
            actions += replace_files(
                state, task.files, result.files, now_ms=self._now_ms, data_change=False
            )
        if not actions:
            return None
        return TableCommit.of(
            "COMPACT",
            actions,
            timestamp_ms=self._now_ms,
            needed_files=needed,
            survives_appends=True,
        )

    def delete_rest(self) -> None:
        """Deletes what was made of files that others removed first."""
        for index, (_, result) in enumerate(self._merges):
            if index not in self._kept:
                delete_files(self._store, result.files)


def plan_runs(
    files: Sequence[DataFile],
    *,
    target_bytes: int,
    not_after_ms: int,
    window_ms: int | None = None,
) -> list[list[DataFile]]:
    """Which files of a partition are to be merged, as runs for one task each. Pure.

    A second plan after the first was carried out finds nothing, unless a run was cut for its
    number of files.

    Args:
        files: All of the partition, by offset.
        target_bytes: Of the files that they become.
        not_after_ms: Files that were written later are left alone.
        window_ms: Files whose times are not in the same window of this length stay apart.
    """
    runs: list[list[DataFile]] = []
    run: list[DataFile] = []
    window = 0
    for file in files:
        small = _is_small(file, target_bytes) and file.modified_ms <= not_after_ms
        before, window = window, file_time_ms(file) // window_ms if window_ms else 0
        if run and (not small or window != before):
            runs += _worthwhile(run)
            run = []
        if small:
            run.append(file)
    runs += _worthwhile(run)
    return [part for run in runs for part in _cut(run, target_bytes * _OUTPUTS_EACH)]


def _is_small(file: DataFile, target_bytes: int) -> bool:
    return file.size_bytes * 2 < target_bytes


def _worthwhile(run: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    """The parts of a run that remain when the files go that are not worth rewriting."""
    pending = [list(run)]
    while pending:
        part = pending.pop()
        if len(part) < 2:
            continue
        largest = max(range(len(part)), key=lambda index: part[index].size_bytes)
        size = part[largest].size_bytes
        others = sum(file.size_bytes for file in part) - size
        if size > max(2 * others, _CHEAP_BYTES):
            pending += [part[largest + 1 :], part[:largest]]
        else:
            yield part


def _cut(run: Sequence[DataFile], task_bytes: int) -> Iterator[list[DataFile]]:
    """A run as parts of about `task_bytes` of records, each with two files at least, and with no
    more than a table commit may remove."""
    part: list[DataFile] = []
    size = 0
    for index, file in enumerate(run):
        part.append(file)
        size += max(file.size_bytes - _FILE_OVERHEAD_BYTES, 0)
        is_full = size >= task_bytes or len(part) >= COMMIT_FILES_MAX
        if is_full and index < len(run) - 2:
            yield part
            part, size = [], 0
    if part:
        yield part


def _records(store: ObjectStore, files: Iterable[DataFile]) -> Iterator[pa.RecordBatch]:
    """All records of the files.

    Raises:
        LogDamagedError: A file is missing, damaged, or has not the records that the log says.
    """
    for file in files:
        rows = 0
        first = last = -1
        for batch in read_data_file(store, file, file.base_offset, file.last_offset + 1):
            offsets = batch.column("offset")
            first = first if rows else offsets[0].as_py()
            last = offsets[-1].as_py()
            rows += batch.num_rows
            yield batch
        if (first, last, rows) != (file.base_offset, file.last_offset, file.record_count):
            raise LogDamagedError(
                f"{store.uri}/{file.path} has {rows} records with offsets {first} to {last}; the "
                f"log says {file.record_count} with {file.base_offset} to {file.last_offset}",
                file=file.path,
            )

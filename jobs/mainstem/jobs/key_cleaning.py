"""The work of keyed compaction on one partition: finds what may go, writes files without it.

As Kafka's log cleaner: one pass over the records that no compaction has seen, which remembers the
last offset of each key, then one over all records, which leaves out those with a later one of the
same key. Reads one row group at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mainstem.delta_log.files import DataFileMissing, read_data_file, write_data_files
from mainstem.delta_log.format import DataFile
from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.table import file_time_ms
from mainstem.errors import LogDamagedError
from mainstem.jobs.job import Task, TaskResult
from mainstem.jobs.offset_map import OffsetMap
from mainstem.jobs.task_files import check_superseded
from mainstem.jobs.tombstones import TombstoneRun
from mainstem.limits import MIB

_EVERYWHERE: Final = (0, 2**62)

#: Stands for the column of values where only matters whether they are there.
_TOMBSTONE: Final = "tombstone"

#: Records are asked for in the map at least so many at a time, and at most with so many bytes.
_ASKED_ROWS: Final = 512 * 1024
_ASKED_BYTES_MAX: Final = 64 * MIB


@dataclass(frozen=True)
class CleaningTask(Task):
    """Compact one partition by keys.

    Attributes:
        files: All that are before `end_offset`, by offset.
        cleaned_offset: Records before it were seen by an earlier compaction.
        end_offset: The first record that stays unseen; `cleaned_offset` where none is to be seen.
        runs: The partition's runs of tombstones.
        expired: Those of them that may go now.
        keeps_tombstones: False: a tombstone that is seen for the first time may go at once.
        map_bytes_max: Of the keys that are remembered. With more of them the rest of the records
            stays for the next time.
        file_bytes_target, file_window_ms: Of new files, see `file_limits`.
    """

    partition: int
    files: tuple[DataFile, ...]
    cleaned_offset: int
    end_offset: int
    runs: tuple[TombstoneRun, ...]
    expired: tuple[TombstoneRun, ...]
    keeps_tombstones: bool
    map_bytes_max: int
    file_bytes_target: int
    file_window_ms: int | None
    compression_type: str


@dataclass(frozen=True)
class CleaningResult(TaskResult):
    """What came of it.

    Attributes:
        cleaned_offset: Records before it have been seen now.
        has_tombstones: Some that were seen for the first time are still there.
        removed, added: Files, and what to put in their place. Both empty: nothing may go.
        superseded: Another writer removed a file first. Then there is nothing else.
    """

    cleaned_offset: int
    has_tombstones: bool
    removed: tuple[DataFile, ...]
    added: tuple[DataFile, ...]
    superseded: bool = False


class _Judged(NamedTuple):
    """A file, and a bit for each of its records that stays; None: all stay."""

    file: DataFile
    kept: npt.NDArray[np.uint8] | None


def clean_partition(store: ObjectStore, task: CleaningTask) -> CleaningResult:
    """Does a task. Blocks.

    Raises:
        LogDamagedError: A file is damaged, or has not the records that the log says.
        StoreUnavailableError: The store failed.
    """
    try:
        return _clean(store, task)
    except DataFileMissing as error:
        check_superseded(store, error)
        return CleaningResult(task.cleaned_offset, False, (), (), superseded=True)


def _clean(store: ObjectStore, task: CleaningTask) -> CleaningResult:
    keys = OffsetMap(task.map_bytes_max)
    end_offset = _remember(store, task, keys)
    judged = _judge(store, task, keys)
    removed: list[DataFile] = []
    added: list[DataFile] = []
    for group in _groups(judged, task.file_bytes_target, task.file_window_ms):
        removed += [one.file for one in group]
        added += write_data_files(
            store,
            task.partition,
            _kept_records(store, group),
            target_bytes=task.file_bytes_target,
            compression_type=task.compression_type,
            # Records are as old as they were: retention goes by it, see `file_time_ms`.
            now_ms=max(one.file.modified_ms for one in group),
        )
    return CleaningResult(
        cleaned_offset=end_offset,
        has_tombstones=task.keeps_tombstones and keys.tombstone_count > 0,
        removed=tuple(removed),
        added=tuple(added),
    )


def _remember(store: ObjectStore, task: CleaningTask, keys: OffsetMap) -> int:
    """Puts the keys of the records in [cleaned_offset, end_offset) into the map, until it is full.

    Returns the end of what it has.
    """
    for file in task.files:
        if file.last_offset < task.cleaned_offset:
            continue
        for batch in read_data_file(
            store, file, task.cleaned_offset, task.end_offset, ["key", "value"]
        ):
            offsets = _offsets(batch)
            keys.put(batch.column("key"), offsets, np.asarray(batch.column("value").is_null()))
            if keys.full:
                return int(offsets[-1]) + 1
    return task.end_offset


def _judge(store: ObjectStore, task: CleaningTask, keys: OffsetMap) -> list[_Judged]:
    """What stays of each file."""
    judge = _Judge(task, keys)
    judged: list[_Judged] = []
    for file in task.files:
        if len(keys) or judge.may_have_expired(file):
            judged += judge.take(file, _column_batches(store, file, judge.columns(file)))
        else:
            judged += judge.pass_over(file)
    return judged + judge.finish()


class _Judge:
    """Collects files until their records are worth asking the map for."""

    def __init__(self, task: CleaningTask, keys: OffsetMap) -> None:
        self._task = task
        self._keys = keys
        self._files: list[tuple[DataFile, int]] = []
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._gone: list[npt.NDArray[np.bool_]] = []

    def may_have_expired(self, file: DataFile) -> bool:
        return any(
            file.base_offset < run.end_offset and file.last_offset >= run.start_offset
            for run in self._task.expired
        )

    def columns(self, file: DataFile) -> list[str]:
        return ["key", "value"] if self.may_have_expired(file) else ["key"]

    def take(self, file: DataFile, batches: Iterable[pa.RecordBatch]) -> list[_Judged]:
        """The next file; returns those that are judged now."""
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            self._waiting.append(batch)
            self._rows += batch.num_rows
            self._bytes += batch.column("key").nbytes
            if self._rows >= max(_ASKED_ROWS, len(self._keys)) or self._bytes >= _ASKED_BYTES_MAX:
                self._ask()
        if rows != file.record_count:
            raise LogDamagedError(
                f"the data file {file.path} has {rows} records; the log says {file.record_count}",
                file=file.path,
            )
        self._files.append((file, rows))
        return [] if self._waiting else self._finished()

    def pass_over(self, file: DataFile) -> list[_Judged]:
        """The next file, of which nothing may go."""
        return [*self.finish(), _Judged(file, None)]

    def finish(self) -> list[_Judged]:
        """The files that are not judged yet."""
        self._ask()
        return self._finished()

    def _finished(self) -> list[_Judged]:
        gone = np.concatenate([np.zeros(0, np.bool_), *self._gone])
        found = []
        start = 0
        for file, rows in self._files:
            its = gone[start : start + rows]
            found.append(_Judged(file, np.packbits(~its) if its.any() else None))
            start += rows
        self._files.clear()
        self._gone.clear()
        return found

    def _ask(self) -> None:
        if not self._waiting:
            return
        keys = pa.chunked_array([batch.column("key") for batch in self._waiting])
        offsets = np.concatenate([_offsets(batch) for batch in self._waiting])
        gone = self._keys.superseded(keys, offsets)
        if not self._task.keeps_tombstones:
            gone |= self._keys.last_tombstones(keys, offsets)
        start = 0
        for batch in self._waiting:
            if _TOMBSTONE in batch.schema.names:
                gone[start : start + batch.num_rows] |= self._expired(batch)
            start += batch.num_rows
        self._gone.append(gone)
        self._waiting.clear()
        self._rows = self._bytes = 0

    def _expired(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        offsets = _offsets(batch)
        tombstones = np.asarray(batch.column(_TOMBSTONE)) & np.asarray(
            batch.column("key").is_valid()
        )
        due = np.zeros(len(offsets), np.bool_)
        for run in self._task.expired:
            due |= (offsets >= run.start_offset) & (offsets < run.end_offset)
        return np.asarray(tombstones & due, np.bool_)


def _column_batches(
    store: ObjectStore, file: DataFile, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The columns of a file; instead of values, whether they are missing."""
    for batch in read_data_file(store, file, *_EVERYWHERE, columns):
        if "value" in columns:
            index = batch.schema.get_field_index("value")
            batch = batch.set_column(index, _TOMBSTONE, batch.column(index).is_null())
        yield batch


def _groups(
    judged: Sequence[_Judged], target_bytes: int, window_ms: int | None
) -> list[list[_Judged]]:
    """The files to write again, in runs that follow each other, of one window of time each.

    Small files between those of which something goes are written with them; others are left as
    they are.
    """
    groups: list[list[_Judged]] = [[]]
    window = 0
    for one in judged:
        before, window = window, file_time_ms(one.file) // window_ms if window_ms else 0
        rewritten = one.kept is not None or one.file.size_bytes < target_bytes // 2
        if not rewritten or window != before:
            groups.append([])
        if rewritten:
            groups[-1].append(one)
    return [group for group in groups if any(one.kept is not None for one in group)]


def _kept_records(store: ObjectStore, group: Sequence[_Judged]) -> Iterator[pa.RecordBatch]:
    for file, kept in group:
        bits = None if kept is None else np.unpackbits(kept, count=file.record_count).view(np.bool_)
        row = 0
        for batch in read_data_file(store, file, *_EVERYWHERE):
            rows = batch.num_rows
            yield batch if bits is None else batch.filter(pa.array(bits[row : row + rows]))
            row += rows


def _offsets(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    return np.asarray(batch.column("offset").to_numpy())

"""The records of a large transaction on their way into the table: several data files a partition,
one after the other, in one commit. A few chunks of them are in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from mainstem.delta_log.append.actions import file_actions, partition_epochs
from mainstem.delta_log.append.queue import Portion
from mainstem.delta_log.append.transactions import StagedRecords
from mainstem.delta_log.files import Slice, WrittenFile, encode_slices
from mainstem.delta_log.format import Action, Batch, DataFile
from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.table import TableCommit, TableState
from mainstem.errors import LogDamagedError


class StagedAppend:
    """A portion that is one large transaction.

    Args:
        store: The topic's.
        state: The table, for its settings.
        now_ms: Becomes the time of the files.
    """

    #: None of the files is small enough to be kept for a roll-up.
    written: Sequence[WrittenFile] = ()

    def __init__(
        self,
        portion: Portion[Any],
        staged: StagedRecords,
        store: ObjectStore,
        state: TableState,
        now_ms: int,
    ) -> None:
        self._batches = portion.batches()
        self._epochs = portion.epochs()
        self._writers = {
            batch.partition: _PartitionWriter(batch, staged, store, state, now_ms)
            for batch in self._batches
        }

    @property
    def partitions(self) -> list[int]:
        return list(self._writers)

    def write_next(self, partition: int) -> bool:
        """Writes the next data file of a partition; again after a failure of the store. Blocks.

        Returns:
            Whether there was one.

        Raises:
            StoreUnavailableError: The store failed.
            LogDamagedError: The staged records are not what was accepted.
        """
        return self._writers[partition].write_next()

    def commit(
        self, state: TableState, now_ms: int, more: Sequence[Action], needed_files: Sequence[str]
    ) -> TableCommit:
        """A commit of all data files; as `PortionAppend.commit`."""
        files = [file for writer in self._writers.values() for file in writer.files]
        return TableCommit.of(
            "APPEND",
            [*file_actions(files), *partition_epochs(state, self._epochs), *more],
            timestamp_ms=now_ms,
            batches=self._batches,
            needed_files=needed_files,
        )


class _PartitionWriter:
    """The data files of one partition.

    Args:
        run: The records, with their offsets.
    """

    def __init__(
        self, run: Batch, staged: StagedRecords, store: ObjectStore, state: TableState, now_ms: int
    ) -> None:
        self.files: list[DataFile] = []
        self._run = run
        self._staged = staged
        self._store = store
        self._table = state.table
        self._config = state.config
        self._now_ms = now_ms
        self._chunks: Iterator[list[Slice]] | None = None
        #: What was read and is not written.
        self._chunk: list[Slice] = []

    @property
    def _written_count(self) -> int:
        return sum(file.record_count for file in self.files)

    def write_next(self) -> bool:
        self._chunk = self._chunk or self._read_next()
        read_count = self._written_count + sum(one.records.num_rows for one in self._chunk)
        if read_count > self._run.record_count or (
            not self._chunk and read_count < self._run.record_count
        ):
            raise LogDamagedError(
                f"partition {self._run.partition} of {self._table} has {read_count} staged records "
                f"of a transaction that was accepted with {self._run.record_count}",
                file=self._table,
            )
        if not self._chunk:
            return False
        file, data = encode_slices(
            self._run.partition,
            self._run.base_offset + self._written_count,
            self._chunk,
            compression_type=self._config.compression_type,
            now_ms=self._now_ms,
        )
        self._store.put(file.path, data)
        self.files.append(file)
        self._chunk = []
        return True

    def _read_next(self) -> list[Slice]:
        if self._chunks is None:
            self._chunks = self._from(self._written_count)
        try:
            return next(self._chunks, [])
        except BaseException:
            self._chunks = None  # an iterator that has failed gives nothing more
            raise

    def _from(self, skipped_count: int) -> Iterator[list[Slice]]:
        """The chunks without the first records. Nobody has numbered them; where a slice does not
        say of what kind its timestamps are, the topic's setting does."""
        for chunk in self._staged.slices(self._run.partition):
            ready = [self._without(chunk, skipped_count)]
            skipped_count -= min(skipped_count, sum(one.records.num_rows for one in chunk))
            del chunk
            if ready[0]:
                yield ready.pop()  # or this frame would keep it until the next one is read

    def _without(self, chunk: Sequence[Slice], skipped_count: int) -> list[Slice]:
        by_default = self._config.log_append_time
        found: list[Slice] = []
        for slice_ in chunk:
            count = min(skipped_count, slice_.records.num_rows)
            skipped_count -= count
            if count < slice_.records.num_rows:
                kind = slice_.log_append_time
                found.append(
                    replace(
                        slice_,
                        records=slice_.records.slice(count),
                        producer=None,
                        log_append_time=by_default if kind is None else kind,
                    )
                )
        return found

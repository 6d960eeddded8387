"""Records from data files, for fetches: by row groups and columns, going on where the last stopped.

A fetch rarely takes a whole row group. Its reader stays open with what it has decoded and not given
out, and the next fetch of the same reader goes on there; it would have to decode the row group from
its beginning otherwise. Calls block and may come from several threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.delta_log import ObjectStore
from mainstem.delta_log.files import offset_statistics, open_data_file
from mainstem.delta_log.format import DataFile
from mainstem.limits import FETCH_CURSORS_MAX, MIB

#: What a cursor decodes at a time: small enough that what is left over costs little memory.
_BATCH_BYTES = 2 * MIB
_BATCH_ROWS_MAX = 64 * 1024

_Key = tuple[str, tuple[str, ...], int]


class Cursor:
    """A place in a data file: `peek` at the records from there on, `advance` over them.

    Args:
        start_offset: Where it is; the next record that is there has this offset or a higher one.
    """

    def __init__(
        self, store: ObjectStore, file: DataFile, columns: Sequence[str], start_offset: int
    ) -> None:
        self._file = file
        self._columns = tuple(columns)
        self.offset = start_offset
        self._rest: pa.RecordBatch | None = None
        self._reader = open_data_file(store, file)
        try:
            self._batches = self._open()
        except (pa.ArrowException, OSError) as error:
            self.close()
            raise self._reader.error(error) from error

    @property
    def key(self) -> _Key:
        return (self._file.path, self._columns, self.offset)

    def peek(self) -> pa.RecordBatch | None:
        """Some records from the offset on, at least one; None at the end of the file.

        Raises:
            LogDamagedError: The file is damaged.
            StoreUnavailableError: The store could not read it.
        """
        try:
            while self._rest is None:
                batch = next(self._batches, None)
                if batch is None:
                    return None
                first = int(np.searchsorted(batch.column("offset").to_numpy(), self.offset))
                if first < batch.num_rows:
                    self._rest = batch.slice(first).select(list(self._columns))
        except (pa.ArrowException, OSError) as error:
            raise self._reader.error(error) from error
        return self._rest

    def advance(self, rows: int) -> None:
        """Goes over so many of the records that `peek` shows."""
        assert self._rest is not None
        assert 0 < rows <= self._rest.num_rows
        self.offset = int(self._rest.column("offset")[rows - 1].as_py()) + 1
        # A slice keeps the memory of all, which is `_BATCH_BYTES`.
        self._rest = self._rest.slice(rows) if rows < self._rest.num_rows else None

    def close(self) -> None:
        """Lets go of the file. The cursor can be used no more."""
        self._reader.close()

    def _open(self) -> Iterator[pa.RecordBatch]:
        parquet = self._reader.parquet
        metadata = parquet.metadata
        groups = [
            index
            for index in range(metadata.num_row_groups)
            if _last_offset(metadata.row_group(index)) >= self.offset
        ]
        if not groups:
            return iter(())
        rows, size = (
            metadata.num_rows,
            sum(
                metadata.row_group(index).total_byte_size
                for index in range(metadata.num_row_groups)
            ),
        )
        found: Iterator[pa.RecordBatch] = parquet.iter_batches(
            batch_size=max(min(rows * _BATCH_BYTES // max(size, 1), _BATCH_ROWS_MAX), 1),
            row_groups=groups,
            columns=list(self._columns),
            use_threads=False,
        )
        return found


class History:
    """Cursors that wait for the next fetch, the longest unused going first.

    Args:
        cursors_max: How many are kept.
    """

    def __init__(self, cursors_max: int = FETCH_CURSORS_MAX) -> None:
        self._cursors_max = cursors_max
        self._kept: OrderedDict[_Key, Cursor] = OrderedDict()
        self._lock = threading.Lock()

    def open(
        self, store: ObjectStore, file: DataFile, columns: Sequence[str], offset: int
    ) -> Cursor:
        """A cursor of the caller's own at that offset of the file.

        Raises:
            NotFound: The file is gone.
            LogDamagedError: It is damaged.
            StoreUnavailableError: The store failed.
        """
        with self._lock:
            kept = self._kept.pop((file.path, tuple(columns), offset), None)
        return kept if kept is not None else Cursor(store, file, columns, offset)

    def keep(self, cursor: Cursor) -> None:
        """Takes a cursor back, for the next reader that goes on there. The caller lets go of it."""
        with self._lock:
            dropped = [self._kept.pop(cursor.key, None)]
            self._kept[cursor.key] = cursor
            if len(self._kept) > self._cursors_max:
                dropped.append(self._kept.popitem(last=False)[1])
        for one in dropped:
            if one is not None:
                one.close()

    def clear(self) -> None:
        with self._lock:
            dropped = list(self._kept.values())
            self._kept.clear()
        for one in dropped:
            one.close()


def _last_offset(group: pq.RowGroupMetaData) -> int:
    """The last offset of a row group, or a higher one."""
    statistics = offset_statistics(group)
    return 2**63 - 1 if statistics is None else int(statistics.max)

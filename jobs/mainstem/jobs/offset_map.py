"""The last offset of each key, in bounded memory. Pure.

Kafka's cleaner keeps 16 bytes of each key's MD5 for this; here keys are compared whole.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

#: What a key costs beside its own bytes: its offset, and its place in the column and in hash
#: tables.
KEY_OVERHEAD_BYTES: Final = 48

#: Rows that are not merged yet are at most as many as the map has keys, and may always be so many.
_PENDING_ROWS_MIN: Final = 256 * 1024

_SCHEMA: Final = pa.schema([("key", pa.binary()), ("place", pa.int64())])


class OffsetMap:
    """Key to last offset, and whether that record is a tombstone.

    Args:
        bytes_max: The map is `full` when its keys take more. While it is filled it takes up to
            three times as much.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        #: Each key once. A place is the offset, doubled, and one more for a tombstone: the largest
        #: place of a key is that of its last record.
        self._merged = _SCHEMA.empty_table()
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._pending_bytes = 0

    def put(
        self,
        keys: pa.Array,
        offsets: npt.NDArray[np.int64],
        tombstones: npt.NDArray[np.bool_],
    ) -> None:
        """Takes records, in any order. Those without a key are passed over."""
        table = pa.table([keys, pa.array(offsets * 2 + tombstones)], schema=_SCHEMA)
        if keys.null_count:
            table = table.filter(keys.is_valid())
        self._pending.append(table)
        self._pending_rows += table.num_rows
        self._pending_bytes += _size(table)
        if self._pending_rows > max(_PENDING_ROWS_MIN, self._merged.num_rows) or (
            self._pending_bytes > max(self._bytes_max, _size(self._merged)) // 2
        ):
            self._merge()

    @property
    def full(self) -> bool:
        """Whether no more should be put. What was put is in it all the same."""
        return _size(self._merged) > self._bytes_max

    def __len__(self) -> int:
        self._merge()
        return int(self._merged.num_rows)

    @property
    def tombstone_count(self) -> int:
        """Keys whose last record is a tombstone."""
        self._merge()
        return int(np.count_nonzero(self._merged.column("place").to_numpy() & 1))

    def superseded(
        self, keys: pa.Array | pa.ChunkedArray, offsets: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """For each record, whether the map has a later one of its key. Never one without a key.

        A call costs at least as much as the map has keys: ask for many records at once.
        """
        return np.asarray(self._places(keys) >> 1 > offsets)

    def last_tombstones(
        self, keys: pa.Array | pa.ChunkedArray, offsets: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """For each record, whether it is the last of its key in the map, and a tombstone."""
        return np.asarray(self._places(keys) == offsets * 2 + 1)

    def _places(self, keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int64]:
        """The place of each key; -1 for one that the map does not have."""
        self._merge()
        found = pc.index_in(keys, value_set=self._merged.column("key"), skip_nulls=True)
        places = pc.take(self._merged.column("place"), found)
        return np.asarray(pc.fill_null(places, -1).to_numpy())

    def _merge(self) -> None:
        if not self._pending:
            return
        tables = pa.concat_tables([self._merged, *self._pending])
        self._pending.clear()
        self._pending_rows = self._pending_bytes = 0
        grouped = tables.group_by("key", use_threads=False).aggregate([("place", "max")])
        self._merged = pa.table(
            [grouped.column("key"), grouped.column("place_max")], schema=_SCHEMA
        ).combine_chunks()


def _size(table: pa.Table) -> int:
    return int(table.nbytes) + KEY_OVERHEAD_BYTES * int(table.num_rows)

"""The columns of an answer to a fetch, how many bytes records are there, and where to cut. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.delta_log import Slice
from mainstem.delta_log.files import CREATE_TIME, LOG_APPEND_TIME
from mainstem.errors import InvalidRecordError
from mainstem.limits import FETCHED_RECORD_OVERHEAD_BYTES, HEADER_OVERHEAD_BYTES
from mainstem.records import (
    HEADERS_TYPE,
    TABLE_SCHEMA,
    table_timestamps,
    timestamps_ms_column,
)

#: What a fetch may ask for, in the order in which it comes.
COLUMNS: Final = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")

_BINARY: Final = ("key", "value")

_NO_HEADERS: Final = pa.array([], HEADERS_TYPE.value_type)


def columns_asked(names: Iterable[str]) -> tuple[str, ...]:
    """The columns of an answer, `offset` among them; all if no name is given.

    Raises:
        InvalidRecordError: There is no such column.
    """
    asked = set(names)
    wanted = asked | {"offset"} if asked else set(COLUMNS)
    unknown = sorted(asked.difference(COLUMNS))
    if unknown:
        raise InvalidRecordError(
            f"a fetch has no column {unknown[0]!r}; ask for some of {', '.join(COLUMNS)}",
            column=unknown[0],
        )
    return tuple(name for name in COLUMNS if name in wanted)


@lru_cache
def schema_of(columns: tuple[str, ...]) -> pa.Schema:
    """The schema of an answer with these columns."""
    return pa.schema([TABLE_SCHEMA.field(name) for name in columns])


def batch_of_slices(base_offset: int, slices: Sequence[Slice]) -> pa.RecordBatch:
    """Slices that follow each other in one partition, as a batch of all `COLUMNS`.

    One slice is not copied; several are.
    """
    types = [LOG_APPEND_TIME if slice_.log_append_time else CREATE_TIME for slice_ in slices]
    counts = [slice_.records.num_rows for slice_ in slices]
    records = joined([slice_.records for slice_ in slices])
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(base_offset, base_offset + records.num_rows, dtype=np.int64)),
            table_timestamps(timestamps_ms_column(records.column("timestamp"))),
            pa.array(np.repeat(np.array(types, dtype=np.int32), counts)),
            records.column("key"),
            records.column("value"),
            records.column("headers"),
        ],
        schema=schema_of(COLUMNS),
    )


def without_empty_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same records, small on the wire: the children of a headers column without any header may
    have buffers for rows that are not part of the batch, and IPC would write them all."""
    index = batch.schema.get_field_index("headers")
    if index < 0:
        return batch
    headers = batch.column(index)
    if headers.null_count < len(headers) and len(headers.flatten()):
        return batch
    if len(headers.values):
        ends = pa.array(np.zeros(len(headers) + 1, dtype=np.int32))
        small = pa.ListArray.from_arrays(
            ends, _NO_HEADERS, type=HEADERS_TYPE, mask=headers.is_null()
        )
    else:
        # No row has any, so the offsets are right as they are.
        small = pa.Array.from_buffers(
            HEADERS_TYPE,
            len(headers),
            headers.buffers()[:2],
            headers.null_count,
            headers.offset,
            children=[_NO_HEADERS],
        )
    return batch.set_column(index, batch.schema.field(index), small)


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch with the rows of one or more."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def batch_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of all records of a batch: the columns that it has, and what each record costs beside
    them. What lies behind a null key or value counts too."""
    return int(_bytes_before(batch)(batch.num_rows))


def fitting(batch: pa.RecordBatch, bytes_max: int) -> int:
    """How many records of the batch's front have no more than `bytes_max` bytes, as `batch_bytes`
    counts them."""
    rows = range(1, batch.num_rows + 1)
    return bisect_right(rows, bytes_max, key=_bytes_before(batch))


def _bytes_before(batch: pa.RecordBatch) -> Callable[[int], int]:
    """Tells how many bytes so many records of the batch's front have."""
    ends: list[npt.NDArray[np.integer[Any]]] = [
        _ends(batch.column(name))
        for name in batch.schema.names
        if name in _BINARY and batch.column(name).null_count < batch.num_rows
    ]
    if "headers" in batch.schema.names:
        headers = batch.column("headers")
        if headers.null_count < batch.num_rows:
            ends.append(_header_ends(headers))

    def bytes_before(rows: int) -> int:
        size = rows * FETCHED_RECORD_OVERHEAD_BYTES
        for column in ends:
            size += int(column[rows]) - int(column[0])
        return size

    return bytes_before


def _ends(column: pa.Array) -> npt.NDArray[np.int32]:
    """Where each value of a binary column begins, and where the last one ends."""
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)


def _header_ends(headers: pa.Array) -> npt.NDArray[np.int64]:
    """How many bytes the headers of no row, of one, and so on of all rows from the front have."""
    entries = headers.flatten()
    entry_bytes = (
        _lengths(entries.field("key")) + _lengths(entries.field("value")) + HEADER_OVERHEAD_BYTES
    )
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
    totals = np.concatenate([[0], np.cumsum(entry_bytes)])
    ends: npt.NDArray[np.int64] = totals[np.concatenate([[0], np.cumsum(counts)])]
    return ends


def _lengths(column: pa.Array) -> npt.NDArray[np.int64]:
    lengths = pc.fill_null(pc.binary_length(column), 0)
    return np.asarray(lengths).astype(np.int64)

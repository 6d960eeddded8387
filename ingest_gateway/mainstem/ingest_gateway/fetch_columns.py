"""The columns of an answer to a fetch, how many bytes records are there, and where to cut. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.delta_log import Slice
from mainstem.delta_log.data_file import CREATE_TIME, LOG_APPEND_TIME
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
    """Bytes of all records of a batch, as `record_bytes` counts them."""
    size: int = batch.num_rows * FETCHED_RECORD_OVERHEAD_BYTES
    names = batch.schema.names
    for name in _BINARY:
        if name in names:
            size += _total(batch.column(name))
    if "headers" in names and batch.column("headers").null_count < batch.num_rows:
        size = int(record_bytes(batch).sum())
    return size


def record_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Bytes of each record: the columns that it has, and what it costs beside them."""
    sizes = np.full(batch.num_rows, FETCHED_RECORD_OVERHEAD_BYTES, dtype=np.int64)
    names = batch.schema.names
    for name in _BINARY:
        if name in names:
            sizes += _lengths(batch.column(name))
    if "headers" in names:
        headers = batch.column("headers")
        if headers.null_count < len(headers):
            entries = headers.flatten()
            entry_bytes = (
                _lengths(entries.field("key"))
                + _lengths(entries.field("value"))
                + HEADER_OVERHEAD_BYTES
            )
            counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
            ends = np.cumsum(counts)
            totals = np.concatenate([[0], np.cumsum(entry_bytes)])
            sizes += totals[ends] - totals[ends - counts]
    return sizes


def fitting(batch: pa.RecordBatch, bytes_max: int) -> int:
    """How many records of the batch's front fit into `bytes_max`."""
    return int(np.searchsorted(np.cumsum(record_bytes(batch)), bytes_max, side="right"))


def _lengths(column: pa.Array) -> npt.NDArray[np.int64]:
    lengths = pc.fill_null(pc.binary_length(column), 0)
    return np.asarray(lengths).astype(np.int64)


def _total(column: pa.Array) -> int:
    """Bytes of all values of a binary column. What lies behind a null counts too."""
    count = len(column)
    offsets = column.buffers()[1]
    if count == 0 or column.null_count == count or offsets is None:
        return 0
    ends = np.frombuffer(offsets, np.int32, count + 1, 4 * column.offset)
    size: int = int(ends[-1] - ends[0])
    return size

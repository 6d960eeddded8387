"""The Arrow schemas of records: on their way (`WIRE_SCHEMA`), as they are read from a table
(`TABLE_SCHEMA`), and in a data file (`FILE_SCHEMA`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import InvalidRecordError
from mainstem.limits import HEADER_OVERHEAD_BYTES

_HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE = pa.list_(pa.field("element", _HEADER_TYPE))

#: A batch on its way: one row a record. `headers` and `timestamp` may be left out of a request.
WIRE_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
    ]
)

#: The columns of a partition's records in the table.
TABLE_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestamp_type", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
        pa.field("producer_id", pa.int64()),
        pa.field("sequence", pa.int64()),
    ]
)


def _with_id(field: pa.Field, field_id: int) -> pa.Field:
    return field.with_metadata({"PARQUET:field_id": str(field_id)})


def _file_schema() -> pa.Schema:
    columns = [pa.field("partition", pa.int32()), *TABLE_SCHEMA]
    columns = [_with_id(column, number) for number, column in enumerate(columns, start=1)]
    nested = len(columns) + 1
    element = pa.struct(
        [_with_id(field, number) for number, field in enumerate(_HEADER_TYPE, start=nested + 1)]
    )
    headers = pa.list_(_with_id(pa.field("element", element), nested))
    return pa.schema(
        [column.with_type(headers) if column.name == "headers" else column for column in columns]
    )


#: The columns of a data file: those of the table, each with its Parquet field id. Readers that do
#: not know Delta's directories find the partition in the file; an Iceberg table that is made with
#: these columns in this order gives them the same ids. An id is never given to another column.
FILE_SCHEMA = _file_schema()

_TEXT_OR_BINARY = {
    pa.binary(),
    pa.string(),
    pa.large_binary(),
    pa.large_string(),
    pa.binary_view(),
    pa.string_view(),
    pa.null(),
}

#: Made once: a schema makes its names and types anew each time that it is asked, and most requests
#: have one record.
_WIRE_NAMES = tuple(WIRE_SCHEMA.names)
_WIRE_TIMESTAMP = WIRE_SCHEMA.field("timestamp").type
_BINARY = pa.binary()

#: Columns without headers of so few rows are made once.
_FEW_ROWS_MAX = 64

#: Names come from outside, and a gRPC status has room for some kilobytes.
_NAME_SHOWN_MAX = 60


def empty_wire_batch() -> pa.RecordBatch:
    """A batch of no records."""
    return pa.RecordBatch.from_pylist([], schema=WIRE_SCHEMA)


def normalise_wire_batch(batch: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    """The batch with exactly the columns of `WIRE_SCHEMA`, for batches from outside.

    Strings become their UTF-8 bytes, a missing `headers` column nulls, a missing or null timestamp
    `now_ms`. A timestamp of a finer unit is cut to milliseconds; an integer one is milliseconds.

    Raises:
        InvalidRecordError: A column is missing, unknown, twice there, or has another type.
    """
    names = batch.schema.names
    for name in names:
        if name not in _WIRE_NAMES:
            shown = _shown(name)
            raise InvalidRecordError(
                f"the batch has a column {shown!r}; "
                "a batch has key, value and, if wanted, headers and timestamp",
                column=shown,
            )
        if names.count(name) > 1:
            raise InvalidRecordError(f"the batch has the column {name!r} twice", column=name)
    rows = batch.num_rows
    columns = [
        _binary_column(batch, names, "key", rows),
        _binary_column(batch, names, "value", rows),
        _headers_column(batch, names, rows),
        _timestamp_column(batch, names, rows, now_ms),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=WIRE_SCHEMA)


def _binary_column(batch: pa.RecordBatch, names: list[str], name: str, rows: int) -> pa.Array:
    if name not in names:
        if name == "key":
            return pa.nulls(rows, _BINARY)
        raise InvalidRecordError("the batch has no column 'value'", column=name)
    column = batch.column(names.index(name))
    if column.type == _BINARY:
        return column
    if column.type in _TEXT_OR_BINARY:
        return _cast(column, _BINARY, name)
    raise InvalidRecordError(
        f"the column {name!r} has the Arrow type {_shown(str(column.type))}; "
        "it must be binary or string",
        column=name,
    )


def _no_headers(rows: int) -> pa.Array:
    return _no_headers_kept(rows) if rows <= _FEW_ROWS_MAX else pa.nulls(rows, HEADERS_TYPE)


@lru_cache(maxsize=_FEW_ROWS_MAX + 1)
def _no_headers_kept(rows: int) -> pa.Array:
    return pa.nulls(rows, HEADERS_TYPE)


def _headers_column(batch: pa.RecordBatch, names: list[str], rows: int) -> pa.Array:
    if "headers" not in names:
        return _no_headers(rows)
    column = batch.column(names.index("headers"))
    shape = column.type
    if pa.types.is_null(shape):
        return _no_headers(rows)
    if not (
        (pa.types.is_list(shape) or pa.types.is_large_list(shape))
        and pa.types.is_struct(shape.value_type)
        and [field.name for field in shape.value_type] == ["key", "value"]
        and all(field.type in _TEXT_OR_BINARY for field in shape.value_type)
    ):
        raise InvalidRecordError(
            f"the column 'headers' has the Arrow type {_shown(str(shape))}; "
            "it must be list<struct<key: string, value: binary>>",
            column="headers",
        )
    cast = column if shape == HEADERS_TYPE else _cast(column, HEADERS_TYPE, "headers")
    entries = cast.flatten()
    if entries.null_count or entries.field("key").null_count:
        raise InvalidRecordError(
            "a header has no key; only its value may be null", column="headers"
        )
    return cast


def _cast(column: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    try:
        return column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRecordError(
            f"the column {name!r} cannot be read as {wanted}: {_shown(str(error))}", column=name
        ) from error


def _shown(text: str) -> str:
    return text if len(text) <= _NAME_SHOWN_MAX else text[: _NAME_SHOWN_MAX - 3] + "..."


def _timestamp_column(batch: pa.RecordBatch, names: list[str], rows: int, now_ms: int) -> pa.Array:
    wanted = _WIRE_TIMESTAMP
    if "timestamp" not in names:
        return pa.array(np.full(rows, now_ms, dtype=np.int64)).view(wanted)
    column = batch.column(names.index("timestamp"))
    if column.type != wanted:
        if pa.types.is_null(column.type):
            column = pa.nulls(rows, wanted)
        elif column.type == pa.int64():
            column = column.view(wanted)
        elif pa.types.is_timestamp(column.type):
            column = _floor_to_ms(column).view(wanted)
        else:
            raise InvalidRecordError(
                f"the column 'timestamp' has the Arrow type {_shown(str(column.type))}; "
                "it must be timestamp[ms, UTC] or int64 in milliseconds",
                column="timestamp",
            )
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(now_ms, pa.int64()).cast(wanted))
    return column


def _floor_to_ms(column: pa.Array) -> pa.Array:
    """As int64 milliseconds. Downwards, not to zero: what is before 1970 must not become 1970."""
    ticks = column.view(pa.int64())
    if column.type.unit == "ms":
        return ticks
    if column.type.unit == "s":
        try:
            return pc.multiply_checked(ticks, 1_000)
        except pa.ArrowInvalid as error:
            raise InvalidRecordError(
                "a timestamp in seconds lies outside what milliseconds can say", column="timestamp"
            ) from error
    per_ms = 1_000 if column.type.unit == "us" else 1_000_000
    values = ticks.fill_null(0).to_numpy() // per_ms
    return pa.array(values, mask=np.asarray(ticks.is_null()) if ticks.null_count else None)


def table_timestamps(timestamps_ms: npt.NDArray[np.int64]) -> pa.Array:
    """Milliseconds, in range for a record, as the column `timestamp` of a data file. For some
    records a cast of Arrow's takes longer."""
    return pa.array(timestamps_ms * 1_000).view(TABLE_SCHEMA.field("timestamp").type)


def record_sizes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Bytes of each record of a wire batch: key, value, and headers with their overhead."""
    keys, values, headers, _ = batch.columns
    sizes = _lengths(keys) + _lengths(values)
    if headers.null_count < len(headers):
        entries = headers.flatten()
        entry_sizes = (
            _lengths(entries.field("key").cast(pa.binary()))
            + _lengths(entries.field("value"))
            + HEADER_OVERHEAD_BYTES
        )
        counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
        ends = np.cumsum(counts)
        totals = np.concatenate([[0], np.cumsum(entry_sizes)])
        sizes = sizes + totals[ends] - totals[ends - counts]
    return sizes


def _lengths(column: pa.Array) -> npt.NDArray[np.int64]:
    """Bytes of each value of a binary column; null counts 0."""
    count = len(column)
    buffers = column.buffers()
    if count == 0 or column.null_count == count or buffers[1] is None:
        return np.zeros(count, dtype=np.int64)
    offsets = np.frombuffer(buffers[1], np.int32, count + 1, 4 * column.offset)
    lengths = offsets[1:].astype(np.int64) - offsets[:-1]
    if column.null_count:
        lengths[np.asarray(column.is_null())] = 0
    return lengths


def records_to_wire_batch(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Sequence[tuple[str, bytes | None]] | None] | None,
    timestamps_ms: Sequence[int] | npt.NDArray[np.int64],
) -> pa.RecordBatch:
    """Columns of Python values as a wire batch. `headers=None`: no record has any."""
    if headers is None or not any(headers):
        headers_column = pa.nulls(len(keys), HEADERS_TYPE)
    else:
        headers_column = pa.array(
            [[{"key": k, "value": v} for k, v in row] if row else None for row in headers],
            type=HEADERS_TYPE,
        )
    return pa.RecordBatch.from_arrays(
        [
            bytes_column(keys),
            bytes_column(values),
            headers_column,
            pa.array(np.asarray(timestamps_ms, dtype=np.int64)).view(
                WIRE_SCHEMA.field("timestamp").type
            ),
        ],
        schema=WIRE_SCHEMA,
    )


def bytes_column(values: Sequence[bytes | None]) -> pa.Array:
    """A binary column of Python bytes.

    Raises:
        InvalidRecordError: Together they are more than 2 GiB.
    """
    column = pa.array(values, type=pa.binary())
    if isinstance(column, pa.ChunkedArray):
        raise InvalidRecordError(
            f"a batch holds {column.nbytes} bytes in one column; the limit is 2 GiB"
        )
    return column

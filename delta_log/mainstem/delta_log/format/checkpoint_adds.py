"""The `add` actions of a checkpoint to rows of `packed_files`, whole columns at a time.

Source: Delta protocol, sections "Checkpoint Schema" and "Per-file Statistics".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from mainstem.delta_log.format.actions import TAIL_TAG, DataFile
from mainstem.delta_log.format.packed_files import (
    DATA_CHANGE,
    HAS_TAIL_CRC32C,
    KEY_DTYPE,
    ROW_DTYPE,
)

#: What we use of an `add` action; a checkpoint may lack `tags`.
ADD_FIELDS: Final = (
    "path",
    "partitionValues",
    "size",
    "modificationTime",
    "dataChange",
    "stats",
    "tags",
)

#: More would not be faster, and what they take on the way would stay with the process.
_ROWS_AT_A_TIME: Final = 4 * 1024

_BOUNDS: Final = pa.struct([("offset", pa.int64()), ("timestamp", pa.string())])
_STATS: Final = pa.schema(
    [
        pa.field("numRecords", pa.int64()),
        pa.field("minValues", _BOUNDS),
        pa.field("maxValues", _BOUNDS),
    ]
)

#: How a path ends: 20 digits of the base offset, a hyphen, 32 hexadecimal digits, and this.
_SUFFIX: Final = np.frombuffer(b".parquet", np.uint8)
_TAIL: Final = 20 + 1 + 32 + len(_SUFFIX)
_DIRECTORY: Final = np.frombuffer(b"partition=", np.uint8)
_DIGITS_MAX: Final = 10

#: The value of a lower-case hexadecimal digit; 255: it is none.
_HEX: Final = np.full(256, 255, np.uint8)
_HEX[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16, dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class AddedFiles:
    """The `add` actions of a checkpoint.

    Attributes:
        partitions, rows: Of the files that fit into rows of `ROW_DTYPE`.
        others: All other files.
    """

    partitions: npt.NDArray[np.int64]
    rows: npt.NDArray[np.void]
    others: list[DataFile]


def read_adds(parquet: pq.ParquetFile) -> AddedFiles:
    """All `add` actions of a checkpoint. A part of them is decoded at a time.

    Raises:
        pa.ArrowException, OSError, ValueError, LookupError, TypeError: They cannot be read.
    """
    parts = list(_parts(parquet))
    # All rows are one array, the parts are free: the leaves that come next find their room.
    return AddedFiles(
        np.concatenate([np.empty(0, np.int64), *(part.partitions for part in parts)]),
        np.concatenate([np.empty(0, ROW_DTYPE), *(part.rows for part in parts)]),
        [file for part in parts for file in part.others],
    )


def read_keys(parquet: pq.ParquetFile) -> npt.NDArray[np.void] | None:
    """A row of `KEY_DTYPE` for each `add` action; None: one has a path that does not fit into it.

    Raises: As `read_adds`.
    """
    parts = [np.empty(0, KEY_DTYPE)]
    for batch in parquet.iter_batches(columns=["add.path", "add.size"], use_threads=False):
        adds = batch.column("add")
        # A row of another kind has values in its fields all the same.
        adds = adds.filter(adds.is_valid())
        paths, sizes = adds.field("path"), adds.field("size")
        if paths.null_count or sizes.null_count:
            return None
        part = np.empty(len(adds), KEY_DTYPE)
        if not _take_keys(paths, part).all():
            return None
        part["size_bytes"] = np.asarray(sizes)
        parts.append(part)
    return np.concatenate(parts)


def _parts(parquet: pq.ParquetFile) -> Iterator[AddedFiles]:
    if "add" not in parquet.schema_arrow.names:
        return
    there = parquet.schema_arrow.field("add").type
    wanted = [f"add.{name}" for name in ADD_FIELDS if there.get_field_index(name) >= 0]
    for batch in parquet.iter_batches(_ROWS_AT_A_TIME, columns=wanted):
        rows = batch.column("add")
        # A row of another kind has values in its fields all the same.
        rows = rows.filter(rows.is_valid())
        if len(rows):
            yield _decode(rows)


def _decode(adds: pa.StructArray) -> AddedFiles:
    fields = {field.name: adds.field(field.name) for field in adds.type}
    try:
        partitions, rows = _rows(fields)
    except _UnusualError:
        partitions, rows = np.empty(0, np.int64), np.empty(0, ROW_DTYPE)
        usual = np.zeros(len(adds), np.bool_)
    else:
        usual = _take_names(fields["path"], partitions, rows)
    others = adds.filter(pa.array(~usual)) if not usual.all() else adds.slice(0, 0)
    return AddedFiles(
        partitions[usual[: len(rows)]] if len(rows) else partitions,
        rows[usual] if len(rows) else rows,
        [DataFile.from_add(row) for row in others.to_pylist()],
    )


class _UnusualError(Exception):
    """Something is not as we write it, though it may be right: it is to be read row by row."""


def _rows(
    fields: dict[str, pa.Array],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]:
    """The partitions, and the rows without their names."""
    rows = np.zeros(len(fields["path"]), ROW_DTYPE)
    try:
        stats = _stats(fields["stats"])
        least, most = stats["minValues"], stats["maxValues"]
        values = pc.map_lookup(fields["partitionValues"], "partition", "last")
        partitions = _numbers(pc.cast(values, pa.int64()))
        rows["base_offset"] = _numbers(pc.struct_field(least, "offset"))
        rows["last_offset"] = _numbers(pc.struct_field(most, "offset"))
        rows["record_count"] = _numbers(stats["numRecords"])
        rows["size_bytes"] = _numbers(fields["size"])
        rows["timestamp_ms_min"] = _times_ms(pc.struct_field(least, "timestamp"))
        rows["timestamp_ms_max"] = _times_ms(pc.struct_field(most, "timestamp"))
        rows["modified_ms"] = _numbers(fields["modificationTime"])
        changes = fields["dataChange"]
        if changes.null_count or fields["path"].null_count:
            raise _UnusualError
        rows["flags"] = np.where(changes.to_numpy(zero_copy_only=False), DATA_CHANGE, 0)
        if "tags" in fields:
            _take_tail_checksums(pc.map_lookup(fields["tags"], TAIL_TAG, "last"), rows)
    except (pa.ArrowException, LookupError) as error:
        raise _UnusualError from error
    return partitions, rows


def _stats(column: pa.Array) -> dict[str, pa.Array]:
    """The statistics of all files, which are a JSON object each."""
    if column.null_count:
        raise _UnusualError
    lines = pc.binary_join_element_wise(column, "", "\n").cast(pa.string())
    first, last = lines.offset, lines.offset + len(lines)
    offsets = np.frombuffer(lines.buffers()[1], np.int32)
    data = lines.buffers()[2].slice(int(offsets[first]), int(offsets[last] - offsets[first]))
    table = pa_json.read_json(
        pa.BufferReader(data),
        read_options=pa_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pa_json.ParseOptions(
            explicit_schema=_STATS, unexpected_field_behavior="ignore"
        ),
    )
    if len(table) != len(column):
        raise _UnusualError
    return {name: _one(table.column(name)) for name in _STATS.names}


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    if column.null_count or not pa.types.is_integer(column.type):
        raise _UnusualError
    return np.asarray(column.cast(pa.int64()))


def _times_ms(column: pa.Array) -> npt.NDArray[np.int64]:
    """ISO 8601 times with a zone, to milliseconds since 1970 as `parse_timestamp_ms` has them."""
    micros = _numbers(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()))
    return micros // 1000


def _take_tail_checksums(column: pa.Array, rows: npt.NDArray[Any]) -> None:
    """The checksums of tails, eight hexadecimal digits each, where there is one."""
    given = np.asarray(pc.is_valid(column))
    if not given.any():
        return
    texts = column.drop_null()
    ends, data = _text(texts)
    if not np.all(np.asarray(pc.binary_length(texts)) == 8):
        raise _UnusualError
    digits = _HEX[data[(ends - 8)[:, None] + np.arange(8)]]
    if (digits > 15).any():
        raise _UnusualError
    values = digits.astype(np.uint32) @ (np.uint32(1) << np.arange(28, -1, -4, dtype=np.uint32))
    rows["tail_crc32c"][given] = values
    rows["flags"][given] |= HAS_TAIL_CRC32C


def _take_names(
    paths: pa.Array, partitions: npt.NDArray[np.int64], rows: npt.NDArray[Any]
) -> npt.NDArray[np.bool_]:
    """Fills in the names; returns of which rows the path is the usual one of their partition and
    base offset."""
    keys = np.zeros(len(rows), KEY_DTYPE)
    usual = _take_keys(paths, keys)
    rows["name"] = keys["name"]
    usual &= keys["partition"] == partitions
    usual &= keys["base_offset"] == rows["base_offset"]
    return usual


def _take_keys(paths: pa.Array, keys: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Fills in what the paths say; returns which of them are of the usual form. Those have nothing
    that would have to be unescaped."""
    usual = np.zeros(len(keys), np.bool_)
    lengths = np.asarray(pc.binary_length(paths)).astype(np.int64)
    ends, data = _text(paths)
    shortest = len(_DIRECTORY) + 1 + 1 + _TAIL
    for length in np.unique(lengths).tolist():
        digit_count = length - shortest + 1
        if not 1 <= digit_count <= _DIGITS_MAX:
            continue
        index = np.flatnonzero(lengths == length)
        text = data[(ends[index] - length)[:, None] + np.arange(length)]
        head, tail = text[:, :-_TAIL], text[:, -_TAIL:]
        number, numbers_right = _decimal(head[:, len(_DIRECTORY) : -1])
        base, bases_right = _decimal(tail[:, :20])
        digits = _HEX[tail[:, 21:53]]
        right = (
            numbers_right
            & bases_right
            & (head[:, : len(_DIRECTORY)] == _DIRECTORY).all(axis=1)
            & (head[:, -1] == ord("/"))
            & ((digit_count == 1) | (head[:, len(_DIRECTORY)] != ord("0")))
            & (tail[:, 20] == ord("-"))
            & (digits < 16).all(axis=1)
            & (tail[:, 53:] == _SUFFIX).all(axis=1)
        )
        names = np.ascontiguousarray(digits[:, 0::2] << 4 | digits[:, 1::2])
        keys["partition"][index] = number
        keys["base_offset"][index] = base
        keys["name"][index] = names.view("V16").reshape(-1)
        usual[index] = right
    return usual


def _decimal(text: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The numbers that rows of digits are, and which rows are one of at most 18 digits."""
    digits = text.astype(np.int64) - ord("0")
    right = ((digits >= 0) & (digits <= 9)).all(axis=1) & (digits[:, :-18] == 0).all(axis=1)
    digits = digits[:, -18:]
    return digits @ (10 ** np.arange(digits.shape[1] - 1, -1, -1, dtype=np.int64)), right


def _text(column: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Where each string ends in the bytes, and the bytes."""
    column = column.cast(pa.large_string())
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64)[column.offset + 1 : column.offset + len(column) + 1]
    return ends, np.frombuffer(data, np.uint8)

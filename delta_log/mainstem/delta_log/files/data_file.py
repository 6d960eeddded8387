"""Data files: Arrow batches of one partition to Parquet and back."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.delta_log.store import NotFound, Store
from mainstem.delta_log.table import DataFile, ProducerBatch, parquet_file
from mainstem.errors import LogDamagedError, MainstemError, StoreUnavailableError
from mainstem.limits import KIB, ROW_GROUP_BYTES_MAX, ROW_GROUP_ROWS_MAX
from mainstem.records import TABLE_SCHEMA, table_timestamps, timestamps_ms_column

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

_COMPRESSION: Final[dict[str, tuple[str, int | None]]] = {
    "zstd": ("zstd", 1),
    "lz4": ("lz4", None),
    "snappy": ("snappy", None),
    "gzip": ("gzip", 1),
    "none": ("none", None),
}

#: Lengths apart from the bytes: twice as fast to write as a dictionary for keys and values that
#: rarely repeat.
_ENCODINGS: Final = {
    "offset": "DELTA_BINARY_PACKED",
    "timestamp": "DELTA_BINARY_PACKED",
    "key": "DELTA_LENGTH_BYTE_ARRAY",
    "value": "DELTA_LENGTH_BYTE_ARRAY",
    "headers.list.element.value": "DELTA_LENGTH_BYTE_ARRAY",
    "sequence": "DELTA_BINARY_PACKED",
}

#: What is compressed; numbers are small as they are encoded.
_COMPRESSED: Final = {
    "key": ["key"],
    "value": ["value"],
    "headers": ["headers.list.element.key", "headers.list.element.value"],
}

#: Such a column of an append is not compressed if it has fewer bytes: a compressor for each takes
#: as long as all else, and the file takes a block of the disk anyway.
_COMPRESSED_BYTES_MIN: Final = 4 * KIB

_DICTIONARY: Final = ["timestamp_type", "producer_id", "headers.list.element.key"]

#: What Spark and the index prune on. None on key and value: one large value would fill the log.
_STATISTICS: Final = ["offset", "timestamp"]


class DataFileMissing(LogDamagedError):
    """A data file is not there: vacuum has removed it since the state was read, or it is lost."""


def encode_data_file(
    partition: int,
    base_offset: int,
    batches: Sequence[pa.RecordBatch],
    *,
    timestamp_type: int | Sequence[int],
    compression_type: str,
    now_ms: int,
    producers: Sequence[ProducerBatch | None] | None = None,
) -> tuple[DataFile, pa.Buffer]:
    """The Parquet file for consecutive wire batches of one partition, and its `add` action.

    Args:
        base_offset: The offset of the first record; the others follow without a gap.
        batches: At least one record, each with the columns of `WIRE_SCHEMA`.
        timestamp_type: Of all records, or of each batch.
        now_ms: Becomes the file's modification time.
        producers: Who numbered each batch. None: nobody numbered any.
    """
    counts = [batch.num_rows for batch in batches]
    rows = sum(counts)
    assert rows > 0
    records = batches[0] if len(batches) == 1 else pa.Table.from_batches(batches)
    timestamps = np.concatenate(
        [timestamps_ms_column(batch.column("timestamp")) for batch in batches]
    )
    types = [timestamp_type] * len(batches) if isinstance(timestamp_type, int) else timestamp_type
    producer_ids, sequences = _numbering(counts, producers or [None] * len(batches))
    columns = pa.Table.from_arrays(
        [
            pa.array(np.arange(base_offset, base_offset + rows, dtype=np.int64)),
            table_timestamps(timestamps),
            pa.array(np.repeat(np.array(types, dtype=np.int32), counts)),
            records.column("key"),
            records.column("value"),
            records.column("headers"),
            producer_ids,
            sequences,
        ],
        schema=TABLE_SCHEMA,
    )
    large = [name for name in _COMPRESSED if _is_large(records.column(name))]
    sink = pa.BufferOutputStream()
    with parquet_writer(sink, compression_type, large) as writer:
        writer.write_table(columns, row_group_size=_row_group_rows(rows, records.nbytes))
    data = sink.getvalue()
    file = DataFile(
        path=new_path(partition, base_offset),
        partition=partition,
        base_offset=base_offset,
        last_offset=base_offset + rows - 1,
        record_count=rows,
        size_bytes=data.size,
        timestamp_ms_min=int(timestamps.min()),
        timestamp_ms_max=int(timestamps.max()),
        modified_ms=now_ms,
    )
    return file, data


def _is_large(column: pa.Array | pa.ChunkedArray) -> bool:
    """It is worth a compressor."""
    return bool(column.null_count < len(column) and column.nbytes >= _COMPRESSED_BYTES_MIN)


def parquet_writer(
    sink: pa.BufferOutputStream, compression_type: str, compressed: Iterable[str] = _COMPRESSED
) -> pq.ParquetWriter:
    """Writes row groups of a data file, with the columns of `TABLE_SCHEMA`, to `sink`.

    Args:
        compressed: Which of key, value and headers are.
    """
    codec, level = _COMPRESSION[compression_type]
    columns = [path for name in compressed for path in _COMPRESSED[name]]
    return pq.ParquetWriter(
        sink,
        TABLE_SCHEMA,
        compression=dict.fromkeys(columns, codec),
        compression_level=None if level is None else dict.fromkeys(columns, level),
        use_dictionary=_DICTIONARY,
        column_encoding=_ENCODINGS,
        write_statistics=_STATISTICS,
        store_schema=False,
    )


def new_path(partition: int, base_offset: int) -> str:
    """A path of its own for a data file, in its partition's directory."""
    return f"partition={partition}/{base_offset:020d}-{uuid.uuid4().hex}.parquet"


def _numbering(
    counts: Sequence[int], producers: Sequence[ProducerBatch | None]
) -> tuple[pa.Array, pa.Array]:
    """The columns `producer_id` and `sequence`: both null for records that nobody numbered."""
    if not any(producers):
        nothing = pa.nulls(sum(counts), pa.int64())
        return nothing, nothing
    numbers = [(0, 0) if one is None else (one.id, one.base_sequence) for one in producers]
    ids = np.repeat(np.array([number for number, _ in numbers], dtype=np.int64), counts)
    sequences = np.concatenate(
        [
            np.arange(first, first + count, dtype=np.int64)
            for (_, first), count in zip(numbers, counts, strict=True)
        ]
    )
    if all(producers):
        return pa.array(ids), pa.array(sequences)
    missing = np.repeat([producer is None for producer in producers], counts)
    return pa.array(ids, mask=missing), pa.array(sequences, mask=missing)


def _row_group_rows(rows: int, size_bytes: int) -> int:
    by_bytes = rows * ROW_GROUP_BYTES_MAX // max(size_bytes, 1)
    return max(min(ROW_GROUP_ROWS_MAX, by_bytes), 1)


def read_data_file(
    store: Store,
    file: DataFile,
    start_offset: int,
    end_offset: int,
    columns: Iterable[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of `file` with offsets in [start_offset, end_offset), in order, by row groups.

    Args:
        columns: Names out of `TABLE_SCHEMA`; `offset` is read always and comes first. None: all.

    Raises:
        DataFileMissing: The file is not there.
        LogDamagedError: It is damaged.
        StoreUnavailableError: The store could not read it.
    """
    wanted = list(TABLE_SCHEMA.names if columns is None else dict.fromkeys(["offset", *columns]))
    try:
        source = store.open(file.path)
    except NotFound as error:
        raise DataFileMissing(
            f"the data file {store.uri}/{file.path}, which holds offsets {file.base_offset} to "
            f"{file.last_offset} of partition {file.partition}, is missing",
            file=file.path,
        ) from error
    try:
        with source, parquet_file(source) as parquet:
            for group in range(parquet.num_row_groups):
                if not _overlaps(parquet.metadata.row_group(group), start_offset, end_offset):
                    continue
                table = parquet.read_row_group(group, columns=wanted, use_threads=False)
                for batch in table.select(wanted).to_batches():
                    cut = _cut(batch, start_offset, end_offset)
                    if cut.num_rows:
                        yield cut
    except (pa.ArrowException, OSError) as error:
        raise unreadable(store, file, error) from error


def unreadable(store: Store, file: DataFile, error: Exception) -> MainstemError:
    """What to raise for Arrow's `error` at reading a data file: the store failed, or it is damage.

    A failed read may work the next time, as when a network file system comes back.
    """
    name = f"{store.uri}/{file.path}"
    if isinstance(error, OSError) and error.errno is not None:
        return StoreUnavailableError(
            f"the store could not read the data file {name}: {error}", path=name
        )
    return LogDamagedError(f"the data file {name} is damaged: {error}", file=file.path)


def _overlaps(group: Any, start_offset: int, end_offset: int) -> bool:
    column = group.column(0)
    statistics = column.statistics if column.path_in_schema == "offset" else None
    if statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.min < end_offset and statistics.max >= start_offset)


def _cut(batch: pa.RecordBatch, start_offset: int, end_offset: int) -> pa.RecordBatch:
    offsets = batch.column("offset").to_numpy()
    first, last = np.searchsorted(offsets, [start_offset, end_offset])
    return batch.slice(int(first), int(last - first))

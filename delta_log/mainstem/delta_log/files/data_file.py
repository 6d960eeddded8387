"""Data files: Arrow batches of one partition to Parquet and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mainstem.delta_log.files.checksums import crc32c
from mainstem.delta_log.files.data_file_encoder import COMPRESSED, DataFileEncoder, new_path
from mainstem.delta_log.files.data_file_reader import DataFileReader, open_data_file
from mainstem.delta_log.files.small_data_file import (
    COMPRESSED_BYTES_MIN,
    SmallRows,
    encode_small_file,
)
from mainstem.delta_log.format import DataFile, ProducerBatch
from mainstem.delta_log.store import NotFound, ObjectStore
from mainstem.errors import LogDamagedError
from mainstem.limits import ROW_GROUP_BYTES_MAX, ROW_GROUP_ROWS_MAX
from mainstem.records import TABLE_SCHEMA, table_timestamps, timestamps_ms_column

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1


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
    assert any(batch.num_rows for batch in batches)
    types = [timestamp_type] * len(batches) if isinstance(timestamp_type, int) else timestamp_type
    producers = producers or [None] * len(batches)
    small = SmallRows.of(batches, types, producers, compression_type)
    if small is not None:
        rows = len(small.values)
        timestamps_us = small.timestamps_us
        earliest_ms, latest_ms = min(timestamps_us) // 1_000, max(timestamps_us) // 1_000
        data = pa.py_buffer(encode_small_file(partition, base_offset, small, compression_type))
        tail_crc32c = crc32c(data)
    else:
        rows = sum(batch.num_rows for batch in batches)
        timestamps = np.concatenate(
            [timestamps_ms_column(batch.column("timestamp")) for batch in batches]
        )
        earliest_ms, latest_ms = int(timestamps.min()), int(timestamps.max())
        data, tail_crc32c = _encode(
            partition, base_offset, batches, timestamps, types, producers, compression_type
        )
    file = DataFile(
        path=new_path(partition, base_offset),
        partition=partition,
        base_offset=base_offset,
        last_offset=base_offset + rows - 1,
        record_count=rows,
        size_bytes=data.size,
        timestamp_ms_min=earliest_ms,
        timestamp_ms_max=latest_ms,
        modified_ms=now_ms,
        tail_crc32c=tail_crc32c,
    )
    return file, data


def _encode(
    partition: int,
    base_offset: int,
    batches: Sequence[pa.RecordBatch],
    timestamps: npt.NDArray[np.int64],
    types: Sequence[int],
    producers: Sequence[ProducerBatch | None],
    compression_type: str,
) -> tuple[pa.Buffer, int]:
    """The file, and the checksum of its tail, as Arrow writes it."""
    counts = [batch.num_rows for batch in batches]
    records = batches[0] if len(batches) == 1 else pa.Table.from_batches(batches)
    rows = records.num_rows
    producer_ids, sequences = _numbering(counts, producers)
    sizes = {name: records.column(name).nbytes for name in COMPRESSED}
    large = [
        name
        for name, size in sizes.items()
        if size >= COMPRESSED_BYTES_MIN and records.column(name).null_count < rows
    ]
    encoder = DataFileEncoder(partition, compression_type, large)
    encoder.write(
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
        _row_group_rows(rows, sum(sizes.values())),
    )
    return encoder.finish()


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
    store: ObjectStore,
    file: DataFile,
    start_offset: int,
    end_offset: int,
    columns: Iterable[str] | None = None,
    *,
    timestamps_ms: tuple[int, int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of `file` with offsets in [start_offset, end_offset), in order, by row groups.

    Args:
        columns: Names out of `TABLE_SCHEMA`; `offset` is read always and comes first. None: all.
        timestamps_ms: Row groups without a record of these times, both inclusive, are left out.

    Raises:
        DataFileMissing: The file is not there.
        LogDamagedError: It is damaged.
        StoreUnavailableError: The store could not read it.
    """
    schema = _schema_of(None if columns is None else tuple(columns))
    wanted = schema.names
    whole = start_offset <= file.base_offset and file.last_offset < end_offset
    with _open(store, file) as reader:
        try:
            for group in range(reader.parquet.num_row_groups):
                metadata = reader.parquet.metadata.row_group(group)
                if not _overlaps(metadata, start_offset, end_offset):
                    continue
                if timestamps_ms is not None and not _has_times(metadata, *timestamps_ms):
                    continue
                table = reader.parquet.read_row_group(group, columns=wanted, use_threads=False)
                for batch in table.select(wanted).to_batches():
                    cut = batch if whole else _cut(batch, start_offset, end_offset)
                    if cut.num_rows:
                        yield pa.RecordBatch.from_arrays(cut.columns, schema=schema)
        except (pa.ArrowException, OSError) as error:
            raise reader.error(error) from error


def check_data_file(store: ObjectStore, file: DataFile) -> None:
    """Reads all of a file that has a checksum, and whether it says itself which partition it is of.

    Raises: As `read_data_file`.
    """
    with _open(store, file) as reader:
        reader.check_all()
        if "partition" not in reader.parquet.schema_arrow.names:
            return  # a file of before it did
        try:
            found = pc.unique(reader.parquet.read(["partition"]).column(0)).to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise reader.error(error) from error
    if found != [file.partition]:
        raise LogDamagedError(
            f"the data file {store.uri}/{file.path} has records of partition "
            f"{', '.join(map(str, found))}; the log says {file.partition}",
            file=file.path,
        )


def _open(store: ObjectStore, file: DataFile) -> DataFileReader:
    try:
        return open_data_file(store, file)
    except NotFound as error:
        raise DataFileMissing(
            f"the data file {store.uri}/{file.path}, which holds offsets {file.base_offset} to "
            f"{file.last_offset} of partition {file.partition}, is missing",
            file=file.path,
        ) from error


@lru_cache
def _schema_of(columns: tuple[str, ...] | None) -> pa.Schema:
    """The schema of what is read."""
    if columns is None:
        return TABLE_SCHEMA
    return pa.schema([TABLE_SCHEMA.field(name) for name in dict.fromkeys(["offset", *columns])])


def _overlaps(group: pq.RowGroupMetaData, start_offset: int, end_offset: int) -> bool:
    statistics = offset_statistics(group)
    if statistics is None:
        return True
    return bool(statistics.min < end_offset and statistics.max >= start_offset)


def _has_times(group: pq.RowGroupMetaData, least_ms: int, most_ms: int) -> bool:
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema == "timestamp":
            statistics = column.statistics
            if statistics is None or not statistics.has_min_max:
                return True
            # Raw values are what the column's unit says: microseconds.
            least, most = statistics.min_raw, statistics.max_raw
            return bool(least <= most_ms * 1000 and most >= least_ms * 1000)
    return True


def offset_statistics(group: pq.RowGroupMetaData) -> pq.Statistics | None:
    """The bounds of the offsets in a row group of a data file, if it has them."""
    # The first column, or the second, after `partition`.
    for index in range(min(group.num_columns, 2)):
        column = group.column(index)
        if column.path_in_schema == "offset":
            statistics = column.statistics
            return statistics if statistics is not None and statistics.has_min_max else None
    return None


def _cut(batch: pa.RecordBatch, start_offset: int, end_offset: int) -> pa.RecordBatch:
    offsets = batch.column("offset").to_numpy()
    first, last = np.searchsorted(offsets, [start_offset, end_offset])
    return batch.slice(int(first), int(last - first))

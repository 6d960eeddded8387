"""Data files of records that have their offsets: what roll-ups and maintenance write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.delta_log.files.data_file_encoder import DataFileEncoder, new_path
from mainstem.delta_log.files.data_file_reader import DataFileReader
from mainstem.delta_log.format import DataFile
from mainstem.delta_log.store import ObjectStore
from mainstem.limits import ROW_GROUP_BYTES_MAX, ROW_GROUP_ROWS_MAX
from mainstem.records import TABLE_SCHEMA


class DataFileWriter:
    """Encodes one data file of a partition, row group by row group, as an appender would.

    Keeps the encoded file alone.
    """

    def __init__(self, partition: int, compression_type: str) -> None:
        self._partition = partition
        self._encoder = DataFileEncoder(partition, compression_type)
        self._record_count = 0
        self._base_offset = self._last_offset = -1
        self._timestamp_us_min = self._timestamp_us_max = 0

    @property
    def size_bytes(self) -> int:
        """Encoded so far."""
        return self._encoder.size_bytes

    def write(self, records: pa.Table) -> None:
        """Adds records, at least one, as one row group.

        Args:
            records: With the columns of `TABLE_SCHEMA`, by offset, after those that were added.
        """
        offsets = records.column("offset")
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        assert self._last_offset < first <= last, f"{first} to {last} after {self._last_offset}"
        timestamps = pc.min_max(records.column("timestamp").cast(pa.int64()))
        earliest, latest = timestamps["min"].as_py(), timestamps["max"].as_py()
        if self._record_count:
            earliest = min(earliest, self._timestamp_us_min)
            latest = max(latest, self._timestamp_us_max)
        else:
            self._base_offset = first
        self._last_offset = last
        self._timestamp_us_min, self._timestamp_us_max = earliest, latest
        self._record_count += records.num_rows
        self._encoder.write(records.columns, records.num_rows)

    def finish(self, now_ms: int) -> tuple[DataFile, pa.Buffer]:
        """The file, which has at least one record, and its `add` action.

        Args:
            now_ms: Becomes the file's modification time.
        """
        assert self._record_count
        data, tail_crc32c = self._encoder.finish()
        file = DataFile(
            path=new_path(self._partition, self._base_offset),
            partition=self._partition,
            base_offset=self._base_offset,
            last_offset=self._last_offset,
            record_count=self._record_count,
            size_bytes=data.size,
            timestamp_ms_min=self._timestamp_us_min // 1000,
            timestamp_ms_max=self._timestamp_us_max // 1000,
            modified_ms=now_ms,
            tail_crc32c=tail_crc32c,
        )
        return file, data


def write_data_files(
    store: ObjectStore,
    partition: int,
    batches: Iterable[pa.RecordBatch],
    *,
    target_bytes: int,
    compression_type: str,
    now_ms: int,
) -> list[DataFile]:
    """Writes records to files of `target_bytes`, but for the last, and makes these durable.

    Holds some row groups in memory beside one encoded file.

    Args:
        batches: With the columns of `TABLE_SCHEMA`, by offset. Empty ones are passed over.
        target_bytes: Of a file as it is stored; a file is complete with the row group that has it
            reach them.
        now_ms: Becomes the files' modification time.

    Raises:
        StoreUnavailableError: The store failed. Files that were written are left for vacuum.
    """
    files: list[DataFile] = []
    writer: DataFileWriter | None = None

    def put(done: DataFileWriter) -> None:
        file, data = done.finish(now_ms)
        store.put(file.path, data)
        files.append(file)

    for records in _row_groups(batches):
        writer = writer or DataFileWriter(partition, compression_type)
        writer.write(records)
        if writer.size_bytes >= target_bytes:
            put(writer)
            writer = None
    if writer is not None:
        put(writer)
    return files


def merge_data_files(
    kept: Iterable[tuple[DataFile, bytes]], *, compression_type: str, now_ms: int
) -> tuple[DataFile, pa.Buffer]:
    """One data file with the records of others as they are, and its `add` action.

    Holds one row group in memory beside the encoded file.

    Args:
        kept: Files of one partition with their bytes, by offset; at least one.
        now_ms: Becomes the file's modification time.

    Raises:
        LogDamagedError: The bytes of one are not what was written.
    """
    files = list(kept)
    writer = DataFileWriter(files[0][0].partition, compression_type)
    for records in _row_groups(_batches(files)):
        writer.write(records)
    return writer.finish(now_ms)


def _batches(files: Iterable[tuple[DataFile, bytes]]) -> Iterator[pa.RecordBatch]:
    for file, content in files:
        source = pa.BufferReader(content)
        with DataFileReader(source, file, f"{file.path}, as it is in memory,") as reader:
            try:
                for group in range(reader.parquet.num_row_groups):
                    table = reader.parquet.read_row_group(
                        group, columns=TABLE_SCHEMA.names, use_threads=False
                    )
                    yield from table.to_batches()
            except (pa.ArrowException, OSError) as error:
                raise reader.error(error) from error


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The same records in tables that fill a row group each, but for the last."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        while batch.num_rows:
            room = _fitting(batch, rows, size)
            taken, batch = batch.slice(0, room), batch.slice(room)
            waiting.append(taken)
            rows += taken.num_rows
            size += taken.nbytes
            if batch.num_rows or rows >= ROW_GROUP_ROWS_MAX or size >= ROW_GROUP_BYTES_MAX:
                yield pa.Table.from_batches(waiting)
                waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _fitting(batch: pa.RecordBatch, rows: int, size: int) -> int:
    """How many of a batch's records, by their mean size, still go into a row group; at least one,
    so that there is progress."""
    by_bytes = int(batch.num_rows * (ROW_GROUP_BYTES_MAX - size) // max(batch.nbytes, 1))
    return max(1, min(int(batch.num_rows), ROW_GROUP_ROWS_MAX - rows, by_bytes))

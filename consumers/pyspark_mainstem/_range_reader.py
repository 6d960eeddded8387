"""Reading a planned range on an executor: data files to Arrow batches, with nothing of the log
loaded, unless a file has gone since the range was planned.

A range is read in full or not at all: what is missing is an error, never a shorter answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa

from mainstem.config import StoreSettings
from mainstem.delta_log import ObjectStore, read_data_file
from mainstem.delta_log.files import DataFileMissing
from mainstem.delta_log.format import DataFile
from mainstem.delta_log.store import open_warehouse, parse_warehouse
from mainstem.errors import LogDamagedError
from mainstem.limits import ROW_GROUP_BYTES_MAX, ROW_GROUP_ROWS_MAX
from mainstem.records import HEADERS_TYPE
from pyspark_mainstem._range_plan import FilePart, RangePlan
from pyspark_mainstem._range_rest import plan_rest

#: Rows that small files are gathered into before they go to Spark: a batch costs the same whatever
#: is in it.
_BATCH_ROWS: Final = 16 * 1024

#: Bytes of a batch, unless one record alone has more. Spark's worker and its JVM each hold a batch
#: or two of every task, and the offsets of an Arrow column end at 2 GiB. A whole row group fits.
_BATCH_BYTES_MAX: Final = 2 * ROW_GROUP_BYTES_MAX

#: Plans of one range, the first included. Compaction and vacuum would have to overtake the same
#: task again each time.
_PLANS_MAX: Final = 8

#: The column of the data file behind each column of the source; the others are the same for a whole
#: range.
_FILE_COLUMNS: Final = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
}

_ARROW_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of the batches, which is what Spark makes of `spark_schema(columns)`."""
    return pa.schema([pa.field(name, _ARROW_TYPES[name]) for name in columns])


def read_range(
    plan: RangePlan,
    columns: Sequence[str],
    *,
    fail_on_data_loss: bool = True,
    settings: StoreSettings | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of the range in offset order, in batches of at most `ROW_GROUP_ROWS_MAX` rows and
    16 MiB; a larger record is a batch of its own.

    Args:
        fail_on_data_loss: False: of a range that retention or the deletion of the topic has
            overtaken, read what is left.
        settings: How the table is reached where it is in an object storage service.

    Raises:
        OffsetOutOfRangeError: Retention has removed records of the range since it was planned.
        UnknownTopicError: The topic was deleted since.
        LogDamagedError: A file is missing, damaged, or does not hold what the table's log says.
        StoreUnavailableError: The table's directory is gone, or cannot be read.
    """
    schema = arrow_schema(columns)
    for batch in _sized(_read_files(plan, columns, fail_on_data_loss, settings)):
        yield _shape(batch, plan, schema)


def _sized(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are worth their cost, and within bounds."""
    gathered: list[pa.RecordBatch] = []
    row_count = byte_count = 0
    for piece in (piece for batch in batches for piece in _cut(batch)):
        row_count += piece.num_rows
        byte_count += piece.nbytes
        if gathered and (row_count > ROW_GROUP_ROWS_MAX or byte_count > _BATCH_BYTES_MAX):
            yield _joined(gathered)
            gathered, row_count, byte_count = [], piece.num_rows, piece.nbytes
        gathered.append(piece)
        if row_count >= _BATCH_ROWS:
            yield _joined(gathered)
            gathered, row_count, byte_count = [], 0, 0
    if gathered:
        yield _joined(gathered)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halves of the batch, and halves of those, until each is within bounds. Copies nothing."""
    within = batch.num_rows <= ROW_GROUP_ROWS_MAX and batch.nbytes <= _BATCH_BYTES_MAX
    if within or batch.num_rows == 1:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _cut(batch.slice(0, middle))
    yield from _cut(batch.slice(middle))


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _read_files(
    plan: RangePlan,
    columns: Sequence[str],
    fail_on_data_loss: bool,
    settings: StoreSettings | None,
) -> Iterator[pa.RecordBatch]:
    wanted = [_FILE_COLUMNS[name] for name in columns if name in _FILE_COLUMNS]
    store = open_warehouse(parse_warehouse(plan.table_uri, settings=settings))
    next_offset = plan.start
    try:
        for plans_left in reversed(range(_PLANS_MAX)):
            try:
                for part in plan.files:
                    for batch in _read_part(store, plan, part, wanted):
                        next_offset = batch.column("offset")[-1].as_py() + 1
                        yield batch
                return
            except DataFileMissing as missing:
                if not plans_left:
                    raise
                plan = plan_rest(
                    store, plan, next_offset, missing, fail_on_data_loss=fail_on_data_loss
                )
    finally:
        store.close()


def _read_part(
    store: ObjectStore, plan: RangePlan, part: FilePart, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    start = max(plan.start, part.base_offset)
    end = min(plan.end, part.last_offset + 1)
    expected = start
    rows = 0
    times = plan.timestamps_ms if part.partly else None
    for batch in read_data_file(
        store, _data_file(plan, part), start, end, columns, timestamps_ms=times
    ):
        rows += batch.num_rows
        if part.dense:
            offsets = batch.column("offset")
            first, last = offsets[0].as_py(), offsets[-1].as_py()
            if times is not None:
                expected = max(expected, first)
            if first != expected or last - first + 1 != batch.num_rows:
                raise _short(plan, part, expected)
            expected = last + 1
        yield batch
    if times is not None:
        return
    if part.dense and expected != end:
        raise _short(plan, part, expected)
    whole = (start, end) == (part.base_offset, part.last_offset + 1)
    if whole and rows != part.record_count:
        raise LogDamagedError(
            f"the data file {plan.table_uri}/{part.path} has {rows} records; the table's log says "
            f"{part.record_count}",
            file=part.path,
            topic=plan.topic,
            partition=plan.partition,
        )


def _short(plan: RangePlan, part: FilePart, offset: int) -> LogDamagedError:
    return LogDamagedError(
        f"the data file {plan.table_uri}/{part.path} lacks offset {offset} of topic "
        f"{plan.topic!r}, partition "
        f"{plan.partition}: the table's log says that it holds {part.base_offset} to "
        f"{part.last_offset}",
        file=part.path,
        topic=plan.topic,
        partition=plan.partition,
        offset=offset,
    )


def _data_file(plan: RangePlan, part: FilePart) -> DataFile:
    return DataFile(
        path=part.path,
        partition=plan.partition,
        base_offset=part.base_offset,
        last_offset=part.last_offset,
        record_count=part.record_count,
        size_bytes=part.size_bytes,
        timestamp_ms_min=0,
        timestamp_ms_max=0,
        modified_ms=0,
        tail_crc32c=part.tail_crc32c,
    )


def _shape(batch: pa.RecordBatch, plan: RangePlan, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns of the source."""
    arrays = []
    for name in schema.names:
        if name == "topic":
            arrays.append(_constant(plan.topic, batch.num_rows))
        elif name == "partition":
            arrays.append(_constant(plan.partition, batch.num_rows))
        else:
            arrays.append(batch.column(_FILE_COLUMNS[name]))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@lru_cache(maxsize=8)
def _constant(value: str | int, rows: int) -> pa.Array:
    type_ = pa.string() if isinstance(value, str) else pa.int32()
    return pa.repeat(pa.scalar(value, type_), rows)

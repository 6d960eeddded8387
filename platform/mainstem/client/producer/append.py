"""What `produce` and `produce_batch` take, checked and put into the topic's buffer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mainstem.client.interrupts import held_back
from mainstem.client.per_record.plain import FULL
from mainstem.client.producer.accumulator import Headers, TopicBuffer, record_bytes
from mainstem.client.producer.engine import Engine
from mainstem.client.producer.pieces import RECORD_OVERHEAD_BYTES, BatchPromise, Waiter
from mainstem.client.results import BatchMetadata
from mainstem.errors import InvalidRecordError, QueueFullError, RecordTooLargeError
from mainstem.limits import REQUEST_RECORDS_MAX, TIMESTAMP_MS_MAX
from mainstem.records import normalise_wire_batch, record_sizes

#: What a key or a value may be given as; str becomes UTF-8.
BytesLike = bytes | bytearray | memoryview | str

#: What headers may be given as.
HeadersLike = Mapping[str, BytesLike | None] | Iterable[tuple[str, BytesLike | None]]

_PARTITION: Final = "partition"


def append_record(
    engine: Engine,
    topic: str,
    value: bytes | None,
    key: bytes | None,
    partition: int,
    waiter: Waiter | None,
    timestamp_ms: int | None,
    headers: Headers | None,
    *,
    blocking: bool = True,
) -> None:
    """Queues one record, with everything that a record may have.

    Raises:
        WouldBlock: Not `blocking`, and it would have to wait; nothing was queued.
    """
    buffer = engine.topics.get(topic)
    if buffer is None:
        buffer = engine.open(topic, blocking=blocking)
    if partition == -1:
        partition = engine.place(buffer, key, blocking=blocking)
    else:
        if type(partition) is not int:
            raise TypeError(f"partition is a {type(partition).__name__}; it must be an int")
        engine.check_partition(buffer, partition, blocking=blocking)
    size = record_bytes(value, key, headers)
    while True:
        code = buffer.append(value, key, size, partition, waiter, timestamp_ms, headers)
        if code != FULL:
            break
        buffer = engine.make_room(buffer, size, blocking=blocking)
    if code:
        engine.look(buffer)


def to_bytes(value: object, what: str) -> bytes | None:
    """A key or value as bytes.

    Raises:
        TypeError: It is none of bytes, bytearray, memoryview, str and None.
    """
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(
        f"the {what} is a {type(value).__name__}; it must be bytes, str or None: serialise it first"
    )


def check_timestamp(timestamp: object) -> int | None:
    """A timestamp in milliseconds; None for now.

    Raises:
        TypeError: It is no int.
        InvalidRecordError: It is negative or beyond the year 9999.
    """
    if timestamp is None:
        return None
    if type(timestamp) is not int:
        raise TypeError(
            f"the timestamp is a {type(timestamp).__name__}; it must be an int, "
            "milliseconds since 1970-01-01 UTC"
        )
    if not 0 <= timestamp <= TIMESTAMP_MS_MAX:
        raise InvalidRecordError(
            f"the timestamp is {timestamp} ms; it must be 0 to {TIMESTAMP_MS_MAX} ms since "
            "1970-01-01 UTC (the end of the year 9999), not microseconds or nanoseconds",
            timestamp_ms=timestamp,
        )
    return timestamp


def to_headers(headers: object) -> Headers | None:
    """Headers as (name, bytes or None) pairs; None when there are none.

    Raises:
        TypeError: A name is no str, or a value neither bytes, str nor None.
    """
    if not headers:
        return None
    if isinstance(headers, Mapping):
        headers = headers.items()
    if not isinstance(headers, Iterable):
        raise TypeError(
            f"headers is a {type(headers).__name__}; it must be a list of (str, bytes) or a dict"
        )
    found: Headers = []
    for pair in headers:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"a header is {pair!r}; it must be a pair of name and value")
        name, value = pair
        if not isinstance(name, str):
            raise TypeError(f"a header's name is a {type(name).__name__}; it must be a str")
        name.encode()  # a lone surrogate is refused here, not when its batch is made
        found.append((name, to_bytes(value, f"value of header {name!r}")))
    return found or None


def append_batch(engine: Engine, topic_name: str, batch: pa.RecordBatch) -> Future[BatchMetadata]:
    """Queues all rows or none; see Producer.produce_batch."""
    if not isinstance(batch, pa.RecordBatch):
        raise TypeError(
            f"the batch is a {type(batch).__name__}; it must be a pyarrow.RecordBatch "
            "(of a Table, send each of table.to_batches())"
        )
    topic = engine.open(topic_name)
    partitions, batch = _split_partitions(engine, topic, batch)
    batch = normalise_wire_batch(batch, time.time_ns() // 1_000_000)
    promise = BatchPromise(topic_name, 1)
    promise.future.set_running_or_notify_cancel()
    if batch.num_rows == 0:
        promise.future.set_result(BatchMetadata(topic_name, -1, ()))
        return promise.future
    sizes = record_sizes(batch) + RECORD_OVERHEAD_BYTES
    _check_sizes(engine, topic_name, sizes)
    bounds = _part_bounds(sizes, engine.settings.max_request_size)
    promise.part_count = len(bounds) - 1
    _queue(engine, topic, batch, partitions, sizes, bounds, promise)
    with held_back():
        engine.sender.pump()
    return promise.future


def _queue(
    engine: Engine,
    topic: TopicBuffer,
    batch: pa.RecordBatch,
    partitions: npt.NDArray[np.int32] | None,
    sizes: npt.NDArray[np.int64],
    bounds: list[int],
    promise: BatchPromise,
) -> None:
    sender = engine.sender
    total_bytes = int(sizes.sum())
    deadline = engine.clock() + engine.settings.max_block_ms / 1000
    while True:
        with held_back(), topic.lock:
            if topic.values:
                # What came before in time stays before in the log.
                sender.cut(topic, ready=True)
            if not topic.closed and engine.memory.reserve(total_bytes):
                created_at = engine.clock()
                pieces = []
                for index in range(len(bounds) - 1):
                    start, end = bounds[index], bounds[index + 1]
                    pieces.append(
                        topic.part(
                            batch.slice(start, end - start),
                            None if partitions is None else partitions[start:end],
                            int(sizes[start:end].sum()),
                            created_at,
                            promise,
                            index,
                        )
                    )
                for piece in pieces:
                    sender.enqueue(topic, piece)
                return
        with held_back():
            sender.pump()
        engine.open(topic.name)
        engine.wait_for_room(total_bytes, deadline)


def _split_partitions(
    engine: Engine, topic: TopicBuffer, batch: pa.RecordBatch
) -> tuple[npt.NDArray[np.int32] | None, pa.RecordBatch]:
    """The `partition` column (-1: let the partitioner decide), and the batch without it."""
    if _PARTITION not in batch.schema.names:
        partitioner = engine.settings.partitioner
        if isinstance(partitioner, str):
            return None, batch
        keys = batch.column("key") if "key" in batch.schema.names else pa.nulls(batch.num_rows)
        as_bytes = keys.cast(pa.binary()).to_pylist()
        return np.array([engine.place(topic, key) for key in as_bytes], dtype=np.int32), batch
    column = batch.column(_PARTITION)
    if not pa.types.is_integer(column.type):
        raise InvalidRecordError(
            f"the column 'partition' has the Arrow type {column.type}; it must be int32",
            column=_PARTITION,
        )
    wide = column.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    if wide.size:
        if int(wide.min()) < -1:
            engine.check_partition(topic, int(wide.min()), blocking=True)
        if int(wide.max()) >= 0:
            engine.check_partition(topic, int(wide.max()), blocking=True)
    return wide.astype(np.int32), batch.drop_columns([_PARTITION])


def _check_sizes(engine: Engine, topic_name: str, sizes: npt.NDArray[np.int64]) -> None:
    settings = engine.settings
    row = int(sizes.argmax())
    record_bytes = int(sizes[row]) - RECORD_OVERHEAD_BYTES
    if record_bytes > settings.max_request_size:
        raise RecordTooLargeError(
            f"row {row} of the batch for topic {topic_name} has {record_bytes} bytes; the limit "
            f"is max.request.size ({settings.max_request_size} bytes)",
            topic=topic_name,
            record_index=row,
            size_bytes=record_bytes,
            limit_bytes=settings.max_request_size,
        )
    total_bytes = int(sizes.sum())
    if total_bytes > settings.buffer_memory:
        raise QueueFullError(
            f"the batch for topic {topic_name} has {total_bytes} bytes; buffer.memory is "
            f"{settings.buffer_memory} bytes: send smaller batches, or raise it",
            topic=topic_name,
            size_bytes=total_bytes,
            limit_bytes=settings.buffer_memory,
        )


def _part_bounds(sizes: npt.NDArray[np.int64], part_bytes_max: int) -> list[int]:
    """Rows at which a new part begins, and the row count: each part fits into one request."""
    ends = np.cumsum(sizes)
    bounds = [0]
    while bounds[-1] < len(sizes):
        start = bounds[-1]
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + part_bytes_max, side="right"))
        # A single row may be over by its overhead.
        bounds.append(min(max(end, start + 1), start + REQUEST_RECORDS_MAX))
    return bounds

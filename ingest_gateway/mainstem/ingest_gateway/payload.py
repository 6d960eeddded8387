"""Reads the payload of a produce request into slices for the appender, or says what is wrong with it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mainstem.config import TopicConfig
from mainstem.delta_log import Slice
from mainstem.errors import (
    InvalidRecordError,
    RecordTooLargeError,
    RequestTooLargeError,
    UnknownPartitionError,
)
from mainstem.ingest_gateway.placement import StickyPlacement
from mainstem.protocol.v1 import log_pb2
from mainstem.records import (
    WIRE_SCHEMA,
    normalise_wire_batch,
    record_sizes,
    records_to_wire_batch,
    timestamps_ms_column,
    timestamps_out_of_range,
)

#: What a record costs in memory beside its bytes: offsets, timestamp, header list.
_RECORD_OVERHEAD_BYTES = 24


@dataclass(frozen=True, slots=True)
class PayloadRules:
    """What a payload is checked against."""

    topic: str
    partition_count: int
    config: TopicConfig
    message_bytes_max: int
    request_bytes_max: int


@dataclass(frozen=True, slots=True)
class Payload:
    """A request's records, checked.

    Attributes:
        slices: In the order of the request within each partition.
        record_count: Of all slices.
        record_bytes: Key, value and headers of all records.
        placed: The partition of each record where the gateway chose it, else None.
    """

    slices: tuple[Slice, ...]
    record_count: int
    record_bytes: int
    placed: npt.NDArray[np.int32] | None

    @property
    def queue_bytes(self) -> int:
        """What the payload counts for in queues."""
        return self.record_bytes + _RECORD_OVERHEAD_BYTES * self.record_count


def read_payload(
    request: log_pb2.ProduceRequest, rules: PayloadRules, sticky: StickyPlacement, now_ms: int
) -> Payload:
    """Checks a request's records and sorts them to their partitions. The large buffers are not copied.

    Raises:
        InvalidRecordError: Malformed Arrow, a wrong schema, ranges that do not fit, a bad timestamp.
        RecordTooLargeError, RequestTooLargeError: A record or the whole is too large.
        UnknownPartitionError: A partition that the topic does not have.
    """
    if request.WhichOneof("payload") == "arrow":
        batches = _read_ipc(request.arrow.ipc_stream, rules, now_ms)
        ranges = request.arrow.ranges
        given = None
    else:
        batches, given = _read_records(request.records.records, rules, now_ms)
        ranges = None
    if rules.config.log_append_time:
        batches = [_stamped(batch, now_ms) for batch in batches]
    sizes = _checked_sizes(batches, rules, now_ms)
    record_bytes = int(sizes.sum())
    if ranges:
        slices = _slices_of_ranges(batches, ranges, rules)
        return Payload(slices, len(sizes), record_bytes, None)
    batch = batches[0] if len(batches) == 1 else _concatenated(batches)
    placed = sticky.place(batch.column("key"), sizes, given, rules.partition_count)
    return Payload(_slices_of_places(batch, placed), len(sizes), record_bytes, placed)


def _read_ipc(stream: bytes, rules: PayloadRules, now_ms: int) -> list[pa.RecordBatch]:
    batches = []
    size_bytes = 0
    try:
        with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
            for batch in reader:
                # Offsets and lengths come from outside: reading through a wrong one would crash.
                batch.validate(full=True)
                size_bytes += batch.nbytes
                if size_bytes > rules.request_bytes_max:
                    raise RequestTooLargeError(
                        f"the request unpacks to more than socket.request.max.bytes "
                        f"({rules.request_bytes_max} bytes); send less at a time",
                        limit_bytes=rules.request_bytes_max,
                    )
                if batch.num_rows:
                    batches.append(normalise_wire_batch(batch, now_ms))
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise InvalidRecordError(
            f"the payload is no valid Arrow IPC stream: {str(error)[:300]}", topic=rules.topic
        ) from error
    if not batches:
        raise InvalidRecordError("the request has no records", topic=rules.topic)
    return batches


def _read_records(
    records: Sequence[log_pb2.Record], rules: PayloadRules, now_ms: int
) -> tuple[list[pa.RecordBatch], npt.NDArray[np.int32]]:
    if not records:
        raise InvalidRecordError("the request has no records", topic=rules.topic)
    given = np.full(len(records), -1, dtype=np.int32)
    for index, record in enumerate(records):
        if record.HasField("partition"):
            if not 0 <= record.partition < rules.partition_count:
                raise _unknown_partition(record.partition, rules)
            given[index] = record.partition
    batch = records_to_wire_batch(
        [record.key if record.HasField("key") else None for record in records],
        [record.value if record.HasField("value") else None for record in records],
        [
            [
                (header.key, header.value if header.HasField("value") else None)
                for header in record.headers
            ]
            for record in records
        ],
        [record.timestamp_ms if record.HasField("timestamp_ms") else now_ms for record in records],
    )
    return [batch], given


def _stamped(batch: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    index = WIRE_SCHEMA.get_field_index("timestamp")
    field = WIRE_SCHEMA.field(index)
    stamps = pa.array(np.full(batch.num_rows, now_ms, dtype=np.int64)).view(field.type)
    return batch.set_column(index, field, stamps)


def _checked_sizes(
    batches: Sequence[pa.RecordBatch], rules: PayloadRules, now_ms: int
) -> npt.NDArray[np.int64]:
    sizes = np.concatenate([record_sizes(batch) for batch in batches])
    limit = min(rules.config.max_message_bytes, rules.message_bytes_max)
    if int(sizes.max()) > limit:
        index = int(np.argmax(sizes > limit))
        raise RecordTooLargeError(
            f"record {index} has {int(sizes[index])} bytes; topic {rules.topic!r} takes at most {limit} "
            "(max.message.bytes of the topic, message.max.bytes of the gateway)",
            record_index=index,
            record_bytes=int(sizes[index]),
            limit_bytes=limit,
        )
    timestamps = np.concatenate(
        [timestamps_ms_column(batch.column("timestamp")) for batch in batches]
    )
    wrong = timestamps_out_of_range(
        timestamps,
        now_ms,
        rules.config.message_timestamp_after_max_ms,
        rules.config.message_timestamp_before_max_ms,
    )
    if wrong is not None:
        raise wrong
    return sizes


def _slices_of_ranges(
    batches: Sequence[pa.RecordBatch],
    ranges: Sequence[log_pb2.PartitionRange],
    rules: PayloadRules,
) -> tuple[Slice, ...]:
    slices: list[Slice] = []
    at = 0  # rows covered so far, through all batches
    index = 0
    begin = 0  # the first row of batches[index]
    for range_ in ranges:
        if not 0 <= range_.partition < rules.partition_count:
            raise _unknown_partition(range_.partition, rules)
        if range_.first_row != at or range_.row_count <= 0:
            raise InvalidRecordError(
                f"the ranges must cover every row once, in order: one begins at row {range_.first_row} "
                f"with {range_.row_count} rows where row {at} comes next",
                topic=rules.topic,
            )
        at += range_.row_count
        row = range_.first_row
        while row < at:
            if index == len(batches):
                raise _uncovered(at, begin, rules)
            batch = batches[index]
            end = begin + batch.num_rows
            count = min(at, end) - row
            slices.append(Slice(range_.partition, batch.slice(row - begin, count)))
            row += count
            if row == end:
                index += 1
                begin = end
    rows = sum(batch.num_rows for batch in batches)
    if at != rows:
        raise _uncovered(at, rows, rules)
    return tuple(slices)


def _slices_of_places(batch: pa.RecordBatch, placed: npt.NDArray[np.int32]) -> tuple[Slice, ...]:
    first = int(placed[0])
    if (placed == first).all():
        return (Slice(first, batch),)
    order = np.argsort(placed, kind="stable")
    ordered = batch.take(pa.array(order))
    partitions, starts, counts = np.unique(placed[order], return_index=True, return_counts=True)
    return tuple(
        Slice(int(partition), ordered.slice(int(start), int(count)))
        for partition, start, count in zip(partitions, starts, counts, strict=True)
    )


def _concatenated(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _uncovered(covered: int, rows: int, rules: PayloadRules) -> InvalidRecordError:
    return InvalidRecordError(
        f"the ranges cover {covered} rows, the payload has {rows}", topic=rules.topic
    )


def _unknown_partition(partition: int, rules: PayloadRules) -> UnknownPartitionError:
    return UnknownPartitionError(
        f"topic {rules.topic!r} has no partition {partition}; it has 0 to {rules.partition_count - 1}",
        topic=rules.topic,
        partition=partition,
        partition_count=rules.partition_count,
    )

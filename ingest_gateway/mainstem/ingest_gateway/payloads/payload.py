"""Reads a produce request's payload into slices for the appender, or says what is wrong. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mainstem.config import TopicConfig
from mainstem.delta_log import Slice
from mainstem.delta_log.format import ProducerBatch
from mainstem.errors import (
    InvalidRecordError,
    RecordTooLargeError,
    RequestTooLargeError,
    UnknownPartitionError,
)
from mainstem.ingest_gateway.payloads.placement import StickyPlacement
from mainstem.limits import (
    KIB,
    REQUEST_BATCHES_MAX,
    REQUEST_PLACED_RECORDS_MAX,
    REQUEST_RECORDS_MAX,
)
from mainstem.protocol.v1 import log_pb2
from mainstem.records import (
    WIRE_SCHEMA,
    PackedBatch,
    normalise_wire_batch,
    packed_batches,
    record_sizes,
    records_to_wire_batch,
    timestamps_ms_column,
    timestamps_out_of_range,
)

#: What a record costs in memory beside its bytes: offsets, timestamp, header list.
_RECORD_OVERHEAD_BYTES = 24

#: What is read on the loop, in about a millisecond; a thread takes more.
_INLINE_BYTES_MAX = 64 * KIB
_INLINE_RECORDS_MAX = 100
_INLINE_RANGES_MAX = 500

#: More record batches or slices than this are copied together: each costs far more than its bytes.
_PIECES_MAX = 256


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
        buffer_bytes: What the slices keep in memory. More than the records need where the request
            came with buffers that they do not use.
        placed: The partition of each record where the gateway chose it, else None.
    """

    slices: tuple[Slice, ...]
    record_count: int
    record_bytes: int
    buffer_bytes: int
    placed: npt.NDArray[np.int32] | None

    @property
    def queue_bytes(self) -> int:
        """What the payload counts for in queues."""
        needed = self.record_bytes + _RECORD_OVERHEAD_BYTES * self.record_count
        return max(needed, self.buffer_bytes)


class NotInlineError(Exception):
    """Reading the payload takes too long for the event loop: read it in a thread."""


def read_payload(
    request: log_pb2.ProduceRequest,
    rules: PayloadRules,
    sticky: StickyPlacement,
    now_ms: int,
    *,
    ipc_stream: bytes | None = None,
    inline: bool = False,
) -> Payload:
    """Checks a request's records and sorts them to their partitions. Large buffers are not copied.

    Args:
        ipc_stream: `request.arrow.ipc_stream`, if the caller has it: each look at it copies it.
        inline: Only if that takes a millisecond at most.

    Raises:
        NotInlineError: It would take longer; only with `inline`.
        InvalidRecordError: Malformed Arrow, a wrong schema, ranges that do not fit, a timestamp out
            of range, a record without key where the topic is compacted by keys.
        RecordTooLargeError, RequestTooLargeError: A record or the whole is too large.
        UnknownPartitionError: A partition that the topic does not have.
    """
    stream = request.arrow.ipc_stream if ipc_stream is None else ipc_stream
    if inline:
        _check_inline(request, len(stream))
    if request.WhichOneof("payload") == "arrow":
        batches = _read_ipc(stream, rules, now_ms, inline=inline)
        # Columns that are not compressed refer to the stream, and keep all of it.
        buffer_bytes = max(len(stream), _buffer_bytes(batches))
        ranges = request.arrow.ranges
        given = None
    else:
        batches, given = _read_records(request.records.records, rules, now_ms)
        buffer_bytes = _buffer_bytes(batches)
        ranges = None
    if rules.config.log_append_time:
        batches = [_stamped(batch, now_ms) for batch in batches]
    sizes = _checked_sizes(batches, rules, now_ms)
    if rules.config.compacts:
        _check_keys(batches, rules)
    if request.producer_id and not ranges:
        raise InvalidRecordError(
            "a request with a producer_id needs an Arrow payload with ranges and their sequences",
            topic=rules.topic,
        )
    if ranges:
        slices = _slices_of_ranges(batches, sizes, ranges, rules, _Numbering.of(request, rules))
        placed = None
    else:
        _check_placed_count(len(sizes), rules)
        batch = _joined(batches)
        placed = sticky.place(batch.column("key"), sizes, given, rules.partition_count)
        slices = _slices_of_places(batch, placed)
    return Payload(slices, len(sizes), int(sizes.sum()), buffer_bytes, placed)


def _check_inline(request: log_pb2.ProduceRequest, stream_bytes: int) -> None:
    # Not `request.ByteSize()`: that serialises all of it to count.
    if (
        len(request.records.records) > _INLINE_RECORDS_MAX
        or stream_bytes > _INLINE_BYTES_MAX
        or len(request.arrow.ranges) > _INLINE_RANGES_MAX
    ):
        raise NotInlineError


def _read_ipc(
    stream: bytes, rules: PayloadRules, now_ms: int, *, inline: bool
) -> list[pa.RecordBatch]:
    data = pa.py_buffer(stream)
    batches = []
    read_bytes = 0
    try:
        for packed in _packed_batches(data, rules, inline=inline):
            batch = packed.unpack()
            # Should Arrow ever unpack what `packed_batches` does not know of, it ends here.
            read_bytes += batch.get_total_buffer_size()
            _check_size(read_bytes, rules)
            # Offsets and lengths come from outside: reading through a wrong one would crash.
            batch.validate(full=True)
            if batch.num_rows:
                batches.append(normalise_wire_batch(batch, now_ms))
    except (pa.ArrowException, OSError, ValueError, ArithmeticError, MemoryError) as error:
        raise InvalidRecordError(
            f"the payload is not a valid Arrow IPC stream: {str(error)[:300]}", topic=rules.topic
        ) from error
    if not batches:
        raise _no_records(rules)
    if len(batches) > _PIECES_MAX:
        batches = [_joined(batches)]
    return batches


def _check_schema(schema: pa.Schema) -> None:
    """Checks the types before anything of them is read; see `normalise_wire_batch`.

    Raises:
        InvalidRecordError: A column is missing, unknown, twice there, or has another type.
    """
    for field in schema:
        _check_no_views(field.name, field.type)
    columns = [pa.array([], field.type) for field in schema]
    normalise_wire_batch(pa.RecordBatch.from_arrays(columns, schema=schema), 0)


def _check_no_views(column: str, type_: pa.DataType) -> None:
    """Refuses what cannot be read safely.

    Any number of views may show the same bytes, so their number says nothing about what they unpack
    to. And a full validation does not look at the views of nulls, but Arrow's casts read through
    them: a damaged batch would end the process.
    """
    if type_ in (pa.string_view(), pa.binary_view()):
        raise InvalidRecordError(
            f"the column {column!r} has the Arrow type {type_}, which is not taken from outside; "
            "cast it to binary or string",
            column=column,
        )
    for number in range(type_.num_fields):
        _check_no_views(column, type_.field(number).type)


def _packed_batches(data: pa.Buffer, rules: PayloadRules, *, inline: bool) -> list[PackedBatch]:
    """The stream's batches, all of which may be unpacked."""
    found: list[PackedBatch] = []
    record_count = 0
    size_bytes = 0
    for packed in packed_batches(data, _check_schema):
        record_count += packed.row_count
        size_bytes += packed.unpacked_bytes
        _check_record_count(record_count, rules)
        _check_size(size_bytes, rules)
        if inline and (size_bytes > _INLINE_BYTES_MAX or len(found) >= _INLINE_RECORDS_MAX):
            raise NotInlineError
        if len(found) >= REQUEST_BATCHES_MAX:
            raise RequestTooLargeError(
                f"the payload has more than {REQUEST_BATCHES_MAX} Arrow record batches; join them",
                topic=rules.topic,
                limit_batches=REQUEST_BATCHES_MAX,
            )
        found.append(packed)
    return found


def _check_size(size_bytes: int, rules: PayloadRules) -> None:
    if size_bytes > rules.request_bytes_max:
        raise RequestTooLargeError(
            f"the request unpacks to more than socket.request.max.bytes "
            f"({rules.request_bytes_max} bytes); send less at a time",
            topic=rules.topic,
            limit_bytes=rules.request_bytes_max,
        )


def _check_record_count(record_count: int, rules: PayloadRules) -> None:
    if record_count > REQUEST_RECORDS_MAX:
        raise RequestTooLargeError(
            f"the request has more than {REQUEST_RECORDS_MAX} records; send fewer at a time",
            topic=rules.topic,
            limit_records=REQUEST_RECORDS_MAX,
        )


def _check_placed_count(record_count: int, rules: PayloadRules) -> None:
    if record_count > REQUEST_PLACED_RECORDS_MAX:
        raise RequestTooLargeError(
            f"the request has {record_count} records for the gateway to place, and "
            f"{REQUEST_PLACED_RECORDS_MAX} are the most: send fewer at a time, or an Arrow payload "
            f"with ranges, which may have {REQUEST_RECORDS_MAX}",
            topic=rules.topic,
            limit_records=REQUEST_PLACED_RECORDS_MAX,
        )


def _read_records(
    records: Sequence[log_pb2.Record], rules: PayloadRules, now_ms: int
) -> tuple[list[pa.RecordBatch], npt.NDArray[np.int32]]:
    if not records:
        raise _no_records(rules)
    _check_placed_count(len(records), rules)
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
    sizes = _one_after_the_other([record_sizes(batch) for batch in batches])
    limit = min(rules.config.max_message_bytes, rules.message_bytes_max)
    if int(sizes.max()) > limit:
        indexes = np.flatnonzero(sizes > limit)
        index = int(indexes[0])
        error = RecordTooLargeError(
            f"record {index} has {int(sizes[index])} bytes; topic {rules.topic!r} takes at most "
            f"{limit} (max.message.bytes of the topic, message.max.bytes of the gateway)",
            topic=rules.topic,
            record_index=index,
            record_bytes=int(sizes[index]),
            limit_bytes=limit,
        )
        error.record_indexes = indexes.tolist()
        raise error
    timestamps = _one_after_the_other(
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


def _one_after_the_other(columns: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _check_keys(batches: Sequence[pa.RecordBatch], rules: PayloadRules) -> None:
    if not any(batch.column("key").null_count for batch in batches):
        return
    nulls = np.concatenate([np.asarray(batch.column("key").is_null()) for batch in batches])
    indexes = np.flatnonzero(nulls)
    index = int(indexes[0])
    error = InvalidRecordError(
        f"record {index} has no key; topic {rules.topic!r} is compacted by keys "
        "(cleanup.policy=compact) and takes no record without one: give it a key, which "
        "may be empty",
        topic=rules.topic,
        record_index=index,
    )
    error.record_indexes = indexes.tolist()
    raise error


def _slices_of_ranges(
    batches: Sequence[pa.RecordBatch],
    sizes: npt.NDArray[np.int64],
    ranges: Sequence[log_pb2.PartitionRange],
    rules: PayloadRules,
    numbering: _Numbering | None,
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
                f"the ranges must cover every row once, in order: one begins at row "
                f"{range_.first_row} with {range_.row_count} rows where row {at} comes next",
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
            producer = None
            if numbering is not None:
                producer = numbering.at(range_.base_sequence + row - range_.first_row)
            records = batch if count == batch.num_rows else batch.slice(row - begin, count)
            size = int(sizes[row : row + count].sum()) + _RECORD_OVERHEAD_BYTES * count
            slices.append(Slice(range_.partition, records, producer, size_bytes=size))
            row += count
            if row == end:
                index += 1
                begin = end
    rows = sum(batch.num_rows for batch in batches)
    if at != rows:
        raise _uncovered(at, rows, rules)
    if len(slices) > _PIECES_MAX:
        batch = _joined(batches)
        counts = [range_.row_count for range_ in ranges]
        joined = _slices_of_places(
            batch, np.repeat(np.array([r.partition for r in ranges], dtype=np.int32), counts)
        )
        if numbering is None:
            return joined
        return tuple(
            Slice(one.partition, one.records, numbering.at(numbering.firsts[one.partition]))
            for one in joined
        )
    return tuple(slices)


@dataclass(frozen=True, slots=True)
class _Numbering:
    """How an idempotent producer numbered a request.

    Attributes:
        firsts: For each partition the sequence of its first record; the others follow.
    """

    producer_id: int
    producer_epoch: int
    firsts: Mapping[int, int]

    @classmethod
    def of(cls, request: log_pb2.ProduceRequest, rules: PayloadRules) -> _Numbering | None:
        """None: the request is of no idempotent producer."""
        if not request.producer_id:
            return None
        if request.producer_id < 0 or request.producer_epoch < 0:
            raise InvalidRecordError(
                f"producer id {request.producer_id} with epoch {request.producer_epoch} is none "
                "that InitProducer has given",
                topic=rules.topic,
            )
        firsts: dict[int, int] = {}
        following: dict[int, int] = {}
        for range_ in request.arrow.ranges:
            partition, sequence = range_.partition, range_.base_sequence
            if sequence < 0 or sequence != following.get(partition, sequence):
                raise InvalidRecordError(
                    f"the ranges of partition {partition} have sequence {sequence} where "
                    f"{following.get(partition, 0)} comes next",
                    topic=rules.topic,
                    partition=partition,
                )
            firsts.setdefault(partition, sequence)
            following[partition] = sequence + range_.row_count
        return cls(request.producer_id, request.producer_epoch, firsts)

    def at(self, sequence: int) -> ProducerBatch:
        """The producer with the sequence of a slice's first record."""
        return ProducerBatch(self.producer_id, self.producer_epoch, sequence)


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


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _buffer_bytes(batches: Sequence[pa.RecordBatch]) -> int:
    return sum(batch.get_total_buffer_size() for batch in batches)


def _no_records(rules: PayloadRules) -> InvalidRecordError:
    return InvalidRecordError("the request has no records", topic=rules.topic)


def _uncovered(covered: int, rows: int, rules: PayloadRules) -> InvalidRecordError:
    return InvalidRecordError(
        f"the ranges cover {covered} rows, the payload has {rows}", topic=rules.topic
    )


def _unknown_partition(partition: int, rules: PayloadRules) -> UnknownPartitionError:
    return UnknownPartitionError(
        f"topic {rules.topic!r} has no partition {partition}; "
        f"it has 0 to {rules.partition_count - 1}",
        topic=rules.topic,
        partition=partition,
        partition_count=rules.partition_count,
    )

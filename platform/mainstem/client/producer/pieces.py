"""Pieces: runs of records in columns, as Arrow IPC messages ordered by partition, and who is to be
told what becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mainstem.client.results import BatchMetadata, PartitionOffsets, RecordMetadata
from mainstem.errors import MainstemError
from mainstem.records import HEADERS_TYPE, WIRE_SCHEMA

#: What each record counts for beside its bytes: two offsets and a timestamp.
RECORD_OVERHEAD_BYTES: Final = 16

TIMESTAMP_TYPE: Final = WIRE_SCHEMA.field("timestamp").type
_WITH_HEADERS: Final = WIRE_SCHEMA
_WITHOUT_HEADERS: Final = pa.schema([f for f in WIRE_SCHEMA if f.name != "headers"])
_WITH_HEADERS_MESSAGE: Final = _WITH_HEADERS.serialize().to_pybytes()
_WITHOUT_HEADERS_MESSAGE: Final = _WITHOUT_HEADERS.serialize().to_pybytes()
#: What closes an Arrow IPC stream.
END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"

#: `on_delivery(error, metadata)`: called by poll(), flush() and close(), never by another thread.
DeliveryCallback = Callable[[MainstemError | None, RecordMetadata], object]

#: Who waits for one record.
Waiter = DeliveryCallback | Future[RecordMetadata] | asyncio.Future[RecordMetadata]

# `RecordMetadata._make` without a Python frame for each record.
_record_metadata: Any = partial(tuple.__new__, RecordMetadata)

_HEADER_FIELDS: Final = [HEADERS_TYPE.value_type.field(i) for i in range(2)]


@dataclass(slots=True, eq=False)
class Receipts:
    """The records of a piece that asked for a report.

    Attributes:
        waiters: One a record.
        rows: Each one's row in the piece, after the rows were ordered by partition.
        timestamps_ms: Each one's timestamp.
    """

    waiters: list[Waiter]
    rows: npt.NDArray[np.int64]
    timestamps_ms: npt.NDArray[np.int64]

    def of_rows(self, rows: npt.NDArray[np.bool_]) -> Receipts | None:
        """Those of some rows of the piece, which become a piece of their own; None: there are none.

        Args:
            rows: For each row of the piece whether it is one of them.
        """
        mine = rows[self.rows]
        if not mine.any():
            return None
        return Receipts(
            [waiter for waiter, is_mine in zip(self.waiters, mine, strict=True) if is_mine],
            (np.cumsum(rows) - 1)[self.rows[mine]],
            self.timestamps_ms[mine],
        )

    def metadata(
        self,
        topic: str,
        ranges: Sequence[tuple[int, int]],
        base_offsets: Sequence[int] | None,
        table_version: int,
    ) -> Iterator[RecordMetadata]:
        """Where each record is; made as it is asked for.

        Args:
            topic: The topic's name.
            ranges: The piece's (partition, row count), in row order.
            base_offsets: The offset of each range's first record; -1, or None for all, unknown.
            table_version: As answered.
        """
        partitions = np.array([partition for partition, _ in ranges], dtype=np.int64)
        ends = np.cumsum([count for _, count in ranges])
        at = np.searchsorted(ends, self.rows, side="right")
        if base_offsets is None:
            offsets = np.full(len(self.rows), -1)
        else:
            bases = np.array(base_offsets, dtype=np.int64)[at]
            starts = np.concatenate([[0], ends[:-1]])[at]
            offsets = np.where(bases < 0, -1, bases + self.rows - starts)
        fields = zip(
            repeat(topic),
            partitions[at].tolist(),
            offsets.tolist(),
            self.timestamps_ms.tolist(),
            repeat(table_version),
        )
        return map(_record_metadata, fields)


@dataclass(slots=True, eq=False)
class BatchPromise:
    """The future of a `produce_batch`, which may travel in several parts."""

    topic: str
    part_count: int
    future: Future[BatchMetadata] = field(default_factory=Future)
    _offsets: dict[int, list[PartitionOffsets]] = field(default_factory=dict)
    _done_count: int = 0
    _table_version: int = -1
    _error: MainstemError | None = None

    def part_done(
        self,
        part_index: int,
        ranges: Sequence[tuple[int, int]],
        base_offsets: Sequence[int],
        table_version: int,
    ) -> None:
        """One part is in the log. The last part completes the future."""
        self._offsets[part_index] = [
            PartitionOffsets(partition, base, count)
            for (partition, count), base in zip(ranges, base_offsets, strict=True)
        ]
        self._table_version = max(self._table_version, table_version)
        self._part_ended()

    def part_failed(self, error: MainstemError) -> None:
        """One part failed, and with it the batch; the other parts may be in the log."""
        self._error = self._error or error
        self._part_ended()

    def _part_ended(self) -> None:
        self._done_count += 1
        if self._done_count < self.part_count:
            return
        if self._error is not None:
            self.future.set_exception(self._error)
            return
        offsets = tuple(part for index in sorted(self._offsets) for part in self._offsets[index])
        self.future.set_result(BatchMetadata(self.topic, self._table_version, offsets))


@dataclass(slots=True, eq=False)
class Piece:
    """A run of records of one topic, ready for the wire.

    Attributes:
        message: One encapsulated Arrow IPC record batch.
        size: Bytes that count for a request's limit: unpacked, since the gateway limits that too.
        layout: The encapsulated schema message; pieces of one request share it.
        ranges: (partition, row count), in row order.
        row_count: Rows of all ranges.
        memory_bytes: What it holds of `buffer.memory`.
        created_at, deadline: Monotonic seconds, of its oldest record.
        alone: Travels in a request of its own.
        ready: Does not wait for `linger.ms`.
        sent, done: Kept by TopicQueue.
        told: Everyone who asked was told what became of it.
        receipts: The records that asked for a report.
        promise, part_index: Set for a part of a `produce_batch`.
    """

    message: pa.Buffer
    layout: bytes
    ranges: tuple[tuple[int, int], ...]
    row_count: int
    memory_bytes: int
    created_at: float
    deadline: float
    number: int = 0
    size: int = 0
    alone: bool = False
    ready: bool = False
    sent: bool = False
    done: bool = False
    told: bool = False
    receipts: Receipts | None = None
    promise: BatchPromise | None = None
    part_index: int = 0

    def __post_init__(self) -> None:
        self.size = max(self.message.size, self.memory_bytes)

    def split(self, chosen: npt.NDArray[np.bool_], compression: str | None) -> tuple[Piece, Piece]:
        """The rows that are chosen, and the others, of which there must be both. Both keep the
        place and the deadline of the piece."""
        memory_bytes = self.memory_bytes * int(chosen.sum()) // self.row_count
        return (
            self._part(chosen, memory_bytes, compression),
            self._part(~chosen, self.memory_bytes - memory_bytes, compression),
        )

    def _part(
        self, rows: npt.NDArray[np.bool_], memory_bytes: int, compression: str | None
    ) -> Piece:
        with pa.ipc.open_stream(pa.py_buffer(b"".join([self.layout, self.message]))) as reader:
            batch = reader.read_next_batch().filter(pa.array(rows))
        headers = batch.column("headers") if "headers" in batch.schema.names else None
        message, layout = serialise(
            batch.column("key"),
            batch.column("value"),
            headers,
            batch.column("timestamp").view(pa.int64()).to_numpy(zero_copy_only=False),
            None,
            compression,
        )
        partitions = np.repeat(
            np.array([partition for partition, _ in self.ranges], dtype=np.int32),
            [count for _, count in self.ranges],
        )
        return replace(
            self,
            message=message,
            layout=layout,
            ranges=order_by_partition(partitions[rows], batch.num_rows)[1],
            row_count=batch.num_rows,
            memory_bytes=memory_bytes,
            receipts=None if self.receipts is None else self.receipts.of_rows(rows),
        )


def order_by_partition(
    partitions: npt.NDArray[np.int32] | int, row_count: int
) -> tuple[npt.NDArray[np.int64] | None, tuple[tuple[int, int], ...]]:
    """The stable order of rows by partition, and the (partition, row count) ranges of that order.

    The order is None when the rows are in order already. One partition for all may be given as int.
    """
    if isinstance(partitions, int):
        return None, ((partitions, row_count),)
    counts = np.bincount(partitions)
    used = np.flatnonzero(counts)
    ranges = tuple(zip(used.tolist(), counts[used].tolist(), strict=True))
    if len(ranges) == 1 or bool((partitions[1:] >= partitions[:-1]).all()):
        return None, ranges
    # NumPy sorts 16-bit numbers by radix, several times as fast.
    return np.argsort(partitions.astype(np.uint16), kind="stable"), ranges


def serialise(
    keys: pa.Array,
    values: pa.Array,
    headers: pa.Array | None,
    timestamps_ms: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64] | None,
    compression: str | None,
) -> tuple[pa.Buffer, bytes]:
    """The columns, in `order`, as one record batch message, and the schema message that fits."""
    timestamps = pa.array(timestamps_ms).view(TIMESTAMP_TYPE)
    if headers is None:
        columns = [keys, values, timestamps]
        schema, layout = _WITHOUT_HEADERS, _WITHOUT_HEADERS_MESSAGE
    else:
        columns = [keys, values, headers, timestamps]
        schema, layout = _WITH_HEADERS, _WITH_HEADERS_MESSAGE
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    if order is not None:
        batch = batch.take(pa.array(order))
    if compression is None:
        return batch.serialize(), layout
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue()
    # The stream is the schema message, the batch, and the end mark.
    return stream.slice(len(layout), stream.size - len(layout) - len(END_OF_STREAM)), layout


def headers_column(
    rows: Sequence[int], headers: Sequence[Sequence[tuple[str, bytes | None]]], row_count: int
) -> pa.Array:
    """The `headers` column in which only `rows` (ascending) have any; the others are null."""
    counts = np.zeros(row_count, dtype=np.int32)
    counts[list(rows)] = [len(one) for one in headers]
    offsets = np.zeros(row_count + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    present = np.zeros(row_count, dtype=bool)
    present[list(rows)] = True
    entries = pa.StructArray.from_arrays(
        [
            pa.array([key for one in headers for key, _ in one], type=pa.string()),
            pa.array([value for one in headers for _, value in one], type=pa.binary()),
        ],
        fields=_HEADER_FIELDS,
    )
    return pa.ListArray.from_arrays(
        pa.array(offsets), entries, type=HEADERS_TYPE, mask=pa.array(~present)
    )

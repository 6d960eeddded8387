"""Columns of records as Arrow IPC messages ordered by partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mainstem.client.producer.delivery import BatchPromise, Receipts
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

_HEADER_FIELDS: Final = [HEADERS_TYPE.value_type.field(i) for i in range(2)]


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

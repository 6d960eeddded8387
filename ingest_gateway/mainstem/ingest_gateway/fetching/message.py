"""The bytes of a FetchResponse.

They are put together by hand: a message object would copy every record twice more, on the event
loop.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from mainstem.ingest_gateway.fetching.columns import joined, without_empty_headers
from mainstem.protocol import field_tag, varint
from mainstem.protocol.v1 import log_pb2

_PARTITIONS_TAG = field_tag(log_pb2.FetchResponse, "partitions")
_ARROW_TAG = field_tag(log_pb2.FetchedPartition, "arrow")

#: The default, which pyarrow would look up in the environment for each stream.
_IPC_OPTIONS = pa.ipc.IpcWriteOptions()

#: Batches of fewer rows are joined: each costs the reader some microseconds and 500 bytes.
_ROWS_MIN = 2_048


class _Part(NamedTuple):
    """One partition of an answer.

    Attributes:
        head: Its bytes before the Arrow stream, which is its last field.
        batches: Of the stream; none: there is no stream.
        stream_bytes: Its length.
    """

    head: bytes
    batches: Sequence[pa.RecordBatch]
    stream_bytes: int


class FetchMessage:
    """A FetchResponse; its partitions are added in their order.

    Args:
        schema: Of all batches.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._parts: list[_Part] = []

    def add(self, head: log_pb2.FetchedPartition, batches: Sequence[pa.RecordBatch]) -> None:
        """Adds a partition.

        Args:
            head: All of it, but not `arrow`.
            batches: Become its `arrow`, if there are any.
        """
        fields = head.SerializeToString()
        small = [without_empty_headers(batch) for batch in _of_some_rows(batches)]
        stream_bytes = 0
        if small:
            counter = pa.MockOutputStream()
            self._write(counter, small)
            stream_bytes = counter.size()
            fields += _ARROW_TAG + varint(stream_bytes)
        length = varint(len(fields) + stream_bytes)
        self._parts.append(_Part(_PARTITIONS_TAG + length + fields, small, stream_bytes))

    def serialised(self) -> bytes:
        """The message. Arrow writes into the memory of the bytes object itself: a copy of all
        records would take as long as a tenth of reading them."""
        answer = io.BytesIO(bytes(sum(len(one.head) + one.stream_bytes for one in self._parts)))
        self._fill(answer.getbuffer())
        # No copy either, unless somebody still looks at the memory: whoever keeps the frames of the
        # calls before, as a profiler does.
        return answer.getvalue()

    def _fill(self, memory: memoryview) -> None:
        at = 0
        for one in self._parts:
            begin = at + len(one.head)
            memory[at:begin] = one.head
            at = begin + one.stream_bytes
            if one.batches:
                place = pa.py_buffer(memory[begin:at])
                self._write(pa.FixedSizeBufferWriter(place), one.batches)

    def _write(self, sink: pa.NativeFile, batches: Sequence[pa.RecordBatch]) -> None:
        with pa.ipc.new_stream(sink, self._schema, options=_IPC_OPTIONS) as writer:
            for batch in batches:
                writer.write_batch(batch)


def _of_some_rows(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows with small batches joined."""
    small: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows >= _ROWS_MIN:
            if small:
                yield joined(small)
            small, rows = [], 0
            yield batch
            continue
        small.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS_MIN:
            yield joined(small)
            small, rows = [], 0
    if small:
        yield joined(small)


def plain_records(batch: pa.RecordBatch) -> Iterator[log_pb2.FetchedRecord]:
    """The records as plain messages. A column that was not asked for is absent."""
    names = batch.schema.names
    columns = {name: batch.column(name).to_pylist() for name in names if name != "timestamp"}
    nothing = [None] * batch.num_rows
    times = (
        (batch.column("timestamp").view(pa.int64()).to_numpy() // 1000).tolist()
        if "timestamp" in names
        else [0] * batch.num_rows
    )
    for offset, time_ms, kind, key, value, headers in zip(
        columns["offset"],
        times,
        columns.get("timestamp_type") or [0] * batch.num_rows,
        columns.get("key") or nothing,
        columns.get("value") or nothing,
        columns.get("headers") or nothing,
        strict=True,
    ):
        yield log_pb2.FetchedRecord(
            offset=offset,
            timestamp_ms=time_ms,
            timestamp_type=kind,
            key=key,
            value=value,
            headers=[log_pb2.Header(**header) for header in headers or ()],
        )

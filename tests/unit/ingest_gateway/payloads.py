"""Produce payloads, well formed, for the tests to send or to break."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from mainstem.protocol.v1 import log_pb2


def ipc(batches: Sequence[pa.RecordBatch], compression: str | None = None) -> bytes:
    """The batches, of one schema, as an IPC stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def batch_of(**columns: Any) -> pa.RecordBatch:
    """A record batch of the columns; `None` values and bytes become binary."""
    arrays = {
        name: column if isinstance(column, pa.Array) else pa.array(column, pa.binary())
        for name, column in columns.items()
    }
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def arrow_request(
    *batches: pa.RecordBatch,
    ranges: Iterable[tuple[int, int, int]] = (),
    compression: str | None = None,
    topic: str = "t",
    **fields: Any,
) -> log_pb2.ProduceRequest:
    """A request with an Arrow payload and (partition, first row, row count) ranges."""
    return log_pb2.ProduceRequest(
        topic=topic,
        arrow=log_pb2.ArrowRecords(
            ipc_stream=ipc(batches, compression),
            ranges=[
                log_pb2.PartitionRange(partition=partition, first_row=first, row_count=count)
                for partition, first, count in ranges
            ],
        ),
        **fields,
    )


def stream_request(
    stream: bytes, ranges: Iterable[tuple[int, int, int]] = ()
) -> log_pb2.ProduceRequest:
    """A request with these very bytes as its Arrow payload."""
    return log_pb2.ProduceRequest(
        topic="t",
        arrow=log_pb2.ArrowRecords(
            ipc_stream=stream,
            ranges=[
                log_pb2.PartitionRange(partition=partition, first_row=first, row_count=count)
                for partition, first, count in ranges
            ],
        ),
    )


def records_request(
    *records: log_pb2.Record, topic: str = "t", **fields: Any
) -> log_pb2.ProduceRequest:
    """A request with plain records."""
    return log_pb2.ProduceRequest(topic=topic, records=log_pb2.Records(records=records), **fields)


def values_request(
    *values: bytes, topic: str = "t", partition: int = 0, **fields: Any
) -> log_pb2.ProduceRequest:
    """A request with plain records of these values, all for one partition."""
    return records_request(
        *(log_pb2.Record(value=value, partition=partition) for value in values),
        topic=topic,
        **fields,
    )

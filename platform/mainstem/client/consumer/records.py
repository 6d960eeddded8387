"""What a consumer hands out: records; and how Arrow becomes records."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mainstem.client.per_record import RecordColumns
from mainstem.errors import InternalError
from mainstem.limits import ANSWER_UNPACKED_BYTES_MAX
from mainstem.records import TABLE_SCHEMA, packed_batches

#: Rows that become objects at a time: fewer than the 700 new objects that start a garbage
#: collection, which costs more than making the objects does.
DECODE_ROWS: Final = 500


class ConsumerRecord(NamedTuple):
    """One record. Attributes, where confluent-kafka has methods: `record.value`, not `value()`.

    Attributes:
        topic, partition, offset: Where it is.
        timestamp: Milliseconds since 1970-01-01 UTC.
        timestamp_type: 0: the producer's time (CreateTime); 1: the gateway's (LogAppendTime).
        key, value: Bytes; None where they are null, which is not the same as empty.
        headers: (name, bytes or None) pairs in order; empty when there are none.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def batches_from_ipc(data: bytes, offset: int) -> list[pa.RecordBatch]:
    """The batches of an Arrow IPC stream, without a copy, without rows before `offset`.

    Raises:
        InternalError: It is no Arrow stream, or has no offsets, or unpacks to more than
            `ANSWER_UNPACKED_BYTES_MAX` bytes.
    """
    if not data:
        return []
    try:
        stream = pa.py_buffer(data)
        packed = list(packed_batches(stream, _check_columns))
        unpacked_bytes = sum(one.unpacked_bytes for one in packed)
        if unpacked_bytes > ANSWER_UNPACKED_BYTES_MAX:
            raise ValueError(
                f"it unpacks to {unpacked_bytes} bytes; {ANSWER_UNPACKED_BYTES_MAX} are the most"
            )
        batches = [batch for one in packed if (batch := one.unpack()).num_rows]
        if batches and batches[0].column("offset")[0].as_py() < offset:
            batches = list(filter(None, (_from_offset(batch, offset) for batch in batches)))
    except (ValueError, KeyError, OSError) as error:
        raise InternalError(f"the gateway's answer has no readable records: {error}") from error
    return batches


def _check_columns(schema: pa.Schema) -> None:
    for column in schema:
        if TABLE_SCHEMA.field(column.name).type != column.type:
            raise ValueError(f"its column {column.name!r} has the Arrow type {column.type}")


def _from_offset(batch: pa.RecordBatch, offset: int) -> pa.RecordBatch | None:
    offsets = batch.column("offset").to_numpy()
    first = int(offsets.searchsorted(offset))
    return batch.slice(first) if first < len(offsets) else None


class BatchRecords:
    """The rows of a batch as records, some at a time."""

    __slots__ = ("_columns", "_headers", "_types")

    def __init__(self, topic: str, partition: int, batch: pa.RecordBatch) -> None:
        self._columns: RecordColumns[ConsumerRecord] = RecordColumns(
            ConsumerRecord,
            topic,
            partition,
            batch.column("offset").to_numpy(),
            _milliseconds(batch.column("timestamp")),
            batch.column("key"),
            batch.column("value"),
        )
        types, headers = batch.column("timestamp_type"), batch.column("headers")
        self._types: pa.Array | None = None if _all_create_time(types) else types
        self._headers: pa.Array | None = None if headers.null_count == len(headers) else headers

    def take(self, start: int, count: int) -> list[ConsumerRecord]:
        """The records from row `start` on, `count` at most."""
        types: list[int] | None = None
        if self._types is not None:
            types = [one or 0 for one in self._types.slice(start, count).to_pylist()]
        headers: list[tuple[tuple[str, bytes | None], ...]] | None = None
        if self._headers is not None:
            headers = [
                tuple((h["key"], h["value"]) for h in one or ())
                for one in self._headers.slice(start, count).to_pylist()
            ]
        return self._columns.take(start, count, types, headers)


def _all_create_time(types: pa.Array) -> bool:
    nulls: int = types.null_count
    return nulls == len(types) or (nulls == 0 and not types.to_numpy().any())


def _milliseconds(column: pa.Array) -> npt.NDArray[np.int64]:
    per_ms = {"s": 0, "ms": 1, "us": 1_000, "ns": 1_000_000}[column.type.unit]
    numbers: npt.NDArray[np.int64] = column.view(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers // per_ms if per_ms else numbers * 1000

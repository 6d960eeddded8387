"""The topics of a fake gateway, and what a produce request wants to be stored in them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from uuid import uuid4

import pyarrow as pa

from mainstem.config import TopicConfig
from mainstem.errors import InvalidRecordError, UnknownPartitionError
from mainstem.protocol.v1 import log_pb2
from mainstem.records import normalise_wire_batch, partition_for_key
from mainstem.testing._fake_producers import FakeProducers, FakeRun


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record as it was stored."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


@dataclass(slots=True)
class FakeTopic:
    """A topic: its partitions are lists of records.

    Attributes:
        producers: What idempotent producers have sent; `producers.forget()` forgets them.
    """

    name: str
    partition_count: int
    topic_id: str = field(default_factory=lambda: str(uuid4()))
    config: TopicConfig = field(default_factory=lambda: TopicConfig.parse({}))
    table_version: int = 0
    leader: str = ""
    records: list[list[StoredRecord]] = field(default_factory=list)
    producers: FakeProducers = field(default_factory=FakeProducers)

    def __post_init__(self) -> None:
        self.grow(self.partition_count)

    def grow(self, partition_count: int) -> None:
        """Adds partitions up to a new total."""
        self.records += [[] for _ in range(partition_count - len(self.records))]
        self.partition_count = partition_count


#: Key, value, headers, timestamp in ms.
Row = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]


def plain_row(record: log_pb2.Record) -> tuple[int | None, Row]:
    """A record of a request, with its partition if it names one."""
    headers = tuple(
        (header.key, header.value if header.HasField("value") else None)
        for header in record.headers
    )
    timestamp_ms = (
        record.timestamp_ms if record.HasField("timestamp_ms") else int(time.time() * 1000)
    )
    row = (
        record.key if record.HasField("key") else None,
        record.value if record.HasField("value") else None,
        headers,
        timestamp_ms,
    )
    return record.partition if record.HasField("partition") else None, row


def columnar_rows(
    payload: log_pb2.ArrowRecords,
) -> tuple[list[tuple[int | None, Row]], list[tuple[int, int]] | None]:
    """The rows of a columnar request, and its (partition, row count) ranges if it has any."""
    rows: list[tuple[int | None, Row]] = []
    try:
        with pa.ipc.open_stream(payload.ipc_stream) as reader:
            for batch in reader:
                batch.validate(full=True)
                batch = normalise_wire_batch(batch, int(time.time() * 1000))
                for key, value, headers, timestamp_ms in zip(
                    batch.column("key").to_pylist(),
                    batch.column("value").to_pylist(),
                    batch.column("headers").to_pylist(),
                    batch.column("timestamp").view(pa.int64()).to_pylist(),
                    strict=True,
                ):
                    pairs = tuple((h["key"], h["value"]) for h in headers or ())
                    rows.append((None, (key, value, pairs, timestamp_ms)))
    except pa.ArrowInvalid as error:
        raise InvalidRecordError(f"the payload is no Arrow IPC stream: {error}") from error
    if not payload.ranges:
        return rows, None
    ranges = []
    following = 0
    for one in payload.ranges:
        if one.first_row != following or one.row_count < 1:
            raise InvalidRecordError(
                f"a range begins at row {one.first_row} with {one.row_count} rows; it must begin "
                f"at row {following} and have at least one"
            )
        following += one.row_count
        ranges.append((one.partition, one.row_count))
    if following != len(rows):
        raise InvalidRecordError(f"the ranges cover {following} of {len(rows)} rows")
    return rows, ranges


def placed_rows(
    topic: FakeTopic,
    rows: list[tuple[int | None, Row]],
    ranges: list[tuple[int, int]] | None,
) -> list[tuple[int, Row]]:
    """Each row with its partition; checks all before anything is stored."""
    if ranges is not None:
        partitions = [partition for partition, count in ranges for _ in range(count)]
    else:
        partitions = []
        for wanted, (key, _, _, _) in rows:
            if wanted is None:
                wanted = 0 if key is None else partition_for_key(key, topic.partition_count)
            partitions.append(wanted)
    for partition in partitions:
        if not 0 <= partition < topic.partition_count:
            raise UnknownPartitionError(
                f"topic {topic.name} has no partition {partition}; it has {topic.partition_count}",
                topic=topic.name,
                partition=partition,
            )
    return [(partition, row) for partition, (_, row) in zip(partitions, rows, strict=True)]


def numbered_runs(payload: log_pb2.ArrowRecords) -> list[FakeRun]:
    """The records of an idempotent producer, by partition.

    Raises:
        InvalidRecordError: The ranges of a partition do not follow each other.
    """
    runs: dict[int, FakeRun] = {}
    for one in payload.ranges:
        run = runs.get(one.partition)
        if run is None:
            runs[one.partition] = FakeRun(one.partition, one.base_sequence, one.row_count)
            continue
        following = run.base_sequence + run.record_count
        if one.base_sequence != following:
            raise InvalidRecordError(
                f"a range of partition {one.partition} has sequence {one.base_sequence}, where "
                f"{following} comes next"
            )
        runs[one.partition] = run._replace(record_count=run.record_count + one.row_count)
    return sorted(runs.values())

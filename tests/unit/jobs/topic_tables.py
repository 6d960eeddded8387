"""Topics with any layout of data files, and all that is in them, for the tests of the jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from mainstem.delta_log import Committed, Committer, ObjectStore, OpenTopic, Topics
from mainstem.delta_log.files import CREATE_TIME, encode_data_file, read_data_file
from mainstem.delta_log.format import Action, Batch, DataFile, ProducerBatch, Register, registers
from mainstem.delta_log.system import GatewayBeat
from mainstem.delta_log.table import TableCommit, load_table
from mainstem.delta_log.verify import verify_topic
from mainstem.records import records_to_wire_batch

NOW_MS = 1_800_000_000_000


def heartbeat(store: ObjectStore, at_ms: int) -> None:
    """A gateway of the warehouse is alive, and has this time."""
    beat = GatewayBeat("g", 1, "g:1", "", at_ms)
    store.put(beat.name().path(), beat.encode())


class Record(NamedTuple):
    """All that a record is, but for its partition."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None
    timestamp: Any
    timestamp_type: int
    producer_id: int | None
    sequence: int | None


@dataclass
class Appends:
    """A writer of a topic that appends as a gateway would, one table commit a call."""

    opened: OpenTopic
    producer_sequences: dict[tuple[int, int], int] = field(default_factory=dict)

    def append(
        self,
        partition: int,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Any] | None = None,
        timestamps_ms: Sequence[int] | None = None,
        timestamp_type: int = CREATE_TIME,
        producer_id: int | None = None,
        modified_ms: int = NOW_MS,
    ) -> DataFile:
        """Adds a file with these records."""
        store, count = self.opened.store, len(values)
        batch = records_to_wire_batch(
            list(keys or [b"k"] * count),
            list(values),
            headers,
            list(timestamps_ms or [NOW_MS] * count),
        )
        while True:
            state = self.opened.refresh()
            base_offset = state.log_end_offset(partition)
            producer, extra = self._producer(producer_id, partition, count)
            file, data = encode_data_file(
                partition,
                base_offset,
                [batch],
                timestamp_type=timestamp_type,
                compression_type="zstd",
                now_ms=modified_ms,
                producers=[producer],
            )
            store.put(file.path, data)
            actions: list[Action] = [
                file,
                Register(registers.leo(partition), base_offset + count),
                *extra,
            ]
            commit = TableCommit.of(
                "APPEND",
                actions,
                timestamp_ms=modified_ms,
                batches=[Batch(partition, base_offset, count, producer)],
            )
            outcome = Committer(store).commit(state.version + 1, commit)
            if isinstance(outcome, Committed):
                state.apply(outcome.version, commit.actions)
                if producer is not None:
                    self.producer_sequences[producer.id, partition] = producer.base_sequence + count
                return file

    def _producer(
        self, producer_id: int | None, partition: int, count: int
    ) -> tuple[ProducerBatch | None, list[Action]]:
        if producer_id is None:
            return None, []
        first = self.producer_sequences.get((producer_id, partition), 0)
        name = registers.producer(producer_id, partition)
        register = Register(name, first + count - 1, updated_ms=NOW_MS)
        return ProducerBatch(producer_id, 0, first), [register]


def appends(topics: Topics, topic: str = "t", partitions: int = 2, **config: object) -> Appends:
    """A new topic and a writer of it."""
    topics.create(topic, partitions, {k.replace("_", "."): v for k, v in config.items()})
    return Appends(topics.open(topic))


def all_records(store: ObjectStore) -> dict[int, list[Record]]:
    """Every record of the table at the root of `store`, by partition, in the order of the files."""
    state = load_table(store)
    found: dict[int, list[Record]] = {}
    for partition in range(state.partition_count):
        records: list[Record] = []
        for file in state.files(partition).sorted():
            for batch in read_data_file(store, file, -1, 2**62):
                records += _records(batch)
        found[partition] = records
    return found


def _records(batch: pa.RecordBatch) -> list[Record]:
    columns = []
    for name in Record._fields:
        values = batch.column(name).to_pylist()
        if name == "headers":
            values = [
                None if one is None else tuple((pair["key"], pair["value"]) for pair in one)
                for one in values
            ]
        columns.append(values)
    return [Record(*row) for row in zip(*columns, strict=True)]


def file_count(store: ObjectStore) -> int:
    """Active files."""
    return load_table(store).file_count


def check_verified(store: ObjectStore, topic: str = "t") -> None:
    """The table is what the log promises."""
    report = verify_topic(store, topic)
    assert report.ok, [f"{one.code}: {one}" for one in report.findings]

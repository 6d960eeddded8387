"""Makes topic tables for tests: real commits of small data files through the real committer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import google_crc32c
import pyarrow as pa

from mainstem.delta_log import Committed, Committer, ObjectStore, TableState, load_table
from mainstem.delta_log.files import CREATE_TIME, encode_data_file
from mainstem.delta_log.format import (
    Action,
    Batch,
    DataFile,
    Metadata,
    Protocol,
    Register,
    registers,
)
from mainstem.delta_log.table import FORMAT, TableCommit
from mainstem.records import records_to_wire_batch

NOW_MS = 1_800_000_000_000


def records(count: int, first: int = 0) -> pa.RecordBatch:
    """A wire batch whose values are the numbers from `first` on."""
    numbers = range(first, first + count)
    return records_to_wire_batch(
        [b"k"] * count, [b"%d" % number for number in numbers], None, [NOW_MS + n for n in numbers]
    )


def create_table(
    store: ObjectStore, partition_count: int = 4, table_id: str = "table"
) -> TableState:
    """Version 0 of a topic table at the root of `store`."""
    metadata = Metadata(
        table_id,
        NOW_MS,
        {
            "mainstem.partitions": str(partition_count),
            "mainstem.format": str(FORMAT),
            "delta.logRetentionDuration": "interval 1 hours",
        },
    )
    commit(store, 0, [Protocol(), metadata], "CREATE TOPIC")
    return load_table(store)


def commit(
    store: ObjectStore,
    version: int,
    actions: Sequence[Action],
    operation: str = "APPEND",
    batches: Sequence[Batch] = (),
) -> TableCommit:
    """Makes `actions` the table's version `version`."""
    one = TableCommit.of(operation, actions, timestamp_ms=NOW_MS, batches=batches)
    outcome = Committer(store).commit(version, one)
    assert outcome == Committed(version)
    return one


def append(store: ObjectStore, state: TableState, partition: int, count: int = 3) -> DataFile:
    """Appends `count` records to a partition in one commit, and applies it to `state`."""
    base_offset = state.log_end_offset(partition)
    file, data = encode_data_file(
        partition,
        base_offset,
        [records(count, base_offset)],
        timestamp_type=CREATE_TIME,
        compression_type="zstd",
        now_ms=NOW_MS,
    )
    store.put(file.path, data)
    one = commit(
        store,
        state.version + 1,
        [file, Register(registers.leo(partition), base_offset + count)],
        batches=[Batch(partition, base_offset, count)],
    )
    state.apply(state.version + 1, one.actions)
    return file


def commit_file(lines: Iterable[Mapping[str, Any]]) -> bytes:
    """A commit file with these actions and, where it has a place for one, the right checksum: what
    a writer at fault would have written."""
    data = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
    before, mark, rest = data.partition(b'"crc32c":"')
    if not mark:
        return data
    zeroed = before + mark + b"00000000" + rest[8:]
    return before + mark + b"%08x" % google_crc32c.value(zeroed) + rest[8:]


def same_state(one: TableState, other: TableState) -> bool:
    """Whether two states say the same about a table."""
    return (
        one.version,
        one.protocol,
        one.metadata,
        one.config,
        one.registers,
        sorted(one, key=lambda file: file.path),
    ) == (
        other.version,
        other.protocol,
        other.metadata,
        other.config,
        other.registers,
        sorted(other, key=lambda file: file.path),
    )

"""Fetch requests and what came, for the tests; and changes of a table behind a gateway's back."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.unit.ingest_gateway.harness import WAIT_S, Client, soon, until

from mainstem.delta_log import Committed, Committer, LocalStore, TableState, load_table
from mainstem.delta_log.format import Action, DataFile, Remove
from mainstem.delta_log.table import TableCommit
from mainstem.ingest_gateway.server import Gateway
from mainstem.protocol.v1 import log_pb2
from mainstem.records import TABLE_SCHEMA

RECORDS = log_pb2.FETCH_FORMAT_RECORDS
ARROW = log_pb2.FETCH_FORMAT_ARROW

#: topic, partition, offset
Asked = tuple[str, int, int]


def fetch_request(*asked: Asked, partition_bytes: int = 0, **fields: Any) -> log_pb2.FetchRequest:
    """A request for partitions from offsets on."""
    return log_pb2.FetchRequest(
        partitions=[
            log_pb2.FetchPartition(
                topic=topic, partition=partition, offset=offset, max_bytes=partition_bytes
            )
            for topic, partition, offset in asked
        ],
        **fields,
    )


async def fetch(client: Client, *asked: Asked, **fields: Any) -> list[log_pb2.FetchedPartition]:
    """The partitions of an answer."""
    request = fetch_request(*asked, **fields)
    answer = await soon(client.log.Fetch(request, timeout=WAIT_S))
    assert [(one.topic, one.partition) for one in answer.partitions] == [
        (topic, partition) for topic, partition, _ in asked
    ]
    return list(answer.partitions)


async def waiting_fetch(
    gateway: Gateway, client: Client, *asked: Asked, **fields: Any
) -> asyncio.Task[list[log_pb2.FetchedPartition]]:
    """A fetch that the gateway has made wait."""
    before = gateway.fetches_waiting
    fields = {"min_bytes": 1, "max_wait_ms": 60_000, "format": RECORDS} | fields
    task = asyncio.create_task(fetch(client, *asked, **fields))
    await until(lambda: gateway.fetches_waiting > before or task.done())
    return task


def rows(found: log_pb2.FetchedPartition) -> list[dict[str, Any]]:
    """The records of an Arrow answer, headers as pairs, timestamps in milliseconds."""
    if not found.arrow:
        return []
    with pa.ipc.open_stream(found.arrow) as reader:
        table = reader.read_all()
    listed = []
    for row in table.to_pylist():
        if "timestamp" in row:
            row["timestamp"] = round(row["timestamp"].timestamp() * 1000)
        if row.get("headers") is not None:
            row["headers"] = [(header["key"], header["value"]) for header in row["headers"]]
        listed.append(row)
    return listed


def offsets(found: log_pb2.FetchedPartition) -> list[int]:
    """The offsets of an answer in either form."""
    return [record.offset for record in found.records] or [row["offset"] for row in rows(found)]


def commit(warehouse: Path, topic: str, *actions: Action) -> int:
    """Commits to a topic's table as another process would; returns the version."""
    store = LocalStore(warehouse / "topics" / topic, create=False)
    try:
        version = load_table(store).version + 1
        made = TableCommit.of("TEST", actions, timestamp_ms=1)
        assert isinstance(Committer(store).commit(version, made), Committed)
        return version
    finally:
        store.close()


def compacted(
    warehouse: Path, topic: str, state: TableState, kept: Sequence[int], partition: int = 0
) -> list[Action]:
    """Actions that replace all files of a partition by one with the records of some offsets."""
    files = list(state.files(partition).sorted())
    first, last = files[0].base_offset, files[-1].last_offset
    root = warehouse / "topics" / topic
    merged = pa.concat_tables(
        [
            pq.ParquetFile(root / file.path).read(columns=TABLE_SCHEMA.names).cast(TABLE_SCHEMA)
            for file in files
        ]
    )
    table = merged.filter(pa.compute.is_in(merged["offset"], pa.array(kept, pa.int64())))
    path = f"partition={partition}/{first:020d}-{uuid.uuid4().hex}.parquet"
    pq.write_table(table, root / path)
    new = DataFile(
        path=path,
        partition=partition,
        base_offset=first,
        last_offset=last,
        record_count=table.num_rows,
        size_bytes=(root / path).stat().st_size,
        timestamp_ms_min=min(file.timestamp_ms_min for file in files),
        timestamp_ms_max=max(file.timestamp_ms_max for file in files),
        modified_ms=1,
        data_change=False,
    )
    removes = [
        Remove(file.path, partition, file.size_bytes, removed_ms=1, data_change=False)
        for file in files
    ]
    return [*removes, new]

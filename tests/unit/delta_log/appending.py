"""What the tests of appending share: topics, appenders, and what is in a topic in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any

import pyarrow as pa
from tests.unit.delta_log.faults import FaultyStore, Hook, nothing
from tests.unit.delta_log.tables import NOW_MS

from mainstem.delta_log import Appender, ByteBudget, OpenTopic, Topics, read_data_file
from mainstem.records import records_to_wire_batch

PARTITIONS = 6


def create(topics: Topics, **config: object) -> None:
    """The topic `t`, which commits at once."""
    settings = {"commit.interval.ms": 0, **{k.replace("_", "."): v for k, v in config.items()}}
    topics.create("t", PARTITIONS, settings)


async def lead(opened: OpenTopic, pool: Executor, **options: Any) -> Appender:
    """An appender with ample queues and a clock that stands still."""
    defaults: dict[str, Any] = {
        "queue_bytes": 2**28,
        "budget": ByteBudget(2**30),
        "clock_ms": lambda: NOW_MS,
    }
    return await Appender.lead(opened, pool, **{**defaults, **options})


def faulty(opened: OpenTopic, before: Hook = nothing, after: Hook = nothing) -> OpenTopic:
    """The topic on a store that fails as the hooks say."""
    return OpenTopic(opened.topic, FaultyStore(opened.store, before, after), opened.state)


def values(topics: Topics, partition: int) -> list[tuple[int, bytes]]:
    """Offsets and values of a partition, read back through our own reader."""
    opened = topics.open("t")
    found: list[tuple[int, bytes]] = []
    for file in opened.state.files(partition).sorted():
        for part in read_data_file(opened.store, file, 0, 2**62, ["value"]):
            columns = (part.column("offset").to_pylist(), part.column("value").to_pylist())
            found += zip(*columns, strict=True)
    return found


def run(work: Callable[[], Awaitable[None]]) -> None:
    """Runs a test's coroutine, for a minute at most."""

    async def limited() -> None:
        async with asyncio.timeout(60):
            await work()

    asyncio.run(limited())


def batch(number: int, count: int = 1) -> pa.RecordBatch:
    """A wire batch with one value, `count` times."""
    return records_to_wire_batch([None] * count, [b"%d" % number] * count, None, [NOW_MS] * count)

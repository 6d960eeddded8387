"""A transaction that is open, or prepared, for an hour holds back nobody: no producer, no reader,
no job, no restart."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import grpc
import pytest
from tests.unit.ingest_gateway.fetching import fetch
from tests.unit.ingest_gateway.harness import Client, refused, run, running
from tests.unit.ingest_gateway.payloads import values_request
from tests.unit.ingest_gateway.transacting import Transacting, complete, listed
from tests.unit.jobs.topic_tables import check_verified

from mainstem.delta_log import LocalStore
from mainstem.delta_log.latest import table as latest_table
from mainstem.delta_log.store import (
    LogClock,
    StoreFolder,
    time_elapsed_ms,
    time_elapsed_s,
    wall_clock_ms,
)
from mainstem.ingest_gateway.transactions import coordination
from mainstem.jobs.compaction import Compaction
from mainstem.jobs.job import OutcomeKind
from mainstem.jobs.log_cleanup import LogCleanup
from mainstem.jobs.retention import Retention
from mainstem.jobs.runner import run_job
from mainstem.jobs.task_pool import InProcessPool
from mainstem.jobs.vacuum import Vacuum

QUARTER_S: Final = 900
TOPICS: Final = ("a", "b")
PARTITIONS: Final = 2

#: The longest that a gateway allows by default.
TIMEOUT_MS: Final = 900_000


class Hour:
    """The clocks of the coordinator and of the jobs, and the ages of all files, which go on by a
    quarter of an hour at a time."""

    def __init__(self, warehouse: Path, patch: pytest.MonkeyPatch) -> None:
        self._warehouse = warehouse
        self._ahead_s = 0
        patch.setattr(coordination, "time_elapsed_s", lambda: time_elapsed_s() + self._ahead_s)
        clock = partial(
            LogClock,
            wall_ms=self.wall_ms,
            elapsed_ms=lambda: time_elapsed_ms() + self._ahead_s * 1000,
        )
        patch.setattr(latest_table, "LogClock", clock)

    def wall_ms(self) -> int:
        return wall_clock_ms() + self._ahead_s * 1000

    def quarter_passes(self) -> None:
        self._ahead_s += QUARTER_S
        for path in self._warehouse.rglob("*"):
            if path.is_file():
                status = path.stat()
                os.utime(path, (status.st_atime, status.st_mtime - QUARTER_S))

    def jobs(self) -> dict[str, set[str]]:
        """Runs all of them; which has done something to which topic."""
        done: dict[str, set[str]] = {}
        for job in (Retention(), Compaction(min_age_ms=0), LogCleanup(1), Vacuum(0)):
            rows = run_job(self._warehouse, job, TOPICS, pool=InProcessPool, clock_ms=self.wall_ms)
            for row in rows:
                assert row.outcome.kind in (OutcomeKind.OK, OutcomeKind.NOTHING), row
                if row.outcome.kind is OutcomeKind.OK:
                    done.setdefault(job.name, set()).add(row.topic)
        return done


class Others:
    """Who works on the same partitions meanwhile: producers with and without transactions, and a
    reader at the end of the log."""

    def __init__(self) -> None:
        self._written = {(topic, n): 0 for topic in TOPICS for n in range(PARTITIONS)}

    def note(self, placed: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        """Records of somebody else, whom the reader leaves out."""
        for place, (base_offset, count) in placed.items():
            assert self._written[place] == base_offset
            self._written[place] += count

    async def work(self, client: Client, producer: Transacting) -> None:
        for topic, partition in self._written:
            for _ in range(3):
                await client.produce(values_request(b"plain", topic=topic, partition=partition))
        await producer.begin()
        for topic, partition in self._written:
            await producer.send(topic, b"whole", partition=partition)
        await producer.end()
        for (topic, partition), count in self._written.items():
            (found,) = await fetch(client, (topic, partition, count), format=2)
            assert [one.value for one in found.records] == [b"plain"] * 3 + [b"whole"]
            assert found.high_watermark == count + 4
            self._written[topic, partition] = count + 4


@pytest.mark.slow
def test_transactions_of_an_hour_hold_back_no_producer_no_reader_no_job_and_no_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour = Hour(tmp_path, monkeypatch)
    others = Others()

    async def test() -> None:
        async with running(tmp_path) as (_, client):
            for topic in TOPICS:
                await client.create(
                    topic,
                    PARTITIONS,
                    retention_bytes="4500",
                    rollup_files="0",
                    **{"delta.logRetentionDuration": "interval 20 minutes"},
                )
            prepared, opened, working = [
                await Transacting(client, name).init(timeout_ms=TIMEOUT_MS)
                for name in ("prepared", "open", "working")
            ]
            for one in (prepared, opened):
                await one.begin()
                for topic in TOPICS:
                    for partition in range(PARTITIONS):
                        await one.send(topic, one.transactional_id.encode(), partition=partition)
            token = await prepared.prepare()
            await others.work(client, working)
            hour.quarter_passes()
            await others.work(client, working)
            async with asyncio.timeout(30):
                while "open" in await listed(client):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            done = await asyncio.to_thread(hour.jobs)
            hour.quarter_passes()
            await others.work(client, working)
            async with refused(grpc.StatusCode.FAILED_PRECONDITION, "TRANSACTION_TIMED_OUT"):
                await opened.end()
        async with running(tmp_path) as (_, client):
            assert await listed(client) == {"prepared": "PREPARED"}
            working.at(client)
            for _ in range(2):
                hour.quarter_passes()
                await others.work(client, working)
                for name, topics in (await asyncio.to_thread(hour.jobs)).items():
                    done.setdefault(name, set()).update(topics)
            assert done == {
                name: set(TOPICS) for name in ("compaction", "retention", "log-cleanup", "vacuum")
            }
            placed = await complete(client, token)
            assert placed == {(t, n): (20, 1) for t in TOPICS for n in range(PARTITIONS)}
            for topic, partition in placed:
                (found,) = await fetch(client, (topic, partition, 20), format=2)
                assert [one.value for one in found.records] == [b"prepared"]
            others.note(placed)
            await others.work(client, working)

    run(test())
    store = LocalStore(tmp_path, create=False)
    for topic in TOPICS:
        check_verified(StoreFolder(store, f"topics/{topic}"), topic)
    store.close()

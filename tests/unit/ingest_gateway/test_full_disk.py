"""A gateway on a disk without a free byte: reads, and what frees space, while appends wait."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from tests.unit.delta_log.full_disk import fill, free_bytes, small_disk
from tests.unit.ingest_gateway.fetching import fetch, offsets
from tests.unit.ingest_gateway.harness import WAIT_S, Client, refused, run, running, table, until
from tests.unit.ingest_gateway.payloads import values_request

from mainstem.client import Producer
from mainstem.errors import DeliveryTimeoutError
from mainstem.ingest_gateway.server import Gateway
from mainstem.ingest_gateway.services.produce import stream as produce_stream
from mainstem.ingest_gateway.topics import gateway_topic, gateway_topics
from mainstem.protocol.v1 import admin_pb2, log_pb2

pytestmark = pytest.mark.usefixtures("nothing_left")

#: What a call may take that does not wait for the store. Many times what it takes.
PROMPT_S = 3.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as place:
        yield place


@asynccontextmanager
async def full(
    disk: Path, **settings: Any
) -> AsyncIterator[tuple[Gateway, Client, Path, list[asyncio.Task[log_pb2.ProduceResponse]]]]:
    """Topics `keep` and `junk` with five records each, of which `keep` has an append that waits."""
    async with running(disk / "warehouse", **settings) as (gateway, client):
        for topic in ("keep", "junk"):
            await client.create(topic)
            for _ in range(5):
                await client.produce(values_request(os.urandom(100_000), topic=topic))
        ballast = fill(disk)
        waiting = asyncio.create_task(
            client.produce(values_request(os.urandom(50_000), topic="keep"))
        )
        await until(lambda: _is_in_trouble(gateway, "keep"))
        try:
            yield gateway, client, ballast, [waiting]
        finally:
            ballast.unlink(missing_ok=True)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)


def _is_in_trouble(gateway: Gateway, topic: str) -> bool:
    known = gateway._topics.leading(topic)
    return known is not None and known.appender is not None and known.appender.trouble is not None


def test_reads_are_served_at_once_while_an_append_waits_for_space(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A leader without trouble would look at the store first.
    monkeypatch.setattr(gateway_topic, "LED_CATCH_UP_INTERVAL_S", 0.0)
    monkeypatch.setattr(gateway_topics, "DESCRIBED_AGE_S_MAX", 0.0)

    async def test() -> None:
        async with full(disk) as (_, client, ballast, (waiting,)):
            for _ in range(2):
                began = time.monotonic()
                (found,) = await fetch(client, ("keep", 0, 0))
                assert offsets(found) == list(range(5))
                request = log_pb2.ListOffsetsRequest(
                    queries=[log_pb2.OffsetQuery(topic="keep", partition=0, latest=True)]
                )
                answer = await client.log.ListOffsets(request, timeout=WAIT_S)
                assert answer.answers[0].offset == 5
                await client.describe("keep")
                await client.admin.ListTopics(admin_pb2.ListTopicsRequest(), timeout=WAIT_S)
                assert time.monotonic() - began < PROMPT_S
            assert not waiting.done()
            ballast.unlink()
            assert (await waiting).results[0].base_offset == 5
            (found,) = await fetch(client, ("keep", 0, 0))
            assert offsets(found) == list(range(6))

    run(test())


def test_a_producer_is_told_why_its_records_wait(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_stream, "_NOTICE_EVERY_S", 0.1)

    def send(address: str) -> BaseException | None:
        config = {
            "bootstrap.servers": address,
            "delivery.timeout.ms": 3_000,
            "request.timeout.ms": 2_900,
            # A producer id would have to be written down first.
            "enable.idempotence": False,
        }
        with Producer(config) as producer:
            return producer.send("keep", b"x").exception(WAIT_S)

    async def test() -> None:
        async with full(disk) as (gateway, _, ballast, (waiting,)):
            error = await asyncio.to_thread(send, gateway.address)
            assert isinstance(error, DeliveryTimeoutError)
            assert "may still be in the log" in error.message
            assert "is full" in error.message
            assert "topics/keep" in error.message
            assert error.facts["cause"] == "STORE_UNAVAILABLE"
            ballast.unlink()
            assert (await waiting).results[0].base_offset == 5

    run(test())


def test_a_queue_that_is_full_since_the_disk_is_says_so(disk: Path) -> None:
    async def test() -> None:
        async with full(disk, topic_queue_bytes=120_000) as (_, client, _, _):
            async with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "BACK_PRESSURE") as facts:
                await client.produce(values_request(os.urandom(100_000), topic="keep"))
            assert "The queue does not empty, since the store could not write" in facts["message"]
            assert facts["limit_bytes"] == "120000"

    run(test())


def test_another_topic_is_deleted_and_what_waits_is_appended_then(disk: Path) -> None:
    async def test() -> None:
        async with full(disk) as (_, client, _, (waiting,)):
            began = time.monotonic()
            await client.delete("junk")
            assert time.monotonic() - began < PROMPT_S
            answer = await asyncio.wait_for(waiting, WAIT_S)
            assert answer.results[0].base_offset == 5

    run(test())


def test_a_topic_with_an_append_that_waits_is_deleted_at_once(disk: Path) -> None:
    async def test() -> None:
        async with full(disk) as (_, client, _, (waiting,)):
            began = time.monotonic()
            await client.delete("keep")
            assert time.monotonic() - began < PROMPT_S
            assert free_bytes(disk) > 400_000
            assert not list((disk / "warehouse/topics/keep").glob("partition=*/*"))
            with pytest.raises(Exception, match="keep"):
                await asyncio.wait_for(waiting, WAIT_S)
            await client.create("keep")
            answer = await client.produce(values_request(b"v", topic="keep"))
            assert answer.results[0].base_offset == 0

    run(test())


@pytest.mark.parametrize("topic", ["keep", "junk"])
def test_a_prefix_is_trimmed_at_once_whether_an_append_waits_in_the_topic_or_not(
    disk: Path, topic: str
) -> None:
    async def test() -> None:
        async with full(disk) as (_, client, ballast, (waiting,)):
            began = time.monotonic()
            answer = await client.admin.TrimPrefix(
                admin_pb2.TrimPrefixRequest(
                    topic=topic, partitions=[admin_pb2.PartitionTrim(partition=0, offset=4)]
                ),
                timeout=WAIT_S,
            )
            assert time.monotonic() - began < PROMPT_S
            assert answer.partitions[0].log_start_offset == 4
            assert table(disk / "warehouse", topic).log_start_offset(0) == 4
            ballast.unlink()
            # The leader goes on behind the commit, which it takes for another's.
            assert (await asyncio.wait_for(waiting, WAIT_S)).results[0].base_offset == 5
            (found,) = await fetch(client, ("keep", 0, 4))
            assert offsets(found) == [4, 5]

    run(test())


def test_a_change_that_needs_space_says_at_once_that_the_disk_is_full(disk: Path) -> None:
    async def test() -> None:
        async with full(disk) as (_, client, _, _):
            began = time.monotonic()
            request = admin_pb2.AddPartitionsRequest(topic="keep", partition_count=3)
            async with refused(grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE") as facts:
                await client.admin.AddPartitions(request, timeout=WAIT_S)
            assert "is full" in facts["message"]
            assert time.monotonic() - began < PROMPT_S

    run(test())


@asynccontextmanager
async def started_full(disk: Path) -> AsyncIterator[tuple[Client, Path]]:
    """A gateway that starts when nothing is free, with the topics `keep` and `junk`."""
    warehouse = disk / "warehouse"
    async with running(warehouse) as (_, client):
        for topic in ("keep", "junk"):
            await client.create(topic)
            for _ in range(5):
                await client.produce(values_request(os.urandom(100_000), topic=topic))
    ballast = fill(disk)
    async with running(warehouse) as (_, client):
        yield client, ballast


def test_a_gateway_starts_on_a_full_disk_and_serves_reads(disk: Path) -> None:
    async def test() -> None:
        async with started_full(disk) as (client, _):
            (found,) = await fetch(client, ("keep", 0, 0))
            assert offsets(found) == list(range(5))
            assert (await client.describe("keep")).topic == "keep"

    run(test())


def test_on_a_full_disk_readiness_is_red_and_readers_are_not_sent_away(disk: Path) -> None:
    async def test() -> None:
        async with running(
            disk / "warehouse", gateway_heartbeat_interval_ms=50, gateway_session_timeout_ms=300
        ) as (gateway, client):
            await client.create("keep")
            await client.produce(values_request(b"v", topic="keep"))
            ballast = fill(disk)
            cluster = gateway._cluster
            assert cluster is not None
            await until(lambda: cluster.failure is not None)
            await asyncio.sleep(1.0)  # more than a session
            assert await client.serving() == health_pb2.HealthCheckResponse.SERVING
            assert await client.serving("mainstem.v1.Log") == health_pb2.HealthCheckResponse.SERVING
            assert "is full" in gateway._condition.not_ready
            (found,) = await fetch(client, ("keep", 0, 0))
            assert offsets(found) == [0]
            ballast.unlink()
            await until(lambda: gateway._condition.not_ready == "")

    run(test())


def test_a_gateway_that_starts_on_a_full_disk_refuses_appends_with_what_to_do(disk: Path) -> None:
    async def test() -> None:
        async with started_full(disk) as (client, ballast):
            began = time.monotonic()
            async with refused(grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE") as facts:
                await client.produce(values_request(b"v", topic="keep"))
            assert "is full: delete or trim a topic" in facts["message"]
            assert time.monotonic() - began < PROMPT_S
            ballast.unlink()
            answer = await client.produce(values_request(b"v", topic="keep"))
            assert answer.results[0].base_offset == 5

    run(test())


def test_a_gateway_that_starts_on_a_full_disk_deletes_and_trims_and_appends_then(
    disk: Path,
) -> None:
    async def test() -> None:
        async with started_full(disk) as (client, _):
            trim = admin_pb2.TrimPrefixRequest(
                topic="keep", partitions=[admin_pb2.PartitionTrim(partition=0, offset=4)]
            )
            answer = await client.admin.TrimPrefix(trim, timeout=WAIT_S)
            assert answer.partitions[0].log_start_offset == 4
            await client.delete("junk")
            assert free_bytes(disk) > 400_000
            answer = await client.produce(values_request(b"v", topic="keep"))
            assert answer.results[0].base_offset == 5

    run(test())


def test_what_the_write_ahead_log_has_is_appended_once_a_full_disk_has_been_freed(
    disk: Path,
) -> None:
    async def test() -> None:
        copy = disk / "copy"
        async with running(disk / "warehouse") as (_, client):
            await client.create("keep", commit_interval_ms="10000")
            for number in range(2):
                request = values_request(b"%d" % number, topic="keep", acks=log_pb2.ACKS_LEADER)
                await client.produce(request)
            shutil.copytree(disk / "warehouse", copy)  # as a kill would leave it
        ballast = fill(disk)
        async with running(copy) as (_, client):
            (found,) = await fetch(client, ("keep", 0, 0))
            assert offsets(found) == [0]
            ballast.unlink()
            answer = await client.produce(values_request(b"2", topic="keep"))
            assert answer.results[0].base_offset == 2

    run(test())

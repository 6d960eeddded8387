"""How many connections and calls a gateway takes: those above a limit are refused and told when to
come again, or held back, and nobody else is hurt."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
from tests.unit.delta_log.faults import FaultyStore
from tests.unit.ingest_gateway.fetching import fetch, waiting_fetch
from tests.unit.ingest_gateway.harness import (
    WAIT_S,
    Client,
    Gate,
    refused,
    run,
    running,
    soon,
    until,
)
from tests.unit.ingest_gateway.payloads import values_request

from mainstem.delta_log import LocalStore
from mainstem.ingest_gateway.server import Gateway
from mainstem.protocol.v1 import log_pb2

METADATA = log_pb2.MetadataRequest(topics=["t"])

#: What a client of HTTP/2 says first: its preface, and settings without any.
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
PING = bytes([0, 0, 8, 6, 0, 0, 0, 0, 0]) + b"anything"
PING_TYPE, GOAWAY_TYPE = 6, 7


@asynccontextmanager
async def another(gateway: Gateway) -> AsyncIterator[Client]:
    """A client with a connection of its own."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(gateway.address, options=options) as channel:
        yield Client(channel)


def test_calls_above_the_limit_are_refused_and_work_again_once_others_have_ended(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path, max_calls=2) as (gateway, client), another(gateway) as other:
            await client.create("t")
            waits = await waiting_fetch(gateway, client, ("t", 0, 0))
            stream = client.stream()
            await stream.send(values_request(b"v", partition=7))
            assert (await stream.answer()).HasField("error")
            for who in (client, other):
                async with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "BACK_PRESSURE") as facts:
                    await who.log.Metadata(METADATA, timeout=30)
                assert facts["limit_calls"] == "2"
                assert int(facts["retry_ms"]) > 0
            assert await other.serving(), "health is asked for by those who watch over the gateway"
            await stream.send(values_request(b"v"))
            assert not (await stream.answer()).HasField("error"), "what is open goes on"
            assert len(await soon(waits)) == 1
            await until(lambda: gateway._door.calls == 1)
            assert (await soon(other.log.Metadata(METADATA))).topics[0].partition_count == 1
            await stream.end()

    run(test())


def test_a_connection_has_so_many_calls_under_way_and_the_next_ones_wait_for_their_ends(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with (
            running(tmp_path, connection_max_calls=2) as (gateway, client),
            another(gateway) as other,
        ):
            await other.create("t")
            waits = [await waiting_fetch(gateway, client, ("t", 0, 0)) for _ in range(2)]
            held = asyncio.create_task(soon(client.log.Metadata(METADATA)))
            for _ in range(20):  # each takes as long as the one that is held would
                assert (await soon(other.log.Metadata(METADATA))).topics[0].partition_count == 1
            assert not held.done()
            await other.produce(values_request(b"v"))
            await soon(asyncio.gather(*waits))
            assert (await held).topics[0].partition_count == 1

    run(test())


def test_polls_of_one_connection_above_the_limit_are_refused_and_those_of_others_wait(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with (
            running(tmp_path, fetch_connection_max_requests=2) as (gateway, client),
            another(gateway) as other,
        ):
            await client.create("t")
            waits = [await waiting_fetch(gateway, client, ("t", 0, 0)) for _ in range(2)]
            async with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "BACK_PRESSURE") as facts:
                await fetch(client, ("t", 0, 0))
            assert facts["limit_requests"] == "2"
            assert int(facts["retry_ms"]) > 0
            await soon(client.log.Metadata(METADATA))
            waits.append(await waiting_fetch(gateway, other, ("t", 0, 0)))
            # One that is given up makes room.
            waits.pop(0).cancel()
            await until(lambda: gateway.fetches_waiting == 2)
            waits.append(await waiting_fetch(gateway, client, ("t", 0, 0)))
            await client.produce(values_request(b"v"))
            assert len(await soon(asyncio.gather(*waits))) == 3
            assert gateway._fetches._polls == {}

    run(test())


async def refusal(gateway: Gateway) -> grpc.StatusCode:
    """How a call by a connection of its own fails. Nothing of it is left afterwards: gRPC connects
    a closed channel again while somebody keeps one of its calls, for example with an error."""
    async with another(gateway) as client:
        try:
            await client.log.Metadata(METADATA, timeout=1)
        except grpc.aio.AioRpcError as error:
            return error.code()
    raise AssertionError("it was let in")


def test_connections_above_the_limit_are_closed_and_those_that_are_there_go_on(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path, max_connections=2) as (gateway, client):
            await client.create("t")
            async with another(gateway) as other:
                await soon(other.log.Metadata(METADATA))
                assert await refusal(gateway) in (
                    grpc.StatusCode.UNAVAILABLE,
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                )
                gc.collect()
                for who in (client, other):
                    assert (await soon(who.log.Metadata(METADATA))).topics[0].partition_count == 1
            async with another(gateway) as next_:
                answer = await soon(next_.log.Metadata(METADATA, wait_for_ready=True))
                assert answer.topics[0].partition_count == 1

    run(test())


def test_requests_of_too_many_bytes_together_are_refused_and_small_ones_get_through(
    tmp_path: Path,
) -> None:
    gate = Gate("put", "topics/t/partition")

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path), before=gate)
        async with running(store=store, request_queue_bytes=1_000_000) as (gateway, client):
            await client.create("t")
            await client.create("free")
            large = values_request(b"x" * 600_000)
            waits = asyncio.create_task(client.produce(large))
            await until(lambda: gate.calls > 0)
            async with another(gateway) as other:
                async with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "BACK_PRESSURE") as facts:
                    await other.produce(large)
                assert facts["limit_bytes"] == "1000000"
                assert int(facts["retry_ms"]) > 0
                small = await other.produce(values_request(b"v", topic="free"))
                assert small.results[0].base_offset == 0
            gate.open()
            await soon(waits)
            assert (await client.produce(large)).results[0].base_offset == 1

    run(test())


def test_a_request_that_grpc_would_unpack_to_more_than_the_limit_is_refused(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path, socket_request_max_bytes=1_000_000) as (_, client):
            await client.create("t")
            with pytest.raises(grpc.aio.AioRpcError, match="larger than max") as caught:
                await client.log.Produce(
                    values_request(bytes(40_000_000)),
                    compression=grpc.Compression.Gzip,
                    timeout=WAIT_S,
                )
            assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            small = values_request(bytes(100_000))
            answer = await client.log.Produce(small, compression=grpc.Compression.Gzip)
            assert answer.results[0].base_offset == 0

    run(test())


def test_a_quiet_connection_may_ping_as_often_as_it_likes(tmp_path: Path) -> None:
    """Else gRPC ends it with too_many_pings, and its client finds out late that a gateway hangs."""

    async def answer(reader: asyncio.StreamReader) -> int:
        """The next frame's type."""
        head = await reader.readexactly(9)
        await reader.readexactly(int.from_bytes(head[:3], "big"))
        return head[3]

    async def test() -> None:
        async with running(tmp_path) as (gateway, _):
            host, _, port = gateway.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(HELLO)
            for _ in range(20):
                writer.write(PING)
                while (kind := await asyncio.wait_for(answer(reader), WAIT_S)) != PING_TYPE:
                    assert kind != GOAWAY_TYPE
            writer.close()

    run(test())

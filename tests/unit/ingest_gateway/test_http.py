"""What a gateway tells over HTTP: health, readiness, calls, and the page for people."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc.aio
import pytest
from tests.unit.delta_log.faults import FaultyStore
from tests.unit.delta_log.full_disk import fill, small_disk
from tests.unit.ingest_gateway.harness import Gate, run, running, soon, until
from tests.unit.ingest_gateway.payloads import values_request

from mainstem.cli.gateway.status import gateway_status
from mainstem.client import AdminClient, TopicPartition
from mainstem.delta_log import LocalStore
from mainstem.errors import StoreUnavailableError
from mainstem.ingest_gateway.condition import STUCK_S, GatewayCondition
from mainstem.ingest_gateway.server import Gateway
from mainstem.protocol.v1 import log_pb2

pytestmark = pytest.mark.usefixtures("nothing_left")

HTTP = "127.0.0.1:0"


def get(gateway: Gateway, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://{gateway.metrics_address}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def asked(gateway: Gateway, path: str) -> tuple[int, str]:
    return await asyncio.to_thread(get, gateway, path)


def test_a_gateway_is_alive_and_ready_and_other_paths_are_404(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, metrics_listeners=HTTP) as (gateway, _):
            assert await asked(gateway, "/healthz") == (200, "ok\n")
            assert await asked(gateway, "/readyz") == (200, "ok\n")
            for path in ("/health", "/ready", "/foo", "/metrics/x"):
                assert (await asked(gateway, path))[0] == 404

    run(test())


def test_a_gateway_that_drains_is_alive_and_not_ready(tmp_path: Path) -> None:
    async def test() -> None:
        gate = Gate("put", "topics/t/partition")
        store = FaultyStore(LocalStore(tmp_path), before=gate)
        async with running(store=store, metrics_listeners=HTTP) as (gateway, client):
            await client.create("t")
            waiting = asyncio.create_task(client.produce(values_request(b"v")))
            await until(lambda: gate.calls > 0)
            draining = asyncio.create_task(gateway.drain())
            await asyncio.sleep(0)
            assert await asked(gateway, "/healthz") == (200, "ok\n")
            code, why = await asked(gateway, "/readyz")
            assert (code, "drains" in why) == (503, True)
            gate.open()
            assert await soon(draining)
            await soon(waiting)

    run(test())


def test_a_gateway_on_a_full_disk_is_alive_and_not_ready_until_there_is_space(
    tmp_path: Path,
) -> None:
    async def test(disk: Path) -> None:
        async with running(disk / "warehouse", metrics_listeners=HTTP) as (gateway, client):
            await client.create("t")
            await client.produce(values_request(b"v"))
            ballast = fill(disk)
            code, why = await asked(gateway, "/readyz")
            assert (code, "full" in why) == (503, True)
            assert await asked(gateway, "/healthz") == (200, "ok\n")
            waiting = asyncio.create_task(client.produce(values_request(b"w" * 50_000)))
            leader = gateway._topics.leading("t")
            assert leader is not None
            appender = leader.appender
            assert appender is not None
            await until(lambda: appender.trouble is not None)
            code, why = await asked(gateway, "/readyz")
            assert (code, "trim a topic" in why) == (503, True)
            _, page = await asked(gateway, "/")
            assert "full" in page
            facts, error = await asyncio.to_thread(gateway_status, gateway.address, 20.0)
            assert facts["gateway_id"] == "gateway-0"
            assert isinstance(error, StoreUnavailableError)
            assert "full" in error.message
            _, text = await asked(gateway, "/metrics")
            assert "mainstem_warehouse_free_bytes 0.0" in text
            assert 'mainstem_store_failures_total{reason="ENOSPC"}' in text
            oldest = text.partition('mainstem_oldest_uncommitted_seconds{topic="t"} ')[2]
            assert float(oldest.split()[0]) > 0
            ballast.unlink()
            await soon(waiting)
            for _ in range(300):
                if await asked(gateway, "/readyz") == (200, "ok\n"):
                    break
                await asyncio.sleep(0.05)
            assert await asked(gateway, "/readyz") == (200, "ok\n")
            _, error = await asyncio.to_thread(gateway_status, gateway.address, 20.0)
            assert error is None

    with small_disk(tmp_path / "disk") as place:
        run(test(place))


def test_a_gateway_whose_event_loop_stands_still_is_not_alive(tmp_path: Path) -> None:
    now = 0.0
    store = LocalStore(tmp_path)
    try:
        condition = GatewayCondition(store, lambda: now)
        assert condition.not_alive == ""
        now = STUCK_S + 1
        assert "has not turned for 61 s" in condition.not_alive
    finally:
        store.close()


def test_calls_are_counted_and_timed_by_method_and_outcome(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, metrics_listeners=HTTP) as (gateway, client):
            await client.create("t")
            await client.produce(values_request(b"v"))
            with pytest.raises(grpc.aio.AioRpcError):
                await client.produce(values_request(b"v", topic="nosuch"))
            with pytest.raises(grpc.aio.AioRpcError):
                await client.create("t")
            nosuch: Any = client.channel.unary_unary("/mainstem.v1.Log/NoSuch")
            with pytest.raises(grpc.aio.AioRpcError):
                await nosuch(b"")
            fetch = log_pb2.FetchRequest(max_wait_ms=60_000, min_bytes=1)
            fetch.partitions.add(topic="t", partition=0, offset=1)
            cancelled = client.log.Fetch(fetch)
            await until(lambda: gateway.fetches_waiting == 1)
            cancelled.cancel()
            await until(lambda: gateway.fetches_waiting == 0)
            stream = client.stream()
            await stream.send(values_request(b"v"))
            await stream.answer()
            _, text = await asked(gateway, "/metrics")
            assert 'mainstem_open_streams{call="ProduceStream"} 1.0' in text
            await stream.end()
            _, text = await asked(gateway, "/metrics")
            counts = {
                ("Produce", "OK"): 1,
                ("Produce", "UNKNOWN_TOPIC"): 1,
                ("CreateTopic", "OK"): 1,
                ("CreateTopic", "TOPIC_EXISTS"): 1,
                ("Fetch", "CANCELLED"): 1,
                ("ProduceStream", "OK"): 1,
            }
            for (call, code), count in counts.items():
                assert f'mainstem_requests_total{{call="{call}",code="{code}"}} {count}.0' in text
            assert 'mainstem_request_seconds_count{call="Produce"} 2.0' in text
            assert 'mainstem_open_streams{call="ProduceStream"} 0.0' in text
            assert "NoSuch" not in text
            assert "process_resident_memory_bytes" in text
            assert "_created" not in text

    run(test())


def test_the_page_shows_topics_groups_and_gateways_without_a_script_and_escaped(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path, metrics_listeners=HTTP) as (gateway, client):
            await client.create("orders", 2)
            await client.produce(values_request(b"1", b"2", b"3", topic="orders", partition=1))

            def commit() -> None:
                with AdminClient({"bootstrap.servers": gateway.address}) as admin:
                    place = TopicPartition("orders", 1, 1)
                    admin.alter_consumer_group_offsets("<script>alert(1)</script>", [place])

            await asyncio.to_thread(commit)
            began = time.monotonic()
            code, page = await asked(gateway, "/")
            assert code == 200
            assert time.monotonic() - began < 20
            for text in ("orders", "gateway-0", gateway.address, str(tmp_path), "ready"):
                assert text in page
            assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
            assert "<script" not in page
            assert '<td class="n">3</td>' in page  # the high watermark
            assert '<td class="n">2</td>' in page  # the lag

    run(test())

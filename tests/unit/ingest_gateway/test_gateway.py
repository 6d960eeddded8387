"""The gateway as a whole: health, reflection, metrics, checkpoints, start and drain."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import grpc.aio
import pytest
import structlog.testing
from deltalake import DeltaTable
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.unit.delta_log.faults import FaultyStore
from tests.unit.ingest_gateway.harness import (
    Client,
    Gate,
    refused,
    run,
    running,
    soon,
    table,
    until,
    values,
)
from tests.unit.ingest_gateway.payloads import values_request

from mainstem.config import load_gateway_config
from mainstem.delta_log import LocalStore
from mainstem.delta_log.upkeep import maintenance
from mainstem.errors import InvalidConfigError, MainstemError, StoreUnavailableError
from mainstem.ingest_gateway.server import Gateway
from mainstem.ingest_gateway.topics import maintainer as maintainer_module

pytestmark = pytest.mark.usefixtures("nothing_left")

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICES = ("", "mainstem.v1.Log", "mainstem.v1.Admin")


# -- the standard services


def test_health_tells_of_the_gateway_and_of_each_service(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            for service in SERVICES:
                assert await client.serving(service) == SERVING
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.serving("nosuch")
            assert caught.value.code() == grpc.StatusCode.NOT_FOUND

    run(test())


def test_reflection_lists_the_services(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            channel: Any = client.channel
            stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
            call = stub.ServerReflectionInfo()
            await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
            answer = await soon(call.read())
            names = {service.name for service in answer.list_services_response.service}
            assert names == {
                "mainstem.v1.Log",
                "mainstem.v1.Security",
                "mainstem.v1.Transactions",
                "mainstem.v1.Admin",
                "mainstem.v1.Groups",
                "grpc.health.v1.Health",
                "grpc.reflection.v1alpha.ServerReflection",
            }
            await call.done_writing()

    run(test())


# -- metrics


def scrape(gateway: Gateway) -> dict[str, float]:
    with urlopen(f"http://{gateway.metrics_address}/metrics", timeout=30) as response:
        text = response.read().decode()
    return {
        name: float(value)
        for line in text.splitlines()
        if not line.startswith("#")
        for name, value in [line.rsplit(" ", 1)]
    }


async def scraped(gateway: Gateway) -> dict[str, float]:
    return await asyncio.to_thread(scrape, gateway)


def test_metrics_have_their_names_and_move_with_what_happens(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, metrics_listeners="127.0.0.1:0") as (gateway, client):
            before = await scraped(gateway)
            assert any(name.startswith("mainstem_build_info{version=") for name in before)
            await client.create("t", 2)
            await client.produce(values_request(b"12", b"345", partition=1))
            with pytest.raises(grpc.aio.AioRpcError):
                await client.produce(values_request(b"v", partition=2))
            after = await scraped(gateway)
            assert {
                'mainstem_produce_records_total{topic="t"}': 2,
                'mainstem_produce_bytes_total{topic="t"}': 5,
                'mainstem_produce_rejected_total{reason="UNKNOWN_PARTITION"}': 1,
                'mainstem_table_commits_total{outcome="committed"}': 1,
                'mainstem_append_seconds_count{stage="queue"}': 1,
                'mainstem_append_seconds_count{stage="encode"}': 1,
                'mainstem_append_seconds_count{stage="commit"}': 1,
                'mainstem_topic_partition_high_watermark{partition="0",topic="t"}': 0,
                'mainstem_topic_partition_high_watermark{partition="1",topic="t"}': 2,
                'mainstem_topic_partition_log_start_offset{partition="1",topic="t"}': 0,
                "mainstem_queued_bytes": 0,
            }.items() <= after.items()

    run(test())


def test_no_metric_carries_the_name_of_a_topic_that_does_not_exist(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, metrics_listeners="127.0.0.1:0") as (gateway, client):
            await client.create("gone")
            await client.produce(values_request(b"v", topic="gone"))
            await client.delete("gone")
            stream = client.stream()
            for number in range(10):
                for name in (f"nosuch-{number}", f"no/such-{number}"):
                    await stream.send(values_request(b"v", topic=name))
                    assert (await stream.answer()).error.code
                    with pytest.raises(grpc.aio.AioRpcError):
                        await client.produce(values_request(b"v", topic=name))
            await stream.end()
            text = "\n".join(await scraped(gateway))
            assert "such" not in text
            assert "gone" not in text

    run(test())


# -- checkpoints


def checkpoints(warehouse: Path, topic: str) -> list[int]:
    log = warehouse / "topics" / topic / "_delta_log"
    return sorted(
        int(match[1])
        for path in log.iterdir()
        if (match := re.fullmatch(r"(\d{20})\.checkpoint\.parquet", path.name))
    )


async def produce_until_checkpoint(client: Client, warehouse: Path, count_min: int) -> None:
    async with asyncio.timeout(30):
        while len(checkpoints(warehouse, "t")) < count_min:
            await client.produce(values_request(b"v"))


def test_a_checkpoint_is_written_each_time_that_the_interval_has_passed(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, checkpoint_interval_commits=5) as (_, client):
            await client.create("t", commit_interval_ms="0")
            for _ in range(3):
                await client.produce(values_request(b"v"))
            assert checkpoints(tmp_path, "t") == []
            await produce_until_checkpoint(client, tmp_path, 2)
            first, second = checkpoints(tmp_path, "t")
            assert first >= 5
            assert second >= first + 5

    run(test())
    found = table(tmp_path, "t")
    assert found.log_end_offset(0) == len(values(tmp_path, "t")[0])


@pytest.mark.fault
@pytest.mark.parametrize("what", ["cut", "ahead"])
def test_a_leader_mends_a_torn_checkpoint_and_a_pointer_that_is_ahead_and_goes_on(
    tmp_path: Path, what: str
) -> None:
    log = tmp_path / "topics" / "t" / "_delta_log"

    async def test() -> None:
        settings: dict[str, Any] = {
            "checkpoint_interval_commits": 5,
            "metrics_listeners": "127.0.0.1:0",
        }
        async with running(tmp_path, **settings) as (_, client):
            await client.create("t", commit_interval_ms="0")
            await produce_until_checkpoint(client, tmp_path, 1)
        if what == "cut":
            newest = max(log.glob("*.checkpoint.parquet"))
            newest.write_bytes(newest.read_bytes()[:2000])
        else:
            (log / "_last_checkpoint").write_bytes(b'{"version":99999,"size":5}')
        async with running(tmp_path, **settings) as (gateway, client):
            await client.produce(values_request(b"after"))
            file = {"cut": "checkpoint", "ahead": "pointer"}[what]
            name = f'mainstem_log_repairs_total{{file="{file}"}}'
            await until(lambda: scrape(gateway).get(name, 0) >= 1)
            assert DeltaTable(tmp_path / "topics" / "t").version() >= table(tmp_path, "t").version
            count = len(checkpoints(tmp_path, "t"))
            await produce_until_checkpoint(client, tmp_path, count + 1)

    run(test())


class Panic(BaseException):
    """As a panic in Rust comes through to Python: no Exception."""


@pytest.mark.parametrize("failure", [OSError("disk full"), Panic("a bug")])
def test_a_failing_checkpoint_fails_no_produce_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    attempts: list[str] = []
    write_checkpoint = maintenance.write_checkpoint

    def failing(store: Any, live: Any) -> int:
        attempts.append(store.uri)
        if len(attempts) <= 2:
            raise failure
        return write_checkpoint(store, live)

    monkeypatch.setattr(maintainer_module, "write_checkpoint", failing)
    monkeypatch.setattr(maintainer_module, "RETRY_AFTER_S", 0.01)

    async def test() -> None:
        settings: dict[str, Any] = {
            "checkpoint_interval_commits": 2,
            "metrics_listeners": "127.0.0.1:0",
        }
        async with running(tmp_path, **settings) as (gateway, client):
            await client.create("t", commit_interval_ms="0")
            await produce_until_checkpoint(client, tmp_path, 1)
            name = 'mainstem_checkpoints_total{outcome="%s"}'
            await until(lambda: scrape(gateway).get(name % "written", 0) >= 1)
            assert (await scraped(gateway))[name % "failed"] == 2

    run(test())


def test_after_a_failed_checkpoint_the_next_attempt_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[str] = []

    def failing(store: Any, live: Any) -> int:
        attempts.append(store.uri)
        raise OSError("disk full")

    monkeypatch.setattr(maintainer_module, "write_checkpoint", failing)

    async def test() -> None:
        async with running(tmp_path, checkpoint_interval_commits=1) as (_, client):
            await client.create("t", commit_interval_ms="0")
            for _ in range(20):
                await client.produce(values_request(b"v"))

    run(test())
    assert len(attempts) == 1


# -- start


def config(**settings: object) -> Any:
    flags = {name.replace("_", "."): str(value) for name, value in settings.items()}
    return load_gateway_config(environment={}, flags={"listeners": "127.0.0.1:0", **flags})


async def start_and_drain(settings: Any) -> Gateway:
    gateway = Gateway(settings)
    await gateway.start()
    await gateway.drain()
    return gateway


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listeners", "9490"),
        ("listeners", "localhost"),
        ("listeners", "localhost:port"),
        ("listeners", "localhost:65536"),
        ("listeners", ":9490"),
        ("listeners", "127.0.0.1:²"),
        ("advertised.listeners", "gateway"),
        ("advertised.listeners", "http://gateway:9490"),
        ("advertised.listeners", "a b:9490"),
        ("advertised.listeners", "one:9490,other:9490"),
        ("advertised.listeners", "gateway:0"),
        ("advertised.listeners", "0.0.0.0:9490"),
        ("metrics.listeners", "9100"),
    ],
)
def test_an_address_that_is_none_is_refused_by_name(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"{name} is '{re.escape(value)}'"):
        run(start_and_drain(config(warehouse=tmp_path, **{name: value})))


@pytest.mark.parametrize("name", ["listeners", "metrics.listeners"])
def test_a_port_in_use_is_one_clear_error_that_leaves_nothing_behind(
    tmp_path: Path, name: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InvalidConfigError, match=address):
            run(start_and_drain(config(warehouse=tmp_path, **{name: address})))


def test_a_warehouse_that_cannot_be_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nosuch/warehouse")):
        with pytest.raises(MainstemError, match=re.escape(str(path))) as caught:
            run(start_and_drain(config(warehouse=path)))
        assert isinstance(caught.value, StoreUnavailableError)


def test_clients_are_told_an_address_that_they_can_reach(tmp_path: Path) -> None:
    gateway = run(start_and_drain(config(warehouse=tmp_path, listeners="0.0.0.0:0")))
    assert gateway.address.rpartition(":")[0] == socket.gethostname()
    told = "gateway.example:1234"
    gateway = run(start_and_drain(config(warehouse=tmp_path, advertised_listeners=told)))
    assert gateway.address == told


# -- drain


def test_a_drain_answers_everything_that_was_accepted_and_ends_open_streams(
    tmp_path: Path,
) -> None:
    gate = Gate("put", "topics/t/partition")

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path), before=gate)
        async with running(store=store) as (gateway, client):
            await client.create("t")
            idle, busy = client.stream(), client.stream()
            unary = asyncio.ensure_future(client.produce(values_request(b"unary")))
            await until(lambda: gate.calls > 0)
            for number in range(5):
                await busy.send(values_request(b"%d" % number))
            led = gateway._topics.leading("t")
            assert led is not None
            assert led.appender is not None
            appender = led.appender
            await until(lambda: appender.log_end_offset(0) == 6)
            draining = asyncio.ensure_future(gateway.drain())
            await until_not_serving(client)
            for stream in (client.produce(values_request(b"late")), client.create("late")):
                async with refused(grpc.StatusCode.UNAVAILABLE, "SHUTTING_DOWN"):
                    await stream
            gate.open()
            assert (await soon(unary)).results[0].base_offset == 0
            offsets = [(await busy.answer()).results[0].base_offset for _ in range(5)]
            assert offsets == [1, 2, 3, 4, 5]
            for stream_ in (idle, busy):
                assert await soon(stream_.call.read()) is grpc.aio.EOF
                assert await soon(stream_.call.code()) == grpc.StatusCode.OK
                ending = dict(await soon(stream_.call.trailing_metadata()))
                assert ending["mainstem-end"] == "SHUTTING_DOWN"
            assert await soon(draining) is True

    async def until_not_serving(client: Client) -> None:
        async with asyncio.timeout(30):
            for service in SERVICES:
                while await client.serving(service) != NOT_SERVING:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)

    run(test())
    assert values(tmp_path, "t") == {0: [b"unary", b"0", b"1", b"2", b"3", b"4"]}


def test_a_connection_outlives_the_streams_that_a_drain_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who still sends on a connection that closes loses the answers that it has not read yet."""
    monkeypatch.setattr("mainstem.ingest_gateway.server._LINGER_S", 1.5)

    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t")
            stream = client.stream()
            await stream.send(values_request(b"v"))
            await stream.answer()
            draining = asyncio.ensure_future(gateway.drain())
            assert await soon(stream.call.read()) is grpc.aio.EOF
            assert await client.serving() == NOT_SERVING
            assert await soon(draining) is True

    run(test())


@pytest.mark.slow  # a fifth of the grace is for the answers: it must suffice on a busy machine
def test_a_drain_that_runs_out_of_time_says_so_and_answers_as_unknown(tmp_path: Path) -> None:
    gate = Gate("put", "topics/t/partition")

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path), before=gate)
        async with running(store=store, drain_timeout_ms=5_000) as (gateway, client):
            await client.create("t")
            calls = [asyncio.ensure_future(client.produce(values_request(b"v")))]
            await until(lambda: gate.calls > 0)
            calls.append(asyncio.ensure_future(client.produce(values_request(b"w"))))
            known = gateway._topics.leading("t")
            assert known is not None
            appender = known.appender
            assert appender is not None
            await until(lambda: appender.log_end_offset(0) == 2)
            assert await soon(gateway.drain()) is False
            for call in calls:
                async with refused(grpc.StatusCode.UNKNOWN, "OUTCOME_UNKNOWN"):
                    await soon(call)

    run(test())


def test_a_drain_whose_store_hangs_says_of_what_and_ends_in_its_time(tmp_path: Path) -> None:
    hangs, opened = threading.Event(), threading.Event()

    def hang(call: str, path: str) -> None:
        if hangs.is_set():
            assert opened.wait(60)

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path), before=hang)
        async with running(store=store, drain_timeout_ms=1_000) as (gateway, client):
            for topic in ("t", "u"):
                await client.create(topic)
                await client.produce(values_request(b"v", topic=topic))
            hangs.set()
            calls = [
                asyncio.ensure_future(client.produce(values_request(b"w", topic="t"))),
                asyncio.ensure_future(client.create("never")),
            ]
            appender = gateway._topics.leading("t")
            assert appender is not None
            await until(lambda: appender.leader is not None and appender.leader.queued_bytes > 0)
            began_at = time.monotonic()
            with structlog.testing.capture_logs() as lines:
                assert await soon(gateway.drain()) is False
            assert time.monotonic() - began_at < 5, "one second, on a machine that has much to do"
            opened.set()
            said = {line["event"]: line for line in lines}
            waited = said["accepted records are not committed, and their topic closes"]
            assert (waited["topic"], waited["error"]) == ("t", "the store does not answer")
            assert said["gateway stopped"]["clean"] is False
            await asyncio.gather(*calls, return_exceptions=True)

    run(test())


def test_a_drain_does_not_wait_for_a_topic_that_is_hard_to_open(tmp_path: Path) -> None:
    gate = Gate("list_files", "topics/t/_delta_log")

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path))
        async with running(store=store, drain_timeout_ms=300) as (gateway, client):
            await client.create("t")
            store.before = gate
            call = asyncio.ensure_future(client.produce(values_request(b"v")))
            await until(lambda: gate.calls > 0)
            await soon(gateway.drain())
            with pytest.raises(grpc.aio.AioRpcError):
                await soon(call)
            gate.open()
            await until(lambda: not gateway._topics._operations.under_way)

    run(test())


def test_a_checkpoint_that_is_being_written_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate("checkpoint", "")
    write_checkpoint = maintenance.write_checkpoint

    def slow(store: Any, live: Any) -> int:
        gate("checkpoint", "")
        return write_checkpoint(store, live)

    monkeypatch.setattr(maintainer_module, "write_checkpoint", slow)

    async def test() -> None:
        async with running(tmp_path, checkpoint_interval_commits=1) as (gateway, client):
            await client.create("t")
            await client.produce(values_request(b"v"))
            await until(lambda: gate.calls > 0)
            draining = asyncio.ensure_future(gateway.drain())
            await until(lambda: gateway._topics.leading("t") is None)
            assert not draining.done()
            gate.open()
            assert await soon(draining) is True

    run(test())
    assert len(checkpoints(tmp_path, "t")) == 1

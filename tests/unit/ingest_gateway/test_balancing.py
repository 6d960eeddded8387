"""Topics and the coordination of groups that move from one gateway to another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.unit.ingest_gateway.harness import WAIT_S, Client, refused, run, running, until, values
from tests.unit.ingest_gateway.payloads import values_request

from mainstem.client import Consumer, Producer
from mainstem.delta_log import LocalStore
from mainstem.delta_log.verify import verify_named
from mainstem.ingest_gateway.cluster import COORDINATION
from mainstem.ingest_gateway.server import Gateway
from mainstem.protocol.v1 import admin_pb2, log_pb2

pytestmark = pytest.mark.usefixtures("nothing_left")

TOPICS = [f"t{number}" for number in range(8)]
QUICK: dict[str, Any] = {"gateway_heartbeat_interval_ms": 50, "gateway_session_timeout_ms": 5000}


@asynccontextmanager
async def led_by_one(
    warehouse: Path, **settings: Any
) -> AsyncIterator[tuple[tuple[Gateway, Client], tuple[Gateway, Client]]]:
    """Two gateways, of which the first leads all topics, as it was there first."""
    flags = QUICK | settings
    async with running(warehouse, **flags) as one:
        for topic in TOPICS:
            await one[1].create(topic)
            await one[1].produce(values_request(b"0", topic=topic))
        async with running(warehouse, **flags) as two:
            await until(lambda: all(knows_both(gateway) for gateway, _ in (one, two)))
            yield one, two


def knows_both(gateway: Gateway) -> bool:
    return gateway._cluster is not None and len(gateway._cluster.gateways()) == 2


def led(gateway: Gateway) -> set[str]:
    return {appender.topic for appender in gateway._topics.leaders()}


def belong_to(gateway: Gateway, other: Gateway) -> set[str]:
    """The topics that should be led by `other`, as `gateway` sees it."""
    cluster = gateway._cluster
    assert cluster is not None
    targets = {topic: cluster.target(topic) for topic in TOPICS}
    return {
        topic for topic, to in targets.items() if to is not None and to.address == other.address
    }


async def rebalance(client: Client, *, dry_run: bool = False) -> list[admin_pb2.TopicMove]:
    request = admin_pb2.RebalanceRequest(validate_only=dry_run)
    answer: admin_pb2.RebalanceResponse = await client.admin.Rebalance(request, timeout=WAIT_S)
    return list(answer.moves)


def test_what_belongs_to_another_gateway_moves_when_an_operator_says_so_and_the_rest_stays(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with led_by_one(tmp_path) as ((one, first), (two, second)):
            wanted = belong_to(one, two)
            assert 0 < len(wanted) < len(TOPICS)
            planned = await rebalance(first, dry_run=True)
            assert [(move.topic, move.done) for move in planned] == [
                (t, False) for t in sorted(wanted)
            ]
            assert led(one) == set(TOPICS)
            assert await rebalance(second) == []
            moved = await rebalance(first)
            assert {(move.topic, move.address) for move in moved} == {
                (t, two.address) for t in wanted
            }
            assert all(move.done for move in moved)
            assert led(one) == set(TOPICS) - wanted
            topic = min(wanted)
            async with refused(grpc.StatusCode.FAILED_PRECONDITION, "NOT_LEADER") as facts:
                await first.produce(values_request(b"x", topic=topic))
            assert facts["leader"] == two.address
            assert (await first.describe(topic)).leader == two.address
            answer = await second.produce(values_request(b"1", topic=topic))
            assert answer.results[0].base_offset == 1
            assert await rebalance(first) == []
            assert await rebalance(second) == []
        store = LocalStore(tmp_path)
        report = verify_named(store, topic)
        store.close()
        assert report.ok, report

    run(test())


def test_topics_move_by_themselves_a_few_at_a_time_when_no_gateway_has_come_or_gone_for_a_while(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        settings = {"placement_delay_ms": 400, "placement_moves_max": 1}
        async with led_by_one(tmp_path, **settings) as ((one, _), (two, _)):
            began_at = time.monotonic()
            wanted = belong_to(one, two)
            seen = {len(led(one))}

            def moved() -> bool:
                seen.add(len(led(one)))
                return not led(one) & wanted

            await until(moved)
            assert time.monotonic() - began_at > 0.2
            assert seen == set(range(len(TOPICS) - len(wanted), len(TOPICS) + 1))

    run(test())


def test_without_placement_nothing_moves_and_a_drain_hands_over_all_the_same(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        settings = {"placement_delay_ms": 0, "placement_enabled": False}
        async with led_by_one(tmp_path, **settings) as ((one, _), (two, second)):
            await asyncio.sleep(0.3)
            assert led(one) == set(TOPICS)
            await one.drain()
            for topic in TOPICS:
                assert (await second.describe(topic)).leader == two.address

    run(test())


def test_a_gateway_that_drains_sends_producers_on_in_the_stream_that_they_have(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with led_by_one(tmp_path) as ((one, first), (two, second)):
            stream = first.stream()
            request = values_request(b"1", topic="t0")
            await stream.send(request)
            assert not (await stream.answer()).HasField("error")
            leaving = asyncio.create_task(one.drain())
            # Until the stream ends every request is answered, by this gateway or with the other.
            refusals: list[log_pb2.ProduceResponse] = []
            while not refusals:
                request = values_request(b"x", topic="t0")
                request.resume = True
                await stream.send(request)
                answer = await stream.answer()
                if answer.HasField("error"):
                    refusals.append(answer)
            assert refusals[0].error.code == "NOT_LEADER", refusals
            assert refusals[0].error.facts["leader"] == two.address
            assert await leaving
            for topic in TOPICS:
                await second.produce(values_request(b"2", topic=topic))

    run(test())
    assert values(tmp_path, "t1") == {0: [b"0", b"2"]}


def test_no_send_fails_and_no_consumer_hears_of_it_when_a_gateway_drains(tmp_path: Path) -> None:
    group = {"group.id": "g", "auto.offset.reset": "earliest"}
    count = 400

    def work(address: str) -> tuple[list[int], list[bytes]]:
        """Sends while the gateway goes, then reads all of it as a member of a group."""
        servers = {"bootstrap.servers": address}
        with (
            Consumer(servers | group) as consumer,
            Producer(servers | {"linger.ms": 0}) as producer,
        ):
            consumer.subscribe(TOPICS)
            sent, read = [], []
            for number in range(count):
                value = b"%d" % number
                sent.append(producer.send(TOPICS[number % len(TOPICS)], value))
                read += consumer.consume(100, 0.005)
            offsets = [one.result(WAIT_S).offset for one in sent]
            ends_at = time.monotonic() + WAIT_S
            while len({record.value for record in read}) < count:
                assert time.monotonic() < ends_at, len(read)
                read += consumer.consume(100, 0.1)
            return offsets, [record.value or b"" for record in read]

    async def test() -> None:
        async with led_by_one(tmp_path) as ((one, _), (two, _)):
            # The group is coordinated by the one that goes.
            working = asyncio.create_task(asyncio.to_thread(work, one.address))
            await until(lambda: one._groups.now() is not None)
            await asyncio.sleep(0.3)
            await one.drain()
            offsets, read = await working
            for number, offset in enumerate(offsets):
                assert offset == 1 + number // len(TOPICS)
            # A new coordinator knows no members: what they had not committed comes once more.
            assert set(read) == {b"%d" % number for number in range(count)}
            assert led(two) == set(TOPICS)
            assert two._groups.now() is not None

    run(test())


def test_the_coordination_of_groups_moves_as_topics_do(tmp_path: Path) -> None:
    def join(address: str) -> None:
        with Consumer({"bootstrap.servers": address, "group.id": "g"}) as consumer:
            consumer.subscribe([TOPICS[0]])
            while not consumer.assignment():
                consumer.poll(0.05)

    async def test() -> None:
        async with led_by_one(tmp_path) as ((one, first), (two, second)):
            pairs = {one.address: (one, first), two.address: (two, second)}
            cluster = one._cluster
            assert cluster is not None
            target = cluster.target(COORDINATION)
            wanted = one.address if target is None else target.address
            (other,) = pairs.keys() - {wanted}
            # The wrong one is asked first.
            await asyncio.to_thread(join, other)
            await until(lambda: pairs[other][0]._groups.now() is not None)
            assert COORDINATION in {move.topic for move in await rebalance(pairs[other][1])}
            assert pairs[other][0]._groups.now() is None
            await asyncio.to_thread(join, other)
            assert pairs[wanted][0]._groups.now() is not None

    run(test())

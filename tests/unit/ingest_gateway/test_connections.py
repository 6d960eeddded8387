"""Who is connected: counted by their calls, told by ListConnections."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.unit.ingest_gateway.harness import WAIT_S, run, running
from tests.unit.ingest_gateway.payloads import values_request

from mainstem.cli.root import cli
from mainstem.client import Producer
from mainstem.ingest_gateway import connections
from mainstem.ingest_gateway.connections import IDLE_S_MAX, Connection, Connections
from mainstem.protocol.v1 import admin_pb2


class World:
    """Connections with a clock."""

    def __init__(self, connections_max: int = 100) -> None:
        self.now_s = 0.0
        self.connections = Connections(connections_max, lambda: self.now_s)

    def call(self, peer: str) -> None:
        with self.connections.call(peer, lambda: f"client of {peer}"):
            pass

    def peers(self) -> list[str]:
        return [one.peer for one in self.connections.list()]


def test_a_connection_counts_its_calls_bytes_and_age() -> None:
    world = World()
    world.call("a")
    world.now_s = 5.0
    with world.connections.call("a", lambda: "asked once only") as connection:
        connection.received(10)
        connection.sent(3)
        world.now_s = 7.0
        (found,) = world.connections.list()
        assert (found.peer, found.client_id) == ("a", "client of a")
        assert (found.open_calls, found.call_count) == (1, 2)
        assert (found.received_bytes, found.sent_bytes) == (10, 3)
        assert world.connections.age_ms(found) == 7_000
        assert world.connections.idle_ms(found) == 2_000
    assert found.open_calls == 0
    assert world.connections.idle_ms(found) == 0


def test_a_connection_without_calls_is_forgotten_and_one_with_an_open_call_is_not() -> None:
    world = World()
    world.call("idle")
    with world.connections.call("streams", str):
        world.now_s = IDLE_S_MAX
        assert world.peers() == ["streams"]
        world.now_s = 10 * IDLE_S_MAX
        assert world.peers() == ["streams"]


def test_no_more_connections_are_remembered_than_there_may_be() -> None:
    world = World(connections_max=3)
    with world.connections.call("streams", str):
        for number in range(10):
            world.now_s += 1
            world.call(f"p{number}")
        assert world.peers() == ["streams", "p8", "p9"]


class Counting(OrderedDict[str, Connection]):
    """Connections that count how many of them are looked at."""

    looked = 0

    def values(self) -> Any:
        for one in super().values():
            Counting.looked += 1
            yield one


def test_a_new_connection_looks_at_the_one_that_is_idle_for_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "OrderedDict", Counting)
    world = World(connections_max=50)
    for number in range(50):
        world.call(f"{number}")
    assert Counting.looked <= 50
    Counting.looked = 0
    world.call("new")
    assert Counting.looked == 2  # the idlest, which makes room, and the next, which does not
    assert "0" not in world.peers()


def test_a_gateway_lists_its_connections_with_their_client_ids(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t")
            stream = client.stream()
            await stream.send(values_request(b"v" * 1_000))
            assert (await stream.answer()).results

            def produce() -> None:
                with Producer({"bootstrap.servers": gateway.address, "client.id": "mine"}) as one:
                    one.produce("t", b"x")
                    one.flush()
                    answered.append(True)

            answered: list[bool] = []
            await asyncio.to_thread(produce)
            answer: admin_pb2.ListConnectionsResponse = await client.admin.ListConnections(
                admin_pb2.ListConnectionsRequest(), timeout=WAIT_S
            )
            assert answer.gateway_id == "gateway-0"
            ours = next(one for one in answer.connections if not one.client_id)
            assert ours.open_calls == 2, "the stream, and the call that asks"
            assert ours.received_bytes > 1_000
            assert 0 < ours.sent_bytes < 1_000
            assert "mine" in {one.client_id for one in answer.connections}
            await stream.end()

            arguments = ["--format", "json", "gateway", "connections", "list"]
            arguments += ["-b", f"{gateway.address},127.0.0.1:1"]
            result = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
            assert result.exit_code == 1, "one of the two gateways is not there"
            *rows, missing = map(json.loads, result.stdout.splitlines())
            assert "mine" in {row["client_id"] for row in rows}
            assert {row["address"] for row in rows} == {gateway.address}
            assert missing["address"] == "127.0.0.1:1"

    run(test())

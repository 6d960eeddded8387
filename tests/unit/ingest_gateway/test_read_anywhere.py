"""Reads from a gateway that does not lead: what it serves, says, and leaves to the leader."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.delta_log.faults import FaultyStore
from tests.unit.ingest_gateway.fetching import RECORDS, fetch, offsets
from tests.unit.ingest_gateway.harness import WAIT_S, Gate, run, running, table, until
from tests.unit.ingest_gateway.payloads import values_request

from mainstem.delta_log import LocalStore
from mainstem.delta_log.store import time_elapsed_s
from mainstem.ingest_gateway.cluster import Cluster
from mainstem.ingest_gateway.server import Gateway
from mainstem.protocol.v1 import log_pb2

SLOWLY: dict[str, Any] = {"commit_interval_ms": "60000"}


def acks_1(*values: bytes) -> log_pb2.ProduceRequest:
    request = values_request(*values)
    request.acks = log_pb2.ACKS_LEADER
    return request


def cluster_of(gateway: Gateway) -> Cluster:
    assert gateway._cluster is not None
    return gateway._cluster


def kill(gateway: Gateway) -> None:
    """From now on it commits nothing: what is accepted stays in the log."""
    for appender in list(gateway._topics.leaders()):
        appender._task.cancel()


def test_metadata_say_where_each_gateway_is_and_whether_it_drains(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path / "w", gateway_id="a", gateway_rack="here") as (first, client),
            running(tmp_path / "w", gateway_id="b") as (second, _),
        ):
            await until(lambda: len(cluster_of(first).gateways()) == 2)
            request = log_pb2.MetadataRequest()
            found = await client.log.Metadata(request, timeout=WAIT_S)
            assert list(found.gateways) == [first.address, second.address]
            assert [(one.address, one.rack, one.draining) for one in found.places] == [
                (first.address, "here", False),
                (second.address, "", False),
            ]
            cluster_of(first).draining = True
            found = await client.log.Metadata(request, timeout=WAIT_S)
            assert [one.draining for one in found.places] == [True, False]

    run(test())


def test_a_gateway_that_does_not_lead_serves_and_says_how_old_its_look_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with (
            running(tmp_path / "w", gateway_id="a") as (_, client),
            running(tmp_path / "w", gateway_id="b") as (_, other),
        ):
            await client.create("t")
            await client.produce(values_request(b"a", b"b"))
            (found,) = await fetch(client, ("t", 0, 0), format=RECORDS)
            assert offsets(found) == [0, 1]
            assert not found.HasField("follower_lag_ms"), "it leads"
            (found,) = await fetch(other, ("t", 0, 0), format=RECORDS)
            assert offsets(found) == [0, 1]
            assert found.HasField("follower_lag_ms")
            assert found.follower_lag_ms < WAIT_S * 1000
            # As when the process was frozen between its look and its answer.
            monkeypatch.setattr(
                "mainstem.ingest_gateway.fetching.answer.time_elapsed_s",
                lambda: time_elapsed_s() + 3600,
            )
            (found,) = await fetch(other, ("t", 0, 0), format=RECORDS)
            assert 3_600_000 <= found.follower_lag_ms < 3_700_000

    run(test())


def test_the_lag_counts_from_when_the_look_began(tmp_path: Path) -> None:
    """What is committed while the store answers slowly may not be in its answer."""

    async def test() -> None:
        slow = Gate("read", "topics/t/_delta_log")
        store = FaultyStore(LocalStore(tmp_path / "w"))
        async with running(tmp_path / "w", store) as (_, client):
            await client.create("t")
            await fetch(client, ("t", 0, 0))
            await asyncio.sleep(0.15)  # until what was found is too old
            store.before = slow
            waits = asyncio.ensure_future(fetch(client, ("t", 0, 0)))
            await until(lambda: slow.calls > 0)
            await asyncio.sleep(0.3)
            slow.open()
            (found,) = await waits
            assert found.follower_lag_ms >= 300

    run(test())


def test_an_offset_beyond_the_table_is_for_the_leader_to_judge(tmp_path: Path) -> None:
    """It may have been read to the durable mark, from the leader's write-ahead log."""

    async def test() -> None:
        async with (
            running(tmp_path / "w", gateway_id="a") as (first, client),
            running(tmp_path / "w", gateway_id="b") as (_, other),
        ):
            await client.create("t", 2, **SLOWLY)
            request = values_request(b"in the table")
            await client.produce(request)
            await client.produce(acks_1(b"a", b"b"))
            assert table(tmp_path / "w", "t").log_end_offset(0) == 1
            beyond, other_partition = await fetch(other, ("t", 0, 3), ("t", 1, 0))
            assert beyond.error.code == "NOT_LEADER", beyond
            assert beyond.error.retriable
            assert beyond.error.facts["leader"] == first.address
            assert not other_partition.HasField("error"), "its offset can be served here"
            (found,) = await fetch(client, ("t", 0, 3))
            assert not found.HasField("error"), "the leader knows it"
            (found,) = await fetch(client, ("t", 0, 4))
            assert found.error.code == "OFFSET_OUT_OF_RANGE", "there is none, its leader says"
            (found,) = await fetch(other, ("t", 0, -1))
            assert found.error.code == "OFFSET_OUT_OF_RANGE", "the log start only ever rises"

    run(test())


def test_where_nobody_leads_the_log_of_the_last_leader_is_looked_at_first(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "w", gateway_id="a") as (gateway, client):
            await client.create("t", **SLOWLY)
            await client.produce(values_request(b"in the table"))
            await client.produce(acks_1(b"a", b"b"))
            kill(gateway)
        async with running(tmp_path / "w", gateway_id="b") as (_, client):
            (found,) = await fetch(client, ("t", 0, 3))
            assert not found.HasField("error"), found.error
            (found,) = await fetch(client, ("t", 0, 4))
            assert found.error.code == "OFFSET_OUT_OF_RANGE"

    run(test())

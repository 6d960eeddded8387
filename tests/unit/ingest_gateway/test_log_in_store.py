"""A gateway whose write-ahead log is in the object store of its warehouse."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.ingest_gateway.fetching import RECORDS, fetch, offsets
from tests.unit.ingest_gateway.harness import Client, run, running, until
from tests.unit.ingest_gateway.payloads import values_request

from mainstem.config import load_gateway_config
from mainstem.delta_log import Topics
from mainstem.delta_log.store import MemoryStore
from mainstem.errors import InvalidConfigError
from mainstem.ingest_gateway.far_store import config_for
from mainstem.ingest_gateway.server import Gateway
from mainstem.protocol.v1 import log_pb2


class _Store(MemoryStore):
    """Stays when a gateway that used it is gone."""

    def close(self) -> None:
        pass


class _FarStore(_Store):
    @property
    def is_far(self) -> bool:
        return True


def _kill(gateway: Gateway) -> None:
    """From now on it commits nothing: what is accepted stays in the log."""
    for appender in list(gateway._topics.leaders()):
        appender._task.cancel()


def _acks_1(value: bytes) -> log_pb2.ProduceRequest:
    request = values_request(value)
    request.acks = log_pb2.ACKS_LEADER
    return request


def _committed(store: MemoryStore) -> int:
    return Topics(store).open("t").state.log_end_offset(0)


async def _log_two(client: Client) -> None:
    """A topic whose offset 0 is in the table, and 1 and 2 in the log alone."""
    await client.create("t", commit_interval_ms="60000")
    await client.produce(values_request(b"0"))
    await asyncio.gather(client.produce(_acks_1(b"1")), client.produce(_acks_1(b"2")))


def test_acks_1_is_answered_by_an_object_which_the_next_start_brings_into_the_table() -> None:
    async def test() -> None:
        store = _Store()
        async with running(None, store, gateway_id="a") as (gateway, client):
            await _log_two(client)
            assert _committed(store) == 1
            durable: Any = log_pb2.VISIBILITY_DURABLE
            (found,) = await fetch(client, ("t", 0, 0), format=RECORDS, visibility=durable)
            assert offsets(found) == [0, 1, 2], "it is in the warehouse: readers may have it"
            _kill(gateway)
        assert _committed(store) == 1
        async with running(None, store, gateway_id="a") as (gateway, _):
            await gateway._topics.lead("t")
            await until(lambda: _committed(store) == 3)

    run(test())


def test_another_gateway_finds_it_when_the_first_is_gone() -> None:
    async def test() -> None:
        store = _Store()
        async with running(None, store, gateway_id="a") as (gateway, client):
            await _log_two(client)
            _kill(gateway)
        async with running(None, store, gateway_id="b") as (gateway, _):
            await gateway._topics.lead("t")
            await until(lambda: _committed(store) == 3)

    run(test())


def test_a_log_on_a_disk_leaves_what_other_gateways_have_in_the_store_to_be_found(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        store = _Store()
        async with running(None, store, gateway_id="a") as (gateway, client):
            await _log_two(client)
            _kill(gateway)
        async with running(None, store, gateway_id="b", wal_directory=str(tmp_path)) as (
            gateway,
            _,
        ):
            await gateway._topics.lead("t")
            await until(lambda: _committed(store) == 3)

    run(test())


def test_a_gateway_without_a_name_does_not_start_there() -> None:
    async def test() -> None:
        with pytest.raises(InvalidConfigError, match=r"gateway\.id is not set"):
            async with running(None, _Store()):
                pass

    run(test())


def test_the_interval_of_the_log_is_longer_where_it_is_far_away(tmp_path: Path) -> None:
    def interval(store: MemoryStore, **flags: object) -> int:
        named = {name.replace("_", "."): value for name, value in flags.items()}
        config = load_gateway_config(environment={}, flags=named)
        return config_for(config, store).number("wal.interval.ms")

    assert interval(_Store()) == 0
    assert interval(_FarStore()) == 200
    assert interval(_FarStore(), wal_interval_ms=0) == 0
    assert interval(_FarStore(), wal_directory=str(tmp_path)) == 0

"""Producer ids: given by any gateway of a warehouse, known to all of them, and invented by none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from tests.unit.delta_log.faults import FaultyStore, times, unavailable
from tests.unit.ingest_gateway.harness import Client, Gate, refused, run, running, until, values
from tests.unit.ingest_gateway.payloads import arrow_request, batch_of

from mainstem.delta_log import LocalStore
from mainstem.delta_log.system import ProducerIdsTable
from mainstem.errors import InternalError
from mainstem.ingest_gateway import producer_id_source
from mainstem.limits import PRODUCER_NUMBER_MAX
from mainstem.protocol.v1 import log_pb2

pytestmark = pytest.mark.usefixtures("nothing_left")


async def _init(client: Client) -> int:
    answer: log_pb2.InitProducerResponse = await client.log.InitProducer(
        log_pb2.InitProducerRequest()
    )
    assert answer.producer_epoch == 0
    return answer.producer_id


def _request(producer_id: int, sequence: int, partition: int = 0) -> log_pb2.ProduceRequest:
    request = arrow_request(
        batch_of(value=[b"%d" % sequence]), ranges=[(partition, 0, 1)], producer_id=producer_id
    )
    request.arrow.ranges[0].base_sequence = sequence
    return request


def test_no_two_producers_get_one_id_from_any_gateway_before_or_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_id_source, "BLOCK", 10)
    found: list[int] = []

    async def test() -> None:
        async with running(tmp_path) as (_, one), running(tmp_path) as (_, other):
            calls = [_init(client) for _ in range(15) for client in (one, other)]
            found.extend(await asyncio.gather(*calls))
        async with running(tmp_path) as (_, again):
            found.append(await _init(again))

    run(test())
    assert len(set(found)) == 31
    assert all(0 < one < 2**63 for one in found)


def test_an_id_of_another_gateway_is_known_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, leader):
            await leader.create("t", 2)
            async with running(tmp_path) as (_, other):
                producer_id = await _init(other)
            await leader.produce(_request(producer_id, 0))
            await leader.produce(_request(producer_id, 1))
        async with running(tmp_path) as (_, leader):
            await leader.produce(_request(producer_id, 2))
            await leader.produce(_request(producer_id, 2))
            await leader.produce(_request(producer_id, 0, partition=1))

    run(test())
    assert values(tmp_path, "t") == {0: [b"0", b"1", b"2"], 1: [b"0"]}


def test_an_invented_id_is_refused_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            given = await _init(client)
            for invented in (1, given + 1, given + (1 << 23), 2**62):
                async with refused(
                    grpc.StatusCode.FAILED_PRECONDITION, "UNKNOWN_PRODUCER_ID"
                ) as facts:
                    await client.produce(_request(invented, 0))
                assert facts["producer_id"] == str(invented)
            await client.produce(_request(given, 0))

    run(test())
    assert values(tmp_path, "t") == {0: [b"0"]}


def test_while_the_store_fails_no_id_is_given_and_then_it_is(tmp_path: Path) -> None:
    async def test() -> None:
        hook = times(1, "put_if_absent", unavailable(), "002.json")
        store = FaultyStore(LocalStore(tmp_path), before=hook)
        async with running(tmp_path) as _:
            pass  # makes the tables
        async with running(tmp_path, store) as (_, client):
            answers = [_init(client) for _ in range(3)]
            found = await asyncio.gather(*answers, return_exceptions=True)
            given = [one for one in found if isinstance(one, int)]
            given += [await _init(client) for _ in range(3)]
            assert len(set(given)) == len(given) >= 3

    run(test())


def test_a_caller_that_goes_away_leaves_the_table_to_nobody_before_its_commit_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_id_source, "BLOCK", 1)
    inside: list[int] = []
    most: list[int] = []
    take = ProducerIdsTable.take

    def counted(self: ProducerIdsTable, count: int) -> range:
        inside.append(1)
        most.append(len(inside))
        try:
            return take(self, count)
        finally:
            inside.pop()

    monkeypatch.setattr(ProducerIdsTable, "take", counted)
    gate = Gate("put_if_absent", "system/producer_ids")

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path))
        async with running(store=store) as (_, client):
            store.before = gate
            first = asyncio.ensure_future(_init(client))
            await until(lambda: gate.calls > 0)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            others = [asyncio.ensure_future(_init(client)) for _ in range(3)]
            await asyncio.wait(others, timeout=0.2)
            gate.open()
            assert len(set(await asyncio.gather(*others))) == 3
        store.close()

    run(test())
    assert max(most) == 1


def test_a_producer_that_is_short_of_memory_is_told_in_metrics(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, producer_state_max_bytes=65_536) as (gateway, client):
            await client.create("t", commit_interval_ms="0")
            for _ in range(0, 400, 40):
                ids = await asyncio.gather(*(_init(client) for _ in range(40)))
                await asyncio.gather(*(client.produce(_request(one, 0)) for one in ids))
            registry = gateway._metrics.registry
            used_bytes = registry.get_sample_value("mainstem_producer_state_bytes")
            forgotten = registry.get_sample_value(
                "mainstem_producers_forgotten_total", {"reason": "evicted"}
            )
            assert used_bytes is not None
            assert 32_768 < used_bytes <= 65_536
            assert forgotten is not None
            assert forgotten > 50

    run(test())


def test_the_last_number_is_given_and_none_after_it(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    table = ProducerIdsTable(store)
    secret = table.secret()
    assert len(secret) == 32
    left = PRODUCER_NUMBER_MAX - 1
    assert table.take(left) == range(1, PRODUCER_NUMBER_MAX)
    assert list(table.take(1)) == [PRODUCER_NUMBER_MAX]
    with pytest.raises(InternalError, match="all 1099511627775 producer ids are given out"):
        table.take(1)
    assert table.secret() == secret
    store.close()

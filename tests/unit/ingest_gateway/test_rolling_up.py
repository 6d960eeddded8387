"""Roll-up in a running gateway: readers in the middle of swapped files, and what it tells."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.unit.ingest_gateway.fetching import ARROW, fetch, rows
from tests.unit.ingest_gateway.harness import Client, run, running, until
from tests.unit.ingest_gateway.payloads import values_request
from tests.unit.ingest_gateway.test_gateway import scraped

pytestmark = pytest.mark.usefixtures("nothing_left")

COUNT = 60


async def _read(client: Client, partition_bytes: int) -> list[tuple[int, bytes]]:
    """All records, fetch by fetch; each goes on where the last one ended."""
    found: list[tuple[int, bytes]] = []
    offset = 0
    while offset < COUNT:
        (answer,) = await fetch(
            client,
            ("t", 0, offset),
            partition_bytes=partition_bytes,
            min_bytes=1,
            max_wait_ms=10_000,
            format=ARROW,
            columns=["value"],
        )
        found += [(row["offset"], row["value"]) for row in rows(answer)]
        offset = answer.next_offset
    return found


@pytest.mark.parametrize("cache_bytes", [0, 2**20], ids=["from files", "from memory"])
def test_readers_get_each_record_once_while_their_files_are_swapped(
    tmp_path: Path, cache_bytes: int
) -> None:
    async def test() -> None:
        async with running(tmp_path, fetch_cache_bytes=cache_bytes) as (_, client):
            await client.create("t", 1, commit_interval_ms="0", rollup_files="4")
            # A few bytes a fetch: its cursor stays in a file that is swapped meanwhile.
            readers = [asyncio.create_task(_read(client, size)) for size in (1, 90, 2**20)]
            for number in range(COUNT):
                await client.produce(values_request(b"%d" % number))
            expected = [(number, b"%d" % number) for number in range(COUNT)]
            for reader in readers:
                assert await reader == expected
            assert await _read(client, 70) == expected

    run(test())


def test_a_gateway_tells_how_many_files_there_are_and_were_rolled_up(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, metrics_listeners="127.0.0.1:0") as (gateway, client):
            await client.create("t", 2, commit_interval_ms="0", rollup_files="4")
            for number in range(3):
                await client.produce(values_request(b"%d" % number, partition=1))
            before = await scraped(gateway)
            assert before['mainstem_table_files{topic="t"}'] == 3
            assert before['mainstem_table_bytes{topic="t"}'] > 3_000
            assert before["mainstem_roll_up_bytes"] > before['mainstem_table_bytes{topic="t"}']
            await client.produce(values_request(b"3", partition=1))
            value = gateway._metrics.registry.get_sample_value
            await until(lambda: value("mainstem_table_files", {"topic": "t"}) == 1)
            after = await scraped(gateway)
            assert {
                'mainstem_table_files{topic="t"}': 1,
                'mainstem_roll_ups_total{outcome="committed"}': 1,
                'mainstem_rolled_up_files_total{outcome="committed"}': 4,
            }.items() <= after.items()
            await client.delete("t")
            assert (await scraped(gateway))["mainstem_roll_up_bytes"] == 0

    run(test())


def test_without_memory_for_it_nothing_is_rolled_up(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, metrics_listeners="127.0.0.1:0", rollup_memory_bytes=0) as (
            gateway,
            client,
        ):
            await client.create("t", 1, commit_interval_ms="0", rollup_files="2")
            for number in range(10):
                await client.produce(values_request(b"%d" % number))
            found = await scraped(gateway)
            assert found['mainstem_table_files{topic="t"}'] == 10
            assert found["mainstem_roll_up_bytes"] == 0

    run(test())

"""TrimPrefix, and readers of records that a trim, a retention or a vacuum has removed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import grpc
import pytest
from tests.unit.delta_log.faults import FaultyStore
from tests.unit.ingest_gateway.fetching import (
    RECORDS,
    commit,
    compacted,
    fetch,
    offsets,
    waiting_fetch,
)
from tests.unit.ingest_gateway.harness import (
    WAIT_S,
    Client,
    Gate,
    refused,
    run,
    running,
    table,
    until,
)
from tests.unit.ingest_gateway.payloads import values_request

from mainstem.delta_log import LocalStore
from mainstem.delta_log.table import trim_step
from mainstem.ingest_gateway.topics import gateway_topic
from mainstem.protocol.v1 import admin_pb2, log_pb2

pytestmark = pytest.mark.usefixtures("nothing_left")


async def trim(
    client: Client, starts: Mapping[int, int], *, topic: str = "t", validate_only: bool = False
) -> dict[int, tuple[int, int]]:
    """Asks for a trim; returns the log start offsets before and after."""
    request = admin_pb2.TrimPrefixRequest(topic=topic, validate_only=validate_only)
    for partition, offset in starts.items():
        request.partitions.add(partition=partition, offset=offset)
    answer = await client.admin.TrimPrefix(request, timeout=WAIT_S)
    return {
        one.partition: (one.log_start_offset_before, one.log_start_offset)
        for one in answer.partitions
    }


async def earliest(client: Client) -> int:
    query = log_pb2.OffsetQuery(topic="t", partition=0, earliest=True)
    request = log_pb2.ListOffsetsRequest(queries=[query])
    answer = await client.log.ListOffsets(request, timeout=WAIT_S)
    (found,) = answer.answers
    assert not found.HasField("error"), found.error
    return int(found.offset)


async def fill(client: Client, *counts: int, partition_count: int = 1) -> None:
    """The topic `t` with a data file for each count."""
    await client.create("t", partition_count, commit_interval_ms="0")
    for count in counts:
        await client.produce(values_request(*(b"%d" % number for number in range(count))))


def retain(warehouse: Path, start: int, *, vacuum: bool) -> None:
    """What a retention job does from another process, and perhaps a vacuum after it."""
    before = table(warehouse, "t")
    gone = [file.path for file in before.files(0).sorted() if file.last_offset < start]
    commit(warehouse, "t", *trim_step(before, {0: start}, 1))
    for path in gone if vacuum else ():
        (warehouse / "topics" / "t" / path).unlink()


@pytest.mark.parametrize("cached", [True, False])
def test_a_trim_inside_a_file_is_what_every_read_sees_at_once(tmp_path: Path, cached: bool) -> None:
    async def test() -> None:
        cache_bytes = 2**26 if cached else 0
        async with running(tmp_path, fetch_cache_bytes=cache_bytes) as (_, client):
            await fill(client, 3, 3, 3)
            assert await trim(client, {0: 4}) == {0: (0, 4)}
            assert await earliest(client) == 4
            (found,) = await fetch(client, ("t", 0, 3))
            assert found.error.code == "OFFSET_OUT_OF_RANGE"
            assert (found.log_start_offset, found.error.facts["log_start_offset"]) == (4, "4")
            (found,) = await fetch(client, ("t", 0, 4), format=RECORDS)
            assert offsets(found) == [4, 5, 6, 7, 8]
            (partition,) = (await client.describe("t")).partitions
            assert (partition.log_start_offset, partition.high_watermark) == (4, 9)
            assert partition.file_count == 2

    run(test())


def test_a_trim_to_the_high_watermark_empties_a_partition_and_offsets_go_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await fill(client, 3, 4)
            waiting = asyncio.create_task(
                fetch(client, ("t", 0, 7), format=RECORDS, min_bytes=1, max_wait_ms=60_000)
            )
            assert await trim(client, {0: -1}) == {0: (0, 7)}
            assert table(tmp_path, "t").file_count == 0
            assert await trim(client, {0: 2}) == {0: (7, 7)}
            answer = await client.produce(values_request(b"new"))
            assert answer.results[0].base_offset == 7
            (found,) = await waiting
            assert offsets(found) == [7]

    run(test())


def test_a_trim_that_is_only_validated_changes_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await fill(client, 3)
            version = table(tmp_path, "t").version
            assert await trim(client, {0: 2}, validate_only=True) == {0: (0, 2)}
            assert table(tmp_path, "t").version == version
            assert await earliest(client) == 0

    run(test())


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_trim_that_is_refused_for_one_partition_trims_none(
    tmp_path: Path, validate_only: bool
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await fill(client, 3, partition_count=2)
            version = table(tmp_path, "t").version
            async with refused(grpc.StatusCode.OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE") as facts:
                await trim(client, {0: 0, 1: 4}, validate_only=validate_only)
            assert facts["partition"] == "1"
            async with refused(grpc.StatusCode.NOT_FOUND, "UNKNOWN_PARTITION"):
                await trim(client, {0: 1, 2: 0}, validate_only=validate_only)
            async with refused(grpc.StatusCode.NOT_FOUND, "UNKNOWN_TOPIC"):
                await trim(client, {0: 0}, topic="none", validate_only=validate_only)
            assert table(tmp_path, "t").version == version

    run(test())


def test_a_compacted_topic_is_not_trimmed(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t", cleanup_policy="compact")
            async with refused(grpc.StatusCode.FAILED_PRECONDITION, "POLICY_VIOLATION"):
                await trim(client, {0: 0})

    run(test())


def test_a_partition_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await fill(client, 3)
            request = admin_pb2.TrimPrefixRequest(topic="t")
            request.partitions.add(partition=0, offset=1)
            request.partitions.add(partition=0, offset=2)
            async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_RECORD"):
                await client.admin.TrimPrefix(request, timeout=WAIT_S)

    run(test())


def test_a_trim_through_a_gateway_that_does_not_lead_reaches_the_leaders_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_topic, "LED_CATCH_UP_INTERVAL_S", 0.0)

    async def test() -> None:
        async with running(tmp_path) as (_, leader), running(tmp_path) as (_, other):
            await fill(leader, 3, 3)
            assert await trim(other, {0: 4}) == {0: (0, 4)}
            (found,) = await fetch(leader, ("t", 0, 1))
            assert found.error.facts["log_start_offset"] == "4"
            await leader.produce(values_request(b"on"))
            (found,) = await fetch(other, ("t", 0, 4), format=RECORDS)
            assert offsets(found) == [4, 5, 6]

    run(test())


def test_a_leader_without_traffic_describes_what_a_job_removed(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await fill(client, 3, 3)
            retain(tmp_path, 3, vacuum=False)
            await asyncio.sleep(0.11)  # a description is at most that old
            (partition,) = (await client.describe("t")).partitions
            assert (partition.log_start_offset, partition.file_count) == (3, 1)

    run(test())


def test_a_reader_of_vacuumed_records_at_a_leader_that_does_not_know_gets_the_log_start(
    tmp_path: Path,
) -> None:
    """Nothing is cached, and the leader has not looked since: it finds the file gone."""

    async def test() -> None:
        async with running(tmp_path, fetch_cache_bytes=0) as (_, client):
            await fill(client, 3, 3, 3)
            retain(tmp_path, 6, vacuum=True)
            (found,) = await fetch(client, ("t", 0, 0))
            assert found.error.code == "OFFSET_OUT_OF_RANGE"
            assert found.error.facts["log_start_offset"] == "6"
            (found,) = await fetch(client, ("t", 0, 6), format=RECORDS)
            assert offsets(found) == [6, 7, 8]
            await client.produce(values_request(b"on"))

    run(test())


def test_a_reader_at_a_leader_that_does_not_know_of_a_compaction_reads_the_new_file(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path, fetch_cache_bytes=0) as (_, client):
            await fill(client, 3, 3)
            state = table(tmp_path, "t")
            commit(tmp_path, "t", *compacted(tmp_path, "t", state, range(6)))
            for file in state:
                (tmp_path / "topics" / "t" / file.path).unlink()
            (found,) = await fetch(client, ("t", 0, 1), format=RECORDS)
            assert offsets(found) == [1, 2, 3, 4, 5]

    run(test())


@pytest.mark.parametrize("led", [True, False])
def test_an_offset_by_time_is_found_when_the_file_that_decides_was_vacuumed(
    tmp_path: Path, led: bool
) -> None:
    async def test() -> None:
        query = log_pb2.OffsetQuery(topic="t", partition=0, timestamp_ms=1)
        request = log_pb2.ListOffsetsRequest(queries=[query])
        async with running(tmp_path) as (_, client):
            await fill(client, 3, 3)
            if led:
                retain(tmp_path, 3, vacuum=True)
                answer = await client.log.ListOffsets(request, timeout=WAIT_S)
                assert answer.answers[0].offset == 3, answer
        if not led:
            async with running(tmp_path) as (_, client):
                assert await earliest(client) == 0
                retain(tmp_path, 3, vacuum=True)
                answer = await client.log.ListOffsets(request, timeout=WAIT_S)
                assert answer.answers[0].offset == 3, answer

    run(test())


def test_a_file_that_is_retained_away_and_vacuumed_between_plan_and_read_is_out_of_range(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await fill(client, 3, 3)
        gate = Gate("open", table(tmp_path, "t").files(0).sorted()[0].path)
        store = FaultyStore(LocalStore(tmp_path), before=gate)
        async with running(tmp_path, store) as (_, client):
            reading = asyncio.create_task(fetch(client, ("t", 0, 0)))
            await until(lambda: gate.calls == 1)
            retain(tmp_path, 6, vacuum=True)
            gate.open()
            (found,) = await reading
            assert found.error.code == "OFFSET_OUT_OF_RANGE"
            assert found.error.facts["log_start_offset"] == "6"

    run(test())


def test_an_open_cursor_gives_nothing_below_a_start_that_has_moved_over_it(tmp_path: Path) -> None:
    """The rest of a file that was half read is still in the gateway when the file is removed."""

    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await fill(client, 1_000, 3)
        async with running(tmp_path) as (_, client):
            (found,) = await fetch(client, ("t", 0, 0), format=RECORDS, partition_bytes=2_000)
            assert 0 < found.next_offset < 900
            await trim(client, {0: 950})
            await asyncio.sleep(0.15)  # what is read of a topic that nobody leads may be that old
            (after,) = await fetch(client, ("t", 0, found.next_offset), format=RECORDS)
            assert after.error.facts["log_start_offset"] == "950"
            (after,) = await fetch(client, ("t", 0, 950), format=RECORDS)
            assert offsets(after) == list(range(950, 1_003))

    run(test())


def test_a_fetch_that_waits_at_the_end_is_not_disturbed_by_a_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_topic, "LED_CATCH_UP_INTERVAL_S", 0.0)

    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await fill(client, 3, 3)
            waiting = await waiting_fetch(gateway, client, ("t", 0, 6))
            retain(tmp_path, 6, vacuum=True)
            assert await earliest(client) == 6
            await client.produce(values_request(b"on"))
            (found,) = await waiting
            assert offsets(found) == [6]

    run(test())

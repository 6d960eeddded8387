"""A topic that was put back from an older copy: who has read more is told, whatever the log has
since."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from tests.unit.ingest_gateway.fetching import fetch_request, offsets
from tests.unit.ingest_gateway.harness import WAIT_S, Client, run, running, table
from tests.unit.ingest_gateway.payloads import values_request

from mainstem.protocol.v1 import log_pb2

pytestmark = pytest.mark.usefixtures("nothing_left")


async def fetched(client: Client, offset: int, epoch: int) -> log_pb2.FetchedPartition:
    request = fetch_request(("t", 0, offset), format=log_pb2.FETCH_FORMAT_RECORDS)
    request.partitions[0].leader_epoch = epoch
    (found,) = (await client.log.Fetch(request, timeout=WAIT_S)).partitions
    assert isinstance(found, log_pb2.FetchedPartition)
    return found


async def produce(client: Client, count: int) -> None:
    await client.produce(values_request(*(b"%d" % number for number in range(count))))


def copy(tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "w" / "topics" / "t", tmp_path / "copy")


def restore(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "w" / "topics" / "t")
    shutil.copytree(tmp_path / "copy", tmp_path / "w" / "topics" / "t")


async def log_and_copy(tmp_path: Path, *, copied_in_use: bool) -> int:
    """A log that ends at 10, and a copy of before that ends at 6; returns the log's epoch."""
    async with running(tmp_path / "w") as (_, client):
        await client.create("t")
        await produce(client, 6)
        if copied_in_use:
            copy(tmp_path)
            await produce(client, 4)
            return (await fetched(client, 0, 0)).leader_epoch
    copy(tmp_path)
    async with running(tmp_path / "w") as (_, client):
        await produce(client, 4)
        return (await fetched(client, 0, 0)).leader_epoch


@pytest.mark.parametrize("copied_in_use", [True, False])
@pytest.mark.parametrize("leaders", [1, 3])
def test_who_has_read_what_the_copy_lacks_is_told_where_the_log_is_another(
    tmp_path: Path, *, copied_in_use: bool, leaders: int
) -> None:
    async def test() -> None:
        epoch = await log_and_copy(tmp_path, copied_in_use=copied_in_use)
        restore(tmp_path)
        async with running(tmp_path / "w") as (_, client):
            found = await fetched(client, 10, epoch)
            assert found.error.code == "LOG_TRUNCATED", "nobody has led the copy yet"
            assert found.error.facts["truncated_to"] == "6"
        for _ in range(leaders):
            async with running(tmp_path / "w") as (_, client):
                await produce(client, 7)
        async with running(tmp_path / "w") as (_, client):
            end = 6 + 7 * leaders
            for offset in (7, 10, end, end + 1):
                found = await fetched(client, offset, epoch)
                assert (found.error.code, found.error.facts["truncated_to"]) == (
                    "LOG_TRUNCATED",
                    "6",
                )
                assert "put back from an older copy" in found.error.message
            assert offsets(await fetched(client, 6, epoch)) == [*range(6, end)]
            assert offsets(await fetched(client, 0, epoch)) == [*range(end)]
            # A reader that knows nothing of epochs, and one that has read what is there now.
            assert offsets(await fetched(client, 10, 0)) == [*range(10, end)]
            newest = (await fetched(client, 0, 0)).leader_epoch
            assert newest == table(tmp_path / "w", "t").partition_epoch(0) > epoch
            assert (await fetched(client, end, newest)).error.code == ""

    run(test())


def test_leaders_that_come_and_go_truncate_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        seen: list[tuple[int, int]] = []
        for number in range(6):
            async with running(tmp_path / "w") as (_, client):
                if not number:
                    await client.create("t")
                for end, epoch in seen:
                    assert (await fetched(client, end, epoch)).error.code == ""
                await produce(client, 2)
                found = await fetched(client, 0, 0)
                seen.append((found.high_watermark, found.leader_epoch))
                for end, epoch in seen:
                    assert (await fetched(client, end, epoch)).error.code == ""
        assert len({epoch for _, epoch in seen}) == 6

    run(test())


def test_a_gateway_that_is_behind_looks_before_it_says_that_a_log_is_another(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path / "w") as (_, leader):
            await leader.create("t")
            await produce(leader, 1)
            async with running(tmp_path / "w") as (_, follower):
                for end in range(2, 12):
                    known = asyncio.create_task(fetched(follower, 0, 0))
                    await produce(leader, 1)
                    epoch = (await fetched(leader, 0, 0)).leader_epoch
                    found = await fetched(follower, end, epoch)
                    assert (found.error.code, found.high_watermark) == ("", end)
                    await known

    run(test())

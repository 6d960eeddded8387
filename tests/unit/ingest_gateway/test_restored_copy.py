"""A copy of a warehouse that was in use, opened by a gateway: what `docs/guides/backup.md` promises
of its script, and of a plain `cp -a`."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.ingest_gateway.harness import Client, run, running, values
from tests.unit.ingest_gateway.payloads import values_request

from mainstem.delta_log import LocalStore
from mainstem.delta_log.verify import TopicReport, verify_named
from mainstem.protocol.v1 import log_pb2

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.usefixtures("nothing_left")]

GUIDE = Path(__file__).resolve().parents[3] / "docs/guides/backup.md"

COPIES = 4


@contextlib.asynccontextmanager
async def writing(client: Client, *, acks: log_pb2.Acks) -> AsyncIterator[list[bytes]]:
    """A producer that is at work; its list has what was acknowledged, by offset."""
    acknowledged: list[bytes] = []

    async def work() -> None:
        while True:
            value = b"%d" % len(acknowledged)
            answer = await client.produce(values_request(value, acks=acks))
            assert answer.results[0].base_offset == len(acknowledged)
            acknowledged.append(value)

    task = asyncio.create_task(work())
    try:
        yield acknowledged
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def copy(*command: str) -> int:
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    return await process.wait()


def verified(warehouse: Path) -> TopicReport:
    store = LocalStore(warehouse)
    try:
        return verify_named(store, "t")
    finally:
        store.close()


async def opened_by_a_gateway(warehouse: Path) -> int:
    """A gateway goes on where the copy ends, with each record in its place; returns where that
    is."""
    async with running(warehouse) as (_, client):
        answer = await client.produce(values_request(b"after"))
        end = answer.results[0].base_offset
    assert values(warehouse, "t")[0] == [*(b"%d" % number for number in range(end)), b"after"]
    assert verified(warehouse).ok
    return end


async def copied_while_in_use(
    tmp_path: Path, acks: log_pb2.Acks, *command: str
) -> list[tuple[Path, int]]:
    """Copies of a warehouse, and how many records were acknowledged before each was begun."""
    made: list[tuple[Path, int]] = []
    live = tmp_path / "live"
    async with running(live, checkpoint_interval_commits=10) as (_, client):
        await client.create("t", commit_interval_ms="0")
        async with writing(client, acks=acks) as acknowledged:
            for number in range(COPIES):
                wanted = 15 * (number + 1)
                while len(acknowledged) < wanted:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
                made.append((tmp_path / f"copy{number}", len(acknowledged)))
                place = str(made[-1][0])
                await copy(*(place if part == "COPY" else part for part in command))
    return made


def test_copies_as_the_guide_has_them_have_all_that_was_acknowledged_before(tmp_path: Path) -> None:
    blocks = re.findall(r"```bash\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (code,) = (block for block in blocks if "copy-topic.sh" in block)
    script = str(code).rpartition("mainstem cluster verify")[0]
    command = ["bash", "-c", script, "copy-topic.sh", str(tmp_path / "live"), "t", "COPY"]

    async def test() -> None:
        for place, count in await copied_while_in_use(tmp_path, log_pb2.ACKS_ALL, *command):
            report = verified(place)
            assert report.ok, report.findings
            assert await opened_by_a_gateway(place) >= count

    run(test())


@pytest.mark.parametrize("acks", [log_pb2.ACKS_ALL, log_pb2.ACKS_LEADER])
def test_a_plain_copy_has_all_that_was_acknowledged_before_or_verify_says_what_it_lacks(
    tmp_path: Path, acks: log_pb2.Acks
) -> None:
    """With acks=1 what is in no table yet may be missing: the write-ahead log is copied later, or
    earlier, than the tables. What is there is in its place."""

    async def test() -> None:
        command = ["cp", "-a", str(tmp_path / "live"), "COPY"]
        for place, count in await copied_while_in_use(tmp_path, acks, *command):
            if verified(place).ok:
                end = await opened_by_a_gateway(place)
                assert end >= count or acks == log_pb2.ACKS_LEADER

    run(test())

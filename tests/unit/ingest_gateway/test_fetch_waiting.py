"""Fetches that wait: what wakes them, and what happens to their topics meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.unit.ingest_gateway.fetching import (
    RECORDS,
    commit,
    fetch,
    fetch_request,
    offsets,
    waiting_fetch,
)
from tests.unit.ingest_gateway.harness import WAIT_S, refused, run, running, soon, table, until
from tests.unit.ingest_gateway.payloads import records_request, values_request

from mainstem.delta_log.files import encode_data_file
from mainstem.delta_log.format import Register, registers
from mainstem.ingest_gateway.fetching import FetchPlan, followers, planning
from mainstem.ingest_gateway.services import fetch as fetch_service
from mainstem.ingest_gateway.topics import gateway_topic
from mainstem.protocol.v1 import log_pb2
from mainstem.records import records_to_wire_batch

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_a_fetch_at_the_end_waits_and_a_commit_wakes_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t", 2)
            await client.produce(values_request(b"old", partition=1))
            task = await waiting_fetch(gateway, client, ("t", 0, 0), ("t", 1, 1))
            assert not task.done()
            await client.produce(values_request(b"new", partition=1))
            found = await soon(task)
            assert [offsets(one) for one in found] == [[], [1]]
            assert [one.next_offset for one in found] == [0, 2]
            assert gateway.fetches_waiting == 0

    run(test())


def test_a_partition_without_news_is_planned_without_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[FetchPlan] = []

    def copying(plan: FetchPlan, **changes: Any) -> FetchPlan:
        copied.append(plan)
        return replace(plan, **changes)

    monkeypatch.setattr(planning, "replace", copying)

    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t", 20)
            await client.produce(values_request(b"old", partition=1))
            quiet = [("t", partition, int(partition == 1)) for partition in range(20)]
            task = await waiting_fetch(gateway, client, *quiet)
            assert not copied
            await client.produce(values_request(b"new", partition=1))
            assert offsets((await soon(task))[1]) == [1]
            assert {plan.partition for plan in copied} == {1}

    run(test())


def test_a_commit_to_another_partition_wakes_nobody(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t", 2)
            await client.produce(values_request(b"led", partition=1))
            task = await waiting_fetch(gateway, client, ("t", 0, 0))
            await client.produce(values_request(b"other", partition=1))
            # The answer to the produce came after the commit had woken whom it wakes.
            assert (gateway.fetches_waiting, task.done()) == (1, False)
            await client.produce(values_request(b"mine", partition=0))
            assert offsets((await soon(task))[0]) == [0]

    run(test())


def test_a_fetch_waits_until_all_its_partitions_together_have_enough_bytes(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t", 2)
            await client.produce(values_request(b"x" * 400, partition=0))
            asked = ("t", 0, 0), ("t", 1, 0)
            task = await waiting_fetch(gateway, client, *asked, min_bytes=1_000)
            await client.produce(values_request(b"x" * 300, partition=1))
            assert (gateway.fetches_waiting, task.done()) == (1, False)
            await client.produce(values_request(b"x" * 300, partition=0))
            assert [offsets(one) for one in await soon(task)] == [[0, 1], [0]]

    run(test())


def test_more_bytes_than_an_answer_may_have_are_not_waited_for(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            await client.produce(values_request(*[b"x" * 100] * 20))
            (found,) = await fetch(
                client, ("t", 0, 0), min_bytes=2**40, max_bytes=1_000, max_wait_ms=60_000
            )
            assert offsets(found)

    run(test())


def test_when_the_time_is_over_there_is_an_answer_without_records(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t")
            for wait_ms in (0, 20, -5):
                (found,) = await fetch(client, ("t", 0, 0), min_bytes=1, max_wait_ms=wait_ms)
                assert (offsets(found), found.next_offset, found.error.code) == ([], 0, "")
            assert gateway.fetches_waiting == 0

    run(test())


def test_the_gateway_bounds_how_long_a_fetch_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_service, "FETCH_WAIT_MS_MAX", 20)

    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            (found,) = await fetch(client, ("t", 0, 0), min_bytes=1, max_wait_ms=2**31 - 1)
            assert offsets(found) == []

    run(test())


def test_an_error_is_told_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            found = await fetch(
                client, ("t", 0, 0), ("nosuch", 0, 0), min_bytes=1, max_wait_ms=60_000
            )
            assert [one.error.code for one in found] == ["", "UNKNOWN_TOPIC"]

    run(test())


@pytest.mark.parametrize("led", [True, False])
def test_a_topic_that_is_deleted_answers_who_waits_for_it(tmp_path: Path, led: bool) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            old_id = await client.create("t")
            if led:
                await client.produce(values_request(b"v"))
            task = await waiting_fetch(gateway, client, ("t", 0, int(led)))
            await client.delete("t")
            (found,) = await soon(task)
            assert found.error.code == "UNKNOWN_TOPIC"
            # Another topic of that name is no continuation, and its records are its own.
            assert await client.create("t") != old_id
            await client.produce(values_request(b"new"))
            (found,) = await fetch(client, ("t", 0, 0), format=RECORDS)
            assert [record.value for record in found.records] == [b"new"]
            request = fetch_request(("t", 0, 0))
            request.partitions[0].topic_id = old_id
            answer = await client.log.Fetch(request, timeout=WAIT_S)
            assert answer.partitions[0].error.code == "UNKNOWN_TOPIC"

    run(test())


def test_a_topic_that_is_deleted_through_another_gateway_answers_who_waits_at_its_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "LED_CATCH_UP_INTERVAL_S", 0.05)
    monkeypatch.setattr(gateway_topic, "LED_CATCH_UP_INTERVAL_S", 0.02)

    async def test() -> None:
        async with running(tmp_path) as (gateway, client), running(tmp_path) as (_, other):
            await client.create("t")
            await client.produce(values_request(b"v"))
            task = await waiting_fetch(gateway, client, ("t", 0, 1))
            await other.delete("t")
            (found,) = await soon(task)
            assert found.error.code == "UNKNOWN_TOPIC"

    run(test())


def test_draining_answers_who_waits_and_refuses_new_fetches(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t")
            await client.produce(values_request(b"v"))
            asked = ("t", 0, 1), ("t", 0, 0)
            task = await waiting_fetch(gateway, client, *asked, min_bytes=100_000)
            draining = asyncio.create_task(gateway.drain())
            found = await soon(task)
            assert [offsets(one) for one in found] == [[], [0]]
            await soon(draining)

    run(test())


def test_a_gateway_that_drains_takes_no_fetch(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t")
            gateway._draining.set()
            async with refused(grpc.StatusCode.UNAVAILABLE, "SHUTTING_DOWN") as facts:
                await fetch(client, ("t", 0, 0))
            assert int(facts["retry_ms"]) > 0

    run(test())


def test_a_caller_that_goes_away_leaves_nothing_behind(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, fetch_max_requests=1) as (gateway, client):
            await client.create("t")
            for _ in range(3):
                call = client.log.Fetch(
                    fetch_request(("t", 0, 0), min_bytes=1, max_wait_ms=60_000), timeout=WAIT_S
                )
                waiting = asyncio.ensure_future(call.wait_for_connection())
                await until(lambda: gateway.fetches_waiting == 1)
                call.cancel()
                await until(lambda: gateway.fetches_waiting == 0)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
            await fetch(client, ("t", 0, 0))

    run(test())


def test_a_topic_that_another_gateway_leads_is_read_here_with_all_its_commits(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, leader), running(tmp_path) as (other, reader):
            await leader.create("t")
            at = 0
            for number in range(5):
                task = await waiting_fetch(other, reader, ("t", 0, at))
                await leader.produce(values_request(b"%d" % number))
                (found,) = await soon(task)
                assert [record.value for record in found.records] == [b"%d" % number]
                at = found.next_offset

    run(test())


def test_an_offset_that_another_gateway_has_given_is_not_out_of_range_here(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, leader), running(tmp_path) as (_, reader):
            await leader.create("t")
            for number in range(20):
                await fetch(reader, ("t", 0, number))  # what it knows is fresh, and soon too old
                await leader.produce(values_request(b"v"))
                (found,) = await fetch(reader, ("t", 0, number + 1))
                assert not found.error.code
                assert found.high_watermark == number + 1
            (found,) = await fetch(reader, ("t", 0, 21))
            assert found.error.code == "NOT_LEADER", "what is beyond only the leader knows"
            (found,) = await fetch(leader, ("t", 0, 21))
            assert found.error.code == "OFFSET_OUT_OF_RANGE"

    run(test())


def test_a_gateway_that_has_lost_the_lease_without_a_commit_gives_what_others_committed(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        quick: dict[str, Any] = {"gateway_heartbeat_interval_ms": 50}
        async with (
            running(tmp_path, **quick) as (gateway, old),
            running(tmp_path, **quick) as (_, new),
        ):
            await old.create("t")
            await old.produce(values_request(b"0"))
            # As after a stall; its appender does not know.
            cluster = gateway._topics._cluster
            assert cluster._beating is not None
            await cluster._beating.stop()
            cluster._heartbeats.remove()
            cluster._doubtful.add("t")
            async with asyncio.timeout(WAIT_S):
                while True:
                    try:
                        await new.produce(values_request(b"1"))
                        break
                    except grpc.aio.AioRpcError:
                        await asyncio.sleep(0.05)
            (found,) = await fetch(old, ("t", 0, 1), min_bytes=1, max_wait_ms=60_000)
            assert offsets(found) == [1]
            task = await waiting_fetch(gateway, old, ("t", 0, 2))
            await new.produce(values_request(b"2"))
            assert offsets((await soon(task))[0]) == [2]

    run(test())


def test_an_offset_of_a_newer_leader_is_looked_up_before_it_is_out_of_range(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            await client.produce(values_request(b"0"))
            # Another leader's commit, while this gateway still believes in its lease.
            record = records_to_wire_batch([None], [b"1"], None, [1])
            file, data = encode_data_file(
                0, 1, [record], timestamp_type=0, compression_type="none", now_ms=1
            )
            (tmp_path / "topics" / "t" / file.path).write_bytes(data)
            leo = Register(registers.leo(0), 2)
            epoch = Register(registers.EPOCH, table(tmp_path, "t").epoch + 1)
            commit(tmp_path, "t", file, leo, epoch)
            (found,) = await fetch(client, ("t", 0, 2))
            assert (found.error.code, found.high_watermark) == ("", 2)
            (found,) = await fetch(client, ("t", 0, 0), format=RECORDS)
            assert [record.value for record in found.records] == [b"0", b"1"]
            (found,) = await fetch(client, ("t", 0, 3))
            assert found.error.code == "NOT_LEADER", "what is beyond the newer leader knows"

    run(test())


def test_who_waits_stays_served_when_the_lead_moves_here_and_away(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, reader):
            async with running(tmp_path) as (_, other):
                await other.create("t")
                await other.produce(values_request(b"0"))
                task = await waiting_fetch(gateway, reader, ("t", 0, 1))
            await reader.produce(values_request(b"1"))  # the lead comes here
            (found,) = await soon(task)
            assert [record.value for record in found.records] == [b"1"]
            (found,) = await fetch(reader, ("t", 0, 0), format=RECORDS)
            assert [record.value for record in found.records] == [b"0", b"1"]

    run(test())


@pytest.mark.slow
def test_a_thousand_idle_fetches_are_each_woken_by_one_commit(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            partitions = 50
            await client.create("t", partitions)
            await client.produce(values_request(b"led", partition=0))
            request = fetch_request(
                *(("t", partition, int(partition == 0)) for partition in range(partitions)),
                min_bytes=1,
                max_wait_ms=60_000,
                format=RECORDS,
            )
            tasks_before = len(asyncio.all_tasks())

            async def poll() -> int:
                answer = await client.log.Fetch(request, timeout=2 * WAIT_S)
                return sum(len(offsets(one)) for one in answer.partitions)

            polls = [asyncio.create_task(poll()) for _ in range(1_000)]
            await until(lambda: gateway.fetches_waiting == 1_000)
            # The polls' own, and what gRPC has for each call: none for a partition.
            assert len(asyncio.all_tasks()) - tasks_before < 5_000
            await client.produce(
                records_request(
                    *(log_pb2.Record(value=b"v", partition=number) for number in range(partitions))
                )
            )
            assert await soon(asyncio.gather(*polls)) == [partitions] * 1_000
            assert gateway.fetches_waiting == 0

    run(test())

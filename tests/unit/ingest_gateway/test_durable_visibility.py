"""Readers of the durable mark: given what the write-ahead log has, which is in the table later."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.unit.ingest_gateway.fetching import RECORDS, fetch, offsets, waiting_fetch
from tests.unit.ingest_gateway.harness import Client, run, running, table, until, values
from tests.unit.ingest_gateway.payloads import values_request

from mainstem.client.admin import groups as admin_groups
from mainstem.delta_log import LocalStore, Topics
from mainstem.delta_log.append.leadership import claim_epoch
from mainstem.ingest_gateway.server import Gateway
from mainstem.protocol.v1 import groups_pb2, groups_pb2_grpc, log_pb2

DURABLE: Any = log_pb2.VISIBILITY_DURABLE
SLOWLY: dict[str, Any] = {"commit_interval_ms": "60000"}


def _acks_1(*values_: bytes) -> log_pb2.ProduceRequest:
    request = values_request(*values_)
    request.acks = log_pb2.ACKS_LEADER
    return request


async def _read(
    client: Client, offset: int, *, durable: bool = True, **fields: Any
) -> log_pb2.FetchedPartition:
    fields = {"format": RECORDS} | fields
    if durable:
        fields["visibility"] = DURABLE
    return (await fetch(client, ("t", 0, offset), **fields))[0]


def _values(found: log_pb2.FetchedPartition) -> list[bytes]:
    return [one.value for one in found.records]


async def _committed_then_logged(client: Client, logged: Sequence[bytes]) -> None:
    """A topic whose offset 0 is in the table, and the others in the log alone."""
    await client.create("t", **SLOWLY)
    await client.produce(values_request(b"in the table"))
    for value in logged:
        await client.produce(_acks_1(value))


def test_a_reader_of_the_durable_mark_is_given_what_the_log_has_and_others_are_not(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path / "w") as (_, client):
            await _committed_then_logged(client, [b"a", b"b"])
            found = await _read(client, 0)
            assert offsets(found) == [0, 1, 2]
            assert _values(found) == [b"in the table", b"a", b"b"]
            assert (found.high_watermark, found.durable_mark, found.next_offset) == (1, 3, 3)
            assert found.leader_epoch == table(tmp_path / "w", "t").epoch
            assert offsets(await _read(client, 2)) == [2]
            plain = await _read(client, 0, durable=False)
            assert (offsets(plain), plain.durable_mark) == ([0], 0)
            beyond = await _read(client, 3, durable=False)
            assert not beyond.HasField("error"), "it has been accepted: it comes"
            assert (await _read(client, 4)).error.code == "OFFSET_OUT_OF_RANGE"
        # The drain has committed them, where they were.
        assert values(tmp_path / "w", "t") == {0: [b"in the table", b"a", b"b"]}

    run(test())


def test_a_waiting_reader_of_the_durable_mark_is_woken_by_the_log_and_others_by_the_commit(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path / "w") as (gateway, client):
            await client.create("t", commit_interval_ms="1500")
            await client.produce(values_request(b"in the table"))
            early = await waiting_fetch(gateway, client, ("t", 0, 1), visibility=DURABLE)
            late = await waiting_fetch(gateway, client, ("t", 0, 1))
            await client.produce(_acks_1(b"a"))
            (found,) = await asyncio.wait_for(early, 1)
            assert _values(found) == [b"a"]
            assert found.high_watermark == 1
            assert not late.done()
            (found,) = await late
            assert (_values(found), found.high_watermark) == ([b"a"], 2)
            assert not gateway._fetches._planner._durable_tail._topics.get("t")

    run(test())


def test_a_reader_that_has_all_that_the_log_has_waits_for_more(tmp_path: Path) -> None:
    """Ahead of the high watermark too: answered at once, it would ask again without a pause."""

    async def test() -> None:
        async with running(tmp_path / "w") as (gateway, client):
            await _committed_then_logged(client, [b"a"])
            waits = await waiting_fetch(gateway, client, ("t", 0, 2), visibility=DURABLE)
            await client.produce(_acks_1(b"b"))
            (found,) = await asyncio.wait_for(waits, 5)
            assert (_values(found), found.high_watermark) == ([b"b"], 1)

    run(test())


def test_acks_all_is_shown_early_where_the_topic_logs_all_or_when_something_behind_it_is_logged(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path / "w") as (gateway, client):
            await client.create("t", **SLOWLY)
            await client.produce(values_request(b"0"))
            waits = asyncio.ensure_future(client.produce(values_request(b"1")))
            await asyncio.sleep(0.05)
            assert offsets(await _read(client, 0)) == [0], "it is in no log"
            await client.produce(_acks_1(b"2"))
            assert offsets(await _read(client, 0)) == [0, 1, 2], "what is in front of it as well"
            assert not waits.done()

            await client.create("all", **SLOWLY, wal_records="all")
            first = values_request(b"0", topic="all")
            await client.produce(first)
            waits_too = asyncio.ensure_future(client.produce(values_request(b"1", topic="all")))
            fields: dict[str, Any] = {"min_bytes": 1, "max_wait_ms": 5_000}
            (found,) = await fetch(client, ("all", 0, 1), visibility=DURABLE, **fields)
            assert offsets(found) == [1]
            assert not waits_too.done()
            await gateway._topics.drain(10)
            await asyncio.gather(waits, waits_too)

    run(test())


def test_answers_keep_to_their_bytes_across_the_high_watermark(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "w") as (_, client):
            await _committed_then_logged(client, [b"x" * 1000] * 20)
            at, seen = 0, []
            while at < 21:
                found = await _read(client, at, max_bytes=3000)
                assert found.next_offset > at
                assert sum(map(len, _values(found))) <= 3000
                seen += offsets(found)
                at = found.next_offset
            assert seen == list(range(21))

    run(test())


def test_a_log_outside_the_warehouse_shows_nothing_early(tmp_path: Path) -> None:
    """Who takes the topic over could not look for it there."""

    async def test() -> None:
        logs = str(tmp_path / "logs")
        async with running(tmp_path / "w", wal_directory=logs) as (_, client):
            await _committed_then_logged(client, [b"a"])
            found = await _read(client, 0)
            assert (offsets(found), found.durable_mark) == ([0], 1)

    run(test())


def test_a_reader_ahead_of_the_high_watermark_goes_on_after_the_gateway_is_killed(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        warehouse = tmp_path / "w"
        async with running(warehouse) as (gateway, client):
            await _committed_then_logged(client, [b"a", b"b"])
            found = await _read(client, 0)
            epoch, at = found.leader_epoch, found.next_offset
            assert at == 3
            _kill(gateway)
        assert table(warehouse, "t").log_end_offset(0) == 1
        async with running(warehouse) as (_, client):
            request = log_pb2.FetchRequest(visibility=DURABLE, max_wait_ms=5_000, min_bytes=1)
            request.partitions.add(topic="t", partition=0, offset=at, leader_epoch=epoch)
            waits = asyncio.ensure_future(client.log.Fetch(request))
            await client.produce(_acks_1(b"c"))
            (found,) = (await waits).partitions
            assert not found.HasField("error"), found.error
            assert offsets(found) == [3] or len(found.arrow)
        assert values(warehouse, "t") == {0: [b"in the table", b"a", b"b", b"c"]}

    run(test())


def test_an_empty_answer_leaves_a_reader_ahead_of_the_high_watermark_its_epoch(
    tmp_path: Path,
) -> None:
    """What it has read is of a later epoch than anything in the table: with that of the table it
    would be told that the log was put back from an older copy."""

    async def test() -> None:
        async with running(tmp_path / "w") as (_, client):
            await client.create("t", **SLOWLY)
            await client.produce(values_request(b"of an earlier epoch"))
            earlier = (await _read(client, 0)).leader_epoch
        async with running(tmp_path / "w") as (gateway, client):
            appender = (await gateway._topics.lead("t")).leader
            assert appender is not None
            async with appender._commit_lock:
                await client.produce(_acks_1(b"a"))
                found = await _read(client, 1)
                assert (found.high_watermark, offsets(found)) == (1, [1])
                epoch = found.leader_epoch
                assert epoch > earlier
                for durable in (True, False):
                    empty = await _read_after(client, 2, epoch, durable=durable)
                    assert (offsets(empty), empty.high_watermark) == ([], 1)
                    assert empty.leader_epoch == epoch
                    unknown = await _read_after(client, 2, -1, durable=durable)
                    assert unknown.leader_epoch == 0, "nothing says which log it has read"
            await until(lambda: table(tmp_path / "w", "t").log_end_offset(0) == 2)
            assert not (await _read_after(client, 2, epoch)).HasField("error")
            assert (await _read_after(client, 2, earlier)).error.code == "LOG_TRUNCATED"

    run(test())


async def _read_after(
    client: Client, offset: int, epoch: int, *, durable: bool = True
) -> log_pb2.FetchedPartition:
    request = log_pb2.FetchRequest(format=RECORDS)
    if durable:
        request.visibility = DURABLE
    request.partitions.add(topic="t", partition=0, offset=offset, leader_epoch=epoch)
    (found,) = (await client.log.Fetch(request)).partitions
    assert isinstance(found, log_pb2.FetchedPartition)
    return found


def test_a_durable_reader_of_a_topic_that_nobody_leads_has_it_led_here(tmp_path: Path) -> None:
    """What its last leader acknowledged is in its log alone: here that of another gateway."""

    async def test() -> None:
        warehouse = tmp_path / "w"
        async with running(warehouse, gateway_id="a") as (gateway, client):
            await _committed_then_logged(client, [b"a", b"b"])
            assert (await _read(client, 2)).next_offset == 3
            _kill(gateway)
        async with running(warehouse, gateway_id="b") as (_, client):
            found = await _read(client, 3)
            assert not found.HasField("error"), found.error
            await until(lambda: table(warehouse, "t").log_end_offset(0) == 3)
            assert offsets(await _read(client, 0)) == [0, 1, 2]
        assert values(warehouse, "t") == {0: [b"in the table", b"a", b"b"]}

    run(test())


def test_what_a_dead_gateway_acknowledged_comes_into_the_table_though_nobody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mainstem.ingest_gateway.topics import recovery

    monkeypatch.setattr(recovery, "RECOVER_AGAIN_S", 0.1)

    async def test() -> None:
        warehouse = tmp_path / "w"
        async with running(warehouse, gateway_id="a") as (gateway, client):
            await _committed_then_logged(client, [b"a"])
            _kill(gateway)
        logs = warehouse / "wal" / "a"
        assert list(logs.glob("*.wal"))
        async with running(warehouse, gateway_id="b"):
            await until(lambda: table(warehouse, "t").log_end_offset(0) == 2)
            await until(lambda: not list(logs.glob("*.wal")))
        async with running(warehouse, gateway_id="a") as (_, client):
            assert offsets(await _read(client, 0)) == [0, 1]

    run(test())


def test_only_the_leader_answers_a_reader_of_the_durable_mark(tmp_path: Path) -> None:
    async def test() -> None:
        warehouse = tmp_path / "w"
        async with (
            running(warehouse, gateway_id="a") as (first, client),
            running(warehouse, gateway_id="b") as (_, other),
        ):
            await _committed_then_logged(client, [b"a"])
            found = await _read(other, 0)
            assert found.error.code == "NOT_LEADER"
            assert found.error.retriable
            assert found.error.facts["leader"] == first.address
            assert offsets(await _read(other, 0, durable=False)) == [0]

    run(test())


def test_a_leader_that_stalled_and_that_nobody_sends_to_gives_its_durable_readers_what_there_is(
    tmp_path: Path,
) -> None:
    """In the stall another gateway may have taken the topic: the topic's log tells whether it has.
    Without a producer no commit finds that out."""

    async def test() -> None:
        async with running(tmp_path / "w") as (gateway, client):
            await client.create("t")
            await client.produce(values_request(b"0"))
            cluster = gateway._topics._cluster
            cluster._doubtful.add("t")
            assert not cluster.holds("t")
            found = await _read(client, 0)
            assert not found.HasField("error"), found.error
            assert offsets(found) == [0]
            assert cluster.holds("t")

            cluster._doubtful.add("t")
            elsewhere = Topics(LocalStore(tmp_path / "w")).open("t")
            claim_epoch(elsewhere)
            assert (await _read(client, 0)).error.code == "NOT_LEADER"
            assert not gateway._topics.is_leader("t")

    run(test())


def test_a_group_may_commit_up_to_what_was_accepted_and_no_further_and_has_no_lag_then(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path / "w") as (_, client):
            await _committed_then_logged(client, [b"a", b"b"])
            groups = groups_pb2_grpc.GroupsStub(client.channel)
            epoch = (await _read(client, 0)).leader_epoch

            def commit(offset: int, epoch: int = -1) -> groups_pb2.CommitOffsetsRequest:
                one = groups_pb2.CommittedOffset(
                    topic="t", partition=0, offset=offset, leader_epoch=epoch
                )
                return groups_pb2.CommitOffsetsRequest(group="g", offsets=[one], member_epoch=-1)

            assert not (await groups.CommitOffsets(commit(3))).offsets[0].HasField("error")
            answer = await groups.CommitOffsets(commit(4))
            assert answer.offsets[0].error.code == "OFFSET_OUT_OF_RANGE"
            await groups.CommitOffsets(commit(3, epoch))
            found = await groups.FetchOffsets(groups_pb2.FetchOffsetsRequest(group="g"))
            (one,) = found.offsets
            assert (one.offset, one.HasField("truncated_to")) == (3, False)

    run(test())
    ahead = admin_groups.GroupOffset("t", "id", 0, 3, 7, "", 0)
    assert ahead.lag_records(0, 1) == 0
    nobody_read = admin_groups.GroupOffset("t", "id", 0, 3, -1, "", 0)
    assert nobody_read.lag_records(0, 1) == 1


def test_a_visibility_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "w") as (_, client):
            await client.create("t")
            with pytest.raises(grpc.aio.AioRpcError, match="no visibility 7"):
                await fetch(client, ("t", 0, 0), visibility=7)

    run(test())


def _kill(gateway: Gateway) -> None:
    """From now on it commits nothing: what is accepted stays in the log."""
    for appender in list(gateway._topics.leaders()):
        appender._task.cancel()

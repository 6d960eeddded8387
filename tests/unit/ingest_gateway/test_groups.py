"""The Groups service over gRPC, against a gateway and the offsets table on disk."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections import Counter
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import structlog.testing
from prometheus_client import CollectorRegistry
from tests.unit.delta_log.faults import FaultyStore, times, unavailable
from tests.unit.delta_log.full_disk import fill, small_disk
from tests.unit.ingest_gateway.harness import (
    WAIT_S,
    Client,
    Gate,
    refused,
    run,
    running,
    soon,
    until,
)
from tests.unit.ingest_gateway.payloads import records_request, values_request

from mainstem.consumers import Coordinator, Heartbeat, TopicInfo
from mainstem.delta_log import LocalStore, load_table, read_data_file
from mainstem.delta_log.topics import Topics
from mainstem.ingest_gateway.groups import coordination as group_coordination
from mainstem.ingest_gateway.groups import watch as group_watch
from mainstem.ingest_gateway.groups.group_topics import GroupTopics
from mainstem.ingest_gateway.groups.metrics import GroupMetrics
from mainstem.ingest_gateway.server import Gateway
from mainstem.protocol.v1 import admin_pb2, groups_pb2, groups_pb2_grpc, log_pb2

pytestmark = pytest.mark.usefixtures("nothing_left")

PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION

#: New topics and partitions are found soon, so that no test waits long.
FAST: Any = {"group.metadata.refresh.interval.ms": 20}

#: A leader epoch: somebody has read up to the offset, so that it is not looked for in the log.
READ = 2**60


class Member:
    """A member that takes and gives up at once what it is told to."""

    def __init__(self, client: Client, group: str = "g", **asked: Any) -> None:
        self.stub = groups_pb2_grpc.GroupsStub(client.channel)
        self.group = group
        self.asked = {"topics": ["t"], **asked}
        self.member_id = ""
        self.epoch = 0
        self.owned: list[groups_pb2.TopicPartitions] = []
        self.added_later: list[groups_pb2.TopicPartitions] = []
        self.interval_ms = 0

    async def beat(self, timeout_s: float = WAIT_S) -> set[int]:
        answer: groups_pb2.HeartbeatResponse = await self.stub.Heartbeat(
            groups_pb2.HeartbeatRequest(
                group=self.group,
                member_id=self.member_id,
                member_epoch=self.epoch,
                owned=self.owned,
                **self.asked,
            ),
            timeout=timeout_s,
        )
        self.member_id, self.epoch = answer.member_id, answer.member_epoch
        self.owned, self.interval_ms = list(answer.assignment), answer.heartbeat_interval_ms
        self.added_later = list(answer.added_later)
        return {number for one in self.owned for number in one.partitions}

    async def leave(self, *, keep_place: bool = False) -> None:
        await self.stub.Leave(
            groups_pb2.LeaveRequest(
                group=self.group,
                member_id=self.member_id,
                instance_id=self.asked.get("instance_id", ""),
                member_epoch=self.epoch,
                keep_place=keep_place,
            ),
            timeout=WAIT_S,
        )

    async def commit(
        self, *offsets: tuple[int, int], epoch: int | None = None, sequence: int = 0
    ) -> list[groups_pb2.CommittedOffset]:
        epoch = self.epoch if epoch is None else epoch
        return await commit(self.stub, self.group, offsets, self.member_id, epoch, sequence)


async def commit(
    stub: Any,
    group: str,
    offsets: Iterable[tuple[int, int]],
    member_id: str = "",
    epoch: int = -1,
    sequence: int = 0,
    **facts: Any,
) -> list[groups_pb2.CommittedOffset]:
    whose: dict[str, Any] = {"topic": "t", "leader_epoch": READ, **facts}
    answer: groups_pb2.CommitOffsetsResponse = await stub.CommitOffsets(
        groups_pb2.CommitOffsetsRequest(
            group=group,
            member_id=member_id,
            member_epoch=epoch,
            sequence=sequence,
            offsets=[
                groups_pb2.CommittedOffset(**{**whose, "partition": partition, "offset": offset})
                for partition, offset in offsets
            ],
        ),
        timeout=WAIT_S,
    )
    return list(answer.offsets)


async def fetch(stub: Any, group: str = "g") -> dict[tuple[str, int], int]:
    answer: groups_pb2.FetchOffsetsResponse = await stub.FetchOffsets(
        groups_pb2.FetchOffsetsRequest(group=group), timeout=WAIT_S
    )
    return {(one.topic, one.partition): one.offset for one in answer.offsets}


def groups(client: Client) -> Any:
    return groups_pb2_grpc.GroupsStub(client.channel)


def rows(warehouse: Path) -> dict[str, Any]:
    """The newest value of each key of the offsets table, as it lies on the disk."""
    store = LocalStore(warehouse / "system" / "consumer_offsets", create=False)
    try:
        state = load_table(store)
        found: dict[str, Any] = {}
        for file in state.files(0).sorted():
            for batch in read_data_file(store, file, 0, 2**62, ["key", "value"]):
                for key, value in zip(
                    batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True
                ):
                    found[key.decode()] = None if value is None else json.loads(value)
        return found
    finally:
        store.close()


def stored(warehouse: Path) -> dict[tuple[str, int], int]:
    """(group, partition) → offset, as it lies on the disk."""
    return {
        (value["group"], value["partition"]): value["offset"]
        for value in rows(warehouse).values()
        if value is not None and "partition" in value
    }


def test_members_share_the_partitions_and_hear_of_it_within_three_heartbeats(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t", 5)
            first, second = Member(client), Member(client)
            assert await first.beat() == set(range(5))
            assert await second.beat() == set()
            assert second.interval_ms < 1_000
            for _ in range(2):
                await first.beat()
            assert {len(await first.beat()), len(await second.beat())} == {2, 3}
            described = await groups(client).DescribeGroup(
                groups_pb2.DescribeGroupRequest(group="g"), timeout=WAIT_S
            )
            assert (described.state, described.assignor) == ("STABLE", "uniform")
            assert len(described.members) == 2
            listed = await groups(client).ListGroups(groups_pb2.ListGroupsRequest(), timeout=WAIT_S)
            assert [(one.group, one.member_count) for one in listed.groups] == [("g", 2)]

    run(test())


def test_an_answered_commit_is_a_row_of_the_table_and_fetched_by_whoever_asks(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            topic_id = await client.create("t", 2)
            member = Member(client)
            await member.beat()
            answer = await member.commit((0, 7), (1, 9))
            assert [(one.offset, one.topic_id) for one in answer] == [(7, topic_id), (9, topic_id)]
            assert stored(tmp_path) == {("g", 0): 7, ("g", 1): 9}
            assert await fetch(member.stub) == {("t", 0): 7, ("t", 1): 9}
            asked = await member.stub.FetchOffsets(
                groups_pb2.FetchOffsetsRequest(
                    group="other",
                    partitions=[
                        groups_pb2.TopicPartitions(topic="t", partitions=[1]),
                        groups_pb2.TopicPartitions(topic="nosuch", partitions=[0]),
                    ],
                ),
                timeout=WAIT_S,
            )
            assert [(one.offset, one.error.code) for one in asked.offsets] == [
                (-1, ""),
                (-1, "UNKNOWN_TOPIC"),
            ]

    run(test())


def test_a_commit_with_an_old_epoch_is_refused_and_changes_nothing_over_another_connection_too(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t", 2)
            member = Member(client)
            await member.beat()
            old = member.epoch
            await member.commit((0, 7))
            await Member(client).beat()
            await member.beat()
            async with grpc.aio.insecure_channel(gateway.address) as other:
                late = groups_pb2_grpc.GroupsStub(other)
                async with refused(PRECONDITION, "STALE_MEMBER_EPOCH") as facts:
                    await commit(late, "g", [(0, 5)], member.member_id, old)
                assert facts["member_epoch"] == str(member.epoch)
                async with refused(PRECONDITION, "UNKNOWN_MEMBER"):
                    await commit(late, "g", [(0, 5)], "nobody", old)
                async with refused(PRECONDITION, "GROUP_NOT_EMPTY"):
                    await commit(late, "g", [(0, 5)])
            assert await fetch(member.stub) == {("t", 0): 7}

    run(test())


def test_a_copy_of_an_earlier_commit_that_comes_late_over_another_connection_is_refused(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t", 1)
            member = Member(client)
            await member.beat()
            await member.commit((0, 5), sequence=1)
            await member.commit((0, 9), sequence=2)
            await member.commit((0, 9), sequence=2)
            async with grpc.aio.insecure_channel(gateway.address) as other:
                late = groups_pb2_grpc.GroupsStub(other)
                async with refused(PRECONDITION, "STALE_COMMIT") as facts:
                    await commit(late, "g", [(0, 5)], member.member_id, member.epoch, 1)
                assert facts["newest_sequence"] == "2"
            assert await fetch(member.stub) == {("t", 0): 9}

    run(test())
    assert stored(tmp_path) == {("g", 0): 9}


def test_each_offset_that_is_refused_says_why_and_the_others_are_stored(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, offset_metadata_max_bytes=3) as (_, client):
            await client.create("t", 2)
            stub = groups(client)
            refusals: list[tuple[int, int, Any, str]] = [
                (-2, 0, {}, "INVALID_OFFSET"),
                (1, 2, {}, "UNKNOWN_PARTITION"),
                (1, 0, {"topic": "nosuch"}, "UNKNOWN_TOPIC"),
                (1, 0, {"topic_id": "another"}, "UNKNOWN_TOPIC"),
                (1, 0, {"metadata": "abcd"}, "INVALID_OFFSET"),
                (1, 0, {"metadata": "abc"}, ""),
            ]
            for offset, partition, facts, code in refusals:
                (answer,) = await commit(stub, "g", [(partition, offset)], **facts)
                assert answer.error.code == code
            member = Member(client)
            await member.beat()
            other = Member(client)
            await other.beat()
            await member.beat()
            mine = await member.beat()
            (not_mine,) = {0, 1} - mine
            answers = await member.commit((not_mine, 5), (next(iter(mine)), 6))
            assert [one.error.code for one in answers] == ["NOT_ASSIGNED", ""]

    run(test())
    assert 6 in stored(tmp_path).values()
    assert 5 not in stored(tmp_path).values()


def test_after_a_restart_members_rejoin_epochs_are_higher_and_offsets_are_what_was_acknowledged(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t", 2)
            member = Member(client)
            await member.beat()
            for offset in range(5):
                await member.commit((0, offset))
            epoch, member_id = member.epoch, member.member_id
        for _ in range(2):
            async with running(tmp_path) as (_, client):
                again = Member(client)
                again.member_id, again.epoch = member_id, epoch
                async with refused(PRECONDITION, "UNKNOWN_MEMBER"):
                    await again.beat()
                assert await fetch(again.stub) == {("t", 0): 4}
                again.epoch = 0
                assert await again.beat() == set()  # others may still have to hear of the restart
                async with asyncio.timeout(WAIT_S):
                    while await again.beat() != {0, 1}:  # noqa: ASYNC110 (what heartbeats are)
                        await asyncio.sleep(again.interval_ms / 1000)
                assert again.epoch > epoch
                epoch = again.epoch

    run(test())


def test_epochs_of_a_group_that_was_empty_at_the_restart_are_higher_too(tmp_path: Path) -> None:
    async def test() -> None:
        epoch = 0
        for _ in range(2):
            async with running(tmp_path) as (_, client):
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await client.create("t", 2)
                member = Member(client)
                assert await member.beat() == {0, 1}  # nobody has to be waited for
                assert member.epoch > epoch
                epoch = member.epoch
                await member.leave()
                await groups(client).DescribeGroup(
                    groups_pb2.DescribeGroupRequest(group="g"), timeout=WAIT_S
                )

    run(test())


def test_offsets_of_a_topic_that_was_deleted_do_not_apply_to_its_successor(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FAST) as (_, client):
            await client.create("t", 1)
            member = Member(client)
            await member.beat()
            await member.commit((0, 7))
            old = member.owned[0].topic_id
            await client.delete("t")
            new = await client.create("t", 1)
            assert await fetch(member.stub) == {}
            async with asyncio.timeout(WAIT_S):
                while member.owned == [] or member.owned[0].topic_id != new:
                    await member.beat()
                    await asyncio.sleep(0.01)
            assert old != new
            (answer,) = await member.commit((0, 1))
            assert answer.topic_id == new
            assert await fetch(member.stub) == {("t", 0): 1}

    run(test())


def test_new_partitions_and_topics_that_match_come_to_the_members(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FAST) as (_, client):
            await client.create("t", 1)
            member = Member(client, topics=[], topic_pattern="^t")
            assert await member.beat() == {0}
            assert member.added_later == []
            await client.admin.AddPartitions(
                admin_pb2.AddPartitionsRequest(topic="t", partition_count=2), timeout=WAIT_S
            )
            await client.create("t2", 4)
            await client.create("other", 9)
            async with asyncio.timeout(WAIT_S):
                while len(await member.beat()) < 4:  # noqa: ASYNC110 (what heartbeats are)
                    await asyncio.sleep(0.01)
            assert {number for one in member.owned for number in one.partitions} == {0, 1, 2, 3}
            assert {one.topic for one in member.owned} == {"t", "t2"}
            (added,) = member.added_later
            (topic_id,) = {one.topic_id for one in member.owned if one.topic == "t"}
            assert (added.topic, added.topic_id, list(added.partitions)) == ("t", topic_id, [1])

    run(test())


def test_a_second_process_with_the_same_instance_id_fences_the_first_and_no_other(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t", 2)
            old = Member(client, instance_id="i")
            await old.beat()
            new = Member(client, instance_id="i")
            assert await new.beat() == {0, 1}
            async with refused(PRECONDITION, "INSTANCE_FENCED"):
                await old.commit((0, 1))
            async with refused(PRECONDITION, "INSTANCE_FENCED"):
                await old.beat()
            assert await new.beat() == {0, 1}
            await new.leave(keep_place=True)
            other = await Member(client).beat()  # half of it is not the target of the absent one
            back = Member(client, instance_id="i")
            assert await back.beat() == {0, 1} - other
            assert len(other) == 1

    run(test())


def test_a_commit_that_is_not_durable_is_neither_answered_nor_fetched(tmp_path: Path) -> None:
    gates: list[Gate] = []

    def before(call: str, path: str) -> None:
        for gate in gates:
            gate(call, path)

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path), before=before)
        async with running(store=store) as (_, client):
            await client.create("t", 1)
            member = Member(client)
            await member.beat()
            await member.commit((0, 1))
            closed = Gate("put", "consumer_offsets/partition")
            gates.append(closed)
            committing = asyncio.ensure_future(member.commit((0, 2)))
            await until(lambda: closed.calls > 0)
            fetching = asyncio.ensure_future(fetch(member.stub))
            await asyncio.sleep(0.05)
            assert not committing.done()
            assert not fetching.done()
            assert stored(tmp_path) == {("g", 0): 1}
            closed.open()
            await soon(committing)
            assert await soon(fetching) == {("t", 0): 2}

    run(test())


def test_on_a_full_disk_groups_that_there_were_are_joined_and_read_and_others_are_told_why(
    tmp_path: Path,
) -> None:
    async def told(call: Awaitable[object]) -> None:
        async with refused(grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE") as facts:
            await asyncio.wait_for(call, 10)
        assert "is full" in facts["message"]

    async def test() -> None:
        with small_disk(tmp_path / "disk") as disk:
            async with running(disk / "warehouse") as (gateway, client):
                await client.create("t", 2)
                await client.produce(values_request(b"v"))
                before = Member(client)
                await before.beat()
                await before.commit((0, 1))
                await before.leave()
                await groups(client).DescribeGroup(groups_pb2.DescribeGroupRequest(group="g"))
                ballast = fill(disk)
                after = Member(client)
                assert await asyncio.wait_for(after.beat(), 10) == {0, 1}
                # That the group has members again cannot be written, and is nobody's business.
                table = gateway._groups.running.table  # type: ignore[union-attr]
                await until(lambda: table._table.trouble is not None)
                assert await asyncio.wait_for(fetch(after.stub), 10) == {("t", 0): 1}
                request = groups_pb2.DescribeGroupRequest(group="g")
                found = await asyncio.wait_for(after.stub.DescribeGroup(request), 10)
                assert len(found.members) == 1
                new = Member(client, "new")
                new.member_id = "ab" * 16  # its own, as clients have: a join that fails comes again
                await told(new.beat())
                committing = asyncio.ensure_future(after.commit((1, 0)))
                await until(lambda: "g" in table._pending_offsets)
                await told(fetch(after.stub))
                await told(after.stub.DescribeGroup(request))
                ballast.unlink()
                await committing
                assert await fetch(after.stub) == {("t", 0): 1, ("t", 1): 0}
                assert await new.beat() == {0, 1}

    run(test())


def test_a_start_that_failed_is_not_tried_again_at_every_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = times(1, "put_if_absent", unavailable(), "consumer_offsets")

    async def test() -> None:
        monkeypatch.setattr(group_coordination, "RESTART_AFTER_S", 1e9)
        store = FaultyStore(LocalStore(tmp_path), before=failing)
        async with running(store=store) as (_, client):
            await client.create("t", 1)
            member = Member(client)
            for _ in range(3):
                async with refused(grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE"):
                    await member.beat()
            monkeypatch.setattr(group_coordination, "RESTART_AFTER_S", 0.0)
            assert await member.beat() == {0}

    run(test())


class AllAtOnce:
    """A store hook that holds the calls for each topic until there is one for each of them.

    Attributes:
        left: Topics that no call has come for; None: calls are not held.
    """

    def __init__(self) -> None:
        self.left: set[str] | None = None
        self._all_there = threading.Event()

    def __call__(self, call: str, path: str) -> None:
        if path.startswith("topics/") and self.left is not None:
            self.left.discard(path.split("/")[1])
            if not self.left:
                self._all_there.set()
            if not self._all_there.wait(3.0):
                raise unavailable()


TEN = [f"t{number}" for number in range(10)]


def test_the_topics_of_a_group_are_looked_at_together(tmp_path: Path) -> None:
    """In an object storage service each takes a tenth of a second or more."""

    async def test() -> None:
        async with running(tmp_path) as (_, client):
            for name in TEN:
                await client.create(name, 1)
                await commit(groups(client), "g", [(0, 1)], topic=name)
        hook = AllAtOnce()
        async with running(store=FaultyStore(LocalStore(tmp_path), before=hook)) as (_, client):
            hook.left = {*TEN}
            assert len(await fetch(groups(client))) == 10
        hook = AllAtOnce()
        async with running(store=FaultyStore(LocalStore(tmp_path), before=hook)) as (_, client):
            hook.left = {*TEN}
            member = Member(client, topics=TEN)
            await member.beat()
            assert sorted(one.topic for one in member.owned) == TEN

    run(test())


def test_a_member_whose_calls_end_before_its_topics_were_looked_at_joins_nevertheless(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            for name in TEN:
                await client.create(name, 1)
        gate = Gate("read", "topics/t9/")
        async with running(store=FaultyStore(LocalStore(tmp_path), before=gate)) as (
            gateway,
            client,
        ):
            member = Member(client, topics=TEN)
            with pytest.raises(grpc.aio.AioRpcError):
                await member.beat(timeout_s=0.5)
            await until(lambda: gate.calls > 0)
            gate.open()
            coordinator = (await coordination_of(gateway).started()).coordinator
            await until(lambda: coordinator.known_topics.keys() == {*TEN})
            await member.beat()
            assert sorted(one.topic for one in member.owned) == TEN

    run(test())


def test_commits_of_one_member_take_effect_in_the_order_in_which_they_arrive(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t", 1)
            member = Member(client)
            await member.beat()
            sent = []
            for offset in range(50):
                sent.append(asyncio.ensure_future(member.commit((0, offset))))
                await asyncio.sleep(0)
            await asyncio.gather(*sent)
            assert await fetch(member.stub) == {("t", 0): 49}

    run(test())
    assert stored(tmp_path) == {("g", 0): 49}


def test_a_group_is_deleted_only_without_members_and_one_offset_from_outside(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t", 2)
            stub = groups(client)
            delete = groups_pb2.DeleteGroupRequest(group="g")
            async with refused(grpc.StatusCode.NOT_FOUND, "UNKNOWN_GROUP"):
                await stub.DeleteGroup(delete, timeout=WAIT_S)
            member = Member(client)
            await member.beat()
            await member.commit((0, 3), (1, 4))
            async with refused(PRECONDITION, "GROUP_NOT_EMPTY"):
                await stub.DeleteGroup(delete, timeout=WAIT_S)
            await member.leave()
            await commit(stub, "g", [(0, -1)])
            assert await fetch(stub) == {("t", 1): 4}
            await stub.DeleteGroup(delete, timeout=WAIT_S)
            assert await fetch(stub) == {}
            async with refused(grpc.StatusCode.NOT_FOUND, "UNKNOWN_GROUP"):
                await stub.DescribeGroup(groups_pb2.DescribeGroupRequest(group="g"), timeout=WAIT_S)

    run(test())
    assert stored(tmp_path) == {}


def test_a_group_with_more_offsets_than_a_commit_may_have_is_deleted_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.ingest_gateway.services.groups.OFFSETS_PER_COMMIT_MAX", 4)

    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t", 10)
            stub = groups(client)
            for start in (0, 4, 8):
                await commit(stub, "g", [(n, 5) for n in range(start, min(start + 4, 10))])
            await commit(stub, "h", [(0, 7)])
            delete = groups_pb2.DeleteGroupRequest(group="g")
            await stub.DeleteGroup(delete, timeout=WAIT_S)
            assert await fetch(stub) == {}
            async with refused(grpc.StatusCode.NOT_FOUND, "UNKNOWN_GROUP"):
                await stub.DeleteGroup(delete, timeout=WAIT_S)

    run(test())
    assert stored(tmp_path) == {("h", 0): 7}


def test_offsets_of_a_deleted_topic_are_forgotten_however_many_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.ingest_gateway.groups.coordination.OFFSETS_PER_COMMIT_MAX", 4)

    async def test() -> None:
        settings: Any = {"offsets.retention.check.interval.ms": 20}
        async with running(tmp_path, **settings) as (_, client):
            await client.create("t", 10)
            stub = groups(client)
            await commit(stub, "g", [(n, 5) for n in range(10)])
            await client.delete("t")
            async with asyncio.timeout(WAIT_S):
                while stored(tmp_path):  # noqa: ASYNC110 (what another thread does)
                    await asyncio.sleep(0.05)

    run(test())


def test_an_offset_beyond_the_log_that_nobody_says_to_have_read_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t", 3)
            await client.produce(values_request(b"a", b"b", b"c"))
            stub = groups(client)
            offsets = [(0, 3), (1, 0), (2, 10**12)]
            for unknown in (0, -1):
                first, second, third = await commit(stub, "g", offsets, leader_epoch=unknown)
                assert (first.error.code, second.error.code) == ("", "")
                assert third.error.code == "OFFSET_OUT_OF_RANGE"
                assert "offset 1000000000000 of partition 2" in third.error.message
                assert "not in [0, 0]" in third.error.message
                assert dict(third.error.facts)["high_watermark"] == "0"
            assert await fetch(stub) == {("t", 0): 3, ("t", 1): 0}
            member = Member(client, "h")
            while not await member.beat():
                pass
            (refused_one,) = await commit(
                stub, "h", [(0, 4)], member.member_id, member.epoch, leader_epoch=0
            )
            assert refused_one.error.code == "OFFSET_OUT_OF_RANGE"
            assert [one.error.code for one in await member.commit((0, 4))] == [""]

    run(test())


def test_an_offset_that_the_coordinator_has_not_heard_of_is_looked_for_in_the_log(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, leader), running(tmp_path) as (_, other):
            await leader.create("t", 1)
            await leader.produce(values_request(b"a"))
            stub = groups(other)
            for end in range(2, 8):
                (before,) = await commit(stub, "g", [(0, end)], leader_epoch=0)
                await leader.produce(values_request(b"a"))
                (after,) = await commit(stub, "g", [(0, end)], leader_epoch=0)
                assert (before.error.code, after.error.code) == ("OFFSET_OUT_OF_RANGE", "")

    run(test())


def test_a_commit_whose_caller_gave_up_stops_no_other_call_and_not_the_housekeeping(
    tmp_path: Path,
) -> None:
    gates: list[Gate] = []

    def before(call: str, path: str) -> None:
        for gate in gates:
            gate(call, path)

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path), before=before)
        async with running(store=store, **FAST) as (_, client):
            await client.create("t", 1)
            stub = groups(client)
            await commit(stub, "g", [(0, 1)])
            gates.append(Gate("put", "consumer_offsets/partition"))
            request = groups_pb2.CommitOffsetsRequest(
                group="g",
                member_epoch=-1,
                offsets=[
                    groups_pb2.CommittedOffset(topic="t", partition=0, offset=2, leader_epoch=READ)
                ],
            )
            committing = asyncio.ensure_future(stub.CommitOffsets(request, timeout=0.3))
            await until(lambda: gates[0].calls > 0)
            fetching = asyncio.ensure_future(fetch(stub))
            with pytest.raises(grpc.aio.AioRpcError) as late:
                await committing
            assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            gates[0].open()
            assert await soon(fetching) == {("t", 0): 2}
            member = Member(client, "h", topics=[], topic_pattern="^la.*")
            assert await member.beat() == set()
            await client.create("later", 1)
            async with asyncio.timeout(WAIT_S):
                while not await member.beat():  # noqa: ASYNC110 (what heartbeats are)
                    await asyncio.sleep(0.01)

    run(test())


def test_one_gateway_coordinates_the_other_names_it_and_takes_over_when_it_ends(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, second):
            async with running(tmp_path) as (gateway, first):
                await first.create("t", 1)
                member = Member(first)
                await member.beat()
                await member.commit((0, 5))
                async with refused(PRECONDITION, "NOT_LEADER") as facts:
                    await Member(second).beat()
                assert facts["leader"] == gateway.address
                epoch = member.epoch
            moved = Member(second)
            async with asyncio.timeout(WAIT_S):
                while True:
                    try:
                        await moved.beat()
                        break
                    except grpc.aio.AioRpcError:
                        await asyncio.sleep(0.05)
            assert moved.epoch > epoch
            assert await fetch(moved.stub) == {("t", 0): 5}

    run(test())


def test_offsets_are_forgotten_when_the_group_was_empty_for_long_enough_and_never_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t", 1)
            member = Member(client, session_timeout_ms=3_600_000)
            await member.beat()
            await member.commit((0, 5))
            coordination = coordination_of(gateway)
            table = (await coordination.started()).table
            now_ms = table.now_ms()
            week_ms = 10_080 * 60_000

            async def at(ms: int) -> dict[tuple[str, int], int]:
                monkeypatch.setattr(table, "now_ms", lambda: ms)
                await coordination.expire(await coordination.started())
                return await fetch(member.stub)

            assert await at(now_ms + 3 * week_ms) == {("t", 0): 5}
            await member.leave()  # at this time
            assert await at(now_ms + 4 * week_ms - 1) == {("t", 0): 5}
            assert await at(now_ms + 4 * week_ms) == {}

    run(test())
    assert stored(tmp_path) == {}


def test_dead_groups_without_offsets_make_room_for_living_ones(tmp_path: Path) -> None:
    config: Any = {"group.max.count": 2}

    async def test() -> None:
        async with running(tmp_path, **config) as (_, client):
            await client.create("t", 1)
            with_offsets = Member(client, "kept")
            await with_offsets.beat()
            await with_offsets.commit((0, 5))
            await with_offsets.leave()
            for number in range(3):
                dead = Member(client, f"dead-{number}")
                await dead.beat()
                await dead.leave()
            assert await Member(client, "alive").beat() == {0}
            async with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "GROUP_FULL"):
                await Member(client, "one more").beat()
            listed = await groups(client).ListGroups(groups_pb2.ListGroupsRequest())
            assert {one.group for one in listed.groups} == {"alive", "kept"}
            assert await fetch(with_offsets.stub, "kept") == {("t", 0): 5}

    run(test())


def test_a_group_that_never_committed_is_forgotten_soon_after_its_last_member_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t", 1)
            member = Member(client)
            await member.beat()
            await member.leave()
            coordination = coordination_of(gateway)
            running_now = await coordination.started()
            table = running_now.table
            now_ms = table.now_ms()
            for after_ms, there in ((300_000, True), (600_000 + WAIT_S * 1_000, False)):
                monkeypatch.setattr(table, "now_ms", lambda ms=now_ms + after_ms: int(ms))
                await coordination.expire(running_now)
                assert ("g" in running_now.coordinator.groups) is there
            await table.flushed("g")
            assert table.groups == set()

    run(test())


def coordination_of(gateway: Gateway) -> Any:
    return gateway._groups


async def sample(gateway: Gateway, name: str, **labels: str) -> float | None:
    """A figure as Prometheus gets it: in another thread than the one where everything changes."""
    registry = gateway._metrics.registry
    return await asyncio.to_thread(
        registry.get_sample_value, f"mainstem_consumer_group_{name}", labels
    )


class Unlisted(dict[str, TopicInfo]):
    """Topics that may be looked up, and not gone through."""

    def keys(self) -> Any:
        raise AssertionError("all topics were looked at")


def test_a_heartbeat_looks_up_its_own_topics_among_those_of_all_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t", 2)
            await Member(client).beat()
            coordination = coordination_of(gateway)
            running_now = await coordination.started()
            beat = Heartbeat("g", "other", topics=frozenset({"t"}))
            first, _ = await coordination.heartbeat(running_now, beat)
            known = Unlisted(running_now.coordinator.known_topics)
            with monkeypatch.context() as patched:
                patched.setattr(Coordinator, "known_topics", property(lambda _: known))
                beat = replace(beat, member_epoch=first.member_epoch)
                answer, _ = await coordination.heartbeat(running_now, beat)
            assert answer.member_id == "other"

    run(test())


def test_topics_of_groups_are_looked_up_in_turn_and_those_that_are_led_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_coordination, "LOOKED_UP_MAX", 3)
    looked: Counter[str] = Counter()
    topic = GroupTopics.topic

    async def counting(topics: GroupTopics, name: str) -> TopicInfo | None:
        looked[name] += 1
        return await topic(topics, name)

    monkeypatch.setattr(GroupTopics, "topic", counting)
    names = [f"t{number}" for number in range(9)]

    async def test() -> None:
        async with running(tmp_path, group_metadata_refresh_interval_ms=3_600_000) as (
            gateway,
            client,
        ):
            for name in names:
                await client.create(name, 1)
            await client.produce(values_request(b"x", topic="t0"))
            member = Member(client, topics=[*names, "later"])
            await member.beat()
            coordination = coordination_of(gateway)
            running_now = await coordination.started()
            known = running_now.coordinator.known_topics
            assert looked == Counter([*names, "later"])
            # The gateway's own first look.
            await until(lambda: looked.total() == 13 and not running_now.looks)
            running_now.not_looked_up.clear()
            looked.clear()
            for _ in range(4):
                await coordination.refresh(running_now)
            assert looked == Counter([*names, "later"])
            # What is done here shows in the next look, whose turn it ever is.
            running_now.not_looked_up.clear()
            await client.admin.AddPartitions(
                admin_pb2.AddPartitionsRequest(topic="t0", partition_count=3), timeout=WAIT_S
            )
            looked.clear()
            await coordination.refresh(running_now)
            assert "t0" not in looked
            assert known["t0"].partition_count == 3

    run(test())


PLACE: Any = {"group": "g", "topic": "t", "partition": "0"}


def test_members_rebalances_offsets_and_lag_are_measured(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t", 1)
            await client.produce(values_request(b"a", b"b", b"c"))
            member = Member(client)
            await member.beat()
            await member.commit((0, 1))
            assert await sample(gateway, "members", group="g") == 1
            assert await sample(gateway, "rebalances_total", group="g") == 1
            assert await sample(gateway, "committed_offset", **PLACE) == 1
            assert await sample(gateway, "lag_records", **PLACE) == 2
            await member.commit((0, 3))
            assert await sample(gateway, "lag_records", **PLACE) == 0
            assert await sample(gateway, "lag_seconds", **PLACE) == 0
            await client.delete("t")
            assert await sample(gateway, "lag_records", **PLACE) is None

    run(test())


def test_the_age_of_lag_is_that_of_the_data_file_with_the_first_record_that_was_not_read(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t", 1, commit_interval_ms="0")
            for timestamps in ([5_000, 4_000], [9_000], [7_000]):
                records = [log_pb2.Record(value=b"x", timestamp_ms=at) for at in timestamps]
                await client.produce(records_request(*records))
            stub = groups(client)
            registry = CollectorRegistry()
            registry.register(
                GroupMetrics(gateway._groups, gateway._topics, clock_ms=lambda: 20_000)
            )

            async def age() -> float | None:
                return await asyncio.to_thread(
                    registry.get_sample_value, "mainstem_consumer_group_lag_seconds", PLACE
                )

            ages = []
            for offset in range(5):
                await commit(stub, "g", [(0, offset)])
                ages.append(await age())
            assert ages == [16, 16, 11, 13, 0]

    run(test())


def test_lag_of_a_topic_that_another_gateway_leads_is_measured(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path, gateway_id="one") as (leader, client),
            running(tmp_path, gateway_id="two") as (coordinator, other),
        ):
            await client.create("t", 1)
            await client.produce(values_request(b"a", b"b", b"c"))
            await commit(groups(other), "g", [(0, 1)])
            assert leader._topics.leading("t") is not None
            assert leader._groups.running is None
            assert await sample(coordinator, "lag_records", **PLACE) == 2
            await client.produce(values_request(b"d"))
            assert await sample(coordinator, "lag_records", **PLACE) == 3
            assert await sample(leader, "lag_records", **PLACE) is None

    run(test())


def test_after_a_restart_the_lag_of_a_group_that_nobody_asks_for_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_watch, "WATCH_EVERY_S", 0.02)

    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t", 1)
            await client.produce(values_request(b"a", b"b", b"c"))
            await commit(groups(client), "g", [(0, 1)])
        async with running(tmp_path) as (gateway, _):
            await until(lambda: gateway._groups.running is not None)
            assert await sample(gateway, "committed_offset", **PLACE) == 1
            # Nobody produces: the topic is led nowhere, and its lag is seen all the same.
            assert gateway._topics.leading("t") is None
            assert await sample(gateway, "lag_records", **PLACE) == 2
            assert 0 < (await sample(gateway, "lag_seconds", **PLACE) or 0) < WAIT_S

    run(test())


def test_a_gateway_that_knows_of_no_group_makes_no_table_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_watch, "WATCH_EVERY_S", 0.001)
    looked: list[str] = []

    class Looking(Topics):
        def exists(self, topic: str) -> bool:
            looked.append(topic)
            return super().exists(topic)

    monkeypatch.setattr(group_watch, "Topics", Looking)

    async def test() -> None:
        async with running(tmp_path) as (gateway, _):
            await until(lambda: len(looked) > 2)
            assert gateway._groups.running is None

    run(test())
    assert not (tmp_path / "system" / "consumer_offsets").exists()


def test_who_joins_and_leaves_and_who_moves_offsets_is_logged(tmp_path: Path) -> None:
    async def test() -> list[Any]:
        with structlog.testing.capture_logs() as lines:
            async with running(tmp_path) as (_, client):
                await client.create("t", 1)
                member = Member(client)
                while not await member.beat():
                    pass
                await member.commit((0, 0))
                await member.leave()
                await commit(groups(client), "g", [(0, 0)], sequence=1)  # an assigned consumer's
                await commit(groups(client), "g", [(0, 0)])
        return lines

    lines = [line for line in run(test()) if line.get("group") == "g"]
    assert [line["event"] for line in lines] == [
        "member joined",
        "group rebalanced",
        "member left",
        "offsets moved from outside the group",
    ]
    assert all("peer" in line for line in (lines[0], lines[2], lines[3]))
    assert (lines[3]["offset_count"], lines[3]["topics"]) == (1, ["t"])

"""The Groups service: membership and committed offsets of consumer groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import islice
from typing import TypeVar

import structlog

from mainstem.consumers import (
    EMPTY,
    JOIN_EPOCH,
    Beat,
    Group,
    Heartbeat,
    Partition,
    partitions_by_topic,
)
from mainstem.consumers.events import OFFSETS_MOVED, GroupEvent
from mainstem.consumers.heartbeat import check_group_name
from mainstem.consumers.offset_rows import OffsetKey, Row, StoredOffset
from mainstem.errors import (
    MainstemError,
    UnknownGroupError,
    UnknownTopicError,
)
from mainstem.ingest_gateway.groups import NO_OFFSET, GroupCoordination, OffsetCommits, Running
from mainstem.ingest_gateway.requests import RequestDoor
from mainstem.ingest_gateway.services.call import Call
from mainstem.limits import OFFSETS_PER_COMMIT_MAX
from mainstem.protocol import error_to_message
from mainstem.protocol.v1 import groups_pb2
from mainstem.security import Operation, QuotaName, ResourceType

log = structlog.get_logger()

T = TypeVar("T")
Seen = TypeVar("Seen", groups_pb2.CommittedOffset, Partition)

#: Offsets or partitions that are put into an answer in one step of the event loop.
_AT_ONCE = 1_000

#: Names of topics in a line of the log.
_TOPICS_LOGGED_MAX = 5


class GroupService:
    """Serves `mainstem.v1.Groups`."""

    def __init__(
        self,
        coordination: GroupCoordination,
        offset_commits: OffsetCommits,
        door: RequestDoor,
    ) -> None:
        self._coordination = coordination
        self._offset_commits = offset_commits
        self._door = door

    async def Heartbeat(self, request: groups_pb2.HeartbeatRequest, call: Call) -> bytes:
        for name in request.topics:
            call.require(Operation.DESCRIBE, ResourceType.TOPIC, name)
        beat = Heartbeat(
            request.group,
            request.member_id,
            request.member_epoch,
            request.instance_id,
            request.client_id,
            request.rack,
            frozenset(request.topics),
            request.topic_pattern,
            request.assignor,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            await self._owned(request),
            call.peer,
            call.may_each(Operation.READ, ResourceType.TOPIC),
        )
        running = await self._coordination.started()
        joining: AbstractContextManager[None] = nullcontext()
        if beat.member_epoch == JOIN_EPOCH:
            groups = running.coordinator.groups
            joining = call.taking(
                QuotaName.GROUPS,
                beat.group,
                lambda name: bool(name in groups and groups[name].members),
            )
        with joining:
            answer, interval_ms = await self._coordination.heartbeat(running, beat)
        return await self._either(len(answer.assignment), partial(_beaten, answer, interval_ms))

    async def _owned(self, request: groups_pb2.HeartbeatRequest) -> frozenset[Partition]:
        count = sum(len(one.partitions) for one in request.owned)
        return await self._either(count, lambda: frozenset(_partitions(request.owned)))

    async def _either(self, partition_count: int, call: Callable[[], T]) -> T:
        """Runs a call that only computes: at once, or in a thread where it would take long."""
        return call() if partition_count <= _AT_ONCE else await self._door.in_thread(call)

    async def Leave(self, request: groups_pb2.LeaveRequest, call: Call) -> groups_pb2.LeaveResponse:
        running = await self._coordination.started()
        running.coordinator.leave(
            request.group,
            request.member_id,
            request.instance_id,
            request.member_epoch,
            keep_place=request.keep_place,
        )
        self._coordination.note_changes(running)
        return groups_pb2.LeaveResponse()

    async def CommitOffsets(
        self, request: groups_pb2.CommitOffsetsRequest, call: Call
    ) -> groups_pb2.CommitOffsetsResponse:
        running = await self._coordination.started()
        _check_names(running, request, call)
        response, rows = await self._offset_commits.take(running, request)
        if rows:
            await running.table.write(rows)
        if rows and not request.member_id and not request.sequence:  # a consumer numbers its own
            moved = sorted({one.topic for one in request.offsets})
            facts: dict[str, object] = {
                "group": request.group,
                "offset_count": len(rows),
                "topics": moved[:_TOPICS_LOGGED_MAX],
                **call.facts(),
            }
            self._coordination.log.write([GroupEvent(OFFSETS_MOVED, facts)])
        return response

    async def FetchOffsets(
        self, request: groups_pb2.FetchOffsetsRequest, call: Call
    ) -> groups_pb2.FetchOffsetsResponse:
        running = await self._coordination.started()
        # What the owner before committed, and was not answered yet, counts.
        await running.table.flushed(request.group, offsets_only=True)
        response = groups_pb2.FetchOffsetsResponse()
        if not request.partitions:
            every = await self._current(running, request.group)
            response.offsets.extend(await _visible(every, call))
            return response
        refused = call.refusals(
            Operation.DESCRIBE, ResourceType.TOPIC, (one.topic for one in request.partitions)
        )
        topics = await self._offset_commits.topics(
            one.topic for one in request.partitions if not one.topic_id and one.topic not in refused
        )
        stored = running.table.offsets(request.group)
        for wanted in request.partitions:
            topic_id = wanted.topic_id
            error: MainstemError | None = refused.get(wanted.topic)
            if error is None and not topic_id:
                info = topics[wanted.topic]
                topic_id = "" if info is None else info.topic_id
                error = _unknown(wanted.topic) if info is None else None
            for number in wanted.partitions:
                found = stored.get(OffsetKey(topic_id, number))
                answer = groups_pb2.CommittedOffset(
                    topic=wanted.topic,
                    topic_id=topic_id,
                    partition=number,
                    offset=NO_OFFSET,
                    leader_epoch=-1,
                )
                if found is not None and found.topic != wanted.topic:
                    found = None  # the id is of another topic, which was not asked about
                if error is not None:
                    answer.error.CopyFrom(error_to_message(error))
                elif found is not None:
                    answer = _committed(found)
                response.offsets.append(answer)
                if len(response.offsets) % _AT_ONCE == 0:
                    await asyncio.sleep(0)
        return response

    async def ListGroups(
        self, request: groups_pb2.ListGroupsRequest, call: Call
    ) -> groups_pb2.ListGroupsResponse:
        running = await self._coordination.started()
        running.coordinator.tick()
        response = groups_pb2.ListGroupsResponse()
        groups = running.coordinator.groups
        names = sorted({*groups, *running.table.groups})
        for name in await call.allowed(Operation.DESCRIBE, ResourceType.GROUP, names):
            group = groups.get(name)
            if group is None or not group.members:
                if not _has_content(running, name):
                    continue
                response.groups.add(group=name, state=EMPTY)
            else:
                response.groups.add(group=name, state=group.state, member_count=len(group.members))
        return response

    async def DescribeGroup(
        self, request: groups_pb2.DescribeGroupRequest, call: Call
    ) -> groups_pb2.DescribeGroupResponse:
        check_group_name(request.group)  # who plans a change of a group hears it here already
        running = await self._coordination.started()
        await running.table.flushed(request.group, offsets_only=True)
        offsets = await self._current(running, request.group)
        is_known = bool(offsets)
        offsets = await _visible(offsets, call)
        running.coordinator.tick()
        group = running.coordinator.groups.get(request.group)
        if group is None or not (group.members or _has_content(running, request.group)):
            if not is_known:
                raise _unknown_group(request.group)
            return groups_pb2.DescribeGroupResponse(
                group=request.group, state=EMPTY, offsets=offsets
            )
        response = groups_pb2.DescribeGroupResponse(
            group=request.group,
            state=group.state,
            group_epoch=group.epoch,
            assignor=group.assignor if group.members else "",
            offsets=offsets,
        )
        members = list(group.members.values())
        targets = group.target
        for member in members:
            told = response.members.add(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                member_epoch=member.epoch,
            )
            assigned = await _visible(member.assigned, call)
            target = await _visible(targets[member.member_id], call)
            told.assignment.extend(await self._either(len(assigned), partial(_messages, assigned)))
            told.target.extend(await self._either(len(target), partial(_messages, target)))
        return response

    async def DeleteGroup(
        self, request: groups_pb2.DeleteGroupRequest, call: Call
    ) -> groups_pb2.DeleteGroupResponse:
        group = request.group
        running = await self._coordination.started()
        await running.table.flushed(group)
        running.coordinator.check_empty(group)
        if not _has_content(running, group):
            raise _unknown_group(group)
        count = 0
        while len(running.table.offsets(group)) > OFFSETS_PER_COMMIT_MAX:
            # What cannot be one commit beside those of others. A member that joins in between
            # ends it: the group is there, without these offsets.
            some = islice(running.table.offsets(group), OFFSETS_PER_COMMIT_MAX)
            rows = [Row(group, key, None) for key in some]
            await running.table.write(rows)
            count += len(rows)
            running.coordinator.check_empty(group)
        running.coordinator.forget(group)
        running.rows.pop(group, None)
        rows = [Row(group, key, None) for key in running.table.offsets(group)]
        await running.table.write([*rows, Row(group, None, None)])
        log.info(
            "group deleted",
            group=group,
            offset_count=count + len(rows),
            **call.facts(),
        )
        return groups_pb2.DeleteGroupResponse()

    async def _current(self, running: Running, group: str) -> list[groups_pb2.CommittedOffset]:
        """All offsets of a group that are of topics as they are now."""
        stored = sorted(
            running.table.offsets(group).values(), key=lambda one: (one.topic, one.partition)
        )
        found = []
        current = await self._coordination.topics.current_offsets(stored)
        for index, (one, truncated_to) in enumerate(current, start=1):
            if index % _AT_ONCE == 0:
                await asyncio.sleep(0)
            message = _committed(one)
            if truncated_to is not None:
                message.truncated_to = truncated_to
            found.append(message)
        return found


def _has_members(groups: Mapping[str, Group], name: str) -> bool:
    group = groups.get(name)
    return group is not None and bool(group.members)


def _beaten(answer: Beat, interval_ms: int) -> bytes:
    """The serialised answer to a heartbeat."""
    data: bytes = groups_pb2.HeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=_messages(answer.assignment),
        added_later=_messages(answer.added_later),
        missing_topics=answer.missing_topics,
    ).SerializeToString()
    return data


async def _visible(found: Iterable[Seen], call: Call) -> list[Seen]:
    """Those of the offsets or partitions whose topics the caller may see."""
    found = list(found)
    names = list({one.topic for one in found})
    seen = frozenset(await call.allowed(Operation.DESCRIBE, ResourceType.TOPIC, names))
    return found if len(seen) == len(names) else [one for one in found if one.topic in seen]


def _check_names(running: Running, request: groups_pb2.CommitOffsetsRequest, call: Call) -> None:
    """An offset is kept by the id of its topic: whoever gives the id of one topic with the name of
    another needs to be allowed to read both."""
    stored = running.table.offsets(request.group)
    for one in request.offsets:
        found = stored.get(OffsetKey(one.topic_id, one.partition)) if one.topic_id else None
        if found is not None and found.topic != one.topic:
            call.require(Operation.READ, ResourceType.TOPIC, found.topic)


def _has_content(running: Running, group: str) -> bool:
    return group in running.table.groups


def _unknown(topic: str) -> UnknownTopicError:
    return UnknownTopicError(f"there is no topic {topic!r}", topic=topic)


def _unknown_group(group: str) -> UnknownGroupError:
    return UnknownGroupError(
        f"there is no group {group!r}: it has neither members nor offsets", group=group
    )


def _committed(stored: StoredOffset) -> groups_pb2.CommittedOffset:
    return groups_pb2.CommittedOffset(
        topic=stored.topic,
        topic_id=stored.topic_id,
        partition=stored.partition,
        offset=stored.offset,
        leader_epoch=stored.leader_epoch,
        metadata=stored.metadata,
        commit_timestamp_ms=stored.commit_timestamp_ms,
    )


def _partitions(messages: Iterable[groups_pb2.TopicPartitions]) -> Iterator[Partition]:
    for one in messages:
        for number in one.partitions:
            yield Partition(one.topic, one.topic_id, number)


def _messages(partitions: Iterable[Partition]) -> list[groups_pb2.TopicPartitions]:
    return [
        groups_pb2.TopicPartitions(topic=topic, topic_id=topic_id, partitions=numbers)
        for (topic, topic_id), numbers in partitions_by_topic(partitions).items()
    ]

"""The groups of a fake gateway: the real coordinator, and offsets in a dict."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from mainstem.consumers.assignors import Partition, TopicInfo
from mainstem.consumers.coordinator import Coordinator, CoordinatorRules
from mainstem.consumers.heartbeat import Heartbeat
from mainstem.errors import MainstemError
from mainstem.protocol import error_to_message, error_to_status
from mainstem.protocol.v1 import groups_pb2, groups_pb2_grpc
from mainstem.testing._fake_topics import FakeTopics


class FakeGroups(groups_pb2_grpc.GroupsServicer):
    """Members, assignments and offsets.

    Args:
        topics: Those of the gateway; `topics_changed` looks at them again.

    Attributes:
        offsets: The committed offset by group, topic and partition; tests may set some.
        metadata, leader_epochs: What was committed with it.
        commits: Every commit request that came, in order.
        heartbeats: Every heartbeat, in order.
        leaves: Every leave, in order.
        on_commit: Called with each commit before it is looked at; an error that it returns is the
            answer.
        before_heartbeat, after_heartbeat: Called with each heartbeat before the coordinator sees
            it, and before its answer leaves. Either may wait.
        on_fetch_offsets: Called with each answer before it leaves, and may change it.
    """

    def __init__(self, topics: FakeTopics) -> None:
        self._topics = topics
        self._lock = threading.Lock()
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.metadata: dict[tuple[str, str, int], str] = {}
        self.leader_epochs: dict[tuple[str, str, int], int] = {}
        self.commits: list[groups_pb2.CommitOffsetsRequest] = []
        self.heartbeats: list[groups_pb2.HeartbeatRequest] = []
        self.leaves: list[groups_pb2.LeaveRequest] = []
        self.on_commit: Callable[[groups_pb2.CommitOffsetsRequest], MainstemError | None] | None = (
            None
        )
        self.before_heartbeat: Callable[[groups_pb2.HeartbeatRequest], None] = lambda _: None
        self.after_heartbeat: Callable[[groups_pb2.HeartbeatRequest], None] = lambda _: None
        self.on_fetch_offsets: Callable[[groups_pb2.FetchOffsetsResponse], None] | None = None
        self.restart()

    def restart(self) -> None:
        """Forgets every member."""
        self.coordinator = Coordinator(CoordinatorRules(), lambda: int(time.monotonic() * 1000))
        self.topics_changed()

    def topics_changed(self) -> None:
        """Tells the coordinator which topics there are."""
        with self._lock:
            self.coordinator.set_topics(
                {
                    name: TopicInfo(topic.topic_id, topic.partition_count)
                    for name, topic in self._topics.items()
                }
            )

    def Heartbeat(
        self, request: groups_pb2.HeartbeatRequest, context: Any
    ) -> groups_pb2.HeartbeatResponse:
        self.heartbeats.append(request)
        self.before_heartbeat(request)
        owned = frozenset(
            Partition(one.topic, one.topic_id, number)
            for one in request.owned
            for number in one.partitions
        )
        with self._lock:
            try:
                beat = self.coordinator.heartbeat(
                    Heartbeat(
                        group=request.group,
                        member_id=request.member_id,
                        member_epoch=request.member_epoch,
                        instance_id=request.instance_id,
                        client_id=request.client_id,
                        topics=frozenset(request.topics),
                        topic_pattern=request.topic_pattern,
                        assignor=request.assignor,
                        session_timeout_ms=request.session_timeout_ms,
                        rebalance_timeout_ms=request.rebalance_timeout_ms,
                        owned=owned,
                    )
                )
            except MainstemError as error:
                context.abort_with_status(error_to_status(error))
                raise
        self.after_heartbeat(request)
        answer = groups_pb2.HeartbeatResponse(
            member_id=beat.member_id,
            member_epoch=beat.member_epoch,
            heartbeat_interval_ms=50 if beat.settled else 10,
        )
        answer.missing_topics.extend(beat.missing_topics)
        for one in sorted(beat.assignment):
            answer.assignment.add(
                topic=one.topic, topic_id=one.topic_id, partitions=[one.partition]
            )
        for one in sorted(beat.added_later):
            answer.added_later.add(
                topic=one.topic, topic_id=one.topic_id, partitions=[one.partition]
            )
        return answer

    def Leave(self, request: groups_pb2.LeaveRequest, context: Any) -> groups_pb2.LeaveResponse:
        self.leaves.append(request)
        with self._lock:
            try:
                self.coordinator.leave(
                    request.group,
                    request.member_id,
                    request.instance_id,
                    request.member_epoch,
                    keep_place=request.keep_place,
                )
            except MainstemError as error:
                context.abort_with_status(error_to_status(error))
        return groups_pb2.LeaveResponse()

    def CommitOffsets(
        self, request: groups_pb2.CommitOffsetsRequest, context: Any
    ) -> groups_pb2.CommitOffsetsResponse:
        error = self.on_commit(request) if self.on_commit is not None else None
        answer = groups_pb2.CommitOffsetsResponse()
        with self._lock:
            self.commits.append(request)
            try:
                if error is not None:
                    raise error
                self.coordinator.check_commit(
                    request.group, request.member_id, request.member_epoch, request.sequence
                )
            except MainstemError as failure:
                context.abort_with_status(error_to_status(failure))
            for one in request.offsets:
                done = answer.offsets.add(topic=one.topic, partition=one.partition)
                try:
                    if request.member_id:
                        self.coordinator.committable(
                            request.group,
                            request.member_id,
                            one.topic,
                            one.topic_id,
                            one.partition,
                        )
                except MainstemError as failure:
                    done.error.CopyFrom(error_to_message(failure))
                    continue
                self.offsets[request.group, one.topic, one.partition] = one.offset
                self.metadata[request.group, one.topic, one.partition] = one.metadata
                self.leader_epochs[request.group, one.topic, one.partition] = one.leader_epoch
        return answer

    def FetchOffsets(
        self, request: groups_pb2.FetchOffsetsRequest, context: Any
    ) -> groups_pb2.FetchOffsetsResponse:
        answer = groups_pb2.FetchOffsetsResponse()
        with self._lock:
            for one in request.partitions:
                for number in one.partitions:
                    place = (request.group, one.topic, number)
                    answer.offsets.add(
                        topic=one.topic,
                        partition=number,
                        offset=self.offsets.get(place, -1),
                        metadata=self.metadata.get(place, ""),
                        leader_epoch=self.leader_epochs.get(place, -1),
                    )
        if self.on_fetch_offsets is not None:
            self.on_fetch_offsets(answer)
        return answer

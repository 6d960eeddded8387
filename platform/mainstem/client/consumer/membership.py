"""One member of a group, as a state machine: no I/O, no clock, no lock. KIP-848's member side."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from mainstem.client.positions import TopicPartition
from mainstem.errors import MainstemError
from mainstem.protocol.v1 import groups_pb2


class MemberState(Enum):
    """Where a member stands."""

    #: It did not subscribe, or left for good.
    OUT = auto()
    #: Its next heartbeat joins.
    JOINING = auto()
    #: The coordinator knows it.
    MEMBER = auto()
    #: It did not poll for max.poll.interval.ms and left; its next poll joins again.
    ASLEEP = auto()
    #: Another process has its group.instance.id.
    FENCED = auto()


@dataclass(slots=True)
class AssignmentPlan:
    """What the application's thread has to do: one kind of thing at a time.

    Attributes:
        lost: Partitions that others may have already: nothing can be committed any more.
        revoked: Partitions to give up, after a commit.
        replaced: Of those, what comes back as a partition of a topic that was made again.
        added: Partitions to take, with their topic ids.
        added_later: Of those, what came to its topic after the group subscribed to it.
    """

    lost: list[TopicPartition] = field(default_factory=list)
    revoked: list[TopicPartition] = field(default_factory=list)
    replaced: frozenset[TopicPartition] = frozenset()
    added: dict[TopicPartition, str] = field(default_factory=dict)
    added_later: frozenset[TopicPartition] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.lost or self.revoked or self.added)


class Membership:
    """Turns the coordinator's answers into plans, and what was done of them into heartbeats.

    Args:
        new_id: Makes member ids that nobody else has. The member makes its own, so that a join
            which comes again, because its answer was lost, is the same member's. One that has left,
            or that the coordinator does not know any more, is never used again: a join of before
            that arrives late is then refused.

    Attributes:
        member_id: Empty: it has not asked to join.
        owned: What the application reads or is about to read, with topic ids.
        target: What the coordinator lets it read; None: it has not said.
        added_later: Of the target, what came to its topic after the group subscribed to it.
        joins: How often it became a member: a commit of an earlier membership is void.
    """

    def __init__(
        self,
        group: str,
        instance_id: str = "",
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self.group = group
        self.instance_id = instance_id
        self._new_id = new_id
        self.state = MemberState.OUT
        self.member_id = ""
        self.epoch = 0
        self.joins = 0
        self.topics: list[str] = []
        self.pattern = ""
        self.owned: dict[TopicPartition, str] = {}
        self.target: dict[TopicPartition, str] | None = None
        self.added_later: frozenset[TopicPartition] = frozenset()
        self._lost: list[TopicPartition] = []
        self._telling = False

    @property
    def told_joins(self) -> int:
        """`joins` of the membership that the application reads in; 0: that one has ended.

        Until the application has let go of what it lost, the member may have joined again: what was
        read before is not the new membership's to commit.
        """
        ended = self._lost or self._telling or self.state is not MemberState.MEMBER
        return 0 if ended else self.joins

    def subscribe(self, topics: Iterable[str], pattern: str) -> None:
        """Asks for these topics from the next heartbeat on."""
        self.topics = sorted(set(topics))
        self.pattern = pattern
        if self.state in (MemberState.OUT, MemberState.FENCED):
            self._rejoin()

    def heartbeat(self) -> groups_pb2.HeartbeatRequest:
        """The next heartbeat; the caller adds the settings."""
        self.member_id = self.member_id or self._new_id()
        request = groups_pb2.HeartbeatRequest(
            group=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch if self.state is MemberState.MEMBER else 0,
            instance_id=self.instance_id,
            topics=self.topics,
            topic_pattern=self.pattern,
        )
        if self.state is MemberState.MEMBER:
            request.owned.extend(grouped(self.owned))
        return request

    def answered(self, answer: groups_pb2.HeartbeatResponse, joined: bool) -> bool:
        """Takes an answer in; True: there is something to do.

        Args:
            joined: The answer belongs to a heartbeat that joined.
        """
        if joined != (self.state is MemberState.JOINING) or self.state not in (
            MemberState.JOINING,
            MemberState.MEMBER,
        ):
            return False  # it left or was put out while the answer was on its way
        if answer.member_id != self.member_id:
            return False  # of who it was before it left
        if joined:
            self.joins += 1
            self.state = MemberState.MEMBER
        self.epoch = answer.member_epoch
        self.target = {
            TopicPartition(one.topic, partition): one.topic_id
            for one in answer.assignment
            for partition in one.partitions
        }
        self.added_later = frozenset(
            TopicPartition(one.topic, partition)
            for one in answer.added_later
            for partition in one.partitions
        )
        return self.has_plan()

    def put_out(self, error: MainstemError) -> None:
        """The coordinator does not know it, or another has its place."""
        self._lose_all()
        if error.code == "INSTANCE_FENCED":
            self.state = MemberState.FENCED
            return
        if error.code == "UNKNOWN_MEMBER":
            self.member_id = ""
        self._rejoin()

    def fall_asleep(self) -> None:
        """It left because the application does not poll."""
        self._lose_all()
        self.state = MemberState.ASLEEP
        self.member_id = ""

    def wake(self) -> bool:
        """The application polls again; True: it has to join."""
        if self.state is not MemberState.ASLEEP:
            return False
        self._rejoin()
        return True

    @property
    def may_be_known(self) -> bool:
        """The coordinator has it as a member, or will when a join arrives that is under way."""
        joins_or_is = self.state in (MemberState.JOINING, MemberState.MEMBER)
        return joins_or_is and bool(self.member_id)

    def leave(self) -> None:
        """It left for good; the application gave up everything."""
        self.state = MemberState.OUT
        self.member_id = ""
        self.epoch = 0
        self.owned.clear()
        self.target = None

    def has_plan(self) -> bool:
        """What it owns differs from what it may own."""
        return bool(self._lost) or (self.target is not None and self.target != self.owned)

    def plan(self) -> AssignmentPlan:
        """What to do now. What was lost is told first and once; see `told_lost`.

        Partitions are given up before new ones are taken: `added` is empty while `revoked` is not,
        so that the coordinator hears of the first before the second.
        """
        if self._lost:
            lost, self._lost = self._lost, []
            self._telling = True
            return AssignmentPlan(lost=lost)
        plan = AssignmentPlan()
        if self.target is None:
            return plan
        plan.revoked = [tp for tp, topic in self.owned.items() if self.target.get(tp) != topic]
        plan.replaced = frozenset(tp for tp in plan.revoked if tp in self.target)
        if not plan.revoked:
            plan.added = {tp: one for tp, one in self.target.items() if tp not in self.owned}
            plan.added_later = self.added_later & plan.added.keys()
            # Owned from here on: a heartbeat between now and the taking must not say otherwise, or
            # the coordinator could give away what is being taken.
            self.owned.update(plan.added)
        return plan

    def told_lost(self) -> None:
        """The application has let go of what the last plan said was lost."""
        self._telling = False

    def gave_up(self, partitions: Iterable[TopicPartition]) -> None:
        """They are not read any more."""
        for tp in partitions:
            self.owned.pop(tp, None)

    def _lose_all(self) -> None:
        self._lost += self.owned
        self.owned.clear()
        self.target = None
        self.epoch = 0

    def _rejoin(self) -> None:
        self.state = MemberState.JOINING
        self.epoch = 0


def grouped(partitions: dict[TopicPartition, str]) -> list[groups_pb2.TopicPartitions]:
    """Partitions by topic, as they are sent."""
    found: dict[tuple[str, str], list[int]] = {}
    for tp, topic_id in sorted(partitions.items(), key=lambda item: (item[0].topic, item[1])):
        found.setdefault((tp.topic, topic_id), []).append(tp.partition)
    return [
        groups_pb2.TopicPartitions(topic=topic, topic_id=topic_id, partitions=sorted(numbers))
        for (topic, topic_id), numbers in found.items()
    ]

"""One consumer group: its members, what they shall have, and what they may have now. Pure.

The model is KIP-848's, with one difference: a member's epoch changes with every change of what it
was told to own, given or taken. So a heartbeat with the current epoch is of a member that has seen
all that it was told, and what such a heartbeat no longer owns is really given up, whatever order
heartbeats arrive in.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from mainstem.consumers.assignors import ASSIGNORS, Partition, Subscriber, TopicInfo
from mainstem.errors import StaleMemberEpochError

EMPTY: Final = "EMPTY"
STABLE: Final = "STABLE"
RECONCILING: Final = "RECONCILING"

#: Partitions that a member is given in one answer, in some milliseconds.
GIVEN_AT_ONCE_MAX: Final = 20_000

#: Ids of static members that were replaced, so that each learns that it was.
_FENCED_MAX: Final = 1_000


@dataclass(slots=True)
class Member:
    """A member of a group.

    Attributes:
        peer: The address that its last heartbeat came from.
        epoch: Of the newest answer; `previous_epoch` of the one before, which a member still has
            whose answer was lost; `joined_epoch` of the first.
        assigned: What it was told to own.
        revoking: What it was told to give up, and has not reported to have given up.
        session_ends_ms, revoke_ends_ms: When it is evicted unless it is heard of, or gives up.
        away: A static member that left and will come back.
        watched_ms: For the coordinator: when it looks whether the session has ended.
        may_read: Which of the topics that its pattern fits it may have; None: all of them.
        wants: The names that its subscription means now.
        commit_sequence: Of its newest offset commit.
    """

    member_id: str
    instance_id: str = ""
    client_id: str = ""
    peer: str = ""
    rack: str = ""
    topics: frozenset[str] = frozenset()
    topic_pattern: str = ""
    assignor: str = "uniform"
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    epoch: int = 0
    previous_epoch: int = -1
    joined_epoch: int = 0
    assigned: set[Partition] = field(default_factory=set)
    revoking: set[Partition] = field(default_factory=set)
    session_ends_ms: int = 0
    revoke_ends_ms: int | None = None
    away: bool = False
    watched_ms: int | None = None
    may_read: Callable[[str], bool] | None = None
    wants: frozenset[str] = frozenset()
    commit_sequence: int = 0

    def renew(self, now_ms: int) -> None:
        self.session_ends_ms = now_ms + self.session_timeout_ms

    @property
    def ends_ms(self) -> int:
        """When it is evicted if nothing happens."""
        if self.revoke_ends_ms is None:
            return self.session_ends_ms
        return min(self.session_ends_ms, self.revoke_ends_ms)


@dataclass(frozen=True, slots=True)
class Retargeting:
    """A target that is to be computed, from what the group was at one moment. Any thread may.

    Attributes:
        version: Of the group at that moment.
        epoch: Of what the target gives anew.
    """

    version: int
    epoch: int
    assignor: str
    subscribers: Sequence[Subscriber]
    topics: Mapping[str, TopicInfo]

    @property
    def size(self) -> int:
        """Partitions that are looked at: a hundred of them take about a millisecond."""
        return sum(info.partition_count for info in self.topics.values()) + sum(
            len(one.owned) for one in self.subscribers
        )

    def target(self) -> dict[str, dict[Partition, int]] | None:
        """Member id → partition → the epoch in which it got it; None: it is as it was."""
        before = {one.member_id: one.owned for one in self.subscribers}
        made = ASSIGNORS[self.assignor](self.subscribers, self.topics)
        if all(set(owned) == before[one].keys() for one, owned in made.items()):
            return None
        return {
            member_id: {
                partition: before[member_id].get(partition, self.epoch) for partition in owned
            }
            for member_id, owned in made.items()
        }


class Group:
    """A group. `epoch` never goes back: start it above what was ever given.

    Attributes:
        wanted: The names that its members wanted at the last `retarget`.
    """

    def __init__(self, name: str, epoch: int = 0) -> None:
        self.name = name
        self.epoch = epoch
        self.members: dict[str, Member] = {}
        #: Member id → partition → the epoch in which the target gave it.
        self.target: dict[str, dict[Partition, int]] = {}
        self.rebalance_count = 0
        self.wanted: frozenset[str] = frozenset()
        #: Nobody is given anything yet; see `Coordinator.restore`.
        self.held = False
        #: A new target is being computed.
        self.targeting = False
        #: Counts what a target depends on.
        self._version = 0
        #: Whether a topic has more partitions than when the group subscribed to it.
        self._has_grown = False
        #: Who was told to own a partition and has not given it up.
        self._owners: dict[Partition, str] = {}
        self._instances: dict[str, str] = {}
        self._fenced: OrderedDict[str, None] = OrderedDict()
        #: Topic id → its name, and how many partitions it had when a member first wanted it.
        self._first_counts: dict[str, tuple[str, int]] = {}

    @property
    def state(self) -> str:
        if not self.members:
            return EMPTY
        settled = all(map(self.is_settled, self.members.values()))
        return STABLE if settled else RECONCILING

    @property
    def assignor(self) -> str:
        """What most members ask for; uniform where that is even."""
        votes = [member.assignor for member in self.members.values()]
        return max(ASSIGNORS, key=lambda name: (votes.count(name), name == "uniform"))

    def is_settled(self, member: Member) -> bool:
        """Whether the member has been told its target, and has given up the rest."""
        if member.away:
            return True
        return (
            not self.held
            and not self.targeting
            and not member.revoking
            and member.assigned == self.target[member.member_id].keys()
        )

    def is_fenced(self, member_id: str) -> bool:
        """Whether the member was replaced by another process with its instance id."""
        return member_id in self._fenced

    def holder_of(self, instance_id: str) -> Member | None:
        """The member that has the instance id."""
        member_id = self._instances.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def add(self, member: Member) -> None:
        self._version += 1
        self.members[member.member_id] = member
        self.target[member.member_id] = {}
        self._fenced.pop(member.member_id, None)
        if member.instance_id:
            self._instances[member.instance_id] = member.member_id
        self._tell(member)
        member.joined_epoch = member.epoch

    def replace(self, old: Member, new: Member) -> None:
        """Gives a static member's place to a process that came with its instance id.

        The old process is evicted: whatever it believes to own is the new one's at once.
        """
        self._version += 1
        for partition in old.revoking:
            del self._owners[partition]
        del self.members[old.member_id]
        target = self.target.pop(old.member_id)
        if not old.away and old.member_id != new.member_id:
            self._fenced[old.member_id] = None
            while len(self._fenced) > _FENCED_MAX:
                self._fenced.popitem(last=False)
        self.add(new)
        self.target[new.member_id] = target
        new.assigned = old.assigned
        new.wants = old.wants
        for partition in new.assigned:
            self._owners[partition] = new.member_id

    def remove(self, member: Member) -> None:
        """The member left or was evicted: what it had is free."""
        self._version += 1
        for partition in member.assigned | member.revoking:
            del self._owners[partition]
        del self.members[member.member_id]
        del self.target[member.member_id]
        if member.instance_id:
            del self._instances[member.instance_id]

    def owns(self, member: Member, topic: str, topic_id: str, partition: int) -> Partition | None:
        """The partition, if the member was told to own it and has not reported to have given it up.

        Args:
            topic_id: Empty: whichever topic of the name the member has.
        """
        if topic_id:
            found = Partition(topic, topic_id, partition)
            return found if self._owners.get(found) == member.member_id else None
        for found in (*member.assigned, *member.revoking):
            if (found.topic, found.partition) == (topic, partition):
                return found
        return None

    def added_later(self, partitions: Iterable[Partition]) -> frozenset[Partition]:
        """Those that came to their topic after the group had subscribed to it.

        It is remembered as long as the topic exists, also while no member wants it: one that was
        put out finds what came meanwhile. It is nowhere but here: a new coordinator begins with
        what the topic has when a member first joins again.
        """
        if not self._has_grown:
            return frozenset()
        counts = self._first_counts
        return frozenset(
            one
            for one in partitions
            if one.topic_id in counts and one.partition >= counts[one.topic_id][1]
        )

    def retarget(self, topics: Mapping[str, TopicInfo]) -> Retargeting | None:
        """What is to be computed for a new target, which `take_target` takes; None: nothing now.

        Args:
            topics: All that are known, of all groups: looked up by name.
        """
        self.wanted = frozenset().union(*(member.wants for member in self.members.values()))
        known = {name: topics[name] for name in sorted(self.wanted) if name in topics}
        self._first_counts = {
            topic_id: (name, count)
            for topic_id, (name, count) in self._first_counts.items()
            if name in topics and topics[name].topic_id == topic_id
        }
        for name, info in known.items():
            self._first_counts.setdefault(info.topic_id, (name, info.partition_count))
        self._has_grown = any(
            topics[name].partition_count > count for name, count in self._first_counts.values()
        )
        self._version += 1
        if self.held:
            return None
        subscribers = [
            Subscriber(
                member.member_id,
                member.instance_id or member.member_id,
                member.wants,
                self.target[member.member_id],
            )
            for member in self.members.values()
        ]
        return Retargeting(self._version, self.epoch + 1, self.assignor, subscribers, known)

    def begin_target(self, work: Retargeting) -> None:
        """The new target is computed meanwhile: nobody is settled, and its epoch is taken."""
        self.targeting = True
        self.epoch = max(self.epoch, work.epoch)

    def take_target(
        self, work: Retargeting, target: dict[str, dict[Partition, int]] | None
    ) -> bool:
        """Takes what `Retargeting.target` has computed; False: the group has changed since, and
        everything begins again with `retarget`. Only what changes gets the new epoch."""
        self.targeting = False
        if work.version != self._version:
            return False
        if target is not None:
            self.epoch = max(self.epoch, work.epoch)
            self.rebalance_count += 1
            self.target = target
            for member in self.members.values():
                if member.away:
                    self._shrink(member)
        return True

    def leave_place(self, member: Member) -> None:
        """A static member owns nothing now, and comes back: its target waits for it."""
        self.release(member, ())
        member.away = True
        self._shrink(member)

    def release(self, member: Member, owned: Collection[Partition]) -> None:
        """The member, which has seen its newest epoch, owns nothing but `owned` any more.

        Without a topic id it means whatever topic of the name it has.
        """
        gone = member.revoking.difference(owned)
        if gone and any(not one.topic_id for one in owned):
            gone = {one for one in gone if Partition(one.topic, "", one.partition) not in owned}
        member.revoking -= gone
        for one in gone:
            del self._owners[one]
        if not member.revoking:
            member.revoke_ends_ms = None

    def reconcile(self, member: Member, now_ms: int) -> None:
        """Brings what the member may own as near to its target as the others allow, by
        `GIVEN_AT_ONCE_MAX` partitions at most: it comes back soon for more."""
        if self.is_settled(member):
            return
        # Differences of sets and not loops: there may be a hundred thousand partitions.
        target = self.target[member.member_id].keys()
        drop = member.assigned - target
        free = (
            partition
            for partition in target - member.assigned
            if self._owners.get(partition, member.member_id) == member.member_id
        )
        add = set(islice(free, GIVEN_AT_ONCE_MAX))
        if not drop and not add:
            return
        member.assigned = (member.assigned - drop) | add
        member.revoking = (member.revoking | drop) - add
        for partition in add:
            self._owners[partition] = member.member_id
        if not member.revoking:
            member.revoke_ends_ms = None
        elif member.revoke_ends_ms is None or drop:
            member.revoke_ends_ms = now_ms + member.rebalance_timeout_ms
        self._tell(member)

    def tell_again(self, member: Member) -> None:
        """The member begins again with what it was told last."""
        self._tell(member)

    def _shrink(self, member: Member) -> None:
        """Frees what is reserved for a member that is away and that its target has lost."""
        for partition in member.assigned - self.target[member.member_id].keys():
            member.assigned.discard(partition)
            del self._owners[partition]

    def _tell(self, member: Member) -> None:
        """The next answer to the member differs from the last one: it gets an epoch of its own."""
        self.epoch += 1
        member.previous_epoch = member.epoch
        member.epoch = self.epoch


def stale_epoch(group: Group, member: Member, epoch: int) -> StaleMemberEpochError:
    """The error for a call that has an older epoch than the member's."""
    return StaleMemberEpochError(
        f"member {member.member_id} of group {group.name!r} has epoch {member.epoch}, not {epoch}",
        group=group.name,
        member_id=member.member_id,
        member_epoch=member.epoch,
        given_epoch=epoch,
    )


def partitions_by_topic(
    partitions: Iterable[Partition],
) -> dict[tuple[str, str], list[int]]:
    """(topic, topic id) → partitions, all sorted: as messages have them."""
    found: dict[tuple[str, str], list[int]] = {}
    for topic, topic_id, number in sorted(partitions):
        found.setdefault((topic, topic_id), []).append(number)
    return found

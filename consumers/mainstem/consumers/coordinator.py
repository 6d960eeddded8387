"""The coordinator of consumer groups: a pure state machine, with the clock given.

Heartbeats, leaves, the passing of time and changes of topics go in; answers come out. It does no
I/O: its caller makes `Group.epoch` durable before an answer leaves (see `OffsetsTable`), and
brings the topics in.
"""

from __future__ import annotations

import heapq
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from mainstem.consumers.assignors import Partition, TopicInfo
from mainstem.consumers.events import EVICTED, JOINED, LEFT, GroupEvents, eviction_reason
from mainstem.consumers.group import Group, Member, stale_epoch
from mainstem.consumers.heartbeat import (
    JOIN_EPOCH,
    Beat,
    Heartbeat,
    check_group_name,
    check_heartbeat,
    check_member_id,
)
from mainstem.consumers.known_topics import KnownTopics
from mainstem.consumers.targets import Compute, Targets, compute_at_once
from mainstem.errors import (
    GroupFullError,
    GroupNotEmptyError,
    InstanceFencedError,
    NotAssignedError,
    StaleCommitError,
    UnknownMemberError,
)

#: An offset commit from outside the group has this epoch.
NO_MEMBER_EPOCH: Final = -1

#: Topics that do not exist of which one answer speaks.
_MISSING_MAX: Final = 100

#: Ids of members that left which are remembered, so that a join which was overtaken by its leave
#: makes no member. That is a matter of seconds.
_LEFT_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class CoordinatorRules:
    """Bounds and defaults; see the gateway's settings `group.*`."""

    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    members_max: int = 1_000
    groups_max: int = 10_000


class Coordinator:
    """All groups of one gateway. Not thread-safe: one event loop.

    Attributes:
        events: What happened to members.

    Args:
        clock_ms: Monotonic.
        new_member_id: Makes ids that were never given before, for clients that make none.
        has_offsets: Whether anything is kept of a group. One without members of which nothing is
            makes room for another when there are `groups_max`.
        compute: Does what takes long; see `Targets`.
    """

    def __init__(
        self,
        rules: CoordinatorRules,
        clock_ms: Callable[[], int],
        new_member_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        has_offsets: Callable[[str], bool] = lambda _: False,
        compute: Compute = compute_at_once,
    ) -> None:
        self._rules = rules
        self._clock_ms = clock_ms
        self._new_member_id = new_member_id
        self._has_offsets = has_offsets
        self._groups: dict[str, Group] = {}
        self._topics = KnownTopics()
        self.events = GroupEvents()
        self._targets = Targets(self._topics, compute, self.events.rebalanced)
        #: (when it may be evicted, group, member); may be early, never late.
        self._ends: list[tuple[int, str, str]] = []
        #: Groups whose members wait, and until when; and the same, the soonest first.
        self._held: dict[str, int] = {}
        self._hold_ends: list[tuple[int, str]] = []
        #: Groups with a member that has a pattern; some of them had one only before.
        self._patterned: dict[str, None] = {}
        #: Groups that have got their first member or lost their last since `take_changed`.
        self._changed: dict[str, None] = {}
        #: Groups without members, since `empty_since_ms`: who is empty for longest comes first.
        self._empty: dict[str, int] = {}
        #: Groups that made room, since `take_dropped`.
        self._dropped: list[str] = []
        #: (group, member) that left, the latest last.
        self._left: OrderedDict[tuple[str, str], None] = OrderedDict()

    # -- what members ask for ----------------------------------------------------------------------

    def heartbeat(self, beat: Heartbeat) -> Beat:
        """Joins, renews, and answers what the member may own.

        A join with the id of a member is that member's, whose answer was lost. A client that makes
        its id itself, a UUID, so leaves nothing behind when the answer to its first join is lost.

        Raises:
            UnknownMemberError: It left, was evicted or never joined: join with epoch 0 and a new
                id, owning nothing.
            StaleMemberEpochError: The same, for an epoch that is older than the last but one.
            InstanceFencedError: Another process has its instance id.
            GroupFullError, InvalidConfigError: The join, or what it asks for, is refused.
        """
        self.tick()
        check_heartbeat(beat)
        now_ms = self._clock_ms()
        if beat.member_epoch == JOIN_EPOCH:
            if (beat.group, beat.member_id) in self._left:
                raise UnknownMemberError(
                    f"member {beat.member_id} has left group {beat.group!r}; "
                    "join with a new member id",
                    group=beat.group,
                    member_id=beat.member_id,
                )
            group = self._groups.get(beat.group) or self._new_group(beat.group)
            member = self._join(group, beat)
        else:
            group, member = self._find(beat.group, beat.member_id, beat.instance_id)
            if beat.member_epoch not in (member.epoch, member.previous_epoch):
                raise stale_epoch(group, member, beat.member_epoch)
        self._subscribe(group, member, beat)
        member.renew(now_ms)
        # Anything but the newest epoch has not seen what it was told last: it is told again, and
        # what it does not list it may be about to take.
        if beat.member_epoch == member.epoch:
            group.release(member, beat.owned)
            group.reconcile(member, now_ms)
        elif member.epoch == member.joined_epoch:
            group.reconcile(member, now_ms)
        self._watch(group, member)
        return Beat(
            member.member_id,
            member.epoch,
            frozenset(member.assigned),
            group.added_later(member.assigned),
            group.is_settled(member),
            self._topics.missing(member.topics, _MISSING_MAX),
        )

    def leave(
        self,
        group_name: str,
        member_id: str,
        instance_id: str = "",
        member_epoch: int = JOIN_EPOCH,
        *,
        keep_place: bool = False,
    ) -> None:
        """The member owns nothing any more, and its id is used up: a join that was sent before
        and comes later is refused.

        Args:
            member_epoch: 0: whatever it is.
            keep_place: What it had waits, if it is a static member, until its session ends.

        Raises:
            UnknownMemberError, InstanceFencedError: There is nothing to leave.
            StaleMemberEpochError: It joined again since this was sent.
        """
        self.tick()
        check_group_name(group_name)
        check_member_id(member_id)
        if member_epoch == JOIN_EPOCH and member_id:
            self._note_left(group_name, member_id)  # also if its join has not come yet
        group, member = self._find(group_name, member_id, instance_id)
        if member_epoch != JOIN_EPOCH and not (member.joined_epoch <= member_epoch <= member.epoch):
            raise stale_epoch(group, member, member_epoch)
        self._note_left(group_name, member_id)
        if keep_place and member.instance_id:
            group.leave_place(member)
            member.renew(self._clock_ms())
            self._watch(group, member)
            self.events.member(LEFT, group, member, "it will come back: its place waits")
        else:
            self._remove(group, member, LEFT, "it said so")

    def check_commit(
        self, group_name: str, member_id: str, member_epoch: int, sequence: int = 0
    ) -> None:
        """Whether offsets may be committed; notes the sequence. For each partition: `committable`.

        Args:
            sequence: From 1, the same when a commit is sent again; 0: not numbered.

        Raises:
            GroupNotEmptyError: From outside, while the group has members.
            UnknownMemberError, StaleMemberEpochError, InstanceFencedError: Not, or not any more, a
                member with this epoch. Nothing may be stored.
            StaleCommitError: The member has made a later commit: this one was held up on its way.
        """
        self.tick()
        check_group_name(group_name)
        if not member_id:
            if member_epoch != NO_MEMBER_EPOCH:
                raise UnknownMemberError(
                    f"an offset commit to group {group_name!r} has epoch {member_epoch} and no "
                    "member; from outside the group the epoch is -1",
                    group=group_name,
                )
            self.check_empty(group_name)
            return
        group, member = self._find(group_name, member_id)
        if member_epoch != member.epoch:
            raise stale_epoch(group, member, member_epoch)
        if not sequence:
            return
        if sequence < member.commit_sequence:
            raise StaleCommitError(
                f"commit {sequence} of member {member_id} of group {group_name!r} came after its "
                f"commit {member.commit_sequence}, and was not stored",
                group=group_name,
                member_id=member_id,
                sequence=sequence,
                newest_sequence=member.commit_sequence,
            )
        member.commit_sequence = sequence

    def committable(
        self, group_name: str, member_id: str, topic: str, topic_id: str, partition: int
    ) -> Partition:
        """The partition whose offset the member may commit.

        Raises:
            NotAssignedError: The member does not own it.
        """
        group, member = self._find(group_name, member_id)
        found = group.owns(member, topic, topic_id, partition)
        if found is None:
            raise NotAssignedError(
                f"member {member_id} of group {group_name!r} does not own partition {partition} of "
                f"topic {topic!r}; its offset was not stored",
                group=group_name,
                member_id=member_id,
                topic=topic,
                partition=partition,
            )
        return found

    def check_empty(self, group_name: str) -> None:
        """Raises GroupNotEmptyError if the group has members."""
        self.tick()
        group = self._groups.get(group_name)
        if group is not None and group.members:
            raise GroupNotEmptyError(
                f"group {group_name!r} has {len(group.members)} members; stop them first",
                group=group_name,
                member_count=len(group.members),
            )

    # -- what happens to groups --------------------------------------------------------------------

    def restore(self, group_name: str, epoch: int, hold_ms: int = 0) -> None:
        """Makes an empty group whose epochs begin above `epoch`; see also `Group.added_later`.

        Args:
            hold_ms: For so long nobody is given anything: members of a coordinator before this one
                still read what they had, until they hear that they are unknown here.
        """
        if group_name not in self._groups:
            group = self._groups[group_name] = Group(group_name, epoch)
            self._empty[group_name] = self._clock_ms()
            if hold_ms:
                group.held = True
                self._held[group_name] = until_ms = self._clock_ms() + hold_ms
                heapq.heappush(self._hold_ends, (until_ms, group_name))

    def forget(self, group_name: str) -> None:
        """Drops an empty group."""
        group = self._groups.get(group_name)
        if group is not None and not group.members:
            del self._groups[group_name]
            self._empty.pop(group_name, None)
            self._held.pop(group_name, None)
            self._changed.pop(group_name, None)

    def tick(self) -> None:
        """Evicts who was silent, or did not give up what it was told to, for too long."""
        now_ms = self._clock_ms()
        while self._hold_ends and self._hold_ends[0][0] <= now_ms:
            until_ms, name = heapq.heappop(self._hold_ends)
            if self._held.get(name) == until_ms:  # else it is forgotten
                del self._held[name]
                self._groups[name].held = False
                self._targets.renew(self._groups[name])
        while self._ends and self._ends[0][0] <= now_ms:
            at_ms, group_name, member_id = heapq.heappop(self._ends)
            group = self._groups.get(group_name)
            member = None if group is None else group.members.get(member_id)
            if group is None or member is None or member.watched_ms != at_ms:
                continue  # gone, or looked at earlier
            member.watched_ms = None
            if member.ends_ms <= now_ms:
                self._remove(group, member, EVICTED, eviction_reason(member, now_ms))
            else:
                self._watch(group, member)

    def set_topics(self, changes: Mapping[str, TopicInfo | None]) -> None:
        """Takes what is known of topics; None: there is no such topic (any more)."""
        different = self._topics.update(changes)
        if not different:
            return
        # A pattern may fit a topic that it did not fit before, a name means what it meant.
        for name in {**self._targets.wanting(different), **self._patterned}:
            group = self._groups.get(name)
            if group is None or not any(one.topic_pattern for one in group.members.values()):
                self._patterned.pop(name, None)
            if group is None:
                continue
            touched = False
            for member in group.members.values():
                wants = self._topics.wanted_by(member)
                touched = touched or not (
                    different.isdisjoint(wants) and different.isdisjoint(member.wants)
                )
                member.wants = wants
            if touched:
                self._targets.renew(group)

    # -- what is there -----------------------------------------------------------------------------

    @property
    def groups(self) -> Mapping[str, Group]:
        return self._groups

    @property
    def member_count(self) -> int:
        return sum(len(group.members) for group in self._groups.values())

    def topic_names(self) -> set[str]:
        """Every topic that a member wants by name, existing or not."""
        found: set[str] = set()
        for group in self._groups.values():
            for member in group.members.values():
                found |= member.topics
        return found

    @property
    def known_topics(self) -> Mapping[str, TopicInfo]:
        """What `set_topics` has said."""
        return self._topics.infos

    @property
    def has_patterns(self) -> bool:
        return any(
            member.topic_pattern
            for group in self._groups.values()
            for member in group.members.values()
        )

    def take_changed(self) -> list[str]:
        """Groups that have got their first member, or lost their last, since the last call."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def take_dropped(self) -> list[str]:
        """Groups without members or offsets that made room for others since the last call."""
        dropped, self._dropped = self._dropped, []
        return [name for name in dropped if name not in self._groups]

    def empty_for_ms(self, group_name: str) -> int | None:
        """For how long the group has had no member; None: it has some, or is not known."""
        since_ms = self._empty.get(group_name)
        return None if since_ms is None else self._clock_ms() - since_ms

    # -- helpers -----------------------------------------------------------------------------------

    def _new_group(self, name: str) -> Group:
        if len(self._groups) >= self._rules.groups_max and not self._made_room():
            raise GroupFullError(
                f"there are {len(self._groups)} groups with members or committed offsets, as many "
                f"as group.max.count allows, so that {name!r} cannot be one more: delete groups "
                "that are not needed, or raise it",
                group=name,
                limit_groups=self._rules.groups_max,
            )
        group = self._groups[name] = Group(name)
        self._empty[name] = self._clock_ms()
        return group

    def _made_room(self) -> bool:
        """Drops the group that has been without members for longest and has no offsets."""
        for name in self._empty:
            # Members of one that is held are about to come back.
            if name not in self._held and not self._has_offsets(name):
                self.forget(name)
                self._dropped.append(name)
                return True
        return False

    def _note_left(self, group_name: str, member_id: str) -> None:
        self._left[group_name, member_id] = None
        while len(self._left) > _LEFT_MAX:
            self._left.popitem(last=False)

    def _join(self, group: Group, beat: Heartbeat) -> Member:
        known = group.members.get(beat.member_id) if beat.member_id else None
        holder = group.holder_of(beat.instance_id) if beat.instance_id else None
        if known is not None and known.instance_id == beat.instance_id and not known.away:
            # It lost the answer to its join, or its place in the sequence of epochs. It is told
            # again what it has: a join that arrives late must not free anything. With a new epoch:
            # a commit from before, which arrives late, is not one of what it reads from now on.
            group.tell_again(known)
            self.events.member(JOINED, group, known, "again: it did not hear the answer")
            return known
        if known is not None and known is not holder:
            raise UnknownMemberError(
                f"member {beat.member_id} of group {group.name!r} has another instance id; "
                "join with a new member id",
                group=group.name,
                member_id=beat.member_id,
            )
        if holder is None and len(group.members) >= self._rules.members_max:
            raise GroupFullError(
                f"group {group.name!r} has {len(group.members)} members, its limit",
                group=group.name,
                limit_members=self._rules.members_max,
            )
        member = Member(
            beat.member_id or self._new_member_id(),
            beat.instance_id,
            session_timeout_ms=self._rules.session_timeout_ms,
            rebalance_timeout_ms=self._rules.rebalance_timeout_ms,
        )
        if holder is not None:
            group.replace(holder, member)
            reason = f"with the instance id of {holder.member_id}"
            member.topics, member.topic_pattern = holder.topics, holder.topic_pattern
            member.assignor = holder.assignor
        else:
            if not group.members:
                self._changed[group.name] = None
                self._empty.pop(group.name, None)
            group.add(member)
            reason = "new"
        member.client_id, member.peer = beat.client_id, beat.peer
        self.events.member(JOINED, group, member, reason)
        return member

    def _subscribe(self, group: Group, member: Member, beat: Heartbeat) -> None:
        """Takes what the member says of itself; a new target if that changes what it wants."""
        changed = beat.assignor not in ("", member.assignor)
        member.client_id = beat.client_id or member.client_id
        member.peer = beat.peer or member.peer
        member.rack = beat.rack or member.rack
        member.assignor = beat.assignor or member.assignor
        member.may_read = beat.may_read
        member.session_timeout_ms = beat.session_timeout_ms or member.session_timeout_ms
        member.rebalance_timeout_ms = beat.rebalance_timeout_ms or member.rebalance_timeout_ms
        if beat.topics or beat.topic_pattern:
            member.topics, member.topic_pattern = beat.topics, beat.topic_pattern
        if member.topic_pattern:
            self._patterned[group.name] = None
        wants = self._topics.wanted_by(member)
        if changed or wants != member.wants:
            member.wants = wants
            self._targets.renew(group)

    def _find(self, group_name: str, member_id: str, instance_id: str = "") -> tuple[Group, Member]:
        group = self._groups.get(group_name)
        member = None if group is None else group.members.get(member_id)
        if group is not None and member is None:
            holder = group.holder_of(instance_id) if instance_id else None
            if group.is_fenced(member_id) or holder is not None:
                raise InstanceFencedError(
                    f"another process has joined group {group_name!r} with the instance id of "
                    f"member {member_id}; stop this one, or give it another group.instance.id",
                    group=group_name,
                    member_id=member_id,
                    instance_id=instance_id,
                )
        if group is None or member is None or member.away:
            raise UnknownMemberError(
                f"group {group_name!r} has no member {member_id!r}; join again with epoch 0",
                group=group_name,
                member_id=member_id,
            )
        return group, member

    def _remove(self, group: Group, member: Member, kind: str, reason: str) -> None:
        group.remove(member)
        self.events.member(kind, group, member, reason)
        self._targets.renew(group)
        if not group.members:
            self._changed[group.name] = None
            self._empty[group.name] = self._clock_ms()

    def _watch(self, group: Group, member: Member) -> None:
        """Looks at the member when its session may end: one entry, however often it beats."""
        if member.watched_ms is None or member.ends_ms < member.watched_ms:
            member.watched_ms = member.ends_ms
            heapq.heappush(self._ends, (member.ends_ms, group.name, member.member_id))

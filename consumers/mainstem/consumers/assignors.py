"""Who reads which partition: pure functions from subscriptions to a target assignment.

`uniform` keeps what members have and moves as little as balance asks for; `range` gives each member
neighbouring partitions of every topic, whatever it had before.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple


class Partition(NamedTuple):
    """A partition of one topic of that name: a topic that is created again has another id."""

    topic: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """What a coordinator has to know of a topic."""

    topic_id: str
    partition_count: int


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as an assignor sees it.

    Attributes:
        member_id: Unique in the group.
        sort_key: Orders members; the same again when a static member comes back.
        topics: The names that it wants.
        owned: The target that it has, each partition with the epoch in which it got it.
    """

    member_id: str
    sort_key: str
    topics: frozenset[str]
    owned: Mapping[Partition, int]


#: For each member id its partitions.
Assignment = dict[str, list[Partition]]
Assignor = Callable[[Sequence[Subscriber], Mapping[str, TopicInfo]], Assignment]


def assign_uniform(members: Sequence[Subscriber], topics: Mapping[str, TopicInfo]) -> Assignment:
    """As many partitions for each member as for every other, within one, and few moves.

    Balance counts partitions over all topics together. Where members want different topics, it goes
    as far as moves of one partition from one member to another lead. What a member got last it
    loses first: a member that was away a moment gets back what the others took over, and nothing
    else moves.
    """
    work = _Work(members)
    wanted = {name for member in members for name in member.topics}
    everything = {
        Partition(name, info.topic_id, number)
        for name, info in topics.items()
        if name in wanted
        for number in range(info.partition_count)
    }
    for member in members:
        # Oldest first: the end of the list goes first.
        for partition, epoch in sorted(member.owned.items(), key=lambda one: (one[1], one[0])):
            if partition in everything and partition.topic in member.topics:
                everything.discard(partition)
                work.give(member.member_id, partition, epoch)
    work.hand_out(sorted(everything))
    work.balance()
    return work.lists()


def assign_range(members: Sequence[Subscriber], topics: Mapping[str, TopicInfo]) -> Assignment:
    """For each topic neighbouring partitions for each of its members, in the order of members.

    The first members get one more where it does not divide. Two topics with the same number of
    partitions and the same members are cut at the same places, so that joins find both sides.
    """
    found: Assignment = {member.member_id: [] for member in members}
    ordered = sorted(members, key=lambda member: (member.sort_key, member.member_id))
    for name, info in sorted(topics.items()):
        readers = [member for member in ordered if name in member.topics]
        start = 0
        for index, member in enumerate(readers):
            share, more = divmod(info.partition_count, len(readers))
            end = start + share + (1 if index < more else 0)
            found[member.member_id] += [
                Partition(name, info.topic_id, number) for number in range(start, end)
            ]
            start = end
    return found


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}

#: The epoch of what is handed out now: newer than all that members have.
_NOW: Final = 2**62


class _Work:
    """An assignment that is being made: each member's partitions, oldest first."""

    def __init__(self, members: Sequence[Subscriber]) -> None:
        self._members = members
        self._lists: dict[str, list[tuple[int, Partition]]] = {
            member.member_id: [] for member in members
        }

    def give(self, member_id: str, partition: Partition, epoch: int = _NOW) -> None:
        self._lists[member_id].append((epoch, partition))

    def lists(self) -> Assignment:
        return {
            member_id: [partition for _, partition in owned]
            for member_id, owned in self._lists.items()
        }

    def hand_out(self, partitions: Collection[Partition]) -> None:
        """Gives each partition to the member that has least, of those that want it."""
        heaps: dict[frozenset[int], list[tuple[int, int]]] = {}
        readers: dict[str, frozenset[int]] = {}
        counts: dict[str, int] = {}
        for partition in partitions:
            counts[partition.topic] = counts.get(partition.topic, 0) + 1
        for topic in counts:
            readers[topic] = frozenset(
                index for index, member in enumerate(self._members) if topic in member.topics
            )
        # First what few want: what all want can still even things out.
        for partition in sorted(partitions, key=lambda one: (len(readers[one.topic]), one)):
            who = readers[partition.topic]
            if not who:
                continue
            heap = heaps.get(who)
            if heap is None:
                heap = heaps[who] = [(self._load(index), index) for index in who]
                heapq.heapify(heap)
            while True:
                load, index = heap[0]
                current = self._load(index)
                if load == current:
                    break
                heapq.heapreplace(heap, (current, index))  # it got something through another heap
            self.give(self._members[index].member_id, partition)
            heapq.heapreplace(heap, (load + 1, index))

    def balance(self) -> None:
        """Moves partitions one by one from who has more to who has less by two or more."""
        # Each move makes the sum of the squares smaller, so this ends; the bound is for faults.
        for _ in range(sum(len(owned) for owned in self._lists.values()) * 2):
            if not self._members or not self._move_one():
                return

    def _move_one(self) -> bool:
        by_load = sorted(range(len(self._members)), key=lambda index: (self._load(index), index))
        most = self._load(by_load[-1])
        in_vain: set[frozenset[str]] = set()
        for poor in by_load:
            wants = self._members[poor].topics
            if self._load(poor) + 2 > most:
                return False
            if wants in in_vain:
                continue  # one with as little or less wanted the same, and there was nothing
            # Of those that have equally much, the one that got something last: it took it over from
            # somebody, and the others have what they always had.
            rich = sorted(
                (index for index in by_load if self._load(index) >= self._load(poor) + 2),
                key=lambda index: (self._load(index), self._newest(index)),
                reverse=True,
            )
            for index in rich:
                owned = self._lists[self._members[index].member_id]
                for position in range(len(owned) - 1, -1, -1):
                    partition = owned[position][1]
                    if partition.topic in wants:
                        del owned[position]
                        self.give(self._members[poor].member_id, partition)
                        return True
            in_vain.add(wants)
        return False

    def _load(self, index: int) -> int:
        return len(self._lists[self._members[index].member_id])

    def _newest(self, index: int) -> int:
        owned = self._lists[self._members[index].member_id]
        return owned[-1][0] if owned else 0

"""The coordinator against members that do what they like: joins, deaths, lost and late messages."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from tests.length import FULL

from mainstem.consumers import (
    Beat,
    Coordinator,
    CoordinatorRules,
    Heartbeat,
    Partition,
    TopicInfo,
)
from mainstem.errors import (
    InstanceFencedError,
    NotAssignedError,
    StaleMemberEpochError,
    UnknownMemberError,
)

SESSION_MS = 10_000
REBALANCE_MS = 30_000
TOPICS = ("a", "b", "c")

subscriptions = st.sampled_from(
    [frozenset({"a"}), frozenset({"b"}), frozenset({"a", "b"}), frozenset(TOPICS)]
)


@dataclass
class Process:
    """A member as it sees itself.

    Attributes:
        owned: What it was told, less what it gave up; `told` is what it may still take.
        answers: That are on their way to it, the oldest first.
        late: Heartbeats of its that the network still has.
    """

    member_id: str
    topics: frozenset[str]
    instance_id: str
    epoch: int = 0
    owned: set[Partition] = field(default_factory=set)
    told: frozenset[Partition] = frozenset()
    late: list[Heartbeat] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)

    def beat(self) -> Heartbeat:
        return Heartbeat(
            "g",
            self.member_id,
            self.epoch,
            self.instance_id,
            topics=self.topics,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            owned=frozenset(self.owned),
        )

    def hear(self, answer: Beat) -> None:
        """Takes an answer: what is not in it must go, what is may be taken from now on."""
        self.epochs.append(answer.member_epoch)
        self.epoch = answer.member_epoch
        self.told = answer.assignment

    @property
    def holds(self) -> set[Partition]:
        """Everything that it may be reading, or may begin to read without asking again."""
        return self.owned | set(self.told)


class Groups(RuleBasedStateMachine):
    """Time is given; messages are lost or arrive late; members take and give up when they like."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.numbers = itertools.count()
        self.coordinator = Coordinator(
            CoordinatorRules(), lambda: self.now_ms, lambda: f"new-{next(self.numbers)}"
        )
        self.alive: dict[str, Process] = {}
        self.left: list[Process] = []
        #: Every epoch that was ever answered, and to whom; dead or alive.
        self.answered: dict[int, str] = {}
        self.topics: dict[str, TopicInfo] = {}

    @initialize(counts=st.tuples(*[st.integers(0, 7)] * 3))
    def begin(self, counts: tuple[int, int, int]) -> None:
        for name, count in zip(TOPICS, counts, strict=True):
            if count:
                self.topics[name] = TopicInfo(f"{name}-0", count)
        self.coordinator.set_topics(self.topics)

    def members(self) -> st.SearchStrategy[Process]:
        return st.sampled_from(sorted(self.alive.values(), key=lambda one: one.member_id))

    @rule(topics=subscriptions, instance=st.sampled_from(["", "", "", "i1", "i2"]))
    def join(self, topics: frozenset[str], instance: str) -> None:
        if len(self.alive) > 7:
            return
        process = Process(f"m-{next(self.numbers)}", topics, instance)
        # The member that had the instance id is evicted by this, wherever it is.
        self.alive = {
            name: one
            for name, one in self.alive.items()
            if not instance or one.instance_id != instance
        }
        self.alive[process.member_id] = process
        self.send(process)

    def ask(self, beat: Heartbeat) -> Beat:
        answer = self.coordinator.heartbeat(beat)
        known = self.answered.setdefault(answer.member_epoch, answer.member_id)
        assert known == answer.member_id, "two members have one epoch"
        return answer

    def send(self, process: Process, *, lose_answer: bool = False) -> None:
        beat = process.beat()
        process.late = [*process.late[-3:], beat]
        try:
            answer = self.ask(beat)
        except UnknownMemberError:
            # Evicted: it gives everything up, as it must have done by its own clock.
            del self.alive[process.member_id]
            return
        except StaleMemberEpochError:
            # Left behind by copies of its own joins: it begins again, with nothing.
            process.epoch, process.owned, process.told = 0, set(), frozenset()
            return
        if not lose_answer:
            process.hear(answer)

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), lose_answer=st.booleans())
    def heartbeat(self, data: st.DataObject, lose_answer: bool) -> None:
        self.send(data.draw(self.members()), lose_answer=lose_answer)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def late_heartbeat(self, data: st.DataObject) -> None:
        """A copy of an earlier heartbeat arrives; nobody waits for its answer."""
        process = data.draw(self.members())
        if process.late:
            try:
                self.ask(data.draw(st.sampled_from(process.late)))
            except (StaleMemberEpochError, InstanceFencedError):
                pass
            except UnknownMemberError:
                del self.alive[process.member_id]

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def take_and_give_up(self, data: st.DataObject) -> None:
        process = data.draw(self.members())
        process.owned = set(process.told)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def give_up_only(self, data: st.DataObject) -> None:
        """The partitions that must go went; the new ones were not begun yet."""
        process = data.draw(self.members())
        process.owned &= process.told

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), keep_place=st.booleans())
    def leave(self, data: st.DataObject, keep_place: bool) -> None:
        process = data.draw(self.members())
        del self.alive[process.member_id]
        self.left.append(process)
        with contextlib.suppress(UnknownMemberError):
            self.coordinator.leave("g", process.member_id, "", process.epoch, keep_place=keep_place)

    @rule(topics=subscriptions)
    def leave_before_the_join_arrives(self, topics: frozenset[str]) -> None:
        process = Process(f"m-{next(self.numbers)}", topics, "")
        process.late.append(process.beat())
        self.left.append(process)
        with contextlib.suppress(UnknownMemberError):
            self.coordinator.leave("g", process.member_id)

    @precondition(lambda self: any(process.late for process in self.left))
    @rule(data=st.data())
    def late_heartbeat_of_one_that_left(self, data: st.DataObject) -> None:
        process = data.draw(st.sampled_from([one for one in self.left if one.late]))
        try:
            self.coordinator.heartbeat(data.draw(st.sampled_from(process.late)))
        except (UnknownMemberError, InstanceFencedError):
            return
        raise AssertionError("one that left is a member again")

    @rule(ms=st.integers(1, SESSION_MS))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.coordinator.tick()
        group = self.coordinator.groups.get("g")
        members = {} if group is None else group.members
        # By its own clock each member knows that its session ended.
        self.alive = {name: one for name, one in self.alive.items() if name in members}

    @rule(name=st.sampled_from(TOPICS), more=st.integers(1, 4))
    def add_partitions(self, name: str, more: int) -> None:
        if name in self.topics:
            old = self.topics[name]
            self.topics[name] = TopicInfo(old.topic_id, old.partition_count + more)
            self.coordinator.set_topics({name: self.topics[name]})

    @rule(name=st.sampled_from(TOPICS), count=st.integers(0, 6))
    def delete_or_recreate(self, name: str, count: int) -> None:
        self.topics.pop(name, None)
        if count:
            self.topics[name] = TopicInfo(f"{name}-{next(self.numbers)}", count)
        self.coordinator.set_topics({name: self.topics.get(name)})

    @invariant()
    def no_partition_is_held_twice(self) -> None:
        held: dict[Partition, str] = {}
        for process in self.alive.values():
            for partition in process.holds:
                assert partition not in held, (
                    f"{process.member_id} and {held[partition]} hold {partition}"
                )
                held[partition] = process.member_id

    @invariant()
    def one_member_with_one_epoch_may_commit_a_partition(self) -> None:
        """Of all who were ever told anything: late commits of the dead, and of other epochs too."""
        places = [
            (name, info.topic_id, number)
            for name, info in self.topics.items()
            for number in range(info.partition_count)
        ]
        allowed: dict[Partition, tuple[str, int]] = {}
        for epoch, member_id in self.answered.items():
            try:
                self.coordinator.check_commit("g", member_id, epoch)
            except (InstanceFencedError, StaleMemberEpochError, UnknownMemberError):
                continue
            for place in places:
                with contextlib.suppress(NotAssignedError):
                    partition = self.coordinator.committable("g", member_id, *place)
                    assert partition not in allowed, f"{member_id} {epoch} {allowed[partition]}"
                    allowed[partition] = member_id, epoch

    @invariant()
    def epochs_never_go_back(self) -> None:
        for process in self.alive.values():
            assert process.epochs == sorted(process.epochs)

    def teardown(self) -> None:
        """Left alone, the group becomes stable, complete and balanced."""
        for _ in range(4):
            for process in list(self.alive.values()):
                self.send(process)
                process.owned = set(process.told)
        # A member that is away or dead for the group alone ends now.
        for _ in range(3):
            self.now_ms += SESSION_MS // 2
            self.coordinator.tick()
            for process in list(self.alive.values()):
                self.send(process)
                process.owned = set(process.told)
        for _ in range(3):
            for process in list(self.alive.values()):
                self.send(process)
                process.owned = set(process.told)
        wanted = set().union(*(one.topics for one in self.alive.values()))
        everything = {
            Partition(name, info.topic_id, number)
            for name, info in self.topics.items()
            if name in wanted
            for number in range(info.partition_count)
        }
        assert set().union(*(one.owned for one in self.alive.values())) == everything
        group = self.coordinator.groups.get("g")
        if group is not None:
            assert group.state == ("STABLE" if self.alive else "EMPTY")
        if len({one.topics for one in self.alive.values()}) == 1:
            loads = [len(one.owned) for one in self.alive.values()]
            assert max(loads) - min(loads) <= 1


TestGroups = Groups.TestCase
TestGroups.settings = settings(
    max_examples=60 if FULL else 30, stateful_step_count=40, deadline=None
)

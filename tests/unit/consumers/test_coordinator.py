"""The coordinator, one promise at a time."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from mainstem.consumers import (
    Beat,
    Coordinator,
    CoordinatorRules,
    Heartbeat,
    Partition,
    TopicInfo,
)
from mainstem.errors import (
    GroupFullError,
    GroupNotEmptyError,
    InstanceFencedError,
    InvalidConfigError,
    MainstemError,
    NotAssignedError,
    StaleCommitError,
    StaleMemberEpochError,
    UnknownMemberError,
)


class World:
    """A coordinator with a clock, and members that do as they are told."""

    def __init__(self, partition_count: int = 6, **rules: int) -> None:
        self.now_ms = 0
        numbers = itertools.count()
        #: Groups with offsets.
        self.kept: set[str] = set()
        self.coordinator = Coordinator(
            CoordinatorRules(**rules),
            lambda: self.now_ms,
            lambda: f"m{next(numbers)}",
            lambda name: name in self.kept,
        )
        self.members: dict[str, Obedient] = {}
        self.moves: dict[Partition, int] = {}
        self._last: dict[Partition, str] = {}
        self.topic("t", partition_count)

    def topic(self, name: str, partition_count: int, topic_id: str = "") -> None:
        self.coordinator.set_topics({name: TopicInfo(topic_id or f"id-{name}", partition_count)})

    def join(self, name: str, **asked: Any) -> Obedient:
        member = self.members[name] = Obedient(self, asked)
        member.beat()
        return member

    def settle(self, rounds: int = 3) -> None:
        for _ in range(rounds):
            for member in self.members.values():
                member.beat()
        for member in self.members.values():
            for partition in member.owned:
                role = member.asked.get("instance_id") or member.member_id
                if self._last.get(partition, role) != role:
                    self.moves[partition] = self.moves.get(partition, 0) + 1
                self._last[partition] = role

    def loads(self) -> list[int]:
        return sorted(len(member.owned) for member in self.members.values())


class Obedient:
    """A member that takes and gives up at once what it is told to."""

    def __init__(self, world: World, asked: dict[str, Any]) -> None:
        self.world = world
        self.asked = asked
        self.member_id = ""
        self.epoch = 0
        self.owned: frozenset[Partition] = frozenset()

    def heartbeat(self, **changes: Any) -> Heartbeat:
        facts: dict[str, Any] = {
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "topics": frozenset({"t"}),
            "owned": self.owned,
        }
        if "topic_pattern" in self.asked:
            facts["topics"] = frozenset()
        return Heartbeat(**{"group": "g", **facts, **self.asked, **changes})

    def beat(self, **changes: Any) -> Beat:
        answer = self.world.coordinator.heartbeat(self.heartbeat(**changes))
        self.member_id, self.epoch = answer.member_id, answer.member_epoch
        self.owned = answer.assignment
        return answer

    def leave(self, group: str = "g", **how: Any) -> None:
        name = next(name for name, one in self.world.members.items() if one is self)
        del self.world.members[name]
        self.world.coordinator.leave(
            group, self.member_id, self.asked.get("instance_id", ""), self.epoch, **how
        )


def commit(world: World, member: Obedient, epoch: int, partition: int = 0) -> Partition:
    world.coordinator.check_commit("g", member.member_id, epoch)
    return world.coordinator.committable("g", member.member_id, "t", "id-t", partition)


def test_the_first_member_gets_everything_with_its_first_answer() -> None:
    world = World()
    answer = world.coordinator.heartbeat(Heartbeat("g", topics=frozenset({"t"})))
    assert len(answer.assignment) == 6
    assert answer.settled
    assert answer.member_id == "m0"


def test_a_partition_moves_only_after_its_owner_reported_that_it_gave_it_up() -> None:
    world = World()
    first = world.join("first")
    had = first.owned
    second = world.join("second")
    assert second.owned == frozenset()
    first.beat()  # it is told to give three up; the heartbeat itself still had them
    assert second.beat().assignment == frozenset()
    assert not second.beat().settled
    first.beat()  # and now it has given them up
    assert second.beat().assignment == had - first.owned
    assert second.beat().settled
    assert world.loads() == [3, 3]


def test_a_heartbeat_that_has_not_seen_the_newest_answer_gives_nothing_up() -> None:
    world = World()
    first = world.join("first")
    world.join("second")
    before = first.heartbeat(owned=frozenset())  # sent before it took what it was told
    world.coordinator.heartbeat(before)  # the answer, which revokes three, is lost
    again = world.coordinator.heartbeat(before)  # a copy of it arrives late
    assert len(again.assignment) == 3
    assert world.members["second"].beat().assignment == frozenset()


def test_a_lost_answer_is_answered_again_with_the_same_epoch() -> None:
    world = World()
    first = world.join("first")
    world.join("second")
    lost = world.coordinator.heartbeat(first.heartbeat())
    assert lost.member_epoch > first.epoch
    assert world.coordinator.heartbeat(first.heartbeat()) == lost


def test_a_member_that_is_silent_for_its_session_is_evicted_and_the_others_take_over() -> None:
    world = World()
    world.join("first", session_timeout_ms=10_000)
    second = world.join("second", session_timeout_ms=10_000)
    world.settle()
    silent = world.members.pop("first")
    world.now_ms += 9_999
    assert len(second.beat().assignment) == 3
    world.now_ms += 1
    assert len(second.beat().assignment) == 6
    with pytest.raises(UnknownMemberError):
        silent.beat()


def test_a_member_that_does_not_give_up_what_it_must_is_evicted_after_its_rebalance_timeout() -> (
    None
):
    world = World()
    slow = world.join("slow", rebalance_timeout_ms=20_000)
    second = world.join("second")
    had = slow.owned
    for _ in range(4):
        slow.beat(owned=had)
        world.now_ms += 5_000
        second.beat()
    assert len(second.beat().assignment) == 6
    with pytest.raises(UnknownMemberError):
        slow.beat()


def test_a_member_that_joins_anew_keeps_what_it_had_and_its_commits_from_before_are_refused() -> (
    None
):
    world = World()
    member = world.join("m", member_id="mine")
    old = member.epoch
    assert len(member.beat(member_epoch=0, owned=frozenset()).assignment) == 6
    assert member.epoch > old
    with pytest.raises(StaleMemberEpochError):
        commit(world, member, old)


def test_old_unknown_and_future_epochs_are_refused() -> None:
    world = World()
    member = world.join("first")
    old = member.epoch
    for count in (7, 8):
        world.topic("t", count)
        member.beat()
    for epoch in (old, member.epoch + 1):
        with pytest.raises(StaleMemberEpochError) as caught:
            member.beat(member_epoch=epoch)
        assert caught.value.facts["member_epoch"] == str(member.epoch)
    with pytest.raises(UnknownMemberError):
        member.beat(member_id="nobody")


def test_an_offset_may_be_committed_with_the_newest_epoch_by_the_owner_only() -> None:
    world = World()
    first, second = world.join("first"), world.join("second")
    old = first.epoch
    world.settle()
    mine = next(iter(first.owned)).partition
    assert commit(world, first, first.epoch, mine) in first.owned
    with pytest.raises(StaleMemberEpochError):
        commit(world, first, old, mine)
    with pytest.raises(NotAssignedError):
        commit(world, second, second.epoch, mine)
    with pytest.raises(GroupNotEmptyError):
        world.coordinator.check_commit("g", "", -1)
    first.leave()
    with pytest.raises(UnknownMemberError):
        commit(world, first, first.epoch, mine)
    second.leave()
    world.coordinator.check_commit("g", "", -1)


def test_a_commit_that_arrives_after_a_later_one_of_its_member_is_refused() -> None:
    world = World()
    member, other = world.join("member"), world.join("other")
    world.settle()

    def check(who: Obedient, sequence: int) -> None:
        world.coordinator.check_commit("g", who.member_id, who.epoch, sequence)

    check(member, 1)
    check(member, 3)
    check(member, 3)  # its answer was lost, and it came again
    with pytest.raises(StaleCommitError) as caught:
        check(member, 2)
    assert (caught.value.facts["sequence"], caught.value.facts["newest_sequence"]) == ("2", "3")
    check(member, 0)
    with pytest.raises(StaleCommitError):
        check(member, 1)
    check(other, 1)


def test_what_is_being_given_up_may_still_be_committed() -> None:
    world = World()
    first = world.join("first")
    had = first.owned
    world.join("second")
    first.beat()
    going = next(iter(had - first.owned))
    assert commit(world, first, first.epoch, going.partition) == going
    first.beat()
    with pytest.raises(NotAssignedError):
        commit(world, first, first.epoch, going.partition)


def test_a_second_process_with_the_same_instance_id_takes_the_place_and_the_first_is_fenced() -> (
    None
):
    world = World()
    old = world.join("old", instance_id="i")
    other = world.join("other", instance_id="j")
    world.settle()
    had, others = old.owned, other.owned
    new = world.join("new", instance_id="i")
    assert new.owned == had
    assert new.member_id != old.member_id
    for _ in range(2):
        with pytest.raises(InstanceFencedError):
            old.beat()
    with pytest.raises(InstanceFencedError):
        commit(world, old, old.epoch)
    assert new.beat().assignment == had
    assert other.beat().assignment == others


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("partition_count", [60, 900])
def test_a_rolling_restart_moves_each_partition_away_and_back_at_most(
    static: bool, partition_count: int
) -> None:
    world = World(partition_count)
    asked = [{"instance_id": f"i{n}"} if static else {} for n in range(6)]
    for n in range(6):
        world.join(f"p{n}", **asked[n])
    world.settle()
    world.moves.clear()
    share = partition_count // 6
    for n in range(6):
        world.members[f"p{n}"].leave(keep_place=static)
        world.settle()
        world.join(f"p{n}", **asked[n])
        world.settle()
        assert world.loads() == [share] * 6
    assert all(count <= (0 if static else 2) for count in world.moves.values())
    assert world.coordinator.groups["g"].state == "STABLE"


def test_a_static_member_that_left_for_a_moment_is_evicted_when_its_session_ends() -> None:
    world = World()
    world.join("a", instance_id="i", session_timeout_ms=10_000).leave(keep_place=True)
    other = world.join("b")
    assert other.beat().assignment == frozenset() or len(other.owned) == 3
    world.now_ms += 10_000
    assert len(other.beat().assignment) == 6


def test_ten_members_on_900_partitions_are_stable_after_three_heartbeats_of_each() -> None:
    world = World(900)
    for n in range(10):
        world.join(f"p{n}")
    world.settle(3)
    assert world.loads() == [90] * 10
    assert world.coordinator.groups["g"].state == "STABLE"


def test_new_partitions_and_topics_are_given_out_and_a_recreated_topic_is_another() -> None:
    world = World(2)
    member = world.join("m", topics=frozenset({"t", "later"}))
    world.topic("t", 3)
    assert len(member.beat().assignment) == 3
    world.topic("later", 1)
    assert len(member.beat().assignment) == 4
    world.topic("t", 3, "another")
    assert {one.topic_id for one in member.beat().assignment} == {"another", "id-later"}
    world.coordinator.set_topics({"t": None})
    assert {one.topic for one in member.beat().assignment} == {"later"}


def test_a_pattern_finds_topics_that_come_later_and_a_bad_one_is_refused() -> None:
    world = World()
    member = world.join("m", topic_pattern="^orders-")
    assert not member.owned
    world.topic("orders-1", 2)
    world.topic("my-orders-1", 2)
    assert {one.topic for one in member.beat().assignment} == {"orders-1"}
    with pytest.raises(InvalidConfigError, match="not a regular expression"):
        world.join("bad", topic_pattern="(")


def test_a_pattern_gives_each_member_what_it_may_read_as_that_changes() -> None:
    world = World()
    world.topic("orders-1", 2)
    world.topic("orders-2", 2)
    limited = world.join("limited", topic_pattern="^orders-", may_read={"orders-1"}.__contains__)
    free = world.join("free", topic_pattern="^orders-")
    world.settle()
    assert {one.topic for one in limited.owned} == {"orders-1"}
    assert len(free.owned) == 4 - len(limited.owned)
    limited.asked["may_read"] = {"orders-2"}.__contains__
    world.settle()
    assert {one.topic for one in limited.owned} == {"orders-2"}
    limited.asked["may_read"] = set[str]().__contains__
    world.settle()
    assert not limited.owned
    assert len(free.owned) == 4
    world.topic("orders-3", 1)
    world.settle()
    assert not limited.owned, "nor what comes later"


def test_extra_members_idle_and_take_over() -> None:
    world = World(1)
    for name in ("a", "b"):
        world.join(name)
    world.settle()
    assert world.loads() == [0, 1]
    owner = next(member for member in world.members.values() if member.owned)
    owner.leave()
    world.settle()
    assert world.loads() == [1]


def test_a_member_whose_first_answer_was_lost_is_the_same_when_it_joins_again() -> None:
    world = World(4)
    world.coordinator.heartbeat(Heartbeat("g", "mine", topics=frozenset({"t"})))  # answer lost
    again = Obedient(world, {"member_id": "mine"})
    assert len(again.beat(member_epoch=0).assignment) == 4
    assert list(world.coordinator.groups["g"].members) == ["mine"]


def test_a_member_that_left_stays_away_when_a_join_of_its_arrives_later() -> None:
    world = World()
    world.join("m", member_id="mine").leave()
    with pytest.raises(UnknownMemberError, match="has left"):
        world.coordinator.heartbeat(Heartbeat("g", "mine", topics=frozenset({"t"})))
    assert not world.coordinator.groups["g"].members


def test_a_leave_that_overtakes_its_join_makes_no_member() -> None:
    world = World()
    with pytest.raises(UnknownMemberError):
        world.coordinator.leave("g", "mine")
    with pytest.raises(UnknownMemberError, match="has left"):
        world.coordinator.heartbeat(Heartbeat("g", "mine", topics=frozenset({"t"})))
    assert "g" not in world.coordinator.groups
    assert len(world.join("another").owned) == 6


def test_leaves_of_what_no_member_can_be_called_are_refused_and_not_remembered() -> None:
    world = World()
    for group, member in (("", "m"), ("x" * 256, "m"), ("g", "m" * 1_001)):
        with pytest.raises(InvalidConfigError):
            world.coordinator.leave(group, member)


def test_groups_without_members_and_offsets_make_room_the_longest_empty_first() -> None:
    world = World(groups_max=3)
    world.kept = {"g1"}
    for number in range(5):
        name = f"g{number}"
        world.join(name, group=name).leave(group=name)
        world.now_ms += 1
    assert list(world.coordinator.groups) == ["g1", "g3", "g4"]
    assert world.coordinator.take_dropped() == ["g0", "g2"]
    world.kept = {"g1", "g3", "g4"}
    with pytest.raises(GroupFullError, match=r"group\.max\.count"):
        world.join("one more", group="one more")


def test_a_group_whose_members_may_still_come_back_makes_no_room() -> None:
    world = World(groups_max=1)
    world.coordinator.restore("g", 5, hold_ms=500)
    with pytest.raises(GroupFullError):
        world.join("other", group="other")
    world.now_ms += 500
    world.join("other", group="other")


def test_epochs_begin_above_what_is_restored() -> None:
    world = World()
    world.coordinator.restore("g", 1_000)
    assert world.join("m").epoch > 1_000


def test_after_a_restart_nobody_is_given_anything_before_all_had_the_time_to_come() -> None:
    world = World()
    world.coordinator.restore("g", 1_000, hold_ms=500)
    first, second = world.join("first"), world.join("second")
    world.now_ms += 499
    assert first.beat().assignment == frozenset()
    assert not first.beat().settled
    assert world.coordinator.groups["g"].state == "RECONCILING"
    world.now_ms += 1
    world.settle(1)
    assert len(first.owned) == len(second.owned) == 3
    assert world.coordinator.groups["g"].state == "STABLE"


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        ({"group": ""}, InvalidConfigError),
        ({"group": "x" * 256}, InvalidConfigError),
        ({"assignor": "random"}, InvalidConfigError),
        ({"session_timeout_ms": 1}, InvalidConfigError),
        ({"rebalance_timeout_ms": -1}, InvalidConfigError),
        ({"client_id": "x" * 1_001}, InvalidConfigError),
        ({"topics": frozenset(map(str, range(10_001)))}, InvalidConfigError),
        ({}, GroupFullError),
        ({"group": "another"}, GroupFullError),
    ],
)
def test_what_is_out_of_bounds_is_refused(
    facts: dict[str, Any], error: type[MainstemError]
) -> None:
    world = World(members_max=1, groups_max=1)
    world.join("m")
    with pytest.raises(error):
        world.coordinator.heartbeat(Heartbeat(**{"group": "g", **facts}))


def test_a_group_says_when_it_got_its_first_member_and_when_it_lost_its_last() -> None:
    world = World()
    member = world.join("m")
    world.join("n")
    assert world.coordinator.take_changed() == ["g"]
    member.leave()
    assert world.coordinator.take_changed() == []
    world.now_ms += 45_000
    world.coordinator.tick()
    assert world.coordinator.take_changed() == ["g"]
    assert world.coordinator.groups["g"].state == "EMPTY"
    world.coordinator.forget("g")
    assert not world.coordinator.groups


def test_range_is_used_when_most_members_ask_for_it() -> None:
    world = World(4)
    for name in ("a", "b"):
        world.join(name, assignor="range")
    world.settle()
    assert [sorted(one.partition for one in m.owned) for m in world.members.values()] == [
        [0, 1],
        [2, 3],
    ]


def test_the_answer_names_topics_that_do_not_exist() -> None:
    world = World()
    member = world.join("m", topics=frozenset({"t", "typo"}))
    assert member.beat().missing_topics == ("typo",)
    world.topic("typo", 1)
    assert member.beat().missing_topics == ()
    many = world.join("n", topics=frozenset(map(str, range(1_000))))
    assert len(many.beat().missing_topics) == 100

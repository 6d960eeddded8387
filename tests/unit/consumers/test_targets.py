"""Targets of large groups, which are computed beside the coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mainstem.consumers import Beat, Coordinator, CoordinatorRules, Heartbeat, TopicInfo
from mainstem.consumers.targets import COMPUTED_AT_ONCE_MAX

Work = tuple[Callable[[], Any], Callable[[Any], None]]


class World:
    """A coordinator of one large topic whose targets are computed when the test says so."""

    def __init__(self) -> None:
        self.under_way: list[Work] = []
        self.coordinator = Coordinator(
            CoordinatorRules(), lambda: 0, compute=lambda *work: self.under_way.append(work)
        )
        self.partition_count = COMPUTED_AT_ONCE_MAX + 1
        self.coordinator.set_topics({"t": TopicInfo("id-t", self.partition_count)})

    def beat(self, member_id: str, last: Beat | None = None) -> Beat:
        epoch = 0 if last is None else last.member_epoch
        owned = frozenset() if last is None else last.assignment
        topics = frozenset({"t"}) if last is None else frozenset()
        return self.coordinator.heartbeat(
            Heartbeat("g", member_id, epoch, topics=topics, owned=owned)
        )

    def compute(self) -> None:
        work, done = self.under_way.pop(0)
        done(work())


def test_a_member_is_not_settled_until_its_target_is_computed() -> None:
    world = World()
    joined = world.beat("a")
    assert not joined.settled, "it would come back much later"
    assert not joined.assignment
    world.compute()
    told = world.beat("a", joined)
    assert told.settled
    assert len(told.assignment) == world.partition_count


def test_a_member_that_joins_while_a_target_is_computed_gets_its_share_of_the_next() -> None:
    world = World()
    joined = {name: world.beat(name) for name in ("a", "b")}
    assert len(world.under_way) == 1, "one at a time"
    world.compute()
    assert len(world.under_way) == 1, "the group has changed since it began"
    world.compute()
    told = {name: world.beat(name, beat) for name, beat in joined.items()}
    sizes = sorted(len(beat.assignment) for beat in told.values())
    assert sizes == [world.partition_count // 2, world.partition_count - world.partition_count // 2]
    assert not told["a"].assignment & told["b"].assignment


def test_a_target_that_is_computed_for_members_that_left_harms_nobody() -> None:
    world = World()
    world.beat("a")
    world.coordinator.leave("g", "a")
    world.compute()
    assert not world.coordinator.groups["g"].members
    joined = world.beat("b")
    world.compute()
    assert len(world.beat("b", joined).assignment) == world.partition_count


def test_members_keep_what_they_have_while_a_target_is_computed() -> None:
    world = World()
    joined = world.beat("a")
    world.compute()
    told = world.beat("a", joined)
    world.beat("b")
    again = world.beat("a", told)
    assert again.assignment == told.assignment
    assert not again.settled

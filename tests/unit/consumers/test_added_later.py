"""Which partitions came to their topic after the group had subscribed to it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from mainstem.consumers import Beat, Coordinator, CoordinatorRules, Heartbeat, TopicInfo

SESSION_MS = 10_000


class World:
    """A coordinator whose topic `t` has two partitions at first, and members that do as told."""

    def __init__(self) -> None:
        self.now_ms = 0
        numbers = itertools.count()
        self.coordinator = Coordinator(
            CoordinatorRules(session_timeout_ms=SESSION_MS),
            lambda: self.now_ms,
            lambda: f"m{next(numbers)}",
        )
        self.last: dict[str, Beat] = {}
        self.topic(2)

    def topic(self, partition_count: int, topic_id: str = "1", name: str = "t") -> None:
        self.coordinator.set_topics({name: TopicInfo(topic_id, partition_count)})

    def beat(self, name: str, *topics: str, **asked: Any) -> Beat:
        """One heartbeat, which joins if it is the first or an answer is lost."""
        before = self.last.get(name)
        facts: dict[str, Any] = {"topics": frozenset(topics or ("t",)), **asked}
        if before is not None:
            facts = {
                "member_id": before.member_id,
                "member_epoch": before.member_epoch,
                "owned": before.assignment,
                **facts,
            }
        self.last[name] = self.coordinator.heartbeat(Heartbeat("g", **facts))
        return self.last[name]

    def leave(self, name: str, **how: Any) -> None:
        beat = self.last.pop(name)
        self.coordinator.leave("g", beat.member_id, **how)


def numbers(beat: Beat) -> tuple[list[int], list[int]]:
    """The partitions that a member may own, and those of them that were added later."""
    assert beat.added_later <= beat.assignment
    return (
        sorted(one.partition for one in beat.assignment),
        sorted(one.partition for one in beat.added_later),
    )


def test_what_a_topic_had_when_the_group_met_it_is_not_added_later_and_what_came_since_is() -> None:
    world = World()
    assert numbers(world.beat("m")) == ([0, 1], [])
    world.topic(3)
    assert numbers(world.beat("m")) == ([0, 1, 2], [2])
    world.topic(5)
    assert numbers(world.beat("m")) == ([0, 1, 2, 3, 4], [2, 3, 4])


def test_a_member_that_joins_after_the_expansion_is_told_what_the_group_knows() -> None:
    world = World()
    world.beat("first")
    world.topic(4)
    for name in ("first", "second", "first", "first"):
        world.beat(name)
    second = world.beat("second")
    assert len(second.assignment) == 2
    world.leave("first")
    assert numbers(world.beat("second")) == ([0, 1, 2, 3], [2, 3])


def test_the_count_is_that_of_the_first_member_that_wants_the_topic() -> None:
    world = World()
    world.beat("other", "u")
    world.topic(3)
    assert numbers(world.beat("m")) == ([0, 1, 2], [])
    world.topic(4)
    assert numbers(world.beat("m")) == ([0, 1, 2, 3], [3])


def test_a_topic_that_comes_after_its_subscription_is_met_when_it_comes() -> None:
    world = World()
    world.beat("m", "later")
    world.topic(2, name="later")
    assert numbers(world.beat("m", "later")) == ([0, 1], [])
    world.topic(3, name="later")
    assert numbers(world.beat("m", "later")) == ([0, 1, 2], [2])


def test_a_topic_that_was_created_again_is_met_anew() -> None:
    world = World()
    world.beat("m")
    world.topic(4, "another")
    world.beat("m")
    assert numbers(world.beat("m")) == ([0, 1, 2, 3], [])
    world.topic(5, "another")
    assert numbers(world.beat("m")) == ([0, 1, 2, 3, 4], [4])


def test_a_group_that_was_empty_for_a_while_finds_what_was_added_meanwhile() -> None:
    world = World()
    world.beat("m")
    world.leave("m")
    world.topic(3)
    assert numbers(world.beat("m")) == ([0, 1, 2], [2])


def test_a_topic_that_nobody_wanted_for_a_while_is_remembered_until_it_is_deleted() -> None:
    world = World()
    world.beat("m", "t", "u")
    world.beat("m", "u")
    world.topic(3)
    assert numbers(world.beat("m", "t", "u")) == ([0, 1, 2], [2])
    world.coordinator.set_topics({"t": None})
    world.beat("m", "t", "u")
    world.topic(3)
    assert numbers(world.beat("m", "t", "u")) == ([0, 1, 2], [])


@pytest.mark.parametrize("keep_place", [True, False])
def test_a_static_member_that_comes_back_finds_what_was_added_while_it_was_away(
    keep_place: bool,
) -> None:
    world = World()
    world.beat("m", instance_id="i")
    if keep_place:
        world.leave("m", keep_place=True)
    else:
        del world.last["m"]  # it died, and a process with its instance id takes its place
    world.topic(3)
    assert numbers(world.beat("m", instance_id="i")) == ([0, 1, 2], [2])


def test_a_member_that_was_put_out_finds_what_was_added_while_it_was_silent() -> None:
    world = World()
    world.beat("m")
    world.topic(3)
    world.now_ms += SESSION_MS
    world.coordinator.tick()
    del world.last["m"]
    assert numbers(world.beat("m")) == ([0, 1, 2], [2])


def test_after_a_restart_the_count_is_that_of_the_first_rejoin_though_it_gives_nothing_out() -> (
    None
):
    world = World()
    world.coordinator.restore("g", 1_000, hold_ms=500)
    assert numbers(world.beat("m")) == ([], [])
    world.topic(3)
    world.now_ms += 500
    assert numbers(world.beat("m")) == ([0, 1, 2], [2])

"""A coordinator with many groups and topics looks at those that have something to do."""

from __future__ import annotations

from collections import Counter
from typing import Any, NoReturn

import pytest

from mainstem.consumers import Coordinator, CoordinatorRules, Heartbeat, TopicInfo
from mainstem.consumers.group import Group, Member
from mainstem.consumers.known_topics import KnownTopics

COUNT = 50


class Compared(int):
    """A time that counts how often a later or an earlier one is looked for."""

    compared = 0

    def __add__(self, other: int) -> Compared:
        return Compared(int(self) + other)

    __radd__ = __add__

    def __le__(self, other: object) -> bool:
        Compared.compared += 1
        return int(self) <= other  # type: ignore[operator]


class Unlisted(dict[str, TopicInfo]):
    """Topics that may be looked up, and not gone through."""

    def _refuse(self, *_: object) -> NoReturn:
        raise AssertionError("all topics were looked at")

    __iter__ = keys = values = items = _refuse


class Groups:
    """A coordinator whose groups have a member and a topic each."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.coordinator = Coordinator(CoordinatorRules(), lambda: self.now_ms)
        self.epochs: dict[str, int] = {}

    def topic(self, name: str, partition_count: int = 2) -> None:
        self.coordinator.set_topics({name: TopicInfo(f"id-{name}", partition_count)})

    def beat(self, group: str, topics: set[str], **asked: Any) -> int:
        """How many partitions the group's member has."""
        beat = Heartbeat(group, "m", self.epochs.get(group, 0), topics=frozenset(topics), **asked)
        answer = self.coordinator.heartbeat(beat)
        self.epochs[group] = answer.member_epoch
        return len(answer.assignment)


@pytest.fixture
def groups() -> Groups:
    found = Groups()
    for number in range(COUNT):
        found.topic(f"t{number}")
        assert found.beat(f"g{number}", {f"t{number}"}) == 2
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often it was looked what a member's subscription means, by the topics that it names."""
    counted: Counter[str] = Counter()
    wanted_by = KnownTopics.wanted_by

    def counting(known: KnownTopics, member: Member) -> frozenset[str]:
        counted.update(member.topics or {member.topic_pattern})
        return wanted_by(known, member)

    monkeypatch.setattr(KnownTopics, "wanted_by", counting)
    return counted


def test_a_topic_that_changes_concerns_the_groups_that_want_it(
    groups: Groups, asked: Counter[str]
) -> None:
    groups.topic("t7", partition_count=5)
    assert asked == {"t7": 1}
    assert groups.beat("g7", {"t7"}) == 5
    groups.topic("new")
    assert asked.keys() == {"t7"}


def test_a_new_topic_concerns_a_group_that_named_it_before_it_was_there(
    groups: Groups, asked: Counter[str]
) -> None:
    assert groups.beat("early", {"later"}) == 0
    asked.clear()
    groups.topic("later")
    assert asked == {"later": 1}
    assert groups.beat("early", {"later"}) == 2


def test_a_new_topic_concerns_the_groups_with_patterns(groups: Groups, asked: Counter[str]) -> None:
    assert groups.beat("fits", set(), topic_pattern="^new.*") == 0
    asked.clear()
    groups.topic("new-1")
    assert asked == {"^new.*": 1}
    assert groups.beat("fits", set(), topic_pattern="^new.*") == 2
    # It asks for a topic by name from now on.
    assert groups.beat("fits", {"t3"}) == 2
    groups.topic("new-2")
    asked.clear()
    groups.topic("new-3")
    assert not asked


def test_a_group_that_left_a_topic_is_not_concerned_by_it(
    groups: Groups, asked: Counter[str]
) -> None:
    groups.beat("g7", {"t8"})
    groups.coordinator.leave("g9", "m")
    asked.clear()
    groups.topic("t7", partition_count=5)
    groups.topic("t9", partition_count=5)
    assert not asked
    groups.topic("t8", partition_count=5)
    assert asked == {"t8": 2}


def test_a_new_target_looks_up_the_topics_of_its_group_only() -> None:
    topics = Unlisted({f"t{number}": TopicInfo(f"id-{number}", 2) for number in range(COUNT)})
    group = Group("g")
    member = Member("m", wants=frozenset({"t1", "t2", "missing"}))
    group.add(member)
    for _ in range(2):
        work = group.retarget(topics)
        assert work is not None
        assert work.topics.keys() == {"t1", "t2"}
        assert group.take_target(work, work.target())
    assert len(group.target["m"]) == 4


def test_while_groups_wait_for_their_members_a_call_looks_at_the_one_that_waits_least() -> None:
    groups = Groups()
    groups.topic("t")
    for number in range(COUNT):
        groups.coordinator.restore(f"g{number}", 5, hold_ms=Compared(100 + number))
    Compared.compared = 0
    for _ in range(10):
        groups.coordinator.tick()
    assert Compared.compared <= 10
    assert groups.beat("g3", {"t"}) == 0
    groups.coordinator.forget("g0")
    groups.now_ms = 102
    assert groups.beat("g3", {"t"}) == 0
    groups.now_ms = 103
    assert groups.beat("g3", {"t"}) == 2

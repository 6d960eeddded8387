"""The assignors: balance, stickiness, ranges."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from mainstem.consumers import Partition, TopicInfo, assign_range, assign_uniform
from mainstem.consumers.assignors import Assignment, Subscriber

TOPICS = {"a": TopicInfo("ia", 7), "b": TopicInfo("ib", 4), "c": TopicInfo("ic", 1)}


def subscriber(
    name: str, topics: str = "abc", owned: Mapping[Partition, int] | None = None
) -> Subscriber:
    return Subscriber(name, name, frozenset(topics), owned or {})


def loads(found: Assignment) -> list[int]:
    return sorted(len(owned) for owned in found.values())


def everything(topics: Mapping[str, TopicInfo]) -> list[Partition]:
    return sorted(
        Partition(name, info.topic_id, number)
        for name, info in topics.items()
        for number in range(info.partition_count)
    )


@pytest.mark.parametrize("count", [1, 2, 5, 12, 20])
def test_uniform_gives_every_partition_once_and_balances_within_one_over_all_topics(
    count: int,
) -> None:
    found = assign_uniform([subscriber(f"m{n}") for n in range(count)], TOPICS)
    assert sorted(one for owned in found.values() for one in owned) == everything(TOPICS)
    assert max(loads(found)) - min(loads(found)) <= 1


def test_members_beyond_the_number_of_partitions_idle() -> None:
    found = assign_uniform([subscriber(f"m{n}", "c") for n in range(3)], TOPICS)
    assert loads(found) == [0, 0, 1]


def test_a_member_gets_only_what_it_wants_and_what_few_want_leaves_the_rest_to_the_others() -> None:
    found = assign_uniform([subscriber("m0", "a"), subscriber("m1", "ab")], TOPICS)
    assert {one.topic for one in found["m0"]} == {"a"}
    assert loads(found) == [5, 6]
    assert sum(one.topic == "b" for one in found["m1"]) == 4


def test_a_new_member_takes_only_its_share_and_nothing_else_moves() -> None:
    old = assign_uniform([subscriber(f"m{n}") for n in range(3)], TOPICS)
    members = [
        *(subscriber(name, owned=dict.fromkeys(owned, 1)) for name, owned in old.items()),
        subscriber("new"),
    ]
    found = assign_uniform(members, TOPICS)
    assert loads(found) == [3, 3, 3, 3]
    for name, owned in old.items():
        assert set(found[name]) <= set(owned)


def test_what_was_taken_over_last_goes_back_first() -> None:
    first, second, third, fourth = everything({"t": TopicInfo("i", 4)})
    members = [
        subscriber("m0", "t", {fourth: 9, first: 1}),
        subscriber("m1", "t", {second: 1, third: 9}),
        subscriber("back", "t"),
    ]
    found = assign_uniform(members, {"t": TopicInfo("i", 4)})
    assert found["back"][0] in (third, fourth)
    assert {first} <= set(found["m0"])
    assert {second} <= set(found["m1"])


def test_a_topic_that_was_recreated_is_handed_out_anew() -> None:
    owned = {Partition("c", "before", 0): 1}
    assert assign_uniform([subscriber("m", owned=owned)], {"c": TOPICS["c"]})["m"] == [
        Partition("c", "ic", 0)
    ]


def test_range_gives_neighbours_and_cuts_topics_of_one_size_at_the_same_places() -> None:
    topics = {"x": TopicInfo("ix", 5), "y": TopicInfo("iy", 5)}
    found = assign_range([subscriber("m1", "xy"), subscriber("m0", "xy")], topics)
    assert [(one.topic, one.partition) for one in found["m0"]] == [
        ("x", 0), ("x", 1), ("x", 2), ("y", 0), ("y", 1), ("y", 2),
    ]  # fmt: skip
    assert [(one.topic, one.partition) for one in found["m1"]] == [
        ("x", 3), ("x", 4), ("y", 3), ("y", 4),
    ]  # fmt: skip


def test_nobody_gets_nothing_and_topics_without_readers_are_nobodys() -> None:
    assert assign_uniform([], TOPICS) == {}
    assert assign_range([], TOPICS) == {}
    assert assign_uniform([subscriber("m", "z")], TOPICS) == {"m": []}

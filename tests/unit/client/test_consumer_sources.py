"""Which gateway a topic is read from: one of the rack, the leader, and when that changes."""

from __future__ import annotations

import itertools
from collections import Counter

from mainstem.client.consumer.sources import PAUSE_S, PAUSE_S_MAX, Sources
from mainstem.client.results import GatewayPlace

LEADER = "leader:1"
NEAR = "near:1"
NEAR_TOO = "near-too:1"


def near(*addresses: str, rack: str = "here", draining: bool = False) -> list[GatewayPlace]:
    return [GatewayPlace(address, rack, draining) for address in addresses]


PLACES = [GatewayPlace(LEADER, "there", False), *near(NEAR)]


def known(*places: GatewayPlace) -> Sources:
    sources = Sources("here")
    sources.learned(places or PLACES, 0.0)
    return sources


def test_without_a_rack_everything_is_read_from_its_leader() -> None:
    sources = Sources("")
    sources.learned([*PLACES, GatewayPlace("lost:1", "", False)], 0.0)
    assert sources.of("t", LEADER) == LEADER


def test_a_topic_is_read_from_a_gateway_of_the_rack_and_else_from_its_leader() -> None:
    assert known().of("t", LEADER) == NEAR
    assert known(*near(NEAR, rack="there")).of("t", LEADER) == LEADER
    assert Sources("here").of("t", LEADER) == LEADER, "nobody has said what there is"


def test_a_leader_in_the_rack_is_read_from() -> None:
    sources = known(*near(NEAR, NEAR_TOO, LEADER))
    assert {sources.of(f"t{number}", LEADER) for number in range(50)} == {LEADER}


def test_a_gateway_that_drains_is_not_turned_to_unless_it_leads() -> None:
    places = [*near(NEAR, draining=True), *near(NEAR_TOO)]
    sources = known(*places)
    assert {sources.of(f"t{number}", LEADER) for number in range(50)} == {NEAR_TOO}
    assert sources.of("t", NEAR) == NEAR
    assert known(*near(NEAR, draining=True)).of("t", LEADER) == LEADER


def test_topics_spread_over_the_rack_and_only_those_of_a_gateway_that_goes_move() -> None:
    addresses = [f"g{number}:1" for number in range(4)]
    topics = [f"topic-{number}" for number in range(4_000)]
    sources = known(*near(*addresses))
    before = {topic: sources.of(topic, LEADER) for topic in topics}
    counts = Counter(before.values())
    assert all(800 < counts[address] < 1_200 for address in addresses), counts
    # Another consumer, told in another order, chooses the same: they share what it has in memory.
    another = known(*near(*reversed(addresses)))
    assert before == {topic: another.of(topic, LEADER) for topic in topics}
    sources.learned(near(*addresses[1:]), 1.0)
    after = {topic: sources.of(topic, LEADER) for topic in topics}
    moved = {topic for topic in topics if after[topic] != before[topic]}
    assert moved == {topic for topic in topics if before[topic] == addresses[0]}


def test_who_fails_is_left_for_the_leader_until_it_is_said_to_live_after_a_pause() -> None:
    sources = known()
    pause_s = sources.failed("t", LEADER, NEAR, 100.0)
    assert 0.8 * PAUSE_S <= pause_s <= 1.2 * PAUSE_S
    assert sources.of("t", LEADER) == LEADER
    assert sources.of("another", LEADER) == NEAR
    assert sources.failed("t", LEADER, NEAR, 100.0) == 0.0, "the answer of a second fetch"
    assert sources.failed("t", LEADER, LEADER, 100.0) == 0.0
    sources.learned(PLACES, 100.0 + pause_s - 0.1)
    assert sources.of("t", LEADER) == LEADER
    assert sources.due(["t", "another"], 100.0 + pause_s - 0.1) == set()
    assert sources.due(["t", "another"], 100.0 + pause_s) == {"t"}
    assert sources.of("t", LEADER) == LEADER, "nobody has said that it is still there"
    sources.learned(PLACES, 100.0 + pause_s)
    assert sources.of("t", LEADER) == NEAR
    assert sources.due(["t"], 200.0) == set()


def test_who_is_gone_when_the_pause_is_over_is_not_asked_again() -> None:
    sources = known(*near(NEAR, NEAR_TOO))
    first = sources.of("t", LEADER)
    (second,) = {NEAR, NEAR_TOO} - {first}
    sources.failed("t", LEADER, first, 0.0)
    sources.learned(near(second), 1.0)
    assert sources.of("t", LEADER) == second, "another one of the rack has not failed"


def test_pauses_grow_to_a_limit_and_shrink_when_it_has_served_as_long_as_it_was_away() -> None:
    sources = known()
    now, pauses = 0.0, []
    for _ in range(12):
        pauses.append(sources.failed("t", LEADER, NEAR, now))
        now += pauses[-1]
        sources.learned(PLACES, now)
        sources.served("t", NEAR, now + 0.1)  # once, and then it fails again
    growing = itertools.pairwise(pauses[:6])
    assert all(later > 1.2 * earlier for earlier, later in growing)
    assert pauses[-1] >= 0.8 * PAUSE_S_MAX
    assert max(pauses) <= 1.2 * PAUSE_S_MAX
    assert len(set(pauses)) == len(pauses), "chance spreads consumers"
    sources.served("t", NEAR, now + pauses[-1] + 1)
    assert sources.failed("t", LEADER, NEAR, now + pauses[-1] + 1) <= 1.2 * PAUSE_S


def test_what_is_not_read_any_more_is_forgotten() -> None:
    sources = known()
    pauses = [sources.failed(topic, LEADER, NEAR, 0.0) for topic in ("t", "u")]
    assert sources.due(["u"], max(pauses)) == {"u"}
    assert sources.due(["t", "u"], max(pauses)) == {"u"}
    assert sources.of("t", LEADER) == NEAR

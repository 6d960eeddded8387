"""Which gateway should lead which topic."""

from __future__ import annotations

from collections import Counter

import pytest

from mainstem.delta_log.system import gateway_key
from mainstem.ingest_gateway.cluster import Placement, moves, placement

GATEWAYS = [gateway_key(f"gateway-{number}") for number in range(10)]
TOPICS = [f"topic-{number}" for number in range(2_000)]


def test_every_gateway_gets_about_as_many_topics() -> None:
    placement = Placement(GATEWAYS)
    counts = Counter(placement.target(topic) for topic in TOPICS)
    assert counts.keys() == set(GATEWAYS)
    # Of 2,000 topics on 10 gateways: four standard deviations of what chance does.
    assert all(200 - 54 <= count <= 200 + 54 for count in counts.values())


def test_the_order_in_which_gateways_were_seen_does_not_matter() -> None:
    one, other = Placement(GATEWAYS), Placement(reversed(GATEWAYS))
    assert [one.target(t) for t in TOPICS] == [other.target(t) for t in TOPICS]


def test_only_the_topics_move_that_a_lost_gateway_had_and_they_come_back_with_it() -> None:
    before, lost = Placement(GATEWAYS), GATEWAYS[3]
    after = Placement(key for key in GATEWAYS if key != lost)
    moved = [topic for topic in TOPICS if before.target(topic) != after.target(topic)]
    assert moved == [topic for topic in TOPICS if before.target(topic) == lost]
    # They are spread over all that are left.
    assert len({after.target(topic) for topic in moved}) == len(GATEWAYS) - 1


def test_without_gateways_there_is_no_target() -> None:
    assert Placement([]).target("t") is None


def test_placement_stays_what_it_is_from_one_version_to_the_next() -> None:
    """Gateways of two versions run beside each other while they are upgraded in turn."""
    placement = Placement(GATEWAYS)
    found = [GATEWAYS.index(placement.target(f"t{number}") or 0) for number in range(12)]
    assert found == [7, 0, 5, 7, 8, 9, 1, 3, 1, 3, 1, 6]


def test_moves_are_those_of_topics_that_belong_elsewhere_and_no_more_than_allowed() -> None:
    own, other = GATEWAYS[:2]
    targets = {"a": own, "b": other, "c": None, "d": other, "e": other}
    assert moves(targets, own, targets.get, 10) == [("b", other), ("d", other), ("e", other)]
    assert moves(targets, own, targets.get, 2) == [("b", other), ("d", other)]
    assert moves([], own, targets.get, 10) == []


def test_where_topics_belong_is_found_out_once_while_the_gateways_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed: Counter[str] = Counter()

    def counting(topic: str) -> int:
        hashed[topic] += 1
        return gateway_key(topic)

    monkeypatch.setattr(placement, "gateway_key", counting)
    alone, two = Placement(GATEWAYS[:1]), Placement(GATEWAYS[:2])
    assert moves(TOPICS, GATEWAYS[0], alone.target, 10) == []
    assert not hashed
    found = moves(TOPICS, GATEWAYS[0], two.target, len(TOPICS))
    assert hashed == Counter(TOPICS)
    assert moves(TOPICS, GATEWAYS[0], two.target, len(TOPICS)) == found
    assert hashed == Counter(TOPICS)

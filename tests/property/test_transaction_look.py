"""Whoever reads the published versions, at any moment, sees whole transactions only."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from mainstem.delta_log.system import PINNED_S, UNKNOWN_VERSION
from mainstem.ingest_gateway.transactions.look import BARRIER_AFTER_S, Look

TOPICS = [f"t{n}" for n in range(5)]


@dataclass(eq=False)
class Transaction:
    topics: list[str]
    landed: dict[str, int] = field(default_factory=dict)


class World:
    """Tables, a coordinator's look, and readers, whose steps come in any order."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now_s = 0.0
        self.versions = dict.fromkeys(TOPICS, 0)
        self.look = Look({}, 0.0)
        #: As the table of transactions has it.
        self.published: dict[str, int] = {}
        self.on_the_way: list[Transaction] = []
        self.all: list[Transaction] = []
        self.led_here = {topic: rng.random() < 0.5 for topic in TOPICS}
        self.looks = self.retries = self.fresh = 0

    def step(self) -> None:
        self.now_s += self.rng.random() * 0.02
        self.rng.choice((self.plain, self.decide, self.land, self.land, self.land, self.publish))()

    def plain(self) -> None:
        self.versions[self.rng.choice(TOPICS)] += 1

    def decide(self) -> None:
        if self.look.wants_barrier(self.now_s) or len(self.on_the_way) > 6:
            return
        one = Transaction(self.rng.sample(TOPICS, self.rng.randrange(1, 4)))
        if self.look.decided(one.topics, self.now_s):
            self.published = self.look.pins  # in the commit that decides
        self.on_the_way.append(one)
        self.all.append(one)

    def land(self) -> None:
        """One commit of a topic, of several transactions perhaps."""
        topic = self.rng.choice(TOPICS)
        waiting = [
            one for one in self.on_the_way if topic in one.topics and topic not in one.landed
        ]
        if not waiting:
            return
        self.versions[topic] += 1
        for one in waiting[: self.rng.randrange(1, 3)]:
            one.landed[topic] = self.versions[topic]
            self.look.landed(topic, self.versions[topic])
            if len(one.landed) == len(one.topics):
                self.on_the_way.remove(one)
                self.look.ended()

    def publish(self) -> None:
        if self.look.is_due(self.now_s):
            self.published = self.look.publish(self.version_here, self.now_s)

    def version_here(self, topic: str) -> int:
        return self.versions[topic] if self.led_here[topic] else UNKNOWN_VERSION

    def read(self) -> None:
        """A reader, between whose two looks other things happen."""
        seen = dict(self.versions)
        began_s = self.now_s
        for _ in range(self.rng.randrange(10)):
            self.step()
        assert self.now_s - began_s < PINNED_S
        pins = self.published
        self.looks += 1
        if UNKNOWN_VERSION in pins.values():
            self.retries += 1
            return
        chosen = {topic: pins.get(topic, seen[topic]) for topic in TOPICS}
        self.fresh += sum(chosen[topic] == seen[topic] for topic in TOPICS)
        for one in self.all:
            parts = {
                topic in one.landed and one.landed[topic] <= chosen[topic] for topic in one.topics
            }
            assert len(parts) == 1, f"half of a transaction: {one}, {chosen}"


@pytest.mark.parametrize("seed", range(10))
def test_a_reader_between_any_steps_never_sees_half_of_a_transaction(seed: int) -> None:
    world = World(random.Random(seed))
    for _ in range(2_000):
        world.step()
        if world.rng.random() < 0.2:
            world.read()
    assert world.looks > world.retries, "no reader was ever served"


def test_with_nothing_on_its_way_for_a_while_every_topic_is_read_at_its_newest() -> None:
    look = Look({}, 0.0)
    assert look.decided(["a", "b"], 1.0)
    assert look.pins == {"a": UNKNOWN_VERSION, "b": UNKNOWN_VERSION}
    look.landed("a", 4)
    look.landed("b", 9)
    assert not look.is_due(1.0), "half of it may still be seen"
    look.ended()
    assert look.publish(lambda _: UNKNOWN_VERSION, 1.0) == {"a": 4, "b": 9}
    assert not look.is_due(1.0 + PINNED_S / 2), "there is nothing new"
    assert look.is_due(1.0 + PINNED_S)
    assert look.publish(lambda _: UNKNOWN_VERSION, 1.0 + PINNED_S) == {}
    assert look.decided(["a"], 20.0), "it is to be pinned again by the commit that decides"


def test_transactions_that_overlap_without_end_are_held_back_for_a_moment() -> None:
    look = Look({}, 0.0)
    look.decided(["a"], 0.0)
    look.ended()
    look.publish(lambda _: 1, 0.0)
    look.decided(["a"], 0.1)
    assert not look.wants_barrier(0.1)
    assert look.wants_barrier(BARRIER_AFTER_S)
    look.landed("a", 3)
    look.ended()
    assert not look.wants_barrier(BARRIER_AFTER_S)
    assert look.publish(lambda _: UNKNOWN_VERSION, BARRIER_AFTER_S) == {"a": 3}


def test_a_topic_that_was_deleted_is_pinned_no_more() -> None:
    look = Look({}, 0.0)
    look.decided(["a", "gone"], 0.0)
    look.landed("a", 2)
    look.landed("gone", UNKNOWN_VERSION)
    look.ended()
    assert look.publish(lambda _: UNKNOWN_VERSION, 0.0) == {"a": 2}

"""Partitions that come to a topic after the subscription: read from their start, by whomever."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from tests.unit.client.polling import DEADLINE_S, poll_until

from mainstem.client import OFFSET_INVALID, Consumer, TopicPartition
from mainstem.errors import GatewayUnavailableError
from mainstem.protocol.v1 import groups_pb2
from mainstem.testing._fake_fetch import FakeLogGateway
from mainstem.testing._fake_topic import FakeTopic

MakeConsumer = Callable[..., Consumer]


@pytest.fixture
def gateway(no_leaks: None) -> Iterator[FakeLogGateway]:
    with FakeLogGateway({"one": 1}) as running:
        yield running


@pytest.fixture
def make(gateway: FakeLogGateway) -> Iterator[MakeConsumer]:
    made: list[Consumer] = []

    def make_one(**settings: object) -> Consumer:
        base = {
            "bootstrap.servers": gateway.address,
            "retry.backoff.ms": 5,
            "group.id": "g",
            "auto.offset.reset": "latest",
        }
        made.append(Consumer({**base, **{n.replace("_", "."): v for n, v in settings.items()}}))
        return made[-1]

    yield make_one
    for consumer in made:
        consumer.close()


def first_record(*consumers: Consumer) -> tuple[Consumer, int, bytes | None]:
    """Who got the first record, of which partition, and its value."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        for consumer in consumers:
            record = consumer.poll(0.005)
            if record is not None:
                return consumer, record.partition, record.value
    raise AssertionError("there was no record")


def places(consumer: Consumer) -> list[int]:
    return sorted(tp.partition for tp in consumer.assignment())


def committed(gateway: FakeLogGateway, partition: int = 0) -> int:
    return gateway.groups.offsets.get(("g", "one", partition), -1)


def test_partitions_that_are_added_later_are_read_from_their_start(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    consumer = make()
    consumer.subscribe(["one"])
    poll_until(lambda: committed(gateway) == 0, consumer)
    gateway.topics["one"].grow(2)
    gateway.append("one", 1, [b"first"])
    gateway.groups.topics_changed()
    assert first_record(consumer) == (consumer, 1, b"first")


def test_a_member_that_had_nothing_yet_reads_an_added_partition_from_its_start(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    owner, idle = make(), make()
    owner.subscribe(["one"])
    poll_until(lambda: committed(gateway) == 0, owner)
    idle.subscribe(["one"])
    poll_until(lambda: len(gateway.groups.coordinator.groups["g"].members) == 2, owner, idle)
    gateway.topics["one"].grow(2)
    gateway.append("one", 1, [b"first"])
    gateway.groups.topics_changed()
    assert first_record(owner, idle) == (idle, 1, b"first")
    assert (places(owner), places(idle)) == ([0], [1])


def test_a_member_that_joins_after_partitions_were_added_reads_them_from_their_start(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    # It never says where it begins: what it leaves has no committed offset.
    before = make(enable_auto_commit=False)
    before.subscribe(["one"])
    poll_until(lambda: places(before) == [0], before)
    gateway.grow("one", 2)
    poll_until(lambda: places(before) == [0, 1], before)
    gateway.append("one", 1, [b"first"])
    after = make()
    after.subscribe(["one"])
    poll_until(lambda: len(gateway.groups.coordinator.groups["g"].members) == 2, after)
    before.close()
    assert first_record(after) == (after, 1, b"first")


def test_a_topic_that_was_created_again_follows_auto_offset_reset_but_what_is_added_to_it_does_not(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    consumer = make(enable_auto_commit=False)
    consumer.subscribe(["one"])
    poll_until(lambda: places(consumer) == [0], consumer)
    gateway.topics["one"] = FakeTopic("one", 2, "another")
    gateway.append("one", 1, [b"before"])
    gateway.groups.topics_changed()
    second = TopicPartition("one", 1)
    assert not poll_until(lambda: consumer.position([second])[0].offset == 1, consumer)
    gateway.topics["one"].grow(3)
    gateway.append("one", 2, [b"first"])
    gateway.groups.topics_changed()
    assert first_record(consumer) == (consumer, 2, b"first")


def test_an_added_partition_goes_on_where_the_group_has_committed(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    consumer = make()
    consumer.subscribe(["one"])
    poll_until(lambda: committed(gateway) == 0, consumer)
    gateway.topics["one"].grow(2)
    gateway.append("one", 1, [b"first", b"second"])
    gateway.groups.offsets["g", "one", 1] = 1
    gateway.groups.topics_changed()
    assert first_record(consumer) == (consumer, 1, b"second")


def test_an_added_partition_whose_offset_is_not_in_the_log_any_more_follows_auto_offset_reset(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    consumer = make()
    consumer.subscribe(["one"])
    poll_until(lambda: committed(gateway) == 0, consumer)
    gateway.topics["one"].grow(2)
    gateway.append("one", 1, [b"%d" % number for number in range(5)])
    gateway.trim("one", 1, 3)
    gateway.groups.offsets["g", "one", 1] = 1
    gateway.groups.topics_changed()
    added = TopicPartition("one", 1)
    assert not poll_until(lambda: consumer.position([added])[0].offset == 5, consumer)


def leave_out(gateway: FakeLogGateway, partition: int, times: int) -> list[int]:
    """The next answers to FetchOffsets say nothing of a partition; returns what is left of them."""
    left = [partition] * times

    def shorten(answer: groups_pb2.FetchOffsetsResponse) -> None:
        if left:
            kept = [one for one in answer.offsets if one.partition != left[0]]
            del answer.offsets[:]
            answer.offsets.extend(kept)
            left.pop()

    gateway.groups.on_fetch_offsets = shorten
    return left


def test_a_partition_of_which_the_coordinator_said_nothing_is_asked_for_again(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"0", b"1", b"2"])
    gateway.groups.offsets["g", "one", 0] = 1
    left = leave_out(gateway, 0, times=2)
    consumer = make()
    consumer.subscribe(["one"])
    assert first_record(consumer) == (consumer, 0, b"1")
    assert not left


def test_committed_says_nothing_of_its_own_for_what_the_coordinator_did_not_tell(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.groups.offsets["g", "one", 0] = 1
    consumer = make()
    one, two = (TopicPartition("one", number) for number in (0, 1))
    left = leave_out(gateway, 0, times=2)
    assert [tp.offset for tp in consumer.committed([one, two], DEADLINE_S)] == [1, OFFSET_INVALID]
    assert not left
    leave_out(gateway, 0, times=1_000)
    with pytest.raises(GatewayUnavailableError, match="one-0"):
        consumer.committed([one, two], 0.1)

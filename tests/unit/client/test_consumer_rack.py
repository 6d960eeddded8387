"""A consumer with client.rack: two gateways have the same topic, and only one of them leads it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tests.unit.client.waiting import DEADLINE_S, wait_until

from mainstem.client import Consumer, TopicPartition
from mainstem.client.consumer import sources
from mainstem.errors import (
    LogDamagedError,
    MainstemError,
    OffsetOutOfRangeError,
    StoreUnavailableError,
    UnknownTopicError,
)
from mainstem.protocol.v1 import log_pb2
from mainstem.testing._fake_fetch import FakeLogGateway

MakeConsumer = Callable[..., Consumer]


@pytest.fixture
def leader(no_leaks: None) -> Iterator[FakeLogGateway]:
    with FakeLogGateway({"t": 2}) as running:
        yield running


@pytest.fixture
def near(leader: FakeLogGateway) -> Iterator[FakeLogGateway]:
    """In the consumer's rack; has the leader's records."""
    with FakeLogGateway() as running:
        running.topics = leader.topics
        running.condition = leader.condition
        running.follower_lag_ms = 50
        for topic in leader.topics.values():
            topic.leader = leader.address
        places = [
            log_pb2.GatewayPlace(address=leader.address, rack="there"),
            log_pb2.GatewayPlace(address=running.address, rack="here"),
        ]
        running.places = leader.places = places
        yield running


@pytest.fixture
def make(leader: FakeLogGateway, near: FakeLogGateway) -> Iterator[MakeConsumer]:
    made: list[Consumer] = []

    def make_one(offset: int = 0, **settings: object) -> Consumer:
        config: dict[str, object] = {
            "bootstrap.servers": leader.address,
            "retry.backoff.ms": 5,
            "fetch.max.wait.ms": 50,
            "client.rack": "here",
            "auto.offset.reset": "none",
        }
        config |= {name.replace("_", "."): value for name, value in settings.items()}
        made.append(Consumer(config))
        made[-1].assign([TopicPartition("t", number, offset) for number in range(2)])
        return made[-1]

    yield make_one
    for consumer in made:
        consumer.close()


def add(gateway: FakeLogGateway, *values: bytes) -> None:
    gateway.append("t", 0, values)
    gateway.append("t", 1, values)


def read(consumer: Consumer, count: int) -> list[list[bytes | None]]:
    """`count` records of each of the two partitions."""
    values: list[list[bytes | None]] = [[], []]
    deadline = time.monotonic() + DEADLINE_S
    while sum(map(len, values)) < 2 * count:
        assert time.monotonic() < deadline, values
        for record in consumer.consume(10, 0.2):
            values[record.partition].append(record.value)
    return values


def test_records_come_from_the_gateway_of_the_rack_and_offsets_from_the_leader(
    leader: FakeLogGateway, near: FakeLogGateway, make: MakeConsumer
) -> None:
    add(leader, b"a", b"b")
    consumer = make(auto_offset_reset="earliest", offset=-2)
    assert read(consumer, 2) == [[b"a", b"b"]] * 2
    assert not leader.fetches
    assert near.fetches
    assert leader.lists
    assert not near.lists
    assert consumer.sources() == {
        TopicPartition("t", 0): near.address,
        TopicPartition("t", 1): near.address,
    }


@pytest.mark.parametrize(
    "settings",
    [{"client_rack": ""}, {"client_rack": "nowhere"}, {"fetch_visibility": "durable"}],
    ids=lambda settings: "-".join(settings.values()) or "none",
)
def test_who_has_no_gateway_in_the_rack_or_wants_what_only_leaders_have_reads_from_the_leader(
    leader: FakeLogGateway, near: FakeLogGateway, make: MakeConsumer, settings: dict[str, str]
) -> None:
    add(leader, b"a")
    assert read(make(**settings), 1) == [[b"a"]] * 2
    assert leader.fetches
    assert not near.fetches


def test_gateways_that_do_not_say_where_they_are_are_as_before(
    leader: FakeLogGateway, near: FakeLogGateway, make: MakeConsumer
) -> None:
    near.places = leader.places = []
    add(leader, b"a")
    assert read(make(), 1) == [[b"a"]] * 2
    assert not near.fetches


def test_a_follower_that_lags_gives_what_it_has_and_then_the_leader_is_read_from(
    leader: FakeLogGateway, near: FakeLogGateway, make: MakeConsumer
) -> None:
    add(leader, b"a")
    near.follower_lag_ms = 501
    consumer = make(follower_max_lag_ms=500)
    assert read(consumer, 1) == [[b"a"]] * 2
    wait_until(lambda: bool(leader.fetches))
    add(leader, b"b")
    assert read(consumer, 1) == [[b"b"]] * 2
    assert set(consumer.sources().values()) == {leader.address}


def test_a_follower_at_the_limit_is_read_from(
    leader: FakeLogGateway, near: FakeLogGateway, make: MakeConsumer
) -> None:
    near.follower_lag_ms = 500
    consumer = make(follower_max_lag_ms=500)
    for value in (b"a", b"b", b"c"):
        add(leader, value)
        assert read(consumer, 1) == [[value]] * 2
    assert not leader.fetches


def test_what_a_follower_has_not_heard_of_neither_resets_nor_raises(
    leader: FakeLogGateway, near: FakeLogGateway, make: MakeConsumer
) -> None:
    """The position was committed at the leader's high watermark, or at its durable mark."""
    add(leader, b"a", b"b", b"c")
    near.partition_error = lambda asked: OffsetOutOfRangeError(
        f"offset {asked.offset} is not in [0, 1]", log_start_offset=0, high_watermark=1
    )
    consumer = make(offset=2)
    assert read(consumer, 1) == [[b"c"]] * 2
    assert near.fetches
    assert consumer.position([TopicPartition("t", 0)])[0].offset == 3


def test_what_the_leader_says_counts(
    leader: FakeLogGateway, near: FakeLogGateway, make: MakeConsumer
) -> None:
    add(leader, b"a")
    consumer = make(offset=5)
    with pytest.raises(OffsetOutOfRangeError):
        read(consumer, 1)
    assert near.fetches
    assert leader.fetches


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailableError("its store is down"),
        LogDamagedError("a flipped bit in its cache"),
        UnknownTopicError("it has not heard of it"),
    ],
    ids=lambda error: error.code,
)
@pytest.mark.parametrize("whole_call", [False, True])
def test_no_error_of_a_follower_reaches_the_application(
    leader: FakeLogGateway,
    near: FakeLogGateway,
    make: MakeConsumer,
    error: MainstemError,
    whole_call: bool,
) -> None:
    if whole_call:
        near.on_fetch = lambda _: error
    else:
        near.partition_error = lambda _: error
    add(leader, b"a")
    assert read(make(), 1) == [[b"a"]] * 2
    assert near.fetches or whole_call
    assert leader.fetches


def test_a_follower_that_is_gone_costs_no_record(
    leader: FakeLogGateway, near: FakeLogGateway, make: MakeConsumer
) -> None:
    consumer = make()
    add(leader, b"a")
    assert read(consumer, 1) == [[b"a"]] * 2
    near.stop()
    add(leader, b"b")
    assert read(consumer, 1) == [[b"b"]] * 2


def test_a_follower_that_hangs_is_left_and_its_late_answer_doubles_nothing(
    leader: FakeLogGateway, near: FakeLogGateway, make: MakeConsumer
) -> None:
    thaw = threading.Event()

    def frozen(_: log_pb2.FetchRequest) -> None:
        thaw.wait(DEADLINE_S)

    near.on_fetch = frozen
    add(leader, b"a")
    consumer = make()
    began = time.monotonic()
    assert read(consumer, 1) == [[b"a"]] * 2
    assert time.monotonic() - began < 10, "it waited for the end of the request"
    thaw.set()
    add(leader, b"b")
    assert read(consumer, 1) == [[b"b"]] * 2


def test_a_follower_that_has_recovered_is_read_from_again_when_metadata_name_it(
    leader: FakeLogGateway,
    near: FakeLogGateway,
    make: MakeConsumer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "PAUSE_S", 0.2)
    near.partition_error = lambda _: StoreUnavailableError("its store is down")
    consumer = make()
    add(leader, b"a")
    assert read(consumer, 1) == [[b"a"]] * 2
    near.partition_error = None
    wait_until(lambda: set(consumer.sources().values()) == {near.address})
    before = len(leader.fetches)
    add(leader, b"b")
    assert read(consumer, 1) == [[b"b"]] * 2
    assert len(leader.fetches) <= before + 1, "one that waited already"


def test_a_gateway_that_starts_in_the_rack_is_turned_to_and_one_that_drains_is_left(
    leader: FakeLogGateway, near: FakeLogGateway, make: MakeConsumer
) -> None:
    both, leader.places = leader.places, leader.places[:1]
    consumer = make(metadata_max_age_ms=50)
    add(leader, b"a")
    assert read(consumer, 1) == [[b"a"]] * 2
    assert not near.fetches
    leader.places = both
    wait_until(lambda: bool(near.fetches))
    add(leader, b"b")
    assert read(consumer, 1) == [[b"b"]] * 2
    drains = log_pb2.GatewayPlace(address=near.address, rack="here", draining=True)
    leader.places = near.places = [both[0], drains]
    before = len(leader.fetches)
    wait_until(lambda: len(leader.fetches) > before)
    add(leader, b"c")
    assert read(consumer, 1) == [[b"c"]] * 2

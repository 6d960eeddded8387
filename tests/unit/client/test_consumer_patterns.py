"""Dead letters and leader election, over real gRPC to in-memory gateways."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from mainstem.client import (
    Consumer,
    ConsumerRecord,
    DeadLetterHandler,
    LeaderElection,
    Producer,
    RetryPolicy,
)
from mainstem.errors import ConfigError, InstanceFencedError, UnknownTopicError
from mainstem.testing import FakeGateway
from mainstem.testing._fake_fetch import FakeLogGateway

DEADLINE_S = 20.0


@pytest.fixture
def gateway(no_leaks: None) -> Iterator[FakeLogGateway]:
    with FakeLogGateway({"t": 1}) as running:
        yield running


@pytest.fixture
def letters(no_leaks: None) -> Iterator[FakeGateway]:
    with FakeGateway({"t.dlt": 1}) as running:
        yield running


@pytest.fixture
def consumer(gateway: FakeLogGateway) -> Iterator[Consumer]:
    config = {
        "bootstrap.servers": gateway.address,
        "group.id": "g",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    with Consumer(config) as made:
        made.subscribe(["t"])
        yield made


def wait_until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_what_fails_every_time_is_set_aside_with_the_reason_and_then_committed(
    gateway: FakeLogGateway, letters: FakeGateway, consumer: Consumer
) -> None:
    gateway.append("t", 0, [b"good", b"bad"], timestamp_ms=5, key=b"k", headers=(("h", None),))
    calls: list[bytes | None] = []
    naps: list[float] = []

    def process(record: ConsumerRecord) -> None:
        calls.append(record.value)
        if record.value == b"bad":
            raise ValueError("no good")

    with Producer({"bootstrap.servers": letters.address}) as producer:
        retry = RetryPolicy(attempts=3, backoff_ms=10, factor=3)
        handler = DeadLetterHandler(consumer, producer, process, retry, naps.append)
        assert handler.run_once(DEADLINE_S)
        assert gateway.groups.offsets["g", "t", 0] == 1
        assert handler.run_once(DEADLINE_S)
    assert gateway.groups.offsets["g", "t", 0] == 2
    assert calls == [b"good", b"bad", b"bad", b"bad"]
    assert naps == [0.01, 0.03]
    (letter,) = letters.records("t.dlt")[0]
    assert (letter.key, letter.value) == (b"k", b"bad")
    assert letter.headers == (
        ("h", None),
        ("dlt-topic", b"t"),
        ("dlt-partition", b"0"),
        ("dlt-offset", b"1"),
        ("dlt-timestamp", b"5"),
        ("dlt-exception", b"ValueError"),
        ("dlt-reason", b"no good"),
        ("dlt-attempts", b"3"),
    )


def test_what_works_at_the_second_try_is_no_dead_letter(
    gateway: FakeLogGateway, letters: FakeGateway, consumer: Consumer
) -> None:
    gateway.append("t", 0, [b"a"])
    failures = [ValueError("once")]

    def process(_: ConsumerRecord) -> None:
        if failures:
            raise failures.pop()

    with Producer({"bootstrap.servers": letters.address}) as producer:
        retry = RetryPolicy(backoff_ms=1)
        assert DeadLetterHandler(consumer, producer, process, retry).run_once(DEADLINE_S)
    assert letters.records("t.dlt") == [[]]
    assert gateway.groups.offsets["g", "t", 0] == 1


def test_a_dead_letter_that_is_not_acknowledged_is_not_committed(
    gateway: FakeLogGateway, letters: FakeGateway, consumer: Consumer
) -> None:
    gateway.append("t", 0, [b"a"])
    del letters.topics["t.dlt"]

    def process(_: ConsumerRecord) -> None:
        raise ValueError("never")

    with Producer({"bootstrap.servers": letters.address}) as producer:
        handler = DeadLetterHandler(consumer, producer, process, RetryPolicy(attempts=1))
        with pytest.raises(UnknownTopicError):
            handler.run_once(DEADLINE_S)
    assert gateway.groups.offsets == {}


def test_a_consumer_that_commits_by_itself_is_refused(gateway: FakeLogGateway) -> None:
    with (
        Consumer({"bootstrap.servers": gateway.address, "group.id": "g"}) as consumer,
        Producer({"bootstrap.servers": gateway.address}) as producer,
        pytest.raises(ValueError, match=r"enable\.auto\.commit"),
    ):
        DeadLetterHandler(consumer, producer, lambda _: None)


def test_exactly_one_candidate_leads_and_another_follows_with_a_higher_epoch(
    gateway: FakeLogGateway,
) -> None:
    config = {"bootstrap.servers": gateway.address, "retry.backoff.ms": 5}
    first = LeaderElection("t", config)
    assert first.wait(DEADLINE_S)
    with LeaderElection("t", config) as second:
        assert not second.wait(0.2)
        assert first.is_leader
        epoch = first.epoch
        first.close()
        assert not first.is_leader
        assert second.wait(DEADLINE_S)
        assert second.epoch > epoch


def test_a_leader_that_was_put_out_learns_it(gateway: FakeLogGateway) -> None:
    config = {
        "bootstrap.servers": gateway.address, "retry.backoff.ms": 5, "group.instance.id": "i",
    }  # fmt: skip
    with LeaderElection("t", config) as first:
        assert first.wait(DEADLINE_S)
        with LeaderElection("t", config) as second:
            wait_until(lambda: second.is_leader and not first.is_leader)
            with pytest.raises(InstanceFencedError):
                first.wait(DEADLINE_S)


def test_settings_that_mean_nothing_in_an_election_are_refused(gateway: FakeLogGateway) -> None:
    with pytest.raises(ConfigError):
        LeaderElection("t", {"bootstrap.servers": gateway.address, "enable.auto.commit": True})

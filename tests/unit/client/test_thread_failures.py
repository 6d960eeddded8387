"""A failure in a thread of the client reaches the application at its next call; nobody waits for
ever. The failures are faults of the client's own, put in by the tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tests.unit.client.polling import DEADLINE_S, poll_until

from mainstem.client import Consumer, Producer, TopicPartition
from mainstem.client.consumer.engine import ConsumerEngine
from mainstem.client.consumer.fetching import FetchAnswers
from mainstem.client.consumer.membership import Membership
from mainstem.client.consumer.starts import StartFinder
from mainstem.client.producer import sender as sender_module
from mainstem.client.producer.sender import Sender
from mainstem.errors import ConfigError, InternalError
from mainstem.testing import FakeGateway
from mainstem.testing._fake_fetch import FakeLogGateway

MakeProducer = Callable[..., Producer]

ONE = TopicPartition("one", 0, 0)


@pytest.fixture
def log(no_leaks: None) -> Iterator[FakeLogGateway]:
    with FakeLogGateway({"one": 1}) as running:
        running.append("one", 0, [b"%d" % number for number in range(10)])
        yield running


@pytest.fixture
def consumer(log: FakeLogGateway) -> Iterator[Consumer]:
    one = Consumer(
        {
            "bootstrap.servers": log.address,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "retry.backoff.ms": 5,
        }
    )
    yield one
    one.close()


def fails_once(method: Callable[..., object]) -> Callable[..., object]:
    failed: list[bool] = []

    def call(*args: object, **options: object) -> object:
        if not failed:
            failed.append(True)
            raise ZeroDivisionError("put in by the test")
        return method(*args, **options)

    return call


def test_a_heartbeat_thread_that_dies_is_told_by_poll_and_another_subscribe_begins_again(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Membership, "heartbeat", fails_once(Membership.heartbeat))
    consumer.subscribe(["one"])
    with pytest.raises(InternalError, match=r"heartbeat thread.*ZeroDivisionError"):
        consumer.poll(DEADLINE_S)
    consumer.subscribe(["one"])
    record = consumer.poll(DEADLINE_S)
    assert record is not None
    assert record.offset == 0


def test_the_thread_that_finds_leaders_tells_once_and_goes_on(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StartFinder, "find", fails_once(StartFinder.find))
    consumer.assign([TopicPartition("one", 0)])
    with pytest.raises(InternalError, match=r"leaders and offsets.*ZeroDivisionError"):
        consumer.poll(DEADLINE_S)
    assert len(consumer.consume(10, DEADLINE_S)) == 10


def test_a_fetching_thread_tells_once_and_goes_on(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FetchAnswers, "take", fails_once(FetchAnswers.take))
    consumer.assign([ONE])
    with pytest.raises(InternalError, match=r"fetching from .*ZeroDivisionError"):
        consumer.poll(DEADLINE_S)
    assert [record.offset for record in consumer.consume(10, DEADLINE_S)] == list(range(10))


def test_a_thread_that_goes_on_failing_tells_once(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(StartFinder, "find", fail)
    consumer.assign([TopicPartition("one", 0)])
    with pytest.raises(InternalError):
        consumer.poll(DEADLINE_S)
    assert consumer.poll(0.2) is None


def test_an_answer_that_cannot_be_taken_fails_every_record_at_once_and_the_producer_with_them(
    gateway: FakeGateway, make_producer: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("put in by the test")

    producer = make_producer()
    monkeypatch.setattr(sender_module, "accepted", fail)
    first = producer.send("one", b"a")
    assert isinstance(first.exception(DEADLINE_S), InternalError)
    assert producer.poll() == 0
    with pytest.raises(InternalError, match=r"taking an answer.*ZeroDivisionError"):
        producer.produce("one", b"b")
    with pytest.raises(InternalError):
        producer.flush()
    producer.close()
    assert len(producer) == 0


def test_a_producer_whose_background_thread_fails_waits_for_nothing(
    gateway: FakeGateway, make_producer: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.stop()
    producer = make_producer(delivery_timeout_ms=60_000, max_block_ms=500)
    gateway.start()
    assert producer.send("one", b"").result(DEADLINE_S).offset == 0
    gateway.stop()

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Sender, "_next_look", fail)
    future = producer.send("one", b"")
    assert isinstance(future.exception(DEADLINE_S), InternalError)
    with pytest.raises(InternalError):
        producer.flush()


@pytest.mark.parametrize("name", ["group.id", "group.instance.id", "client.rack", "client.id"])
def test_a_setting_that_cannot_be_sent_is_refused_at_once(log: FakeLogGateway, name: str) -> None:
    config = {"bootstrap.servers": log.address, "group.id": "g", name: "half \ud800"}
    with pytest.raises(ConfigError, match=name):
        Consumer(config)


def test_a_late_reset_does_not_take_back_what_the_application_has_committed(
    log: FakeLogGateway, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, go = threading.Event(), threading.Event()
    was_reset = consumer._engine.commits.was_reset

    def late(reset: object) -> None:
        held.set()
        go.wait(DEADLINE_S)
        was_reset(reset)  # type: ignore[arg-type]

    monkeypatch.setattr(consumer._engine._worker._starts, "_on_reset", late)
    consumer.subscribe(["one"])
    poll_until(held.is_set, consumer)
    consumer.commit(offsets=[TopicPartition("one", 0, 7)], asynchronous=False)
    go.set()
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:
        assert log.groups.offsets["g", "one", 0] == 7
        time.sleep(0.01)


def test_a_reset_commits_where_it_was_and_not_what_was_handed_out_since(
    log: FakeLogGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": log.address,
            "group.id": "h",
            "auto.offset.reset": "earliest",
            "enable.auto.offset.store": False,
        }
    )
    held, go = threading.Event(), threading.Event()
    was_reset = consumer._engine.commits.was_reset

    def late(reset: object) -> None:
        held.set()
        go.wait(DEADLINE_S)
        was_reset(reset)  # type: ignore[arg-type]

    monkeypatch.setattr(consumer._engine._worker._starts, "_on_reset", late)
    consumer.subscribe(["one"])
    found = poll_until(held.is_set, consumer)
    while len(found) < 5:
        found += consumer.consume(1, DEADLINE_S)
    go.set()
    poll_until(lambda: ("h", "one", 0) in log.groups.offsets, consumer)
    assert log.groups.offsets["h", "one", 0] == 0
    consumer.close()


def test_threads_are_gone_after_a_failure_and_close(
    log: FakeLogGateway, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Membership, "heartbeat", fails_once(Membership.heartbeat))
    consumer.subscribe(["one"])
    with pytest.raises(InternalError):
        consumer.poll(DEADLINE_S)
    consumer.close()
    assert isinstance(consumer._engine, ConsumerEngine)
    assert not [t for t in threading.enumerate() if t.name.startswith("mainstem-")]

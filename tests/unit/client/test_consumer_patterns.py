"""Dead letters and leader election, over real gRPC to in-memory gateways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.client.waiting import DEADLINE_S, wait_until

from mainstem.client import (
    Consumer,
    ConsumerRecord,
    DeadLetterHandler,
    LeaderElection,
    Producer,
    RetryPolicy,
)
from mainstem.errors import (
    ConfigError,
    InstanceFencedError,
    InvalidRecordError,
    InvalidTopicError,
    RecordTooLargeError,
    UnknownTopicError,
)
from mainstem.testing import FakeGateway
from mainstem.testing._fake_fetch import FakeLogGateway


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
    gateway.append("t", 0, [b"a", b"b"])
    calls: list[bytes | None] = []

    def process(record: ConsumerRecord) -> None:
        calls.append(record.value)
        if record.value == b"a":
            raise ValueError("never")

    with Producer({"bootstrap.servers": letters.address}) as producer:
        handler = DeadLetterHandler(consumer, producer, process, RetryPolicy(attempts=1))
        there = letters.topics.pop("t.dlt")
        for _ in range(2):
            with pytest.raises(UnknownTopicError):
                handler.run_once(DEADLINE_S)
        assert gateway.groups.offsets == {}
        # The application has caught the error, and mends what was wrong: nothing was passed.
        letters.topics["t.dlt"] = there
        assert handler.run_once(DEADLINE_S)
        assert handler.run_once(DEADLINE_S)
    assert calls == [b"a", b"a", b"a", b"b"]
    assert gateway.groups.offsets == {("g", "t", 0): 2}
    (letter,) = letters.records("t.dlt")[0]
    assert letter.value == b"a"


def test_an_interruption_in_the_work_passes_no_record(
    gateway: FakeLogGateway, letters: FakeGateway, consumer: Consumer
) -> None:
    gateway.append("t", 0, [b"a", b"b"])
    interruptions: list[BaseException] = [KeyboardInterrupt()]
    calls: list[bytes | None] = []

    def process(record: ConsumerRecord) -> None:
        calls.append(record.value)
        if interruptions:
            raise interruptions.pop()

    with Producer({"bootstrap.servers": letters.address}) as producer:
        handler = DeadLetterHandler(consumer, producer, process)
        with pytest.raises(KeyboardInterrupt):
            handler.run_once(DEADLINE_S)
        assert handler.run_once(DEADLINE_S)
    assert calls == [b"a", b"a"]


class BadText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("bad str")


def fails(_: ConsumerRecord) -> None:
    raise BadText


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"values": [b"v" * 9_000]}, (b"k", b"", ("h",), b"value")),
        (
            {"values": [b"v"], "headers": (("h", b"x" * 9_000),)},
            (b"k", b"", (), b"value,headers"),
        ),
        ({"values": [b"v"], "key": b"k" * 9_000}, (b"t-0@0", b"", (), b"value,headers,key")),
    ],
)
def test_a_dead_letter_that_is_too_large_has_what_fits_and_says_what_is_missing(
    gateway: FakeLogGateway,
    letters: FakeGateway,
    consumer: Consumer,
    record: dict[str, Any],
    expected: tuple[object, ...],
) -> None:
    gateway.append("t", 0, **{"key": b"k", "headers": (("h", b"v"),), **record})
    letters.on_produce = lambda request: (
        RecordTooLargeError("too large") if request.ByteSize() > 8_000 else None
    )
    with Producer({"bootstrap.servers": letters.address}) as producer:
        handler = DeadLetterHandler(consumer, producer, fails, RetryPolicy(attempts=1))
        assert handler.run_once(DEADLINE_S)
    assert gateway.groups.offsets == {("g", "t", 0): 1}
    (letter,) = letters.records("t.dlt")[0]
    headers = dict(letter.headers)
    own = tuple(name for name, _ in letter.headers if not name.startswith("dlt-"))
    assert (letter.key, letter.value, own, headers["dlt-left-out"]) == expected
    assert (headers["dlt-topic"], headers["dlt-partition"], headers["dlt-offset"]) == (
        *(b"t", b"0", b"0"),
    )
    assert headers["dlt-reason"] == b"its text cannot be had"


def test_a_compacted_topic_gets_a_key_for_a_record_without_one(
    gateway: FakeLogGateway, letters: FakeGateway, consumer: Consumer
) -> None:
    gateway.append("t", 0, [b"v"])
    errors = [InvalidRecordError("record 0 has no key")]
    letters.on_produce = lambda _: errors.pop() if errors else None
    with Producer({"bootstrap.servers": letters.address}) as producer:
        handler = DeadLetterHandler(consumer, producer, fails, RetryPolicy(attempts=1))
        assert handler.run_once(DEADLINE_S)
    (letter,) = letters.records("t.dlt")[0]
    assert (letter.key, letter.value) == (b"t-0@0", b"v")
    assert dict(letter.headers)["dlt-null-key"] == b"1"


def test_a_pattern_does_not_process_the_dead_letters(
    gateway: FakeLogGateway, letters: FakeGateway, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.recreate("t.dlt", 1)
    gateway.append("t", 0, [b"a"])
    gateway.append("t.dlt", 0, [b"a dead letter"] * 3)
    config = {
        "bootstrap.servers": gateway.address, "group.id": "p", "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }  # fmt: skip
    calls: list[str] = []

    def process(record: ConsumerRecord) -> None:
        calls.append(record.topic)
        raise ValueError

    with Consumer(config) as consumer, Producer({"bootstrap.servers": letters.address}) as producer:
        consumer.subscribe("^t")
        handler = DeadLetterHandler(consumer, producer, process, RetryPolicy(attempts=1))
        for _ in range(4):
            assert handler.run_once(DEADLINE_S)
    assert calls == ["t"]
    assert len(letters.records("t.dlt")[0]) == 1
    assert caplog.text.count("are passed over") == 1


@pytest.mark.parametrize(
    ("topics", "error"),
    [
        (["missing"], UnknownTopicError),
        (["t" * 247], InvalidTopicError),
        (["t", "t.dlt"], ValueError),
    ],
)
def test_a_topic_of_dead_letters_that_cannot_be_is_told_at_once(
    gateway: FakeLogGateway, letters: FakeGateway, topics: list[str], error: type[Exception]
) -> None:
    config = {"bootstrap.servers": gateway.address, "group.id": "g", "enable.auto.commit": False}
    with Consumer(config) as consumer, Producer({"bootstrap.servers": letters.address}) as producer:
        consumer.subscribe(topics)
        with pytest.raises(error):
            DeadLetterHandler(consumer, producer, fails)
        consumer.unsubscribe()
        assert consumer.subscription() == []


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

"""Putting dead letters back, over real gRPC between two in-memory gateways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mainstem.client import Consumer, ConsumerRecord, DeadLetter, Producer, Redrive, TopicPartition
from mainstem.errors import InvalidRecordError, MainstemError, UnknownTopicError
from mainstem.testing import FakeGateway
from mainstem.testing._fake_fetch import FakeLogGateway

DEADLINE_S = 20.0

Headers = tuple[tuple[str, bytes | None], ...]


def dead(topic: str = "t", partition: int = 1, timestamp: int = 5, *own: Any) -> Headers:
    """The headers of a dead letter, after the record's own."""
    facts = {
        "topic": topic,
        "partition": partition,
        "offset": 7,
        "timestamp": timestamp,
        "exception": "ValueError",
        "reason": "no good",
        "attempts": 3,
    }
    return (*own, *((f"dlt-{name}", str(fact).encode()) for name, fact in facts.items()))


def letter(headers: Headers) -> DeadLetter:
    return DeadLetter.read(ConsumerRecord("t.dlt", 0, 3, 99, 0, b"k", b"v", headers))


@pytest.fixture
def letters(no_leaks: None) -> Iterator[FakeLogGateway]:
    with FakeLogGateway({"t.dlt": 2}) as running:
        yield running


@pytest.fixture
def targets(no_leaks: None) -> Iterator[FakeGateway]:
    with FakeGateway({"t": 3, "u": 1}) as running:
        yield running


@pytest.fixture
def consumer(letters: FakeLogGateway) -> Iterator[Consumer]:
    with Consumer(
        {
            "bootstrap.servers": letters.address,
            "group.id": "g",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    ) as made:
        made.subscribe(["t.dlt"])
        yield made


@pytest.fixture
def producer(targets: FakeGateway) -> Iterator[Producer]:
    with Producer({"bootstrap.servers": targets.address, "max.block.ms": 2_000}) as made:
        yield made


def committed(letters: FakeLogGateway) -> dict[int, int]:
    return {number: at for (_, _, number), at in letters.groups.offsets.items()}


def test_a_dead_letter_is_taken_apart() -> None:
    found = letter(dead("t", 1, 5, ("h", b"1"), ("dlt-topic", b"older"), ("n", None)))
    assert (found.topic, found.partition, found.offset, found.timestamp) == ("t", 1, 7, 5)
    assert (found.exception, found.reason, found.redrive_count) == ("ValueError", "no good", 0)
    assert found.headers == (("h", b"1"), ("dlt-topic", b"older"), ("n", None))


def test_a_dead_letter_of_a_dead_letter_goes_back_one_step() -> None:
    first = dead("t", 1, 5, ("dlt-redrive-count", b"2"))
    found = letter((*first, *dead("t.dlt", 0, 9)))
    assert (found.topic, found.partition, found.redrive_count) == ("t.dlt", 0, 2)
    assert found.headers == first


@pytest.mark.parametrize(
    "headers", [(), (("dlt-topic", None),), (("dlt-partition", b"x"), ("dlt-redrive-count", b"?"))]
)
def test_what_no_header_says_is_none(headers: Headers) -> None:
    found = letter(headers)
    assert (found.topic, found.partition, found.redrive_count) == (None, None, 0)


def test_a_record_goes_back_as_it_was_with_a_count_and_is_committed_then(
    letters: FakeLogGateway, targets: FakeGateway, consumer: Consumer, producer: Producer
) -> None:
    own = (("h", b"1"), ("dlt-redrive-count", b"4"))
    letters.append("t.dlt", 0, [None], key=b"k", timestamp_ms=99, headers=dead("t", 1, 5, *own))
    done: list[Any] = []
    redrive = Redrive(consumer, producer)
    assert redrive.run_once(DEADLINE_S, done=lambda *what: done.append(what)) == 1
    (record,) = targets.records("t")[1]
    assert (record.key, record.value, record.timestamp_ms) == (b"k", None, 5)
    assert record.headers == (("h", b"1"), ("dlt-redrive-count", b"5"))
    assert committed(letters) == {0: 1}
    ((found, where),) = done
    assert (found.offset, where.topic, where.partition, where.offset) == (7, "t", 1, 0)
    assert redrive.run_once(0.05) == 0


def test_what_does_not_have_its_records_value_is_passed_over_and_committed(
    letters: FakeLogGateway, targets: FakeGateway, consumer: Consumer, producer: Producer
) -> None:
    whole = dead("t", 1, 5)
    letters.append("t.dlt", 0, [b"a"], headers=whole)
    letters.append("t.dlt", 0, [b""], headers=(*whole, ("dlt-left-out", b"value,headers")))
    redrive = Redrive(consumer, producer)
    assert redrive.run_once(DEADLINE_S) == 1
    assert redrive.incomplete_count == 1
    assert [record.value for record in targets.records("t")[1]] == [b"a"]
    assert committed(letters) == {0: 2}


def test_what_the_dead_letter_of_a_dead_letter_left_out_is_its_own() -> None:
    inner = (*dead("t"), ("dlt-left-out", b"value"), ("dlt-null-key", b"1"))
    again = letter((*inner, *dead("t.dlt")))
    assert (again.topic, again.left_out, again.key, again.headers) == ("t.dlt", (), b"k", inner)
    first = letter(inner)
    assert (first.topic, first.left_out, first.key, first.headers) == ("t", ("value",), None, ())


def test_where_the_topic_has_no_such_partition_the_key_decides(
    letters: FakeLogGateway, targets: FakeGateway, consumer: Consumer, producer: Producer
) -> None:
    letters.append("t.dlt", 0, [b"a"], key=b"foobar", headers=dead("t", 9))
    assert Redrive(consumer, producer).run_once(DEADLINE_S) == 1
    # murmur2("foobar") is -790332482: see the vectors of the Java client.
    assert [len(one) for one in targets.records("t")] == _at((-790332482 & 0x7FFFFFFF) % 3)


def test_by_key_the_original_partition_does_not_count(
    letters: FakeLogGateway, targets: FakeGateway, consumer: Consumer, producer: Producer
) -> None:
    at = (-790332482 & 0x7FFFFFFF) % 3
    letters.append("t.dlt", 0, [b"a"], key=b"foobar", headers=dead("t", (at + 1) % 3))
    assert Redrive(consumer, producer, by_key=True, now=True).run_once(DEADLINE_S) == 1
    assert [len(one) for one in targets.records("t")] == _at(at)
    assert targets.records("t")[at][0].timestamp_ms > 1_600_000_000_000, "the current time"


def _at(partition: int) -> list[int]:
    return [int(number == partition) for number in range(3)]


def test_another_topic_can_be_named_also_for_what_does_not_say_where_it_came_from(
    letters: FakeLogGateway, targets: FakeGateway, consumer: Consumer, producer: Producer
) -> None:
    letters.append("t.dlt", 0, [b"a"], headers=dead("t", 2))
    letters.append("t.dlt", 0, [b"b"], timestamp_ms=42)
    assert Redrive(consumer, producer, to="u").run_once(DEADLINE_S) == 2
    assert [(one.value, one.timestamp_ms) for one in targets.records("u")[0]] == [
        (b"a", 5),
        (b"b", 42),
    ]
    assert targets.records("t") == [[], [], []]


def test_what_cannot_be_put_back_stops_it_after_what_was_before_and_is_not_passed(
    letters: FakeLogGateway, targets: FakeGateway, consumer: Consumer, producer: Producer
) -> None:
    letters.append("t.dlt", 0, [b"a"], headers=dead())
    letters.append("t.dlt", 0, [b"lost?"])
    letters.append("t.dlt", 0, [b"b"], headers=dead())
    redrive = Redrive(consumer, producer)
    for _ in range(2):
        with pytest.raises(InvalidRecordError, match=r"t\.dlt-0@1 has no header dlt-topic"):
            redrive.run_once(DEADLINE_S)
        assert committed(letters) == {0: 1}
    assert [one.value for one in targets.records("t")[1]] == [b"a"]
    assert Redrive(consumer, producer, to="t").run_once(DEADLINE_S) == 2
    assert committed(letters) == {0: 3}


def test_a_record_that_is_not_acknowledged_is_not_committed_nor_what_is_after_it(
    letters: FakeLogGateway, targets: FakeGateway, consumer: Consumer, producer: Producer
) -> None:
    for topic, value in (("u", b"a"), ("t", b"refused"), ("u", b"c")):
        letters.append("t.dlt", 0, [value], headers=dead(topic, 0))
    targets.on_produce = lambda request: (
        InvalidRecordError("not that one") if request.topic == "t" else None
    )
    redrive = Redrive(consumer, producer)
    with pytest.raises(InvalidRecordError, match="not that one"):
        redrive.run_once(DEADLINE_S)
    assert committed(letters) == {0: 1}
    targets.on_produce = None
    assert redrive.run_once(DEADLINE_S) == 2, "it begins again with what was not acknowledged"
    assert committed(letters) == {0: 3}
    assert [one.value for one in targets.records("t")[0]] == [b"refused"]


def test_a_topic_that_is_gone_is_told(
    letters: FakeLogGateway, targets: FakeGateway, consumer: Consumer, producer: Producer
) -> None:
    letters.append("t.dlt", 0, [b"a"], headers=dead("gone", 0))
    with pytest.raises(UnknownTopicError, match="gone"):
        Redrive(consumer, producer).run_once(DEADLINE_S)
    assert committed(letters) == {}


def test_what_its_topic_would_remove_at_once_is_refused(
    letters: FakeLogGateway, targets: FakeGateway, consumer: Consumer, producer: Producer
) -> None:
    letters.append("t.dlt", 0, [b"a"], headers=dead("t", 1, 1_000))
    redrive = Redrive(consumer, producer, kept_since_ms={"t": 1_001}.__getitem__)
    with pytest.raises(InvalidRecordError, match=r"retention\.ms"):
        redrive.run_once(DEADLINE_S)
    assert committed(letters) == {}
    kept = Redrive(consumer, producer, kept_since_ms={"t": 1_000}.__getitem__)
    assert kept.run_once(DEADLINE_S) == 1


def test_what_comes_after_the_end_that_was_given_stays(
    letters: FakeLogGateway, targets: FakeGateway, consumer: Consumer, producer: Producer
) -> None:
    for value in (b"a", b"b", b"c"):
        letters.append("t.dlt", 0, [value], headers=dead())
    first = TopicPartition("t.dlt", 0)
    redrive = Redrive(consumer, producer)
    assert redrive.run_once(DEADLINE_S, ends={first: 2}) == 2
    assert committed(letters) == {0: 2}
    assert redrive.run_once(0.05, ends={first: 2}) == 0
    assert [tp.offset for tp in consumer.position([first])] == [2]


def test_the_limit_is_how_many_go_at_a_time(
    letters: FakeLogGateway, targets: FakeGateway, consumer: Consumer, producer: Producer
) -> None:
    for _ in range(5):
        letters.append("t.dlt", 0, [b"a"], headers=dead())
    redrive = Redrive(consumer, producer)
    assert [redrive.run_once(DEADLINE_S, limit=2) for _ in range(3)] == [2, 2, 1]


def test_a_commit_that_is_refused_is_told_and_the_records_come_again(
    letters: FakeLogGateway, targets: FakeGateway, consumer: Consumer, producer: Producer
) -> None:
    letters.append("t.dlt", 0, [b"a"], headers=dead())
    letters.groups.on_commit = lambda _: InvalidRecordError("not now")
    with pytest.raises(MainstemError, match="not now"):
        Redrive(consumer, producer).run_once(DEADLINE_S)
    assert committed(letters) == {}
    letters.groups.on_commit = None
    again = {"bootstrap.servers": letters.address, "group.id": "g", "enable.auto.commit": False}
    consumer.close()
    with Consumer({**again, "auto.offset.reset": "earliest"}) as second:
        second.subscribe(["t.dlt"])
        assert Redrive(second, producer).run_once(DEADLINE_S) == 1
    assert committed(letters) == {0: 1}


def test_a_consumer_that_commits_by_itself_is_refused(
    letters: FakeLogGateway, producer: Producer
) -> None:
    with (
        Consumer({"bootstrap.servers": letters.address, "group.id": "g"}) as consumer,
        pytest.raises(ValueError, match=r"enable\.auto\.commit"),
    ):
        Redrive(consumer, producer)

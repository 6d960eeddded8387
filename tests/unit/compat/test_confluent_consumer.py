"""confluent-kafka's Consumer, against a gateway in memory with the real coordinator."""

from __future__ import annotations

import _thread
import json
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.client.waiting import wait_until

from mainstem.compat.confluent import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    DeserializingConsumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from mainstem.compat.confluent.error import ConsumeError, ValueDeserializationError
from mainstem.compat.confluent.serialization import StringDeserializer
from mainstem.testing._fake_fetch import FakeLogGateway

ONE = TopicPartition("one", 0)
DEADLINE_S = 20.0

MakeConsumer = Callable[..., Consumer]


@pytest.fixture
def make(log: FakeLogGateway) -> Iterator[MakeConsumer]:
    made: list[Consumer] = []

    def make_one(**settings: Any) -> Consumer:
        config = {
            name if name.endswith("_cb") or name == "on_commit" else name.replace("_", "."): value
            for name, value in settings.items()
        }
        base = {
            "bootstrap.servers": log.address,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "retry.backoff.ms": 5,
        }
        made.append(Consumer({**base, **config}))
        return made[-1]

    yield make_one
    for consumer in made:
        consumer.close()


def read(consumer: Consumer, count: int) -> list[Message]:
    """So many messages and events."""
    found = consumer.consume(count, DEADLINE_S)
    assert len(found) == count
    return found


def until(what: Callable[[], object], consumer: Consumer) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < deadline
        consumer.poll(0.01)


def test_a_message_has_its_parts_as_methods(log: FakeLogGateway, make: MakeConsumer) -> None:
    log.append("one", 0, [b"a", None], timestamp_ms=1234, key=b"k", headers=(("h", b"x"),))
    log.append("one", 0, [b"c"])
    consumer = make()
    consumer.assign([ONE])
    message = consumer.poll(DEADLINE_S)
    assert message is not None
    assert message.error() is None
    assert (message.topic(), message.partition(), message.offset()) == ("one", 0, 0)
    assert (message.key(), message.value(), message.headers()) == (b"k", b"a", [("h", b"x")])
    assert message.timestamp() == (TIMESTAMP_CREATE_TIME, 1234)
    assert (message.latency(), message.leader_epoch()) == (None, None)
    empty, bare = read(consumer, 2)
    assert empty.value() is None
    assert len(empty) == 0
    assert bare.headers() is None
    assert consumer.poll(0) is None
    assert consumer.consume(5, 0.01) == []


def test_the_rewind_idiom_works_inside_on_assign(log: FakeLogGateway, make: MakeConsumer) -> None:
    log.append("one", 0, [b"a", b"b"])
    consumer = make(auto_offset_reset="latest")

    def rewind(given: Consumer, partitions: list[TopicPartition]) -> None:
        assert given is consumer
        for partition in partitions:
            partition.offset = OFFSET_BEGINNING
        given.assign(partitions)

    consumer.subscribe(["one"], on_assign=rewind)
    assert [message.value() for message in read(consumer, 2)] == [b"a", b"b"]
    assert consumer.assignment() == [ONE]
    assert consumer.memberid()
    assert consumer.consumer_group_metadata() is not None


def test_on_revoke_may_commit_and_unassign(log: FakeLogGateway, make: MakeConsumer) -> None:
    log.append("one", 0, [b"a", b"b"])
    consumer, told = make(enable_auto_commit=False), []

    def on_revoke(given: Consumer, partitions: list[TopicPartition]) -> None:
        told.append((partitions, given.commit(asynchronous=False)))
        given.incremental_unassign(partitions)

    consumer.subscribe(["one"], on_revoke=on_revoke)
    read(consumer, 2)
    consumer.close()
    ((partitions, committed),) = told
    assert partitions == [ONE]
    assert committed is not None
    assert [tp.offset for tp in committed] == [2]


def test_commits_of_messages_offsets_and_everything(
    log: FakeLogGateway, make: MakeConsumer
) -> None:
    log.append("one", 0, [b"a", b"b", b"c"])
    consumer = make(enable_auto_commit=False)
    consumer.assign([ONE])
    first, _ = read(consumer, 2)
    (done,) = consumer.commit(message=first, asynchronous=False) or []
    assert (done.topic, done.partition, done.offset) == ("one", 0, 1)
    (done,) = consumer.commit(asynchronous=False) or []
    assert done.offset == 2
    asked = [TopicPartition("one", 0, 3, "note")]
    assert consumer.commit(offsets=asked, asynchronous=False) == [ONE]
    (found,) = consumer.committed([ONE], timeout=DEADLINE_S)
    assert (found.offset, found.metadata, found.error) == (3, "note", None)
    with pytest.raises(ValueError, match="exclusive"):
        consumer.commit(first, [ONE])
    with pytest.raises(TypeError):
        consumer.commit("a message")  # type: ignore[arg-type]


def test_a_commit_of_nothing_says_no_offset(make: MakeConsumer) -> None:
    consumer = make()
    consumer.assign([ONE])
    with pytest.raises(KafkaException) as caught:
        consumer.commit(asynchronous=False)
    assert caught.value.args[0] == KafkaError._NO_OFFSET


def test_on_commit_is_told_of_asynchronous_commits(log: FakeLogGateway, make: MakeConsumer) -> None:
    log.append("one", 0, [b"a"])
    told: list[tuple[Any, list[TopicPartition]]] = []
    consumer = make(
        enable_auto_commit=False, on_commit=lambda error, tps: told.append((error, tps))
    )
    consumer.assign([ONE])
    (message,) = read(consumer, 1)
    assert consumer.commit(message) is None
    until(lambda: told, consumer)
    ((error, partitions),) = told
    assert error is None
    assert [(tp.topic, tp.offset) for tp in partitions] == [("one", 1)]


def test_stored_offsets_are_what_is_committed(log: FakeLogGateway, make: MakeConsumer) -> None:
    log.append("one", 0, [b"a", b"b"])
    consumer = make(enable_auto_commit=False, enable_auto_offset_store=False)
    consumer.assign([ONE])
    first, _ = read(consumer, 2)
    consumer.store_offsets(first)
    (done,) = consumer.commit(asynchronous=False) or []
    assert done.offset == 1
    consumer.store_offsets(offsets=[TopicPartition("one", 0, 2)])
    (done,) = consumer.commit(asynchronous=False) or []
    assert done.offset == 2


def test_offsets_that_are_stored_automatically_cannot_be_stored_by_hand(make: MakeConsumer) -> None:
    consumer = make()
    consumer.assign([ONE])
    with pytest.raises(KafkaException) as caught:
        consumer.store_offsets(offsets=[TopicPartition("one", 0, 1)])
    assert caught.value.args[0] == KafkaError._INVALID_ARG


def test_the_end_of_each_partition_is_told_once_until_more_comes(
    log: FakeLogGateway, make: MakeConsumer
) -> None:
    log.append("t", 0, [b"a"])
    consumer = make(enable_partition_eof=True)
    consumer.assign([TopicPartition("t", 0, 0), TopicPartition("t", 1, 0)])
    found = read(consumer, 3)
    ends = [message for message in found if message.error() is not None]
    assert {(one.partition(), one.offset()) for one in ends} == {(0, 1), (1, 0)}
    assert {one.error() for one in ends} == {KafkaError._PARTITION_EOF}
    assert consumer.poll(0.25) is None
    log.append("t", 1, [b"b"])
    message, end = read(consumer, 2)
    assert message.value() == b"b"
    assert end.error() == KafkaError._PARTITION_EOF
    assert (end.partition(), end.offset()) == (1, 1)


def test_partitions_are_added_and_taken_away_one_by_one(
    log: FakeLogGateway, make: MakeConsumer
) -> None:
    for partition in range(3):
        log.append("t", partition, [b"%d" % partition])
    consumer = make()
    consumer.assign([TopicPartition("t", 0, 0)])
    assert read(consumer, 1)[0].value() == b"0"
    consumer.incremental_assign([TopicPartition("t", 1, 0)])
    assert read(consumer, 1)[0].value() == b"1"
    consumer.incremental_unassign([TopicPartition("t", 0)])
    assert consumer.assignment() == [TopicPartition("t", 1)]
    consumer.unassign()
    assert consumer.assignment() == []


def test_positions_seeks_pauses_and_watermarks(log: FakeLogGateway, make: MakeConsumer) -> None:
    log.append("one", 0, [b"a", b"b", b"c"])
    consumer = make()
    consumer.assign([ONE])
    assert [tp.offset for tp in consumer.position([ONE])] == [OFFSET_INVALID]
    assert consumer.get_watermark_offsets(ONE, cached=True) == (OFFSET_INVALID, OFFSET_INVALID)
    read(consumer, 2)
    assert [tp.offset for tp in consumer.position([ONE])] == [2]
    assert consumer.get_watermark_offsets(ONE, timeout=DEADLINE_S) == (0, 3)
    assert consumer.get_watermark_offsets(ONE, cached=True) == (0, 3)
    consumer.seek(TopicPartition("one", 0, 1))
    assert read(consumer, 1)[0].value() == b"b"
    consumer.seek(TopicPartition("one", 0, OFFSET_BEGINNING))
    consumer.pause([ONE])
    assert consumer.poll(0.1) is None
    consumer.resume([ONE])
    assert read(consumer, 1)[0].value() == b"a"
    with pytest.raises(KafkaException) as caught:
        consumer.seek(TopicPartition("t", 0, 1))
    assert caught.value.args[0] == KafkaError._STATE


def test_offsets_are_found_by_time(log: FakeLogGateway, make: MakeConsumer) -> None:
    log.append("one", 0, [b"a"], timestamp_ms=1_000)
    log.append("one", 0, [b"b"], timestamp_ms=2_000)
    consumer = make()
    for at, wanted in ((0, 0), (1_500, 1), (9_000, OFFSET_END)):
        (found,) = consumer.offsets_for_times([TopicPartition("one", 0, at)], timeout=DEADLINE_S)
        assert found.offset == wanted


def test_names_and_patterns_may_be_subscribed_together(
    log: FakeLogGateway, make: MakeConsumer
) -> None:
    consumer = make()
    consumer.subscribe(["^o.*", "t"])
    until(lambda: len(consumer.assignment()) == 4, consumer)
    consumer.unsubscribe()
    assert consumer.assignment() == []


def test_an_error_comes_as_a_message(log: FakeLogGateway, make: MakeConsumer) -> None:
    consumer = make()
    consumer.assign([TopicPartition("nowhere", 0, 0)])
    message = consumer.poll(DEADLINE_S)
    assert message is not None
    assert message.error() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert message.topic() == "nowhere"
    with pytest.raises(KafkaException):
        consumer.commit(message)


def test_statistics_tell_positions_and_lag(log: FakeLogGateway, make: MakeConsumer) -> None:
    log.append("one", 0, [b"a", b"b", b"c"])
    told: list[str] = []
    consumer = make(stats_cb=told.append, statistics_interval_ms=1)
    consumer.assign([ONE])
    read(consumer, 1)
    time.sleep(0.01)
    consumer.pause([ONE])
    consumer.poll(0)
    found = json.loads(told[-1])
    assert (found["type"], found["rxmsgs"]) == ("consumer", 1)
    partition = found["topics"]["one"]["partitions"]["0"]
    assert (partition["app_offset"], partition["hi_offset"], partition["consumer_lag"]) == (1, 3, 2)
    assert partition["source"] == log.address


def test_error_cb_is_told_while_no_gateway_can_be_reached(
    log: FakeLogGateway, make: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.compat.confluent.events._QUIET_S", 0.05)
    told: list[KafkaError] = []
    consumer = make(error_cb=told.append)
    consumer.assign([ONE])
    until(lambda: consumer.position([ONE])[0].offset == 0, consumer)
    assert told == []
    log.stop()
    until(lambda: told, consumer)
    log.start()
    assert told[0] == KafkaError._ALL_BROKERS_DOWN
    log.append("one", 0, [b"a"])
    assert read(consumer, 1)[0].value() == b"a"


def test_the_metadata_of_a_topic(log: FakeLogGateway, make: MakeConsumer) -> None:
    found = make().list_topics("t", timeout=DEADLINE_S)
    assert found.topics["t"].partitions.keys() == {0, 1, 2}


def test_a_consumer_without_a_group_is_a_value_error(log: FakeLogGateway) -> None:
    with pytest.raises(ValueError, match=r"group\.id must be set"):
        Consumer({"bootstrap.servers": log.address})
    with pytest.raises(KafkaException) as caught:
        Consumer({"bootstrap.servers": log.address, "group.id": "g", "nosuch": 1, "debgu": "x"})
    assert "nosuch" in caught.value.args[0].str()
    assert "debgu" in caught.value.args[0].str()


def test_a_subscription_to_a_topic_that_does_not_exist_is_told_once(make: MakeConsumer) -> None:
    consumer = make()
    consumer.subscribe(["nowhere", "one"])
    message = consumer.poll(DEADLINE_S)
    assert message is not None
    assert message.error() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert message.topic() == "nowhere"
    assert consumer.poll(0.2) is None


def test_a_commit_leaves_out_offsets_below_zero(log: FakeLogGateway, make: MakeConsumer) -> None:
    consumer = make(enable_auto_commit=False)
    consumer.assign([ONE])
    given = [TopicPartition("one", 0, 3), TopicPartition("t", 0)]
    done = consumer.commit(offsets=given, asynchronous=False)
    assert done is not None
    assert [(tp.topic, tp.offset) for tp in done] == [("one", 3)]
    for offsets in ([TopicPartition("one", 0)], []):
        with pytest.raises(KafkaException) as caught:
            consumer.commit(offsets=offsets, asynchronous=False)
        assert caught.value.args[0] == KafkaError._NO_OFFSET
    assert consumer.commit(offsets=[TopicPartition("one", 0)]) is None


def test_partitions_that_are_not_assigned_are_paused_and_resumed_in_silence(
    log: FakeLogGateway, make: MakeConsumer
) -> None:
    log.append("one", 0, [b"a"])
    consumer = make()
    consumer.assign([ONE])
    consumer.pause([ONE, TopicPartition("t", 0)])
    assert consumer.poll(0.05) is None
    consumer.resume([TopicPartition("t", 0), ONE])
    assert [message.value() for message in read(consumer, 1)] == [b"a"]


def test_times_of_minus_one_and_two_are_the_ends(log: FakeLogGateway, make: MakeConsumer) -> None:
    log.append("one", 0, [b"a", b"b"], timestamp_ms=1000)
    consumer = make()
    times = [OFFSET_BEGINNING, OFFSET_END, 1000, 2000]
    found = [consumer.offsets_for_times([TopicPartition("one", 0, at)])[0].offset for at in times]
    assert found == [0, 2, 0, OFFSET_END]
    with pytest.raises(KafkaException) as caught:
        consumer.offsets_for_times([ONE])
    assert caught.value.args[0] == KafkaError._INVALID_ARG


def test_partitions_that_are_added_twice_or_taken_away_unasked_are_refused(
    make: MakeConsumer,
) -> None:
    consumer = make()
    other = TopicPartition("t", 0)
    consumer.assign([ONE])
    for call, code in (
        (consumer.incremental_assign, KafkaError._CONFLICT),
        (lambda _: consumer.incremental_unassign([other]), KafkaError._INVALID_ARG),
        (lambda _: consumer.subscribe([]), KafkaError._INVALID_ARG),
    ):
        with pytest.raises(KafkaException) as caught:
            call([ONE])
        assert caught.value.args[0] == code
    assert consumer.assignment() == [ONE]


def test_incremental_assign_inside_on_assign_says_where_to_begin(
    log: FakeLogGateway, make: MakeConsumer
) -> None:
    log.append("one", 0, [b"a", b"b"])
    consumer = make()

    def begin_at_one(given: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            partition.offset = 1
        given.incremental_assign(partitions)

    consumer.subscribe(["one"], on_assign=begin_at_one)
    assert [message.value() for message in read(consumer, 1)] == [b"b"]


def test_an_exception_of_on_assign_comes_out_of_poll(make: MakeConsumer) -> None:
    def raising(given: Consumer, partitions: list[TopicPartition]) -> None:
        raise ArithmeticError("boom")

    consumer = make()
    consumer.subscribe(["one"], on_assign=raising)
    with pytest.raises(ArithmeticError):
        consumer.poll(DEADLINE_S)


def test_close_may_be_called_twice_and_after_a_block(make: MakeConsumer) -> None:
    with make() as consumer:
        consumer.subscribe(["one"])
    consumer.close()
    consumer.close()


def test_other_threads_store_commit_and_ask_while_one_polls(
    log: FakeLogGateway, make: MakeConsumer
) -> None:
    log.append("one", 0, [b"%d" % n for n in range(50)])
    consumer = make(enable_auto_commit=False, enable_auto_offset_store=False)
    consumer.assign([ONE])
    failures: list[BaseException] = []
    done: list[int] = []

    def work(message: Message) -> None:
        try:
            consumer.store_offsets(message)
            consumer.commit(message, asynchronous=False)
            assert consumer.assignment() == [ONE]
            done.append(message.offset() or 0)
        except BaseException as failure:
            failures.append(failure)

    threads = []
    for message in read(consumer, 50)[:10]:
        threads.append(threading.Thread(target=work, args=(message,)))
        threads[-1].start()
    started = time.monotonic()
    while len(done) + len(failures) < 10:
        assert consumer.poll(2.0) is None
        assert time.monotonic() - started < DEADLINE_S
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(done) == list(range(10))


def test_a_consume_that_waits_for_more_commits_nothing_that_it_has_not_given_yet(
    log: FakeLogGateway, make: MakeConsumer
) -> None:
    log.append("one", 0, [b"a"])
    consumer = make(auto_commit_interval_ms=10)
    consumer.subscribe(["one"])
    given = consumer.consume(5, 2.0)
    assert [message.value() for message in given] == [b"a"]
    assert log.groups.offsets.get(("g", "one", 0), 0) == 0
    until(lambda: log.groups.offsets.get(("g", "one", 0)) == 1, consumer)


@pytest.mark.parametrize("after_s", [0.05, 0.3])
def test_an_interrupted_consume_loses_nothing_that_it_had(
    log: FakeLogGateway, make: MakeConsumer, after_s: float
) -> None:
    """In the slice of its time in which it took them, and in a later one."""
    log.append("one", 0, [b"a", b"b"])
    consumer = make()
    consumer.assign([ONE])
    wait_until(lambda: consumer._consumer._partitions.chunks)
    interrupt = threading.Timer(after_s, _thread.interrupt_main)
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        consumer.consume(5, DEADLINE_S)
    interrupt.join()
    first = consumer.poll(0)
    assert first is not None
    assert [m.value() for m in (first, *consumer.consume(5, 0.2))] == [b"a", b"b"]


def test_close_in_another_thread_ends_a_poll(make: MakeConsumer) -> None:
    consumer = make()
    consumer.assign([ONE])
    threading.Timer(0.3, consumer.close).start()
    with pytest.raises(RuntimeError, match="Consumer closed"):
        consumer.poll()


def test_a_consumer_is_refused_by_pickle_with_a_sentence(make: MakeConsumer) -> None:
    with pytest.raises(TypeError, match="a Consumer has threads and connections: make one"):
        pickle.dumps(make())


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_a_poll_of_nothing_ends_in_time(make: MakeConsumer, timeout: float) -> None:
    consumer = make()
    assert consumer.poll(timeout) is None
    assert consumer.consume(5, timeout) == []
    with pytest.raises(TypeError, match="timeout is a str; it must be a number of seconds"):
        consumer.poll("soon")  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [None, -1])
def test_a_poll_without_end_waits_for_a_message(
    log: FakeLogGateway, make: MakeConsumer, timeout: float | None
) -> None:
    consumer = make()
    consumer.assign([ONE])
    later = threading.Timer(0.2, lambda: log.append("one", 0, [b"a"]))
    later.start()
    message = consumer.poll(timeout)
    later.join()
    assert message is not None
    assert message.value() == b"a"


def test_arguments_of_a_wrong_type_are_type_errors(make: MakeConsumer) -> None:
    consumer = make()
    with pytest.raises(TypeError):
        consumer.subscribe("one")
    with pytest.raises(TypeError, match="on_assign expects a callable"):
        consumer.subscribe(["one"], on_assign=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        consumer.assign(["one"])  # type: ignore[list-item]
    with pytest.raises(KafkaException) as caught:
        consumer.assign([TopicPartition("one")])
    assert caught.value.args[0] == KafkaError._INVALID_ARG
    with pytest.raises(ValueError, match="num_messages"):
        consumer.consume(1_000_001)
    assert consumer.consume(0, 0) == []


def test_after_close_every_call_is_a_runtime_error(make: MakeConsumer) -> None:
    consumer = make()
    with consumer:
        consumer.assign([ONE])
    consumer.close()
    for call in (consumer.poll, consumer.assignment, consumer.commit, consumer.memberid):
        with pytest.raises(RuntimeError, match="Consumer closed"):
            call()


def test_what_a_confluent_program_sets_by_habit_is_taken(make: MakeConsumer) -> None:
    make(
        security_protocol="PLAINTEXT",
        group_protocol="consumer",
        partition_assignment_strategy="range,roundrobin",
        fetch_wait_max_ms=100,
        fetch_message_max_bytes=1_000,
        fetch_max_bytes=52_428_800,
        queued_min_messages=1_000,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=3_000,
        socket_timeout_ms=10_000,
        check_crcs=True,
        statistics_interval_ms=0,
        error_cb=print,
        stats_cb=print,
        linger_ms=5,
        acks="all",
    )


def test_a_deserializing_consumer_deserializes_or_raises(log: FakeLogGateway) -> None:
    log.append("one", 0, ["hé".encode(), b"\xff"], key=b"k")
    consumer = DeserializingConsumer(
        {
            "bootstrap.servers": log.address,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "key.deserializer": lambda data, context: (data, context.topic),
            "value.deserializer": StringDeserializer("utf_8"),
        }
    )
    with consumer:
        consumer.assign([ONE])
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert (message.key(), message.value()) == ((b"k", "one"), "hé")
        with pytest.raises(ValueDeserializationError) as caught:
            consumer.poll(DEADLINE_S)
        assert caught.value.kafka_message.offset() == 1
        assert caught.value.code == KafkaError._VALUE_DESERIALIZATION
        consumer.assign([TopicPartition("nowhere", 0)])
        with pytest.raises(ConsumeError) as failure:
            consumer.poll(DEADLINE_S)
        assert failure.value.code == KafkaError.UNKNOWN_TOPIC_OR_PART
        with pytest.raises(NotImplementedError):
            consumer.consume(1)

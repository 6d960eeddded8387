"""confluent-kafka's Producer, against a gateway in memory."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mainstem.compat.confluent import (
    TIMESTAMP_CREATE_TIME,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    SerializingProducer,
)
from mainstem.compat.confluent.configuration import LOG
from mainstem.compat.confluent.error import KeySerializationError, ValueSerializationError
from mainstem.compat.confluent.serialization import MessageField, StringSerializer
from mainstem.testing import FakeGateway

MakeProducer = Callable[..., Producer]


@pytest.fixture
def make(gateway: FakeGateway) -> Iterator[MakeProducer]:
    made: list[Producer] = []

    def make_one(config: dict[str, Any] | None = None, **more: Any) -> Producer:
        base = {"bootstrap.servers": gateway.address, "linger.ms": 0}
        made.append(Producer({**base, **(config or {})}, **more))
        return made[-1]

    yield make_one
    for producer in made:
        producer.close()


class Reports(list[tuple[Any, Message]]):
    """What a delivery callback was told."""

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.append((error, message))


def test_a_delivery_report_is_the_message_with_its_place(
    make: MakeProducer, gateway: FakeGateway
) -> None:
    producer, reports = make(), Reports()
    producer.produce(
        "t", "value", key="key", partition=1, headers={"h": "x"}, timestamp=1234, callback=reports
    )
    assert len(producer) == 1
    assert producer.flush(10) == 0
    ((error, message),) = reports
    assert error is None
    assert (message.topic(), message.partition(), message.offset()) == ("t", 1, 0)
    assert (message.key(), message.value(), message.headers()) == (b"key", b"value", [("h", b"x")])
    assert message.timestamp() == (TIMESTAMP_CREATE_TIME, 1234)
    assert message.error() is None
    latency = message.latency()
    assert latency is not None
    assert 0 < latency < 10
    assert gateway.values("t")[1] == [b"value"]
    assert len(producer) == 0
    assert bool(producer)


def test_on_delivery_of_the_configuration_is_called_where_produce_has_none(
    make: MakeProducer,
) -> None:
    common, own = Reports(), Reports()
    producer = make({"on_delivery": common})
    producer.produce("one", b"a")
    producer.produce("one", b"b", on_delivery=own)
    producer.flush()
    assert [message.value() for _, message in common] == [b"a"]
    assert [message.value() for _, message in own] == [b"b"]


def test_poll_serves_callbacks_and_says_how_many(make: MakeProducer) -> None:
    producer, reports = make(), Reports()
    assert producer.poll(0) == 0
    producer.produce("one", b"a", on_delivery=reports)
    assert producer.poll(10) == 1
    assert len(reports) == 1


def test_a_callback_that_raises_raises_out_of_flush_or_poll(make: MakeProducer) -> None:
    def raising(error: object, message: Message) -> None:
        raise ArithmeticError(message.value())

    producer = make()
    producer.produce("one", b"a", on_delivery=raising)
    with pytest.raises(ArithmeticError):
        producer.poll(10)


def test_only_failures_are_reported_with_delivery_report_only_error(make: MakeProducer) -> None:
    producer, reports = make({"delivery.report.only.error": True}), Reports()
    producer.produce("one", b"a", on_delivery=reports)
    producer.produce("nowhere", b"b", on_delivery=reports)
    producer.flush()
    assert [(e.name(), message.value()) for e, message in reports] == [
        ("UNKNOWN_TOPIC_OR_PART", b"b")
    ]


def test_a_topic_that_does_not_exist_is_told_in_the_delivery_report(make: MakeProducer) -> None:
    producer, reports = make(), Reports()
    producer.produce("nowhere", "v", key="k", on_delivery=reports)
    assert reports == []
    assert len(producer) == 1
    assert producer.poll(0) == 1
    ((error, message),) = reports
    assert error == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert message.error() == error
    assert (message.topic(), message.key(), message.value()) == ("nowhere", b"k", b"v")
    with pytest.raises(KafkaException) as caught:
        producer.produce("nowhere", "v")
    assert caught.value.args[0] == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize("partition", [7, -2, -1001])
def test_a_partition_that_does_not_exist_is_refused_by_produce(
    make: MakeProducer, partition: int
) -> None:
    producer, reports = make(), Reports()
    with pytest.raises(KafkaException) as caught:
        producer.produce("one", "v", partition=partition, on_delivery=reports)
    assert caught.value.args[0] == KafkaError._UNKNOWN_PARTITION
    producer.flush()
    assert reports == []


def test_arguments_of_produce_have_confluents_order(
    make: MakeProducer, gateway: FakeGateway
) -> None:
    producer, first, second = make(), Reports(), Reports()
    producer.produce("one", "v", "k", 0, first, second, 1234, [("h", b"x")])
    producer.produce("one", "v", "k", 0, None, second)
    producer.flush()
    ((_, message),) = first
    assert (message.timestamp()[1], message.headers()) == (1234, [("h", b"x")])
    assert len(second) == 1


def test_partition_minus_one_is_any(make: MakeProducer) -> None:
    producer, reports = make(), Reports()
    producer.produce("one", "v", partition=-1, on_delivery=reports)
    producer.flush()
    assert [message.partition() for _, message in reports] == [0]


@pytest.mark.parametrize(
    "headers",
    [{"a": b"1", "b": None}, [("a", "1"), ("b", None)], (("a", b"1"), ["b", None])],
)
def test_headers_are_a_dictionary_or_pairs(make: MakeProducer, headers: Any) -> None:
    producer, reports = make(), Reports()
    producer.produce("one", "v", headers=headers, on_delivery=reports)
    producer.produce("one", "v", headers=[(b"a", b"1")], on_delivery=reports)
    producer.flush()
    assert [message.headers() for _, message in reports] == [
        [("a", b"1"), ("b", None)],
        [("a", b"1")],
    ]


def test_flush_waits_for_what_callbacks_produce(make: MakeProducer) -> None:
    producer, told = make(), []

    def again(error: object, message: Message) -> None:
        told.append(message.value())
        assert producer.poll(0) == 0
        if len(told) < 4:
            producer.produce("one", b"%d" % len(told), on_delivery=again)

    producer.produce("one", b"0", on_delivery=again)
    assert producer.flush(10) == 0
    assert told == [b"0", b"1", b"2", b"3"]
    told.clear()
    producer.produce("one", b"0", on_delivery=again)
    producer.close()
    assert len(told) == 4


def test_close_ends_although_callbacks_raise_and_raises_when_all_are_called(
    make: MakeProducer,
) -> None:
    told = []

    def raising(error: object, message: Message) -> None:
        told.append(message.value())
        raise ArithmeticError(message.value())

    producer = make()
    producer.produce("one", b"a", on_delivery=raising)
    producer.produce("nowhere", b"b", on_delivery=raising)
    producer.produce("nowhere", b"c", on_delivery=raising)
    with pytest.raises(ArithmeticError):
        producer.close()
    assert sorted(told) == [b"a", b"b", b"c"]
    assert producer.close() is True
    with pytest.raises(RuntimeError):
        producer.flush()


def test_a_producer_is_refused_by_pickle_with_a_sentence(make: MakeProducer) -> None:
    with pytest.raises(TypeError, match="a Producer has threads and connections: make one"):
        pickle.dumps(make())


def test_a_subclass_may_extend_a_producer(make: MakeProducer, gateway: FakeGateway) -> None:
    class Counting(Producer):
        def __init__(self, config: dict[str, Any], start: int) -> None:
            super().__init__(config)
            self.count = start

        def produce(self, *args: Any, **kwargs: Any) -> None:
            self.count += 1
            super().produce(*args, **kwargs)

    with Counting({"bootstrap.servers": gateway.address}, 5) as producer:
        producer.produce("one", b"a")
    assert producer.count == 6
    assert gateway.values("one")[0] == [b"a"]


@pytest.mark.parametrize("timeout", [None, -1, 0, 0.1, 1])
def test_timeouts_are_seconds_or_without_end(make: MakeProducer, timeout: float | None) -> None:
    producer = make()
    producer.produce("one", b"a")
    producer.flush()
    assert producer.flush(timeout) == 0
    with pytest.raises(TypeError, match="timeout is a str; it must be a number of seconds"):
        producer.poll("soon")  # type: ignore[arg-type]


def test_a_full_queue_is_a_buffer_error_at_once(make: MakeProducer) -> None:
    producer = make({"queue.buffering.max.messages": 2, "linger.ms": 10_000})
    producer.produce("one", b"a")
    producer.produce("one", b"b")
    with pytest.raises(BufferError, match="Queue full"):
        producer.produce("one", b"c")
    producer.flush()
    producer.produce("one", b"c")


def test_a_full_memory_is_a_buffer_error_at_once(make: MakeProducer, gateway: FakeGateway) -> None:
    producer = make({"queue.buffering.max.kbytes": 10, "linger.ms": 10_000, "batch.size": 100_000})
    producer.produce("one", bytes(6_000))
    with pytest.raises(BufferError, match=r"buffer\.memory"):
        producer.produce("one", bytes(6_000))
    producer.flush()
    assert len(gateway.values("one")[0]) == 1


def test_a_message_that_is_too_large_is_refused_by_produce(make: MakeProducer) -> None:
    producer = make({"message.max.bytes": 1_000})
    with pytest.raises(KafkaException) as caught:
        producer.produce("one", bytes(2_000))
    assert caught.value.args[0] == KafkaError.MSG_SIZE_TOO_LARGE


@pytest.mark.parametrize(
    "arguments",
    [
        {"value": 1},
        {"key": 1.5},
        {"headers": [("a",)]},
        {"headers": 5},
        {"headers": "ab"},
        {"timestamp": "now"},
        {"partition": "0"},
        {"topic": None},
        {"topic": b"one"},
    ],
)
def test_a_value_of_a_wrong_type_is_a_type_error(
    make: MakeProducer, arguments: dict[str, Any]
) -> None:
    with pytest.raises(TypeError):
        make().produce(**{"topic": "one", **arguments})


def test_a_callback_that_could_not_be_called_is_a_type_error(make: MakeProducer) -> None:
    async def nobody_would_await(error: object, message: object) -> None: ...

    for callback in (5, nobody_would_await):
        with pytest.raises(TypeError):
            make().produce("one", b"a", on_delivery=callback)  # type: ignore[arg-type]


def test_purge_gives_up_what_waits_and_tells_each_message(make: MakeProducer) -> None:
    producer, reports = make({"linger.ms": 10_000}), Reports()
    for number in range(3):
        producer.produce("one", b"%d" % number, on_delivery=reports)
    producer.purge()
    assert reports == []
    assert len(producer) == 3
    assert producer.poll(0) == 3
    assert [error.name() for error, _ in reports] == ["_PURGE_QUEUE"] * 3
    producer.produce("one", b"later", on_delivery=reports)
    assert producer.flush() == 0
    assert reports[-1][0] is None
    with pytest.raises(KafkaException):
        producer.purge(in_flight=False)


def test_produce_batch_queues_all_and_marks_those_that_it_could_not(
    make: MakeProducer, gateway: FakeGateway
) -> None:
    producer, reports, own = make({"queue.buffering.max.messages": 3}), Reports(), Reports()
    messages: list[dict[str, Any]] = [
        {"value": "a"},
        {"value": "b", "key": "k", "on_delivery": own},
        {"value": "c", "headers": [("h", b"x")]},
        {"value": "d"},
    ]
    assert producer.produce_batch("one", messages, on_delivery=reports) == 3
    assert messages[3]["_error"] == KafkaError._QUEUE_FULL
    producer.flush()
    assert gateway.values("one") == [[b"a", b"b", b"c"]]
    assert (len(reports), len(own)) == (2, 1)
    with pytest.raises(TypeError):
        producer.produce_batch("one", {"value": "a"})  # type: ignore[arg-type]


def test_the_metadata_of_one_topic_or_all_is_numbered_as_kafkas(
    make: MakeProducer, gateway: FakeGateway
) -> None:
    producer = make()
    everything = producer.list_topics(timeout=10)
    assert everything.topics.keys() == {"t", "one"}
    assert producer.cluster_id(10) == everything.cluster_id
    assert everything.topics["t"].partitions.keys() == {0, 1, 2}
    partition = everything.topics["t"].partitions[2]
    broker = everything.brokers[partition.leader]
    assert f"{broker.host}:{broker.port}" == gateway.address
    assert (partition.replicas, partition.isrs, partition.error) == ([1], [1], None)
    assert producer.list_topics("one").topics.keys() == {"one"}
    missing = producer.list_topics("none").topics["none"]
    assert missing.error == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert missing.partitions == {}


def test_statistics_come_as_json_inside_poll_and_flush(make: MakeProducer) -> None:
    told: list[str] = []
    producer = make({"stats_cb": told.append, "statistics.interval.ms": 1, "client.id": "me"})
    producer.produce("one", b"a")
    producer.flush()
    while not told:
        producer.poll(0.01)
    found = json.loads(told[-1])
    assert (found["name"], found["type"], found["txmsgs"]) == ("me", "producer", 1)
    assert found["topics"].keys() == {"one"}


def test_error_cb_is_told_that_no_gateway_can_be_reached(no_leaks: None) -> None:
    told: list[KafkaError] = []
    config = {"bootstrap.servers": "127.0.0.1:1", "max.block.ms": 50, "error_cb": told.append}
    with Producer(config) as producer:
        producer.produce("one", b"a", on_delivery=lambda error, message: None)
        assert [error.name() for error in told] == ["_ALL_BROKERS_DOWN"]


def test_the_logger_gets_what_the_client_logs(
    make: MakeProducer, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("a.program")
    make(logger=logger)
    make({"logger": logger})
    LOG.warning("something")
    assert [one.name for one in caplog.records if one.getMessage() == "something"].count(
        LOG.name
    ) == 2
    for handler in [one for one in LOG.handlers if getattr(one, "target", None) is logger]:
        LOG.removeHandler(handler)
    with pytest.raises(TypeError):
        make(logger="stderr")


def test_after_close_every_call_is_a_runtime_error(make: MakeProducer) -> None:
    producer, reports = make(), Reports()
    producer.produce("one", b"a", on_delivery=reports)
    assert producer.close()
    assert producer.close()
    assert len(reports) == 1
    assert len(producer) == 0
    for call in (lambda: producer.produce("one"), producer.poll, producer.flush):
        with pytest.raises(RuntimeError, match="closed"):
            call()


def test_all_faults_of_a_configuration_are_one_kafka_exception(gateway: FakeGateway) -> None:
    with pytest.raises(KafkaException) as caught:
        Producer(
            {"bootstrap.servers": gateway.address, "lnger.ms": 1, "security.protocol": "sasl_ssl"}
        )
    error = caught.value.args[0]
    assert error == KafkaError._INVALID_ARG
    assert "lnger.ms" in error.str()
    assert "security.protocol" in error.str()
    for wrong in (None, "x"):
        with pytest.raises(TypeError, match="expected configuration dict"):
            Producer(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="error_cb"):
        Producer({"bootstrap.servers": gateway.address, "error_cb": 1})


def test_what_a_confluent_program_sets_by_habit_is_taken(make: MakeProducer) -> None:
    make(
        {
            "client.id": "x",
            "queue.buffering.max.ms": 0.5,
            "linger.ms": None,
            "security.protocol": "PLAINTEXT",
            "message.timeout.ms": 10_000,
            "request.required.acks": "all",
            "socket.keepalive.enable": True,
            "partitioner": "consistent_random",
            "throttle_cb": print,
            "statistics.interval.ms": 0,
            "log_level": 3,
            "default.topic.config": {"message.timeout.ms": 10_000},
            "group.id": "shared",
            "auto.offset.reset": "earliest",
        }
    )


def test_what_cannot_be_is_refused_with_a_sentence(make: MakeProducer) -> None:
    with pytest.raises(KafkaException) as caught:
        make().set_sasl_credentials("a", "b")
    assert caught.value.args[0] == KafkaError._NOT_IMPLEMENTED
    assert len(caught.value.args[0].str()) > 40


def test_a_serializing_producer_serializes_key_and_value(gateway: FakeGateway) -> None:
    seen = []

    def upper(value: str, context: Any) -> bytes:
        seen.append((context.topic, context.field))
        return value.upper().encode()

    reports = Reports()
    config = {
        "bootstrap.servers": gateway.address,
        "key.serializer": StringSerializer("utf_8"),
        "value.serializer": upper,
    }
    with SerializingProducer(config) as producer:
        producer.produce("one", key="k", value="v", on_delivery=reports)
        producer.flush()
        with pytest.raises(ValueSerializationError):
            producer.produce("one", value=5)
        with pytest.raises(KeySerializationError):
            producer.produce("one", key=5, value="x")
    assert seen == [("one", MessageField.VALUE), ("one", MessageField.VALUE)]
    ((_, message),) = reports
    assert (message.key(), message.value()) == (b"k", b"V")

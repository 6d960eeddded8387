"""confluent-kafka's values: errors, partitions, messages, resources, serializers."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from mainstem.compat import confluent
from mainstem.compat.confluent import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    ConfigResource,
    KafkaError,
    KafkaException,
    Message,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicPartition,
)
from mainstem.compat.confluent.admin import RESOURCE_TOPIC
from mainstem.compat.confluent.error import (
    CODES,
    KAFKA_NAMES,
    KeySerializationError,
    ValueDeserializationError,
    from_mainstem,
)
from mainstem.compat.confluent.serialization import (
    DoubleDeserializer,
    DoubleSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    SerializationError,
    StringDeserializer,
    StringSerializer,
)
from mainstem.errors import UnknownTopicError, error_classes


def test_every_name_that_the_package_promises_is_there() -> None:
    assert [name for name in confluent.__all__ if not hasattr(confluent, name)] == []


@pytest.mark.parametrize(
    ("module", "name"),
    [(confluent, name) for name in confluent.REFUSED],
)
def test_a_name_that_cannot_be_is_refused_when_it_is_imported(module: Any, name: str) -> None:
    with pytest.raises(ImportError, match=f"{name} does not exist here: .{{15,}}"):
        exec(f"from {module.__name__} import {name}", {})
    with pytest.raises(ImportError, match="cannot import name"):
        exec(f"from {module.__name__} import {name}Nonsense", {})


def test_an_error_has_code_name_and_sentence_and_equals_its_code() -> None:
    error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "no such topic", fatal=True)
    assert (error.code(), error.name(), error.str()) == (
        3,
        "UNKNOWN_TOPIC_OR_PART",
        "no such topic",
    )
    assert (error.fatal(), error.retriable(), error.txn_requires_abort()) == (True, False, False)
    assert error == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert error == KafkaError(3)
    assert error != KafkaError._PARTITION_EOF
    assert hash(error) == hash(KafkaError(3))
    assert str(error) == 'KafkaError{FATAL,code=UNKNOWN_TOPIC_OR_PART,val=3,str="no such topic"}'
    assert KafkaError(KafkaError._TRANSPORT).str() == "Local: Transport"


def test_an_error_is_compared_with_codes_and_errors_by_its_code() -> None:
    error = KafkaError(3)
    assert error < 4
    assert error >= 3
    assert error < KafkaError(4)
    assert sorted([KafkaError(5), error]) == [3, 5]
    assert error != "3"
    assert (KafkaError(12345).name(), KafkaError(3).str()) == (
        "ERR_12345?",
        "Broker: Unknown topic or part",
    )


def test_errors_exceptions_messages_and_partitions_survive_pickling() -> None:
    error = KafkaError(3, "why", retriable=True)
    again = pickle.loads(pickle.dumps(error))
    assert (again, again.str(), again.retriable()) == (error, "why", True)
    assert pickle.loads(pickle.dumps(KafkaException(error))).args[0] == error
    assert pickle.loads(pickle.dumps(Message(topic="t", value=b"v"))).value() == b"v"
    assert pickle.loads(pickle.dumps(TopicPartition("t", 1, 5))).offset == 5


def test_an_exception_carries_the_error_as_its_argument() -> None:
    exception = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    assert exception.args[0].code() == -185


def test_each_of_our_errors_has_a_code_of_kafkas() -> None:
    assert error_classes().keys() - KAFKA_NAMES.keys() == set()
    assert set(KAFKA_NAMES.values()) <= CODES.keys()
    found = from_mainstem(UnknownTopicError("there is no topic 'x'"))
    assert (found.name(), found.str()) == ("UNKNOWN_TOPIC_OR_PART", "there is no topic 'x'")


def test_a_partition_can_be_changed_sorted_and_found_by_topic_and_number() -> None:
    tp = TopicPartition("b", 1)
    assert (tp.offset, tp.metadata, tp.leader_epoch, tp.error) == (OFFSET_INVALID, None, None, None)
    tp.offset = OFFSET_BEGINNING
    assert tp == TopicPartition("b", 1, 99)
    assert {tp: 1}[TopicPartition("b", 1)] == 1
    ordered = sorted([tp, TopicPartition("a", 3), TopicPartition("a", 2)])
    assert [one.partition for one in ordered] == [2, 3, 1]
    assert TopicPartition("t").partition == -1
    assert (OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED, OFFSET_INVALID) == (-2, -1, -1000, -1001)
    with pytest.raises(TypeError):
        TopicPartition(5)  # type: ignore[arg-type]


def test_a_message_made_for_a_test_has_methods_and_setters() -> None:
    message = Message("t", 1, 2, b"k", b"value", [("h", b"x")], None, (TIMESTAMP_CREATE_TIME, 5))
    assert (message.topic(), message.partition(), message.offset()) == ("t", 1, 2)
    assert (message.key(), message.value(), message.headers()) == (b"k", b"value", [("h", b"x")])
    assert (message.timestamp(), message.error(), message.latency()) == ((1, 5), None, None)
    assert message.leader_epoch() is None
    assert len(message) == 5
    message.set_value({"a": 1})
    message.set_key(None)
    message.set_headers(None)
    message.set_topic("u")
    message.set_error(KafkaError(KafkaError._PARTITION_EOF))
    assert (message.topic(), message.key(), message.value()) == ("u", None, {"a": 1})
    assert message.error() == KafkaError._PARTITION_EOF
    assert len(Message()) == 0
    assert Message()


def test_a_resource_is_known_by_type_and_name() -> None:
    resource = ConfigResource("topic", "a", set_config={"x": "1"})
    assert resource == ConfigResource(ResourceType.TOPIC, "a")
    assert resource == ConfigResource(2, "a")
    assert resource == ConfigResource(RESOURCE_TOPIC, "a")
    assert resource != ConfigResource(ConfigResource.Type.BROKER, "a")
    resource.set_config("x", "2", overwrite=False)
    resource.set_config("y", "3")
    assert resource.set_config_dict == {"x": "1", "y": "3"}
    with pytest.raises(ValueError, match="resource name"):
        ConfigResource("topic", "")


def test_resources_are_named_by_number_word_or_member_and_no_other_way() -> None:
    topic = ConfigResource(ResourceType.TOPIC, "t")
    assert topic == ConfigResource("topic", "t") == ConfigResource(RESOURCE_TOPIC, "t")
    assert RESOURCE_TOPIC == 2
    with pytest.raises(ValueError, match="there is no resource type 'queue'"):
        ConfigResource("queue", "t")


def test_new_topics_and_partitions_are_equal_and_sorted_by_what_they_say() -> None:
    assert NewTopic("a", 1) == NewTopic("a", 1)
    assert NewTopic("a", 1) != NewTopic("a", 2)
    assert min(NewTopic("b", 1), NewTopic("a", 2)).topic == "a"
    assert len({NewTopic("a", 1), NewTopic("a", 1)}) == 1
    assert NewPartitions("a", 1) < NewPartitions("a", 2)
    assert str(NewPartitions("a", 2)) == "NewPartitions(topic=a,new_total_count=2)"


def test_a_partition_whose_numbers_are_none_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="partition is a str; it must be an int"):
        TopicPartition("t", "1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="offset is a float; it must be an int"):
        TopicPartition("t", 1, 1.5)  # type: ignore[arg-type]


def test_a_new_topic_says_what_it_was_given() -> None:
    new = NewTopic("t", 3, 1, config={"retention.ms": "1"})
    assert (new.topic, new.num_partitions, new.replication_factor) == ("t", 3, 1)
    assert str(new) == "NewTopic(topic=t,num_partitions=3)"
    assert NewTopic("t").num_partitions == -1


def test_serializers_and_deserializers_are_inverse_and_keep_none() -> None:
    for to_bytes, from_bytes, value, data in (
        (StringSerializer(), StringDeserializer(), "hé", "hé".encode()),
        (StringSerializer("utf_16"), StringDeserializer("utf_16"), "hé", "hé".encode("utf_16")),
        (IntegerSerializer(), IntegerDeserializer(), -5, b"\xff\xff\xff\xfb"),
        (DoubleSerializer(), DoubleDeserializer(), 1.5, b"\x3f\xf8" + bytes(6)),
    ):
        assert to_bytes(value, None) == data
        assert from_bytes(data, None) == value
        assert to_bytes(None, None) is None
        assert from_bytes(None, None) is None


def test_a_serialization_error_is_one_whichever_side_it_comes_from() -> None:
    for error in (KeySerializationError(), ValueDeserializationError()):
        assert isinstance(error, SerializationError)


def test_keys_are_placed_as_librdkafka_and_the_java_client_place_them() -> None:
    keys = (b"", b"a", b"foobar", b"user_12345")
    # Taken from confluent-kafka 2.16.1.
    assert [confluent.murmur2(key, 1000) for key in keys] == [681, 524, 166, 193]
    assert [confluent.consistent(key, 1000) for key in keys] == [0, 907, 69, 812]
    assert [confluent.fnv1a(key, 1000) for key in keys] == [35, 76, 576, 142]
    with pytest.raises(ValueError, match="partition_count is 0"):
        confluent.murmur2(b"a", 0)
    with pytest.raises(TypeError, match="key is a str"):
        confluent.consistent("a", 3)  # type: ignore[arg-type]


def test_what_cannot_be_serialized_is_a_serialization_error() -> None:
    with pytest.raises(SerializationError):
        IntegerSerializer()(2**40)
    with pytest.raises(SerializationError):
        IntegerDeserializer()(b"x")
    with pytest.raises(SerializationError):
        StringSerializer()(5)
    with pytest.raises(SerializationError):
        StringDeserializer()(b"\xff")

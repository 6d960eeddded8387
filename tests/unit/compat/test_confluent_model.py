"""confluent-kafka's values: errors, partitions, messages, resources, serializers."""

from __future__ import annotations

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
    NewTopic,
    ResourceType,
    TopicPartition,
)

from mainstem.compat.confluent import admin  # isort: skip
from mainstem.compat.confluent.admin import RESOURCE_TOPIC
from mainstem.compat.confluent.error import CODES, KAFKA_NAMES, from_mainstem
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
    [(confluent, name) for name in confluent.REFUSED] + [(admin, name) for name in admin.REFUSED],
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
    assert KafkaError(KafkaError._TRANSPORT).str() == "Transport"


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


def test_what_cannot_be_serialized_is_a_serialization_error() -> None:
    with pytest.raises(SerializationError):
        IntegerSerializer()(2**40)
    with pytest.raises(SerializationError):
        IntegerDeserializer()(b"x")
    with pytest.raises(SerializationError):
        StringSerializer()(5)
    with pytest.raises(SerializationError):
        StringDeserializer()(b"\xff")

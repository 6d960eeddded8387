"""confluent-kafka-python's names: change the import, keep the program.

Call shapes, defaults and callbacks are those of confluent-kafka 2.16. Share groups, access control
lists and SASL are refused with a sentence.
"""

from typing import Final, NoReturn

from mainstem.compat.confluent.consumer import Consumer
from mainstem.compat.confluent.error import KafkaError, KafkaException
from mainstem.compat.confluent.model import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    IsolationLevel,
    Message,
    Node,
    ThrottleEvent,
    TopicCollection,
    TopicPartition,
    TopicPartitionInfo,
    libversion,
    version,
)
from mainstem.compat.confluent.placement import consistent, fnv1a, murmur2
from mainstem.compat.confluent.producer import Producer
from mainstem.compat.confluent.serializing import DeserializingConsumer, SerializingProducer

# The names of confluent_kafka.admin may be imported from here too.
from mainstem.compat.confluent.admin import (  # isort: skip
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    PartitionMetadata,
    ResourceType,
    TopicMetadata,
)

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "AdminClient",
    "AlterConfigOpType",
    "ClusterMetadata",
    "ConfigEntry",
    "ConfigResource",
    "Consumer",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupType",
    "DeserializingConsumer",
    "IsolationLevel",
    "KafkaError",
    "KafkaException",
    "Message",
    "NewPartitions",
    "NewTopic",
    "Node",
    "OffsetSpec",
    "PartitionMetadata",
    "Producer",
    "ResourceType",
    "SerializingProducer",
    "ThrottleEvent",
    "TopicCollection",
    "TopicMetadata",
    "TopicPartition",
    "TopicPartitionInfo",
    "consistent",
    "fnv1a",
    "libversion",
    "murmur2",
    "version",
]

_NO_SHARES: Final = (
    "there are no share groups; members of a group share its partitions, and more partitions let "
    "more members work"
)

#: Names of confluent_kafka that cannot be imported, and why.
REFUSED: Final = {
    **dict.fromkeys(
        (
            "ShareConsumer",
            "DeserializingShareConsumer",
            "AcknowledgeType",
            "IllegalStateException",
            "ConcurrentModificationException",
            "Messages",
        ),
        _NO_SHARES,
    ),
    "ElectionType": "a topic's leader is replaced by itself, by its lease",
    "Uuid": "topic ids are texts",
    "aio": "use mainstem.client.AsyncProducer and AsyncConsumer, or mainstem.compat.aiokafka",
}


def __getattr__(name: str) -> NoReturn:
    if name in REFUSED:
        raise ImportError(f"{name} does not exist here: {REFUSED[name]}", name=__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""aiokafka's tuples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, NoReturn, TypeVar

from mainstem import client

KT = TypeVar("KT", covariant=True)
VT = TypeVar("VT", covariant=True)


class TopicPartition(NamedTuple):
    """A partition."""

    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """The next offset to read, and a text that is committed with it."""

    offset: int
    metadata: str


class OffsetAndTimestamp(NamedTuple):
    """The first offset at or after a time, and that time in ms since 1970-01-01 UTC."""

    offset: int
    timestamp: int | None


class RecordMetadata(NamedTuple):
    """Where a record is. `timestamp_type` is 0: the producer's time."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    timestamp_type: int
    log_start_offset: int | None


@dataclass(frozen=True, slots=True)
class ConsumerRecord(Generic[KT, VT]):
    """A record; `key` and `value` are what the deserializers made of the bytes.

    Attributes:
        timestamp: Milliseconds since 1970-01-01 UTC.
        serialized_key_size, serialized_value_size: Bytes; -1 where there is none.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: KT | None
    value: VT | None
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    headers: Sequence[tuple[str, bytes | None]]


def to_ours(tp: TopicPartition, offset: int = client.OFFSET_INVALID) -> client.TopicPartition:
    """A partition as mainstem.client takes it.

    Raises:
        TypeError: It is no TopicPartition.
    """
    if not isinstance(tp, TopicPartition):
        raise TypeError(f"partition must be TopicPartition namedtuple, not {type(tp).__name__}")
    return client.TopicPartition(tp.topic, tp.partition, offset)


def to_theirs(tp: client.TopicPartition) -> TopicPartition:
    """A partition as programs get it."""
    return TopicPartition(tp.topic, tp.partition)


def where(found: client.RecordMetadata) -> RecordMetadata:
    """A record's place as programs get it."""
    tp = TopicPartition(found.topic, found.partition)
    return RecordMetadata(*tp, tp, found.offset, found.timestamp, 0, None)


def size(data: Any) -> int:
    """Bytes of a key or value; -1: there is none."""
    return -1 if data is None else len(data)


#: Names of aiokafka.structs that cannot be imported, and why.
REFUSED: Final = {
    **dict.fromkeys(
        ("BrokerMetadata", "PartitionMetadata"),
        "AIOKafkaAdminClient.describe_topics() and describe_cluster() give dictionaries",
    )
}


def __getattr__(name: str) -> NoReturn:
    if name in REFUSED:
        raise ImportError(f"{name} does not exist here: {REFUSED[name]}", name=__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

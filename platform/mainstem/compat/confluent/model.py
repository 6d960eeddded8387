"""What programs hold in their hands: messages, partitions, nodes."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, Final

from mainstem import client
from mainstem.client import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, OFFSET_STORED
from mainstem.compat.confluent.error import KafkaError, refused

__all__ = ["OFFSET_BEGINNING", "OFFSET_END", "OFFSET_INVALID", "OFFSET_STORED"]

TIMESTAMP_NOT_AVAILABLE: Final = 0
TIMESTAMP_CREATE_TIME: Final = 1
TIMESTAMP_LOG_APPEND_TIME: Final = 2

#: Headers as they are handed out.
Headers = list[tuple[str, bytes | None]]


def version() -> str:
    """The version of confluent-kafka whose calls these are."""
    return "2.16.0"


def libversion() -> tuple[str, int]:
    """The version of librdkafka whose settings these are."""
    return "2.16.0", 0x021000FF


class TopicPartition:
    """A partition with an offset; all of it may be assigned to. Equal by topic and partition.

    Args:
        partition: -1: none in particular.
        offset: The next offset to read, or OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED.
        metadata: A text that is committed with the offset.
    """

    def __init__(
        self,
        topic: str,
        partition: int = -1,
        offset: int = OFFSET_INVALID,
        metadata: str | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        if not isinstance(topic, str):
            raise TypeError(f"topic is a {type(topic).__name__}; it must be a str")
        for name, value in (("partition", partition), ("offset", offset)):
            if not isinstance(value, int):
                raise TypeError(f"{name} is a {type(value).__name__}; it must be an int")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.metadata = metadata
        self.leader_epoch = leader_epoch
        self.error: KafkaError | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicPartition):
            return NotImplemented
        return (self.topic, self.partition) == (other.topic, other.partition)

    def __lt__(self, other: TopicPartition) -> bool:
        return (self.topic, self.partition) < (other.topic, other.partition)

    def __le__(self, other: TopicPartition) -> bool:
        return (self.topic, self.partition) <= (other.topic, other.partition)

    def __gt__(self, other: TopicPartition) -> bool:
        return other < self

    def __ge__(self, other: TopicPartition) -> bool:
        return other <= self

    def __hash__(self) -> int:
        return hash((self.topic, self.partition))

    def __repr__(self) -> str:
        return (
            f"TopicPartition{{topic={self.topic},partition={self.partition},offset={self.offset},"
            f"leader_epoch={self.leader_epoch},error={self.error}}}"
        )


def to_ours(partitions: Iterable[TopicPartition]) -> list[client.TopicPartition]:
    """Partitions as mainstem.client takes them.

    Raises:
        TypeError: One is something else.
        KafkaException: One has no partition.
    """
    found = []
    for tp in partitions:
        if not isinstance(tp, TopicPartition):
            raise TypeError(f"{tp!r} is not a TopicPartition")
        if tp.partition < 0:
            raise refused("_INVALID_ARG", f"{tp!r} has no partition; give its number, from 0")
        found.append(client.TopicPartition(tp.topic, tp.partition, tp.offset, tp.metadata or ""))
    return found


def to_theirs(partitions: Iterable[client.TopicPartition]) -> list[TopicPartition]:
    """Partitions as programs get them."""
    return [
        TopicPartition(tp.topic, tp.partition, tp.offset, tp.metadata or None) for tp in partitions
    ]


class Message:
    """A record that was consumed or produced, or an event: look at `error()` first.

    Args:
        timestamp: (type, ms since 1970-01-01 UTC).
        latency: Seconds from produce() to the delivery report.
    """

    def __init__(
        self,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: Any = None,
        value: Any = None,
        headers: Headers | None = None,
        error: KafkaError | None = None,
        timestamp: tuple[int, int] = (TIMESTAMP_NOT_AVAILABLE, 0),
        latency: float | None = None,
        leader_epoch: int | None = None,
        delivery_count: int | None = None,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._key = key
        self._value = value
        self._headers = headers
        self._error = error
        self._timestamp = timestamp
        self._latency = latency
        self._leader_epoch = leader_epoch
        self._delivery_count = delivery_count

    @classmethod
    def of_record(cls, record: client.ConsumerRecord) -> Message:
        """A record that was consumed."""
        return cls(
            record.topic,
            record.partition,
            record.offset,
            record.key,
            record.value,
            list(record.headers) or None,
            None,
            (record.timestamp_type + 1, record.timestamp),
        )

    def topic(self) -> str | None:
        """The topic's name."""
        return self._topic

    def partition(self) -> int | None:
        """The partition."""
        return self._partition

    def offset(self) -> int | None:
        """The offset; None where it is not known."""
        return self._offset

    def key(self) -> Any:
        """The key: bytes, or what a deserializer made of it."""
        return self._key

    def value(self) -> Any:
        """The value: bytes, or what a deserializer made of it."""
        return self._value

    def headers(self) -> Headers | None:
        """(name, value) pairs; None when there are none."""
        return self._headers

    def error(self) -> KafkaError | None:
        """None: it is a record. Else an event, or why the record was not delivered."""
        return self._error

    def timestamp(self) -> tuple[int, int]:
        """(type, ms since 1970-01-01 UTC)."""
        return self._timestamp

    def latency(self) -> float | None:
        """Of a delivery report: seconds since produce()."""
        return self._latency

    def leader_epoch(self) -> int | None:
        """None: records do not carry it here."""
        return self._leader_epoch

    def delivery_count(self) -> int | None:
        """None, unless the program made the message: there are no share groups."""
        return self._delivery_count

    def deserialized_key(self) -> Any:
        """The same as key()."""
        return self._key

    def deserialized_value(self) -> Any:
        """The same as value()."""
        return self._value

    def set_topic(self, topic: str) -> None:
        """Replaces the topic."""
        self._topic = topic

    def set_key(self, key: Any) -> None:
        """Replaces the key."""
        self._key = key

    def set_value(self, value: Any) -> None:
        """Replaces the value."""
        self._value = value

    def set_headers(self, headers: Headers | None) -> None:
        """Replaces the headers."""
        self._headers = headers

    def set_error(self, error: KafkaError | None) -> None:
        """Replaces the error."""
        self._error = error

    def __len__(self) -> int:
        """Bytes of the value."""
        return 0 if self._value is None else len(self._value)

    def __bool__(self) -> bool:
        """True: a message without a value is still a message."""
        return True


class Node:
    """A gateway."""

    def __init__(self, id: int, host: str, port: int, rack: str | None = None) -> None:
        self.id = id
        self.id_string = str(id)
        self.host = host
        self.port = port
        self.rack = rack

    def __str__(self) -> str:
        return f"({self.id}) {self.host}:{self.port} {self.rack or ''}"


class TopicPartitionInfo:
    """A partition and who leads it."""

    def __init__(self, id: int, leader: Node, replicas: list[Node], isr: list[Node]) -> None:
        self.id = id
        self.leader = leader
        self.replicas = replicas
        self.isr = isr


class TopicCollection:
    """Names of topics."""

    def __init__(self, topic_names: Iterable[str]) -> None:
        self.topic_names = list(topic_names)


class ConsumerGroupTopicPartitions:
    """A group and some of its partitions; None: all."""

    def __init__(self, group_id: str, topic_partitions: list[TopicPartition] | None = None) -> None:
        self.group_id = group_id
        self.topic_partitions = topic_partitions


class ThrottleEvent:
    """What `throttle_cb` gets in Kafka; a client that is asked to wait here waits by itself."""

    def __init__(self, broker_name: str, broker_id: int, throttle_time: float) -> None:
        self.broker_name = broker_name
        self.broker_id = broker_id
        self.throttle_time = throttle_time

    def __str__(self) -> str:
        ms = int(self.throttle_time * 1000)
        return f"{self.broker_name}/{self.broker_id} throttled for {ms} ms"


class ConsumerGroupState(Enum):
    """A group's state."""

    UNKNOWN = 0
    PREPARING_REBALANCING = 1
    COMPLETING_REBALANCING = 2
    STABLE = 3
    DEAD = 4
    EMPTY = 5


class ConsumerGroupType(Enum):
    """A group's protocol; all are CONSUMER here."""

    UNKNOWN = 0
    CONSUMER = 1
    CLASSIC = 2


class IsolationLevel(Enum):
    """Both read the same: what is not committed is not in the log."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1

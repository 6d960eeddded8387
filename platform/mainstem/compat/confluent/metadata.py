"""What list_topics() gives: topics, partitions and gateways, as Kafka numbers them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mainstem.client.results import TopicMetadata as OurTopic
from mainstem.compat.confluent.error import KafkaError, kafka_error


class BrokerMetadata:
    """A gateway."""

    def __init__(self) -> None:
        self.id = -1
        self.host: str | None = None
        self.port = -1

    def __repr__(self) -> str:
        return f"BrokerMetadata({self.id}, {self.host}:{self.port})"


class PartitionMetadata:
    """A partition; the gateway that leads its topic is its only replica."""

    def __init__(self) -> None:
        self.id = -1
        self.leader = -1
        self.replicas: list[int] = []
        self.isrs: list[int] = []
        self.error: KafkaError | None = None

    def __repr__(self) -> str:
        return f"PartitionMetadata({self.id})"


class TopicMetadata:
    """A topic; `error` says when there is none of that name."""

    def __init__(self) -> None:
        self.topic: str | None = None
        self.partitions: dict[int, PartitionMetadata] = {}
        self.error: KafkaError | None = None

    def __repr__(self) -> str:
        return f"TopicMetadata({self.topic}, {len(self.partitions)} partitions)"

    def __str__(self) -> str:
        return str(self.topic)


class ClusterMetadata:
    """All of it. Gateways are numbered in the order of their addresses."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, BrokerMetadata] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.orig_broker_id = -1
        self.orig_broker_name: str | None = None

    def __repr__(self) -> str:
        return f"ClusterMetadata({self.cluster_id})"

    def __str__(self) -> str:
        return str(self.cluster_id)


class GroupMember:
    """A member of a group, as list_groups() shows it."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.client_id: str | None = None
        self.client_host: str | None = None
        self.metadata: bytes | None = None
        self.assignment: bytes | None = None


class GroupMetadata:
    """A group, as list_groups() shows it."""

    def __init__(self) -> None:
        self.broker: BrokerMetadata | None = None
        self.id: str | None = None
        self.error: KafkaError | None = None
        self.state: str | None = None
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members: list[GroupMember] = []

    def __str__(self) -> str:
        return str(self.id)


def broker_numbers(addresses: Iterable[str]) -> dict[str, int]:
    """A number for each address, in their order, from 1."""
    return {address: number for number, address in enumerate(sorted(set(addresses)), 1)}


def split_address(address: str) -> tuple[str, int]:
    """host and port."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def cluster_metadata(
    topics: Mapping[str, OurTopic], servers: Iterable[str], only: str | None = None
) -> ClusterMetadata:
    """As Kafka shows it.

    Args:
        servers: Gateways that are known beside the leaders.
        only: This topic, with an error when it does not exist.
    """
    found = ClusterMetadata()
    numbers = broker_numbers({one.leader for one in topics.values()} | set(servers))
    for address, number in numbers.items():
        broker = BrokerMetadata()
        broker.id = number
        broker.host, broker.port = split_address(address)
        found.brokers[number] = broker
    found.cluster_id = "mainstem"
    found.controller_id = found.orig_broker_id = min(numbers.values(), default=-1)
    found.orig_broker_name = min(numbers, default=None)
    for name in topics if only is None else [only]:
        topic = TopicMetadata()
        topic.topic = name
        ours = topics.get(name)
        if ours is None:
            topic.error = kafka_error("UNKNOWN_TOPIC_OR_PART", f"topic {name} does not exist")
        for number in range(ours.partition_count if ours else 0):
            assert ours is not None
            one = PartitionMetadata()
            one.id = number
            one.leader = numbers[ours.leader]
            one.replicas = one.isrs = [one.leader]
            topic.partitions[number] = one
        found.topics[name] = topic
    return found

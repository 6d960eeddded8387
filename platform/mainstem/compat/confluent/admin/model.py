"""What the calls of AdminClient take and give."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from enum import Enum
from typing import Any

from mainstem.compat.confluent.error import KafkaError
from mainstem.compat.confluent.model import (
    ConsumerGroupState,
    ConsumerGroupType,
    Node,
    TopicPartition,
    TopicPartitionInfo,
)


@functools.total_ordering
class NewTopic:
    """A topic to be created; equal and sorted by name and numbers.

    The replication factor is taken and changes nothing.

    Args:
        num_partitions: -1: the gateway's num.partitions.
        config: The topic's settings.
    """

    def __init__(
        self,
        topic: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        replica_assignment: list[list[int]] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self.topic = topic
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignment = replica_assignment
        self.config = config

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, NewTopic) else NotImplemented

    def __lt__(self, other: NewTopic) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, int, int]:
        return self.topic, self.num_partitions, self.replication_factor

    def __str__(self) -> str:
        return f"NewTopic(topic={self.topic},num_partitions={self.num_partitions})"


@functools.total_ordering
class NewPartitions:
    """How many partitions a topic is to have; equal and sorted by name and number."""

    def __init__(
        self,
        topic: str,
        new_total_count: int,
        replica_assignment: list[list[int]] | None = None,
    ) -> None:
        self.topic = topic
        self.new_total_count = new_total_count
        self.replica_assignment = replica_assignment

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, NewPartitions) else NotImplemented

    def __lt__(self, other: NewPartitions) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, int]:
        return self.topic, self.new_total_count

    def __str__(self) -> str:
        return f"NewPartitions(topic={self.topic},new_total_count={self.new_total_count})"


class ResourceType(Enum):
    """What has settings; only topics here."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    BROKER = 4
    TRANSACTIONAL_ID = 5


class ConfigSource(Enum):
    """Where a setting's value comes from."""

    UNKNOWN_CONFIG = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


class AlterConfigOpType(Enum):
    """What becomes of a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigEntry:
    """A setting, or a change of one."""

    def __init__(
        self,
        name: str,
        value: str | None,
        source: ConfigSource = ConfigSource.UNKNOWN_CONFIG,
        is_read_only: bool = False,
        is_default: bool = False,
        is_sensitive: bool = False,
        is_synonym: bool = False,
        synonyms: Mapping[str, ConfigEntry] | None = None,
        incremental_operation: AlterConfigOpType | None = None,
    ) -> None:
        self.name = name
        self.value = value
        self.source = source.value
        self.is_read_only = is_read_only
        self.is_default = is_default
        self.is_sensitive = is_sensitive
        self.is_synonym = is_synonym
        self.synonyms = dict(synonyms or {})
        self.incremental_operation = incremental_operation

    def __str__(self) -> str:
        return f'{self.name}="{self.value}"'

    def __repr__(self) -> str:
        return f'ConfigEntry({self.name}="{self.value}")'


class ConfigResource:
    """A topic's settings, to be described or changed. Equal by type and name.

    Args:
        restype: A ResourceType, its number or its name.
        set_config: Settings for alter_configs().
        incremental_configs: Changes for incremental_alter_configs().
    """

    Type = ResourceType

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str,
        set_config: Mapping[str, str] | None = None,
        described_configs: Mapping[str, ConfigEntry] | None = None,
        error: KafkaError | None = None,
        incremental_configs: list[ConfigEntry] | None = None,
    ) -> None:
        if not name:
            raise ValueError("expected a resource name")
        if isinstance(restype, str):
            if restype.upper() not in ResourceType.__members__:
                names = ", ".join(one.name for one in ResourceType)
                raise ValueError(f"there is no resource type {restype!r}; the types are {names}")
            restype = ResourceType[restype.upper()]
        self.restype = ResourceType(restype)
        self.name = name
        self.set_config_dict = dict(set_config or {})
        self.configs = described_configs
        self.error = error
        self.incremental_configs = list(incremental_configs or [])

    def set_config(self, name: str, value: str, overwrite: bool = True) -> None:
        """Adds a setting for alter_configs()."""
        if overwrite or name not in self.set_config_dict:
            self.set_config_dict[name] = value

    def add_incremental_config(self, config_entry: ConfigEntry) -> None:
        """Adds a change for incremental_alter_configs()."""
        self.incremental_configs.append(config_entry)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConfigResource):
            return NotImplemented
        return (self.restype, self.name) == (other.restype, other.name)

    def __lt__(self, other: ConfigResource) -> bool:
        return (self.restype.value, self.name) < (other.restype.value, other.name)

    def __hash__(self) -> int:
        return hash((self.restype, self.name))

    def __repr__(self) -> str:
        return f"ConfigResource({self.restype},{self.name})"


class OffsetSpec:
    """Which offset list_offsets() is to find."""

    def __init__(self, at: int) -> None:
        self.at = at

    @classmethod
    def earliest(cls) -> OffsetSpec:
        """The first one."""
        return cls(-2)

    @classmethod
    def latest(cls) -> OffsetSpec:
        """The one after the last."""
        return cls(-1)

    @classmethod
    def for_timestamp(cls, timestamp: int) -> OffsetSpec:
        """The first one at or after so many ms since 1970-01-01 UTC."""
        return cls(timestamp)

    @classmethod
    def max_timestamp(cls) -> OffsetSpec:
        """Refused: no index knows it."""
        raise NotImplementedError(
            "the largest timestamp is not indexed; read it from the topic's table with SQL"
        )


class ListOffsetsResultInfo:
    """An offset that was found; `timestamp` and `leader_epoch` are not told: -1."""

    def __init__(self, offset: int, timestamp: int, leader_epoch: int) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.leader_epoch = leader_epoch


class DeletedRecords:
    """The first offset that is left."""

    def __init__(self, low_watermark: int) -> None:
        self.low_watermark = low_watermark


class TopicDescription:
    """A topic and its partitions."""

    def __init__(
        self,
        name: str,
        topic_id: Any,
        is_internal: bool,
        partitions: list[TopicPartitionInfo],
        authorized_operations: list[Any] | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.is_internal = is_internal
        self.partitions = partitions
        self.authorized_operations = authorized_operations


class DescribeClusterResult:
    """The gateways; the first one stands for Kafka's controller."""

    def __init__(
        self,
        controller: Node | None,
        nodes: list[Node],
        cluster_id: str | None = None,
        authorized_operations: list[Any] | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self.controller = controller
        self.nodes = nodes
        self.authorized_operations = authorized_operations


class ConsumerGroupListing:
    """A group in a list."""

    def __init__(
        self,
        group_id: str,
        is_simple_consumer_group: bool,
        state: ConsumerGroupState | None = None,
        type: ConsumerGroupType | None = None,
    ) -> None:
        self.group_id = group_id
        self.is_simple_consumer_group = is_simple_consumer_group
        self.state = state
        self.type = type


class ListConsumerGroupsResult:
    """The groups, and errors."""

    def __init__(
        self,
        valid: list[ConsumerGroupListing] | None = None,
        errors: list[Exception] | None = None,
    ) -> None:
        self.valid = valid or []
        self.errors = errors or []


class MemberAssignment:
    """What a member may read."""

    def __init__(self, topic_partitions: list[TopicPartition] | None) -> None:
        self.topic_partitions = topic_partitions or []


class MemberDescription:
    """A member of a group."""

    def __init__(
        self,
        member_id: str,
        client_id: str,
        host: str,
        assignment: MemberAssignment,
        group_instance_id: str | None = None,
        target_assignment: MemberAssignment | None = None,
    ) -> None:
        self.member_id = member_id
        self.client_id = client_id
        self.host = host
        self.assignment = assignment
        self.group_instance_id = group_instance_id
        self.target_assignment = target_assignment


class ConsumerGroupDescription:
    """A group and its members."""

    def __init__(
        self,
        group_id: str,
        is_simple_consumer_group: bool,
        members: list[MemberDescription],
        partition_assignor: str,
        state: ConsumerGroupState,
        coordinator: Node | None,
        authorized_operations: list[Any] | None = None,
        type: ConsumerGroupType = ConsumerGroupType.UNKNOWN,
    ) -> None:
        self.group_id = group_id
        self.is_simple_consumer_group = is_simple_consumer_group
        self.members = members
        self.partition_assignor = partition_assignor
        self.state = state
        self.coordinator = coordinator
        self.authorized_operations = authorized_operations
        self.type = type

"""confluent_kafka.admin: AdminClient, whose calls give futures, over `mainstem.client`'s."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NoReturn, TypeVar

from mainstem import client
from mainstem.compat.confluent.admin_model import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConsumerGroupDescription,
    ConsumerGroupListing,
    DeletedRecords,
    DescribeClusterResult,
    ListConsumerGroupsResult,
    ListOffsetsResultInfo,
    MemberAssignment,
    MemberDescription,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)
from mainstem.compat.confluent.configuration import (
    Configuration,
    in_kafkas_words,
    kafka_exceptions,
)
from mainstem.compat.confluent.error import (
    KafkaError,
    KafkaException,
    exception_from,
    refused,
)
from mainstem.compat.confluent.metadata import (
    BrokerMetadata,
    ClusterMetadata,
    GroupMember,
    GroupMetadata,
    PartitionMetadata,
    TopicMetadata,
    broker_numbers,
    cluster_metadata,
    split_address,
)
from mainstem.compat.confluent.model import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    Node,
    TopicCollection,
    TopicPartition,
    TopicPartitionInfo,
    to_ours,
)
from mainstem.errors import ConfigError, MainstemError

T = TypeVar("T")

_TIMEOUT_S: Final = 30.0
_STATES: Final = {
    "EMPTY": ConsumerGroupState.EMPTY,
    "STABLE": ConsumerGroupState.STABLE,
    "RECONCILING": ConsumerGroupState.PREPARING_REBALANCING,
}
_NO_ACLS: Final = "there are no access control lists yet; keep the gateway in a trusted network"
_NO_SCRAM: Final = "there is no authentication yet; keep the gateway in a trusted network"


class AdminClient:
    """Administration. Calls take lists, and give a future for each of their targets.

    A future's exception is a KafkaException. `request_timeout` is in seconds, 30 by default;
    `operation_timeout` is taken and changes nothing: what is done is durable when it is told.

    Args:
        conf: `bootstrap.servers`, and `client.id` if wanted.
    """

    def __init__(self, conf: Mapping[str, Any], /, **keywords: Any) -> None:
        configuration = Configuration(conf, keywords, own=())
        try:
            self._admin = client.AdminClient(configuration.settings)
        except ConfigError as error:
            raise in_kafkas_words(error) from error
        self._threads = ThreadPoolExecutor(2, "mainstem-admin")
        # There is no close() in confluent-kafka: it ends with the last reference.
        self._finalizer = weakref.finalize(self, _end, self._threads, self._admin)

    def poll(self, timeout: float = -1) -> int:
        """0: futures end by themselves."""
        return 0

    # --------------------------------------------------------------------------------- topics

    def create_topics(
        self, new_topics: Sequence[NewTopic], **kwargs: Any
    ) -> dict[str, Future[None]]:
        """Makes topics; each future gives None. `validate_only`: checks, makes nothing."""
        _list_of(new_topics, NewTopic)
        timeout_s, only = _options(kwargs)

        def create(new: NewTopic) -> None:
            self._admin.create_topic(
                new.topic, max(0, new.num_partitions), new.config, only, timeout_s
            )

        return {new.topic: self._start(create, new) for new in new_topics}

    def delete_topics(self, topics: Sequence[str], **kwargs: Any) -> dict[str, Future[None]]:
        """Removes topics with their records."""
        _list_of(topics, str)
        timeout_s, _ = _options(kwargs)

        def delete(topic: str) -> None:
            self._admin.delete_topic(topic, timeout_s)

        return {topic: self._start(delete, topic) for topic in topics}

    def create_partitions(
        self, new_partitions: Sequence[NewPartitions], **kwargs: Any
    ) -> dict[str, Future[None]]:
        """Raises the number of partitions of topics."""
        _list_of(new_partitions, NewPartitions)
        timeout_s, only = _options(kwargs)
        if only:
            raise refused("_NOT_IMPLEMENTED", "create_partitions has no validate_only here")

        def add(new: NewPartitions) -> None:
            self._admin.add_partitions(new.topic, new.new_total_count, timeout_s)

        return {new.topic: self._start(add, new) for new in new_partitions}

    def describe_topics(
        self, topics: TopicCollection, **kwargs: Any
    ) -> dict[str, Future[TopicDescription]]:
        """Partitions of topics, and who leads them."""
        if not isinstance(topics, TopicCollection):
            raise TypeError("expected a TopicCollection")
        timeout_s, _ = _options(kwargs)

        def describe(name: str) -> TopicDescription:
            found = self._admin.describe_topic(name, timeout_s)
            host, port = split_address(found.leader)
            leader = Node(1, host, port)
            return TopicDescription(
                found.topic,
                found.topic_id,
                False,
                [
                    TopicPartitionInfo(one.partition, leader, [leader], [leader])
                    for one in found.partitions
                ],
            )

        return {name: self._start(describe, name) for name in topics.topic_names}

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Topics, partitions and gateways; with `topic` only that one."""
        timeout_s = _TIMEOUT_S if timeout < 0 else timeout
        with kafka_exceptions():
            gateways = [one.address for one in self._admin.describe_cluster(timeout_s).gateways]
            found = {
                one.topic: client.TopicMetadata(
                    one.topic, one.topic_id, one.partition_count, min(gateways)
                )
                for one in self._admin.list_topics(timeout_s)
            }
        return cluster_metadata(found, gateways, topic)

    def delete_records(
        self, topic_partition_offsets: Sequence[TopicPartition], **kwargs: Any
    ) -> dict[TopicPartition, Future[DeletedRecords]]:
        """Removes what is before `offset` of each partition; OFFSET_END: all."""
        _list_of(topic_partition_offsets, TopicPartition)
        timeout_s, _ = _options(kwargs)

        def delete(tp: TopicPartition) -> DeletedRecords:
            offsets = {tp.partition: tp.offset}
            done = self._admin.delete_records(tp.topic, offsets, timeout=timeout_s)
            return DeletedRecords(done[tp.partition].log_start_offset)

        return {tp: self._start(delete, tp) for tp in topic_partition_offsets}

    def list_offsets(
        self, topic_partition_offsets: Mapping[TopicPartition, OffsetSpec], **kwargs: Any
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        """Offsets by place or time."""
        timeout_s, _ = _options(kwargs)
        keys = list(topic_partition_offsets)
        asked = dict(zip(to_ours(keys), topic_partition_offsets.values(), strict=True))

        def find() -> dict[client.TopicPartition, Any]:
            return self._admin.list_offsets({tp: spec.at for tp, spec in asked.items()}, timeout_s)

        def one(found: Mapping[client.TopicPartition, Any], key: TopicPartition) -> Any:
            offset = _value(found[to_ours([key])[0]])
            return ListOffsetsResultInfo(offset, -1, -1)

        return self._start_together(find, keys, one)

    # -------------------------------------------------------------------------------- settings

    def describe_configs(
        self, resources: Sequence[ConfigResource], **kwargs: Any
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        """Settings of topics, by name."""
        _list_of(resources, ConfigResource)
        timeout_s, _ = _options(kwargs)

        def describe(resource: ConfigResource) -> dict[str, ConfigEntry]:
            found = self._admin.describe_topic(_topic_of(resource), timeout_s)
            return {
                one.name: ConfigEntry(
                    one.name,
                    one.value,
                    ConfigSource.DEFAULT_CONFIG
                    if one.is_default
                    else ConfigSource.DYNAMIC_TOPIC_CONFIG,
                    is_default=one.is_default,
                )
                for one in found.config
            }

        return {resource: self._start(describe, resource) for resource in resources}

    def incremental_alter_configs(
        self, resources: Sequence[ConfigResource], **kwargs: Any
    ) -> dict[ConfigResource, Future[None]]:
        """Sets some settings of topics, and puts others back to their defaults."""
        _list_of(resources, ConfigResource)
        timeout_s, only = _options(kwargs)

        def alter(resource: ConfigResource) -> None:
            changes: dict[str, object] = {}
            back = []
            for entry in resource.incremental_configs:
                if entry.incremental_operation is AlterConfigOpType.SET:
                    changes[entry.name] = entry.value
                elif entry.incremental_operation is AlterConfigOpType.DELETE:
                    back.append(entry.name)
                else:
                    raise refused(
                        "_NOT_IMPLEMENTED",
                        f"{entry.name}: only SET and DELETE are there; SET the whole list",
                    )
            self._admin.alter_config(_topic_of(resource), changes, back, only, timeout_s)

        return {resource: self._start(alter, resource) for resource in resources}

    def alter_configs(
        self, resources: Sequence[ConfigResource], **kwargs: Any
    ) -> dict[ConfigResource, Future[None]]:
        """Sets all settings of topics: what is not named goes back to its default."""
        _list_of(resources, ConfigResource)
        timeout_s, only = _options(kwargs)

        def alter(resource: ConfigResource) -> None:
            topic = _topic_of(resource)
            now = self._admin.describe_topic(topic, timeout_s).config
            back = [
                one.name
                for one in now
                if not one.is_default and one.name not in resource.set_config_dict
            ]
            self._admin.alter_config(topic, resource.set_config_dict, back, only, timeout_s)

        return {resource: self._start(alter, resource) for resource in resources}

    # ---------------------------------------------------------------------------------- groups

    def list_consumer_groups(self, **kwargs: Any) -> Future[ListConsumerGroupsResult]:
        """Every group, or those with one of `states`."""
        states = kwargs.pop("states", None)
        kwargs.pop("types", None)
        timeout_s, _ = _options(kwargs)

        def find() -> ListConsumerGroupsResult:
            found = [
                ConsumerGroupListing(
                    one.group_id, False, _state(one.state), ConsumerGroupType.CONSUMER
                )
                for one in self._admin.list_consumer_groups(timeout_s)
            ]
            return ListConsumerGroupsResult(
                [one for one in found if not states or one.state in states]
            )

        return self._start(find)

    def list_groups(self, group: str | None = None, timeout: float = -1) -> list[GroupMetadata]:
        """Every group, or the one of that name, without waiting for a future."""
        timeout_s = _TIMEOUT_S if timeout < 0 else timeout
        with kafka_exceptions():
            listed = self._admin.list_consumer_groups(timeout_s)
            names = [one.group_id for one in listed if group in (None, one.group_id)]
            described = self._admin.describe_consumer_groups(names, timeout_s)
        found = []
        for name, one in described.items():
            if isinstance(one, MainstemError):
                continue  # it went between the two calls
            metadata = GroupMetadata()
            metadata.id, metadata.state = name, one.state.capitalize()
            metadata.protocol_type, metadata.protocol = "consumer", one.partition_assignor
            for member in one.members:
                seen = GroupMember()
                seen.id, seen.client_id = member.member_id, member.client_id
                metadata.members.append(seen)
            found.append(metadata)
        return found

    def describe_consumer_groups(
        self, group_ids: Sequence[str], **kwargs: Any
    ) -> dict[str, Future[ConsumerGroupDescription]]:
        """State and members of groups."""
        _list_of(group_ids, str)
        timeout_s, _ = _options(kwargs)

        def describe(group_id: str) -> ConsumerGroupDescription:
            found = self._admin.describe_consumer_groups([group_id], timeout_s)
            return _description(_value(found[group_id]))

        return {group_id: self._start(describe, group_id) for group_id in group_ids}

    def delete_consumer_groups(
        self, group_ids: Sequence[str], **kwargs: Any
    ) -> dict[str, Future[None]]:
        """Deletes groups without members, with their offsets."""
        _list_of(group_ids, str)
        timeout_s, _ = _options(kwargs)

        def delete(group_id: str) -> None:
            _value(self._admin.delete_consumer_groups([group_id], timeout_s)[group_id])

        return {group_id: self._start(delete, group_id) for group_id in group_ids}

    def list_consumer_group_offsets(
        self,
        list_consumer_group_offsets_request: Sequence[ConsumerGroupTopicPartitions],
        **kwargs: Any,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """What groups have committed."""
        _list_of(list_consumer_group_offsets_request, ConsumerGroupTopicPartitions)
        timeout_s, _ = _options(kwargs)

        def find(asked: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
            wanted = None if asked.topic_partitions is None else to_ours(asked.topic_partitions)
            found = self._admin.list_consumer_group_offsets(asked.group_id, wanted, timeout_s)
            return ConsumerGroupTopicPartitions(
                asked.group_id,
                [
                    TopicPartition(one.topic, one.partition, one.offset, one.metadata or None)
                    for one in found.values()
                ],
            )

        return {one.group_id: self._start(find, one) for one in list_consumer_group_offsets_request}

    def alter_consumer_group_offsets(
        self,
        alter_consumer_group_offsets_request: Sequence[ConsumerGroupTopicPartitions],
        **kwargs: Any,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Moves the offsets of groups without members."""
        _list_of(alter_consumer_group_offsets_request, ConsumerGroupTopicPartitions)
        timeout_s, _ = _options(kwargs)

        def alter(asked: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
            partitions = asked.topic_partitions or []
            done = self._admin.alter_consumer_group_offsets(
                asked.group_id, to_ours(partitions), timeout_s
            )
            answers = []
            for tp, error in zip(partitions, done.values(), strict=True):
                answer = TopicPartition(tp.topic, tp.partition, tp.offset, tp.metadata)
                answer.error = None if error is None else exception_from(error).args[0]
                answers.append(answer)
            return ConsumerGroupTopicPartitions(asked.group_id, answers)

        asked = alter_consumer_group_offsets_request
        return {one.group_id: self._start(alter, one) for one in asked}

    # --------------------------------------------------------------------------------- cluster

    def describe_cluster(self, **kwargs: Any) -> Future[DescribeClusterResult]:
        """The gateways."""
        timeout_s, _ = _options(kwargs)

        def describe() -> DescribeClusterResult:
            found = self._admin.describe_cluster(timeout_s)
            numbers = broker_numbers(one.address for one in found.gateways)
            nodes = [Node(number, *split_address(at)) for at, number in numbers.items()]
            return DescribeClusterResult(nodes[0] if nodes else None, nodes, found.warehouse_uri)

        return self._start(describe)

    def cluster_id(self, timeout: float = -1) -> str | None:
        """The name that stands for the cluster; asks a gateway."""
        return self.list_topics(timeout=timeout).cluster_id

    # -------------------------------------------------------------------------- what cannot be

    def create_acls(self, acls: object, **kwargs: Any) -> Any:
        """Refused: there are no access control lists yet."""
        raise refused("_NOT_IMPLEMENTED", _NO_ACLS)

    def describe_acls(self, acl_binding_filter: object, **kwargs: Any) -> Any:
        """Refused: there are no access control lists yet."""
        raise refused("_NOT_IMPLEMENTED", _NO_ACLS)

    def delete_acls(self, acl_binding_filters: object, **kwargs: Any) -> Any:
        """Refused: there are no access control lists yet."""
        raise refused("_NOT_IMPLEMENTED", _NO_ACLS)

    def describe_user_scram_credentials(self, users: object = None, **kwargs: Any) -> Any:
        """Refused: there is no authentication yet."""
        raise refused("_NOT_IMPLEMENTED", _NO_SCRAM)

    def alter_user_scram_credentials(self, alterations: object, **kwargs: Any) -> Any:
        """Refused: there is no authentication yet."""
        raise refused("_NOT_IMPLEMENTED", _NO_SCRAM)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Refused: there is no authentication yet."""
        raise refused("_NOT_IMPLEMENTED", _NO_SCRAM)

    def elect_leaders(self, election_type: object, partitions: object = None, **kwargs: Any) -> Any:
        """Refused: gateways take over topics by themselves."""
        raise refused("_NOT_IMPLEMENTED", "a topic's leader is replaced by itself, by its lease")

    # ---------------------------------------------------------------------------------- inside

    def _start(self, work: Callable[..., T], *args: Any) -> Future[T]:
        def run() -> T:
            with kafka_exceptions():
                try:
                    return work(*args)
                except (ValueError, TypeError) as error:
                    raise refused("_INVALID_ARG", str(error)) from error

        return self._threads.submit(run)

    def _start_together(
        self, work: Callable[[], Any], keys: Iterable[Any], one: Callable[[Any, Any], Any]
    ) -> dict[Any, Future[Any]]:
        """One call whose answer has a part for each key."""
        pairs: list[tuple[Any, Future[Any]]] = [(key, Future()) for key in keys]
        for _, future in pairs:
            future.set_running_or_notify_cancel()

        def spread(done: Future[Any]) -> None:
            for key, future in pairs:
                try:
                    with kafka_exceptions():
                        answer = one(done.result(), key)
                except KafkaException as error:
                    future.set_exception(error)
                else:
                    future.set_result(answer)

        self._start(work).add_done_callback(spread)
        return dict(pairs)


def _end(threads: ThreadPoolExecutor, admin: client.AdminClient) -> None:
    threads.shutdown(wait=False, cancel_futures=True)
    admin.close()


def _options(kwargs: Mapping[str, Any]) -> tuple[float, bool]:
    """request_timeout in seconds, and validate_only.

    Raises:
        TypeError: Another option.
    """
    known = {
        "request_timeout",
        "operation_timeout",
        "validate_only",
        "broker",
        "include_authorized_operations",
        "require_stable",
        "isolation_level",
    }
    unknown = kwargs.keys() - known
    if unknown:
        raise TypeError(f"there is no option {min(unknown)!r}")
    timeout = kwargs.get("request_timeout")
    timeout_s = _TIMEOUT_S if timeout is None or timeout < 0 else float(timeout)
    return timeout_s, bool(kwargs.get("validate_only"))


def _list_of(values: object, kind: type) -> None:
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise TypeError(f"expected a non-empty list of {kind.__name__}")
    for value in values:
        if not isinstance(value, kind):
            raise TypeError(f"expected {kind.__name__}, not {type(value).__name__}")


def _topic_of(resource: ConfigResource) -> str:
    if resource.restype is not ResourceType.TOPIC:
        raise refused(
            "_NOT_IMPLEMENTED",
            f"{resource}: only topics have settings that change while a gateway runs; a gateway's "
            "are in its file",
        )
    return resource.name


def _value(found: T | MainstemError) -> T:
    if isinstance(found, MainstemError):
        raise found
    return found


def _state(text: str) -> ConsumerGroupState:
    return _STATES.get(text, ConsumerGroupState.UNKNOWN)


def _description(found: client.ConsumerGroupDescription) -> ConsumerGroupDescription:
    members = [
        MemberDescription(
            one.member_id,
            one.client_id,
            "",
            MemberAssignment([TopicPartition(tp.topic, tp.partition) for tp in one.assignment]),
            one.group_instance_id or None,
            MemberAssignment([TopicPartition(tp.topic, tp.partition) for tp in one.target]),
        )
        for one in found.members
    ]
    return ConsumerGroupDescription(
        found.group_id,
        not members,
        members,
        found.partition_assignor,
        _state(found.state),
        None,
        type=ConsumerGroupType.CONSUMER,
    )


RESOURCE_UNKNOWN: Final = ResourceType.UNKNOWN
RESOURCE_ANY: Final = ResourceType.ANY
RESOURCE_TOPIC: Final = ResourceType.TOPIC
RESOURCE_GROUP: Final = ResourceType.GROUP
RESOURCE_BROKER: Final = ResourceType.BROKER
RESOURCE_TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID

CONFIG_SOURCE_UNKNOWN_CONFIG: Final = ConfigSource.UNKNOWN_CONFIG.value
CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG: Final = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG: Final = ConfigSource.DYNAMIC_BROKER_CONFIG.value
CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG: Final = (
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value
)
CONFIG_SOURCE_STATIC_BROKER_CONFIG: Final = ConfigSource.STATIC_BROKER_CONFIG.value
CONFIG_SOURCE_DEFAULT_CONFIG: Final = ConfigSource.DEFAULT_CONFIG.value
CONFIG_SOURCE_GROUP_CONFIG: Final = ConfigSource.GROUP_CONFIG.value

#: Names of confluent_kafka.admin that cannot be imported, and why.
REFUSED: Final = {
    **dict.fromkeys(
        ("AclBinding", "AclBindingFilter", "AclOperation", "AclPermissionType"), _NO_ACLS
    ),
    "ResourcePatternType": _NO_ACLS,
    **dict.fromkeys(
        (
            "ScramCredentialInfo",
            "ScramMechanism",
            "UserScramCredentialAlteration",
            "UserScramCredentialDeletion",
            "UserScramCredentialUpsertion",
            "UserScramCredentialsDescription",
        ),
        _NO_SCRAM,
    ),
}


def __getattr__(name: str) -> NoReturn:
    if name in REFUSED:
        raise ImportError(f"{name} does not exist here: {REFUSED[name]}", name=__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "CONFIG_SOURCE_DEFAULT_CONFIG",
    "CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG",
    "CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG",
    "CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG",
    "CONFIG_SOURCE_GROUP_CONFIG",
    "CONFIG_SOURCE_STATIC_BROKER_CONFIG",
    "CONFIG_SOURCE_UNKNOWN_CONFIG",
    "RESOURCE_ANY",
    "RESOURCE_BROKER",
    "RESOURCE_GROUP",
    "RESOURCE_TOPIC",
    "RESOURCE_TRANSACTIONAL_ID",
    "RESOURCE_UNKNOWN",
    "AdminClient",
    "AlterConfigOpType",
    "BrokerMetadata",
    "ClusterMetadata",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConsumerGroupDescription",
    "ConsumerGroupListing",
    "DeletedRecords",
    "DescribeClusterResult",
    "GroupMember",
    "GroupMetadata",
    "KafkaError",
    "KafkaException",
    "ListConsumerGroupsResult",
    "ListOffsetsResultInfo",
    "MemberAssignment",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "PartitionMetadata",
    "ResourceType",
    "TopicDescription",
    "TopicMetadata",
]

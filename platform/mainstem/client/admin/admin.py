"""Topics, groups and the cluster: create, delete, list, describe, alter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import grpc

from mainstem.client.admin.acls import AclAdmin
from mainstem.client.admin.changes import change
from mainstem.client.admin.groups import TIMEOUT_S, GroupAdmin
from mainstem.client.admin.quotas import QuotaAdmin
from mainstem.client.admin.transactions import TransactionAdmin
from mainstem.client.admin.users import UserAdmin
from mainstem.client.arguments import check_mapping, check_seconds, names_of
from mainstem.client.channels import Channels
from mainstem.client.connection_security import SECURITY_KEYS, connection_settings
from mainstem.client.gateways import Gateways
from mainstem.client.settings import check_client_id, parse_servers, read_settings
from mainstem.client.unclosed import warn_unclosed
from mainstem.config import ConfigKey, keys_by_name
from mainstem.errors import MainstemError, SessionExpiredError
from mainstem.limits import MIB
from mainstem.protocol import error_from_message
from mainstem.protocol.v1 import admin_pb2, admin_pb2_grpc

#: Every setting of `AdminClient`, by name.
ADMIN_KEYS: Final[dict[str, ConfigKey]] = keys_by_name(
    (
        ConfigKey(
            "bootstrap.servers",
            "str",
            "",
            "Gateways to ask, host:port, with commas between; the first that is reached answers. "
            "There is no default. Kafka: bootstrap.servers.",
        ),
        ConfigKey(
            "client.id",
            "str",
            "",
            "A name for the gateway's log, sent as gRPC user agent; printable ASCII. "
            "Kafka: client.id.",
        ),
        *SECURITY_KEYS,
    )
)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was made, or, with `validate_only`, would be; `topic_id` is empty then."""

    topic: str
    topic_id: str
    partition_count: int


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic in a list.

    Attributes:
        error: Why it cannot be read: its id is empty then, and its number of partitions 0.
    """

    topic: str
    topic_id: str
    partition_count: int
    error: MainstemError | None = None


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition's offsets and size.

    Attributes:
        log_start_offset: The first offset that can be read.
        high_watermark: One past the last committed offset.
        log_end_offset: One past the last accepted offset.
        file_count, size_bytes: Of its active data files.
        record_count: That can be read. Fewer than offsets where keyed compaction removed some.
    """

    partition: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    file_count: int
    size_bytes: int
    record_count: int


@dataclass(frozen=True, slots=True)
class TopicConfigEntry:
    """A topic's setting; `is_default`: nobody set it."""

    name: str
    value: str
    is_default: bool
    unit: str
    doc: str


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic, as of one version of its Delta table.

    Attributes:
        table_uri: Where the table is, for `spark.read.format("delta").load(...)`.
    """

    topic: str
    topic_id: str
    leader: str
    leader_epoch: int
    table_version: int
    table_uri: str
    partitions: tuple[PartitionDescription, ...]
    config: tuple[TopicConfigEntry, ...]


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """What `delete_records` did to a partition.

    Attributes:
        log_start_offset_before: The first offset that could be read.
        log_start_offset: The first that can be read now. Kafka: low watermark.
    """

    log_start_offset_before: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class GatewayDescription:
    """One gateway; figures are those of its last heartbeat.

    Attributes:
        address: host:port.
        rack: Its gateway.rack.
        draining: It hands over what it leads, and then ends.
        in_bytes_s, out_bytes_s: Bytes of records a second, taken from producers and given to
            consumers.
    """

    gateway_id: str
    address: str
    topics_led: int
    rack: str = ""
    draining: bool = False
    in_bytes_s: int = 0
    out_bytes_s: int = 0


@dataclass(frozen=True, slots=True)
class TopicMove:
    """A topic that belongs to another gateway than the one that leads it.

    Attributes:
        topic: `__consumer_offsets` stands for the coordination of groups.
        from_id: The gateway.id of the one that leads it.
        to_id, to_address: The one that it belongs to.
        done: Whether it is there.
    """

    topic: str
    from_id: str
    to_id: str
    to_address: str
    done: bool


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The gateways and the warehouse that they share."""

    warehouse_uri: str
    version: str
    gateways: tuple[GatewayDescription, ...]


class AdminClient(GroupAdmin, TransactionAdmin, UserAdmin, AclAdmin, QuotaAdmin):
    """Administration of topics, groups, transactions, users, access control lists and quotas.
    Thread-safe. Calls wait for their answers.

    confluent-kafka's AdminClient takes lists and returns futures; here a call returns its result,
    and one with several targets a result or an error for each. A call goes to the first gateway
    that is reached, one about groups to their coordinator; one that changes something is never
    repeated once a gateway may have seen it.

    Args:
        config: `bootstrap.servers`, and what else is wanted of `ADMIN_KEYS`.

    Raises (every call):
        GatewayUnavailableError: No gateway was reached.
        OutcomeUnknownError: A change had no answer within `timeout` seconds, or somebody between
            here and the gateway broke the call off: look before you repeat it.
        MainstemError: What the gateway says.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        reading = read_settings("admin", ADMIN_KEYS, config)
        values, faults = reading.values, reading.faults
        servers: tuple[str, ...] = ()
        with faults.about("bootstrap.servers"):
            servers = parse_servers(str(values["bootstrap.servers"]))
        client_id = str(values["client.id"])
        with faults.about("client.id"):
            check_client_id(client_id)
        connection = connection_settings(values, faults, reading.functions)
        faults.tell()
        self._channels = Channels(MIB, client_id, connection)
        gateways = Gateways(servers, self._channels, time.monotonic)
        GroupAdmin.__init__(self, gateways)
        TransactionAdmin.__init__(self, gateways)
        UserAdmin.__init__(self, gateways)
        AclAdmin.__init__(self, gateways)
        QuotaAdmin.__init__(self, gateways)

    def create_topic(
        self,
        name: str,
        num_partitions: int = 0,
        config: Mapping[str, object] | None = None,
        validate_only: bool = False,
        timeout: float = TIMEOUT_S,
    ) -> CreatedTopic:
        """Makes a topic; it is durable when this returns.

        Args:
            name: Kafka's rule: 1 to 249 of letters, digits, `.`, `_`, `-`.
            num_partitions: 0: the gateway's num.partitions.
            config: Topic settings by Kafka's names.
            validate_only: Check everything, make nothing.

        Raises:
            TopicExistsError, InvalidTopicError, InvalidConfigError: As named.
        """
        request = admin_pb2.CreateTopicRequest(
            topic=name,
            partition_count=num_partitions,
            config=_texts(config or {}, "config", "; there is no replication factor"),
            validate_only=validate_only,
        )
        answer = self._call(lambda stub: stub.CreateTopic, request, timeout)
        return CreatedTopic(name, answer.topic_id, answer.partition_count)

    def delete_topic(self, name: str, timeout: float = TIMEOUT_S) -> str:
        """Removes a topic with its records and its table; returns the id that it had.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        request = admin_pb2.DeleteTopicRequest(topic=name)
        answer = self._call(lambda stub: stub.DeleteTopic, request, timeout)
        return str(answer.topic_id)

    def list_topics(self, timeout: float = TIMEOUT_S) -> tuple[TopicListing, ...]:
        """Every topic, by name, those that cannot be read among them."""
        request = admin_pb2.ListTopicsRequest()
        answer = self._read(lambda stub: stub.ListTopics, request, timeout)
        return tuple(
            TopicListing(
                one.topic,
                one.topic_id,
                one.partition_count,
                error_from_message(one.error) if one.HasField("error") else None,
            )
            for one in answer.topics
        )

    def describe_topic(self, name: str, timeout: float = TIMEOUT_S) -> TopicDescription:
        """A topic's partitions, offsets, settings and table.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        request = admin_pb2.DescribeTopicRequest(topic=name)
        answer = self._read(lambda stub: stub.DescribeTopic, request, timeout)
        return TopicDescription(
            topic=answer.topic,
            topic_id=answer.topic_id,
            leader=answer.leader,
            leader_epoch=answer.leader_epoch,
            table_version=answer.table_version,
            table_uri=answer.table_uri,
            partitions=tuple(
                PartitionDescription(
                    one.partition,
                    one.log_start_offset,
                    one.high_watermark,
                    one.log_end_offset,
                    one.file_count,
                    one.size_bytes,
                    one.record_count,
                )
                for one in answer.partitions
            ),
            config=tuple(
                TopicConfigEntry(one.name, one.value, one.is_default, one.unit, one.doc)
                for one in answer.config
            ),
        )

    def alter_config(
        self,
        topic: str,
        set: Mapping[str, object] | None = None,
        reset: Iterable[str] = (),
        validate_only: bool = False,
        timeout: float = TIMEOUT_S,
    ) -> int:
        """Sets some of a topic's settings and puts others back to their default, or nothing at all.

        Returns:
            The version of the Delta table that has the change.

        Raises:
            UnknownTopicError, InvalidConfigError: As named.
        """
        request = admin_pb2.AlterTopicConfigRequest(
            topic=topic,
            set=_texts(set or {}, "set"),
            reset=names_of(reset, "reset"),
            validate_only=validate_only,
        )
        return int(self._call(lambda stub: stub.AlterTopicConfig, request, timeout).table_version)

    def add_partitions(self, topic: str, total_count: int, timeout: float = TIMEOUT_S) -> int:
        """Raises a topic's partitions to `total_count`. Keys are placed again from then on.

        Returns:
            The version of the Delta table that has the change.

        Raises:
            UnknownTopicError: There is no such topic.
            InvalidConfigError: `total_count` is not larger than today's.
        """
        request = admin_pb2.AddPartitionsRequest(topic=topic, partition_count=total_count)
        return int(self._call(lambda stub: stub.AddPartitions, request, timeout).table_version)

    #: Kafka's name for it.
    create_partitions = add_partitions

    def delete_records(
        self,
        topic: str,
        offsets: Mapping[int, int],
        validate_only: bool = False,
        timeout: float = TIMEOUT_S,
    ) -> dict[int, DeletedRecords]:
        """Removes the records before an offset of each partition, in all of them or in none.

        They cannot be read when this returns. SQL over the table may show some until compaction: a
        data file that has the offset inside stays whole.

        Args:
            offsets: By partition, the first offset to keep; -1: the high watermark, which removes
                every record. One at or before the log start offset removes nothing.
            validate_only: Check everything, remove nothing.

        Raises:
            UnknownTopicError, UnknownPartitionError: As named.
            OffsetOutOfRangeError: An offset is beyond its partition's high watermark.
            PolicyViolationError: The topic has `cleanup.policy=compact`.
        """
        check_mapping(offsets, "offsets", "{0: 1000}")
        request = admin_pb2.TrimPrefixRequest(topic=topic, validate_only=validate_only)
        for partition, offset in offsets.items():
            request.partitions.add(partition=partition, offset=offset)
        answer = self._call(lambda stub: stub.TrimPrefix, request, timeout)
        return {
            one.partition: DeletedRecords(one.log_start_offset_before, one.log_start_offset)
            for one in answer.partitions
        }

    def describe_cluster(self, timeout: float = TIMEOUT_S) -> ClusterDescription:
        """The gateways and their warehouse."""
        request = admin_pb2.DescribeClusterRequest()
        answer = self._read(lambda stub: stub.DescribeCluster, request, timeout)
        self._gateways.learn(one.address for one in answer.gateways)
        return ClusterDescription(
            answer.warehouse_uri,
            answer.version,
            tuple(
                GatewayDescription(
                    one.gateway_id,
                    one.address,
                    one.topics_led,
                    one.rack,
                    one.draining,
                    one.in_bytes_per_s,
                    one.out_bytes_per_s,
                )
                for one in answer.gateways
            ),
        )

    def rebalance(
        self, address: str, *, validate_only: bool = False, timeout: float = TIMEOUT_S
    ) -> list[TopicMove]:
        """Has one gateway hand topics over to those that they belong to; 200 at most. What it
        leads and may keep stays. Gateways do so by themselves, a little later; see placement.* of
        the gateway's settings.

        Args:
            address: host:port of the gateway, as `describe_cluster` has it.
            validate_only: Say what would move, and move nothing.

        Raises:
            GatewayUnavailableError: It was not reached.
            OutcomeUnknownError: It did not answer in time, and may go on: ask again.
        """
        request = admin_pb2.RebalanceRequest(validate_only=validate_only)
        channel = self._gateways.channels.get(address)
        call = admin_pb2_grpc.AdminStub(channel).Rebalance
        try:
            try:
                answer = call(request, timeout=timeout)
            except grpc.RpcError as error:
                failure = self._gateways.failed(error, address, channel)
                if not isinstance(failure, SessionExpiredError):
                    raise failure from None
                answer = call(request, timeout=timeout)  # signs in again
        except grpc.RpcError as error:
            raise self._gateways.failed(error, address, channel) from None
        return [
            TopicMove(one.topic, answer.gateway_id, one.gateway_id, one.address, one.done)
            for one in answer.moves
        ]

    def close(self) -> None:
        """Closes the connections."""
        self._channels.close()

    def __del__(self) -> None:
        channels = getattr(self, "_channels", None)
        if channels is not None and not channels.closed:
            warn_unclosed(self, channels.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _call(
        self,
        method: Callable[[admin_pb2_grpc.AdminStub], Any],
        request: object,
        timeout_s: float,
    ) -> Any:
        """Makes a change, at the first gateway that is reached."""
        return change(
            self._gateways,
            lambda channel: method(admin_pb2_grpc.AdminStub(channel)),
            request,
            timeout_s,
        )

    def _read(
        self,
        method: Callable[[admin_pb2_grpc.AdminStub], Any],
        request: object,
        timeout_s: float,
    ) -> Any:
        """Asks for what changes nothing."""
        check_seconds(timeout_s)
        return self._gateways.ask_again(
            lambda channel: method(admin_pb2_grpc.AdminStub(channel)), request, timeout_s
        )


def _texts(config: Mapping[str, object], name: str, note: str = "") -> dict[str, str]:
    """Setting values as text; booleans as Kafka writes them."""
    check_mapping(config, name, "{'retention.ms': 86400000}" + note)
    return {n: str(v).lower() if isinstance(v, bool) else str(v) for n, v in config.items()}

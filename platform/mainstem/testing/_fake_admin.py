"""The administration of a fake gateway."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from mainstem.config import TOPIC_KEYS, TopicConfig, format_value
from mainstem.errors import InvalidConfigError, MainstemError, TopicExistsError
from mainstem.protocol import error_to_status
from mainstem.protocol.v1 import admin_pb2, admin_pb2_grpc
from mainstem.records import check_new_topic_name
from mainstem.testing._fake_topic import FakeTopic
from mainstem.testing._fake_topics import FakeTopics


class AdminService(admin_pb2_grpc.AdminServicer):
    """Each call raises what is wrong; `_statuses` makes a status of it.

    Args:
        address: host:port of the gateway.
    """

    def __init__(self, topics: FakeTopics, address: Callable[[], str]) -> None:
        self._topics = topics
        self._address = address

    def CreateTopic(
        self, request: admin_pb2.CreateTopicRequest, context: Any
    ) -> admin_pb2.CreateTopicResponse:
        with _statuses(context):
            check_new_topic_name(request.topic)
            if request.topic in self._topics:
                raise TopicExistsError(f"topic {request.topic} exists", topic=request.topic)
            config = TopicConfig.parse(dict(request.config))
        topic = FakeTopic(request.topic, request.partition_count or 1, config=config)
        if request.validate_only:
            return admin_pb2.CreateTopicResponse(partition_count=topic.partition_count)
        self._topics[topic.name] = topic
        return admin_pb2.CreateTopicResponse(
            topic_id=topic.topic_id, partition_count=topic.partition_count
        )

    def DeleteTopic(
        self, request: admin_pb2.DeleteTopicRequest, context: Any
    ) -> admin_pb2.DeleteTopicResponse:
        with _statuses(context):
            topic = self._topics.find(request.topic)
        del self._topics[topic.name]
        return admin_pb2.DeleteTopicResponse(topic_id=topic.topic_id)

    def ListTopics(
        self, request: admin_pb2.ListTopicsRequest, context: Any
    ) -> admin_pb2.ListTopicsResponse:
        return admin_pb2.ListTopicsResponse(
            topics=[
                admin_pb2.TopicListing(
                    topic=topic.name,
                    topic_id=topic.topic_id,
                    partition_count=topic.partition_count,
                )
                for _, topic in sorted(self._topics.items())
            ]
        )

    def DescribeTopic(
        self, request: admin_pb2.DescribeTopicRequest, context: Any
    ) -> admin_pb2.DescribeTopicResponse:
        with _statuses(context):
            topic = self._topics.find(request.topic)
        answer = admin_pb2.DescribeTopicResponse(
            topic=topic.name,
            topic_id=topic.topic_id,
            leader=topic.leader or self._address(),
            leader_epoch=1,
            table_version=topic.table_version,
            table_uri=f"memory://topics/{topic.name}",
        )
        for partition, log in enumerate(topic.records):
            answer.partitions.add(
                partition=partition,
                high_watermark=len(log),
                log_end_offset=len(log),
                record_count=len(log),
            )
        for key in TOPIC_KEYS.values():
            answer.config.add(
                name=key.name,
                value=format_value(topic.config.get(key.name)),
                is_default=key.name not in topic.config.overrides,
                unit=key.unit,
                doc=key.doc,
            )
        return answer

    def AlterTopicConfig(
        self, request: admin_pb2.AlterTopicConfigRequest, context: Any
    ) -> admin_pb2.AlterTopicConfigResponse:
        with _statuses(context):
            topic = self._topics.find(request.topic)
            config = topic.config.altered(dict(request.set), list(request.reset))
        if not request.validate_only:
            topic.config = config
            topic.table_version += 1
        return admin_pb2.AlterTopicConfigResponse(table_version=topic.table_version)

    def AddPartitions(
        self, request: admin_pb2.AddPartitionsRequest, context: Any
    ) -> admin_pb2.AddPartitionsResponse:
        with _statuses(context):
            topic = self._topics.find(request.topic)
            if request.partition_count <= topic.partition_count:
                raise InvalidConfigError(
                    f"topic {topic.name} has {topic.partition_count} partitions; the new total, "
                    f"{request.partition_count}, must be larger"
                )
        topic.grow(request.partition_count)
        topic.table_version += 1
        return admin_pb2.AddPartitionsResponse(table_version=topic.table_version)

    def DescribeCluster(
        self, request: admin_pb2.DescribeClusterRequest, context: Any
    ) -> admin_pb2.DescribeClusterResponse:
        return admin_pb2.DescribeClusterResponse(
            warehouse_uri="memory://",
            version="fake",
            gateways=[
                admin_pb2.GatewayDescription(
                    gateway_id="fake",
                    address=self._address(),
                    topics_led=len(self._topics),
                    rack="rack-a",
                )
            ],
        )


class _statuses:
    """Turns a MainstemError of its block into the call's status."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, MainstemError):
            self._context.abort_with_status(error_to_status(error))

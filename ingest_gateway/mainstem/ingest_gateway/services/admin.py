"""The Admin service: topics and the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from mainstem.config import TOPIC_KEYS, format_value
from mainstem.delta_log import Appender, TableState
from mainstem.delta_log.append import retrieve
from mainstem.delta_log.topics import added_partitions, altered_config
from mainstem.errors import MainstemError, UnknownTopicError
from mainstem.ingest_gateway.balancing import REQUEST_MOVES_MAX, Balancing
from mainstem.ingest_gateway.cluster import Cluster
from mainstem.ingest_gateway.connections import Connections
from mainstem.ingest_gateway.services.call import Call
from mainstem.ingest_gateway.several import one_for_each
from mainstem.ingest_gateway.topics import GatewayTopics, trim_prefix
from mainstem.protocol import error_to_message
from mainstem.protocol.v1 import admin_pb2
from mainstem.records import check_topic_name
from mainstem.security import Operation, ResourceType

log = structlog.get_logger()


#: Partitions or topics that are put into an answer in one step of the event loop.
_AT_ONCE = 1_000


class AdminService:
    """Serves `mainstem.v1.Admin`.

    Args:
        gateway_id, warehouse_uri, version, store_trouble: For the cluster's description.
    """

    def __init__(
        self,
        topics: GatewayTopics,
        cluster: Cluster,
        connections: Connections,
        balancing: Balancing,
        *,
        gateway_id: str,
        warehouse_uri: str,
        version: str,
        store_trouble: Callable[[], Awaitable[str]],
    ) -> None:
        self._topics = topics
        self._cluster = cluster
        self._connections = connections
        self._balancing = balancing
        self._gateway_id = gateway_id
        self._warehouse_uri = warehouse_uri
        self._version = version
        self._store_trouble = store_trouble

    async def CreateTopic(
        self, request: admin_pb2.CreateTopicRequest, call: Call
    ) -> admin_pb2.CreateTopicResponse:
        call.check_creates(request.topic)
        if not request.validate_only:
            await call.admit_mutation(partial(self._new_count, request.partition_count))
        metadata = await self._topics.create(
            request.topic,
            request.partition_count,
            dict(request.config),
            validate_only=request.validate_only,
        )
        if not request.validate_only:
            log.info(
                "topic created",
                topic=request.topic,
                topic_id=metadata.id,
                **call.facts(),
            )
        return admin_pb2.CreateTopicResponse(
            topic_id="" if request.validate_only else metadata.id,
            partition_count=int(metadata.configuration["mainstem.partitions"]),
        )

    async def DeleteTopic(
        self, request: admin_pb2.DeleteTopicRequest, call: Call
    ) -> admin_pb2.DeleteTopicResponse:
        check_topic_name(request.topic)
        await call.admit_mutation(partial(self._partition_count, request.topic))
        topic_id = await self._topics.delete(request.topic)
        log.info("topic deleted", topic=request.topic, topic_id=topic_id, **call.facts())
        return admin_pb2.DeleteTopicResponse(topic_id=topic_id)

    async def ListTopics(
        self, request: admin_pb2.ListTopicsRequest, call: Call
    ) -> admin_pb2.ListTopicsResponse:
        names = await call.allowed(
            Operation.DESCRIBE, ResourceType.TOPIC, await self._topics.names()
        )
        found = await one_for_each(names, self._listed)
        return admin_pb2.ListTopicsResponse(topics=[one for one in found if one is not None])

    async def _listed(self, name: str) -> admin_pb2.TopicListing | None:
        try:
            return await self._topics.describe(name, partial(_listing, name))
        except UnknownTopicError:
            return None  # deleted meanwhile
        except MainstemError as error:
            log.warning("topic cannot be described", topic=name, error=error.message)
            return admin_pb2.TopicListing(topic=name, error=error_to_message(error))

    async def DescribeTopic(
        self, request: admin_pb2.DescribeTopicRequest, call: Call
    ) -> admin_pb2.DescribeTopicResponse:
        check_topic_name(request.topic)
        response = await self._topics.describe(
            request.topic, partial(self._description, request.topic)
        )
        if not call.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, request.topic):
            response.ClearField("config")
        asked_count = _AT_ONCE
        while len(response.partitions) == asked_count:
            # In steps of the loop: what is said of partitions far apart is of different moments.
            asked_count += _AT_ONCE
            await self._topics.describe(request.topic, partial(_add_partitions, response))
        return response

    async def AlterTopicConfig(
        self, request: admin_pb2.AlterTopicConfigRequest, call: Call
    ) -> admin_pb2.AlterTopicConfigResponse:
        check_topic_name(request.topic)
        version = await self._topics.change(
            request.topic,
            "ALTER CONFIG",
            partial(altered_config, set_to=dict(request.set), reset=list(request.reset)),
            validate_only=request.validate_only,
        )
        if not request.validate_only:
            log.info(
                "settings changed",
                topic=request.topic,
                set=dict(request.set),
                reset=list(request.reset),
                **call.facts(),
            )
        return admin_pb2.AlterTopicConfigResponse(table_version=version)

    async def AddPartitions(
        self, request: admin_pb2.AddPartitionsRequest, call: Call
    ) -> admin_pb2.AddPartitionsResponse:
        check_topic_name(request.topic)
        await call.admit_mutation(
            partial(self._added_count, request.topic, request.partition_count)
        )
        version = await self._topics.change(
            request.topic,
            "ADD PARTITIONS",
            partial(added_partitions, partition_count=request.partition_count),
            validate_only=False,
        )
        log.info(
            "partitions added",
            topic=request.topic,
            partition_count=request.partition_count,
            **call.facts(),
        )
        return admin_pb2.AddPartitionsResponse(table_version=version)

    async def TrimPrefix(
        self, request: admin_pb2.TrimPrefixRequest, call: Call
    ) -> admin_pb2.TrimPrefixResponse:
        check_topic_name(request.topic)
        response = await trim_prefix(self._topics, request)
        if not request.validate_only:
            log.info("topic trimmed", topic=request.topic, **call.facts())
        return response

    async def DescribeCluster(
        self, request: admin_pb2.DescribeClusterRequest, call: Call
    ) -> admin_pb2.DescribeClusterResponse:
        return admin_pb2.DescribeClusterResponse(
            warehouse_uri=self._warehouse_uri,
            version=self._version,
            store_trouble=await self._store_trouble(),
            gateways=[
                admin_pb2.GatewayDescription(
                    gateway_id=beat.gateway_id,
                    address=beat.address,
                    topics_led=beat.topics_led,
                    rack=beat.rack,
                    draining=beat.draining,
                    in_bytes_per_s=beat.in_bytes_s,
                    out_bytes_per_s=beat.out_bytes_s,
                )
                for beat in self._cluster.gateways()
            ],
        )

    async def Rebalance(
        self, request: admin_pb2.RebalanceRequest, call: Call
    ) -> admin_pb2.RebalanceResponse:
        if request.validate_only:
            found = self._balancing.plan(REQUEST_MOVES_MAX)
        else:
            # It goes on when the caller goes away.
            moving = asyncio.ensure_future(self._balancing.move(REQUEST_MOVES_MAX))
            moving.add_done_callback(retrieve)
            found = await asyncio.shield(moving)
            log.info("rebalanced", count=len(found), **call.facts())
        return admin_pb2.RebalanceResponse(
            gateway_id=self._gateway_id,
            moves=[
                admin_pb2.TopicMove(
                    topic=one.topic,
                    gateway_id=one.target.gateway_id,
                    address=one.target.address,
                    done=one.done,
                )
                for one in found
            ],
        )

    async def ListConnections(
        self, request: admin_pb2.ListConnectionsRequest, call: Call
    ) -> admin_pb2.ListConnectionsResponse:
        response = admin_pb2.ListConnectionsResponse(gateway_id=self._gateway_id)
        for number, one in enumerate(self._connections.list(), start=1):
            response.connections.add(
                peer=one.peer,
                client_id=one.client_id,
                open_calls=one.open_calls,
                call_count=one.call_count,
                received_bytes=one.received_bytes,
                sent_bytes=one.sent_bytes,
                age_ms=self._connections.age_ms(one),
                idle_ms=self._connections.idle_ms(one),
            )
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return response

    async def _new_count(self, asked_count: int) -> int:
        return asked_count or self._topics.default_partition_count

    async def _partition_count(self, topic: str) -> int:
        """Of a topic; 1 where nobody can tell, as of one that is damaged and is to go."""
        try:
            return await self._topics.describe(topic, lambda state, _: state.partition_count)
        except UnknownTopicError:
            raise
        except MainstemError:
            return 1

    async def _added_count(self, topic: str, partition_count: int) -> int:
        return max(partition_count - await self._partition_count(topic), 0)

    def _description(
        self, topic: str, state: TableState, appender: Appender | None
    ) -> admin_pb2.DescribeTopicResponse:
        """The answer, with the first of its partitions."""
        response = admin_pb2.DescribeTopicResponse(
            topic=topic,
            topic_id=state.topic_id,
            leader=self._cluster.leader(topic, state),
            leader_epoch=state.epoch,
            table_version=state.version,
            table_uri=self._topics.uri(topic),
        )
        for name, key in sorted(TOPIC_KEYS.items()):
            response.config.add(
                name=name,
                value=format_value(state.config.get(name)),
                is_default=name not in state.config.overrides,
                unit=key.unit,
                doc=key.doc,
            )
        _add_partitions(response, state, appender)
        return response


def _add_partitions(
    response: admin_pb2.DescribeTopicResponse, state: TableState, appender: Appender | None
) -> None:
    """Adds the partitions that come next to an answer, those of one step of the loop."""
    begin = len(response.partitions)
    for partition in range(begin, min(begin + _AT_ONCE, state.partition_count)):
        files = state.files(partition)
        start, end = state.log_start_offset(partition), state.log_end_offset(partition)
        response.partitions.add(
            partition=partition,
            log_start_offset=start,
            high_watermark=end,
            log_end_offset=appender.log_end_offset(partition) if appender else end,
            file_count=len(files),
            size_bytes=files.size_bytes,
            # The first file may have some records from before the log start offset.
            record_count=min(files.record_count, end - start),
        )


def _listing(topic: str, state: TableState, _: Appender | None) -> admin_pb2.TopicListing:
    return admin_pb2.TopicListing(
        topic=topic, topic_id=state.topic_id, partition_count=state.partition_count
    )

"""Metadata: which topics there are, who leads them, and which gateways."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from mainstem.delta_log import Appender, TableState
from mainstem.errors import MainstemError, UnknownTopicError
from mainstem.ingest_gateway.cluster import Cluster
from mainstem.ingest_gateway.services.call import Call
from mainstem.ingest_gateway.several import one_for_each
from mainstem.ingest_gateway.topics import GatewayTopics
from mainstem.protocol import error_to_message
from mainstem.protocol.v1 import log_pb2
from mainstem.records import check_topic_name
from mainstem.security import Operation, ResourceType


class MetadataService:
    """The call of `mainstem.v1.Log` by which clients find their way."""

    def __init__(self, topics: GatewayTopics, cluster: Cluster) -> None:
        self._topics = topics
        self._cluster = cluster

    async def Metadata(
        self, request: log_pb2.MetadataRequest, call: Call
    ) -> log_pb2.MetadataResponse:
        gateways = self._cluster.gateways()
        response = log_pb2.MetadataResponse(
            gateways=[beat.address for beat in gateways],
            places=[
                log_pb2.GatewayPlace(address=beat.address, rack=beat.rack, draining=beat.draining)
                for beat in gateways
            ],
        )
        asked = list(dict.fromkeys(request.topics))
        describe = Operation.DESCRIBE, ResourceType.TOPIC
        names = asked or await call.allowed(*describe, await self._topics.names())
        refused = call.refusals(*describe, asked)
        found = await one_for_each(
            names,
            partial(
                self._topic_metadata,
                call,
                refused,
                asked=bool(asked),
                may_create=bool(asked) and request.allow_auto_topic_creation,
            ),
        )
        response.topics.extend(one for one in found if one is not None)
        return response

    async def _topic_metadata(
        self,
        call: Call,
        refused: Mapping[str, MainstemError],
        topic: str,
        *,
        asked: bool,
        may_create: bool,
    ) -> log_pb2.TopicMetadata | None:
        """The topic, or why there is none; None for one that was listed and deleted meanwhile.

        Only a topic that a producer asks for by name is created where the gateway may: a listing
        must not bring back what is being deleted, and a reader's slip of the pen must not make a
        topic.
        """

        def found(state: TableState, _: Appender | None) -> log_pb2.TopicMetadata:
            return log_pb2.TopicMetadata(
                topic=topic,
                topic_id=state.topic_id,
                partition_count=state.partition_count,
                leader=self._cluster.leader(topic, state),
            )

        try:
            if topic in refused:
                raise refused[topic]
            check_topic_name(topic)
            creates = partial(call.check_creates_itself, topic) if may_create else None
            return await self._topics.describe(topic, found, creates=creates)
        except MainstemError as error:
            if not asked and isinstance(error, UnknownTopicError):
                return None
            return log_pb2.TopicMetadata(topic=topic, error=error_to_message(error))

"""Produce, ProduceStream and InitProducer: what producers are answered, and when."""

from __future__ import annotations

import asyncio
import contextlib

from mainstem.config import GatewayConfig
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.producer_id_source import ProducerIdSource
from mainstem.ingest_gateway.requests import RequestDoor
from mainstem.ingest_gateway.services.call import Call
from mainstem.ingest_gateway.services.produce.acceptance import Acceptance
from mainstem.ingest_gateway.services.produce.answers import answer, unacknowledged
from mainstem.ingest_gateway.services.produce.stream import AnswerRoom, ProduceStream
from mainstem.ingest_gateway.topics import GatewayTopics
from mainstem.ingest_gateway.transactions import TransactionCoordination
from mainstem.protocol.v1 import log_pb2
from mainstem.security import CLUSTER_NAME, Operation, ResourceType


class ProduceService:
    """The calls of `mainstem.v1.Log` that producers make.

    Args:
        draining: Set when the gateway shuts down.
    """

    def __init__(
        self,
        topics: GatewayTopics,
        producer_ids: ProducerIdSource,
        config: GatewayConfig,
        metrics: GatewayMetrics,
        door: RequestDoor,
        transactions: TransactionCoordination,
        draining: asyncio.Event,
    ) -> None:
        self._acceptance = Acceptance(topics, producer_ids, config, metrics, door, transactions)
        self._producer_ids = producer_ids
        self._door = door
        self._draining = draining
        self._answers = AnswerRoom()
        self._request_bytes_max = config.number("socket.request.max.bytes")
        self._stream_requests_max = config.number("stream.max.requests")
        self._streams_open = 0
        self._ended_a_stream = False
        self._no_stream = asyncio.Event()
        self._no_stream.set()

    async def Produce(self, request: log_pb2.ProduceRequest, call: Call) -> log_pb2.ProduceResponse:
        try:
            accepted = await self._acceptance.accept(request, call)
            if request.acks == log_pb2.ACKS_NONE:
                return unacknowledged(request.correlation_id, accepted.partitions, accepted.placed)
            # The batch is accepted: a caller that goes away does not take it back.
            appended = await asyncio.shield(accepted.future)
            return answer(request.correlation_id, accepted.placed, appended)
        except Exception as failure:
            raise self._acceptance.refused(failure) from None

    async def ProduceStream(self, call: Call) -> None:
        stream = ProduceStream(
            call,
            self._acceptance,
            self._door,
            self._answers,
            requests_max=self._stream_requests_max,
            waiting_bytes_max=self._request_bytes_max,
            draining=self._draining,
        )
        self._streams_open += 1
        self._no_stream.clear()
        try:
            if not await stream.serve():
                self._ended_a_stream = True
        finally:
            self._streams_open -= 1
            if self._streams_open == 0:
                self._no_stream.set()

    async def streams_end(self, timeout_s: float) -> bool:
        """Waits until no ProduceStream is open, for so long at most.

        Returns:
            Whether the gateway has ended one that its caller would have gone on with.
        """
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._no_stream.wait(), timeout_s)
        return self._ended_a_stream

    async def InitProducer(
        self, request: log_pb2.InitProducerRequest, call: Call
    ) -> log_pb2.InitProducerResponse:
        if not call.may_any(Operation.WRITE, ResourceType.TOPIC):
            call.require(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
        producer_id = await self._producer_ids.next(call.owner)
        return log_pb2.InitProducerResponse(producer_id=producer_id, producer_epoch=0)

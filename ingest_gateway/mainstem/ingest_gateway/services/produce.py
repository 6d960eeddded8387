"""The Log service: produce, unary and streaming, and metadata; fetching is `FetchService`'s."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from functools import partial

import structlog

from mainstem.config import GatewayConfig
from mainstem.delta_log import Appended, Appender, TableState
from mainstem.errors import (
    BackPressureError,
    InvalidRecordError,
    MainstemError,
    UnknownTopicError,
)
from mainstem.ingest_gateway.leases import Leases
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.payloads import NotInlineError, PayloadRules, read_payload
from mainstem.ingest_gateway.producer_id_source import ProducerIdSource
from mainstem.ingest_gateway.requests import RequestDoor
from mainstem.ingest_gateway.services.fetch import FetchService
from mainstem.ingest_gateway.services.produce_answer import answer, unacknowledged
from mainstem.ingest_gateway.services.produce_stream import Accepted, AnswerRoom, ProduceStream
from mainstem.ingest_gateway.services.rpc import Context, as_ours
from mainstem.ingest_gateway.topics import GatewayTopic, GatewayTopics
from mainstem.protocol import error_to_message, error_to_status
from mainstem.protocol.v1 import log_pb2
from mainstem.records import check_topic_name

log = structlog.get_logger()

#: Topics that are described in one step of the event loop.
_TOPICS_AT_ONCE = 100

_ACKS = frozenset(log_pb2.Acks.values())


class LogService:
    """Serves `mainstem.v1.Log`.

    Args:
        draining: Set when the gateway shuts down.
    """

    def __init__(
        self,
        topics: GatewayTopics,
        leases: Leases,
        config: GatewayConfig,
        metrics: GatewayMetrics,
        draining: asyncio.Event,
        fetches: FetchService,
        producer_ids: ProducerIdSource,
        door: RequestDoor,
    ) -> None:
        self._door = door
        self._answers = AnswerRoom()
        self._fetches = fetches
        self._producer_ids = producer_ids
        self._topics = topics
        self._leases = leases
        self._metrics = metrics
        self._draining = draining
        self._message_bytes_max = config.number("message.max.bytes")
        self._request_bytes_max = config.number("socket.request.max.bytes")
        self._stream_requests_max = config.number("stream.max.requests")
        self._polls_max = config.number("fetch.connection.max.requests")
        #: Fetches under way, by connection.
        self._polls: dict[str, int] = {}
        self._streams_open = 0
        self._ended_a_stream = False
        self._no_stream = asyncio.Event()
        self._no_stream.set()

    async def Produce(
        self, request: log_pb2.ProduceRequest, context: Context
    ) -> log_pb2.ProduceResponse:
        try:
            accepted = await self.accept(request)
            if request.acks == log_pb2.ACKS_NONE:
                return unacknowledged(request.correlation_id, accepted.partitions, accepted.placed)
            # The batch is accepted: a caller that goes away does not take it back.
            appended = await asyncio.shield(accepted.future)
            return answer(request.correlation_id, accepted.placed, appended)
        except Exception as failure:
            await context.abort_with_status(error_to_status(self.refused(failure)))
            raise

    async def ProduceStream(
        self,
        request_iterator: AsyncIterator[bytes],
        context: Context,
    ) -> None:
        stream = ProduceStream(
            context,
            self,
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

    async def Fetch(self, request: log_pb2.FetchRequest, context: Context) -> bytes:
        connection = context.peer()
        count = self._polls.get(connection, 0)
        if count >= self._polls_max:
            error = BackPressureError(
                f"{count} fetches of this connection wait for their answers already, the limit of "
                "fetch.connection.max.requests; ask for more partitions in one fetch, or try again "
                "later",
                retry_delay_ms=100,
                limit_requests=self._polls_max,
            )
            await context.abort_with_status(error_to_status(error))
        self._polls[connection] = count + 1
        try:
            return await self._fetches.fetch(request, context)
        finally:
            self._polls[connection] -= 1
            if not self._polls[connection]:
                del self._polls[connection]

    async def ListOffsets(
        self, request: log_pb2.ListOffsetsRequest, context: Context
    ) -> log_pb2.ListOffsetsResponse:
        return await self._fetches.list_offsets(request, context)

    async def InitProducer(
        self, request: log_pb2.InitProducerRequest, context: Context
    ) -> log_pb2.InitProducerResponse:
        try:
            producer_id = await self._producer_ids.next()
        except Exception as failure:
            await context.abort_with_status(error_to_status(as_ours(failure)))
            raise
        return log_pb2.InitProducerResponse(producer_id=producer_id, producer_epoch=0)

    async def Metadata(
        self, request: log_pb2.MetadataRequest, context: Context
    ) -> log_pb2.MetadataResponse:
        gateways = [row.address for row in self._leases.gateways()]
        response = log_pb2.MetadataResponse(gateways=gateways)
        try:
            names = dict.fromkeys(request.topics) or await self._topics.names()
            for number, name in enumerate(names):
                if number % _TOPICS_AT_ONCE == 0:
                    await asyncio.sleep(0)  # what is known of a topic is told without a pause
                found = await self._topic_metadata(
                    name,
                    asked=bool(request.topics),
                    may_create=bool(request.topics) and request.allow_auto_topic_creation,
                )
                if found is not None:
                    response.topics.append(found)
        except Exception as failure:
            await context.abort_with_status(error_to_status(as_ours(failure)))
            raise
        return response

    async def _topic_metadata(
        self, topic: str, *, asked: bool, may_create: bool
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
                leader=self._leases.holder(topic),
            )

        try:
            check_topic_name(topic)
            return await self._topics.describe(topic, found, may_create=may_create)
        except MainstemError as error:
            if not asked and isinstance(error, UnknownTopicError):
                return None
            return log_pb2.TopicMetadata(topic=topic, error=error_to_message(error))

    async def accept(self, request: log_pb2.ProduceRequest) -> Accepted:
        """Checks a request and queues it, leading its topic if need be.

        Raises:
            MainstemError: Nothing of it was taken.
        """
        accepted = await self.accept_led(request)
        if accepted is None:
            topic = await self._topics.lead_or_create(request.topic)
            accepted = await self._queue(request, topic)
        return accepted

    async def accept_led(self, request: log_pb2.ProduceRequest) -> Accepted | None:
        """`accept` without waiting for anything but the processor; None when the topic is not led.

        Requests of one topic that come one after the other are queued in this order.
        """
        known = self._topics.leading(request.topic)
        if known is not None:
            return await self._queue(request, known)
        check_topic_name(request.topic)
        _check_shape(request)  # a request that cannot be taken creates no topic
        return None

    async def _queue(self, request: log_pb2.ProduceRequest, known: GatewayTopic) -> Accepted:
        _check_shape(request)
        appender = known.appender
        assert appender is not None
        state = appender.state
        rules = PayloadRules(
            topic=request.topic,
            partition_count=state.partition_count,
            config=state.config,
            message_bytes_max=self._message_bytes_max,
            request_bytes_max=self._request_bytes_max,
        )
        read = partial(read_payload, request, rules, known.sticky, _now_ms())
        try:
            payload = read(inline=True)
        except NotInlineError:
            payload = await self._door.in_thread(read)
        future = appender.submit(
            payload.slices,
            payload.queue_bytes,
            write_ahead=request.acks == log_pb2.ACKS_LEADER,
        )
        # The caller may be gone when it fails: then nobody looks at the failure.
        future.add_done_callback(_retrieve)
        self._metrics.produce_records.labels(request.topic).inc(payload.record_count)
        self._metrics.produce_bytes.labels(request.topic).inc(payload.record_bytes)
        partitions = tuple((slice_.partition, slice_.records.num_rows) for slice_ in payload.slices)
        return Accepted(future, partitions, payload.placed)

    def refused(self, failure: BaseException) -> MainstemError:
        """The failure as one of our errors, counted; one that is not ours is logged as a fault."""
        error = as_ours(failure)
        self._metrics.produce_rejected.labels(error.code).inc()
        return error


def _check_shape(request: log_pb2.ProduceRequest) -> None:
    if request.WhichOneof("payload") is None:
        raise InvalidRecordError(
            "the request has neither `arrow` nor `records`", topic=request.topic
        )
    if request.acks not in _ACKS:
        raise InvalidRecordError(
            f"acks is {request.acks}; it must be one of the enum Acks", topic=request.topic
        )


def _retrieve(future: asyncio.Future[Appended]) -> None:
    if not future.cancelled():
        future.exception()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

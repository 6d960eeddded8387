"""The Log service: produce, unary and streaming, and metadata."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import numpy as np
import structlog

from mainstem.config import GatewayConfig
from mainstem.delta_log import Appended
from mainstem.errors import HeldError, InternalError, InvalidRecordError, MainstemError
from mainstem.ingest_gateway.gateway_metrics import GatewayMetrics
from mainstem.ingest_gateway.payload import Payload, PayloadRules, read_payload
from mainstem.ingest_gateway.topic_registry import KnownTopic, TopicRegistry
from mainstem.protocol import error_to_message, error_to_status
from mainstem.protocol.v1 import log_pb2, log_pb2_grpc
from mainstem.records import check_topic_name

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class _Accepted:
    """A batch with its offsets; `future` tells when it is durable."""

    payload: Payload
    future: asyncio.Future[Appended]


class LogService(log_pb2_grpc.LogServicer):
    """Serves `mainstem.v1.Log`.

    Args:
        address: host:port that clients are told.
        draining: Set when the gateway shuts down: open streams end as soon as their batches are answered.
    """

    def __init__(
        self,
        registry: TopicRegistry,
        config: GatewayConfig,
        metrics: GatewayMetrics,
        address: Callable[[], str],
        draining: asyncio.Event,
    ) -> None:
        self._registry = registry
        self._metrics = metrics
        self._address = address
        self._draining = draining
        self._message_bytes_max = config.number("message.max.bytes")
        self._request_bytes_max = config.number("socket.request.max.bytes")
        self._stream_requests_max = config.number("stream.max.requests")

    async def Produce(
        self, request: log_pb2.ProduceRequest, context: Context
    ) -> log_pb2.ProduceResponse:
        try:
            accepted = await self._accept(request)
            if request.acks == log_pb2.ACKS_NONE:
                return _answer_unacknowledged(request)
            appended = await asyncio.shield(accepted.future)
            return _answer(request, accepted.payload, appended)
        except Exception as error:
            await context.abort_with_status(error_to_status(self._refused(error)))
            raise

    async def ProduceStream(
        self,
        request_iterator: AsyncIterator[log_pb2.ProduceRequest],
        context: Context,
    ) -> None:
        answers: asyncio.Queue[log_pb2.ProduceResponse | None] = asyncio.Queue()
        room = asyncio.Semaphore(self._stream_requests_max)
        reader = asyncio.create_task(self._read_stream(context, answers, room))
        try:
            while (answer := await answers.get()) is not None:
                await context.write(answer)
                room.release()
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    async def Metadata(
        self, request: log_pb2.MetadataRequest, context: Context
    ) -> log_pb2.MetadataResponse:
        try:
            names = list(request.topics) or await self._registry.names()
        except MainstemError as error:
            await context.abort_with_status(error_to_status(error))
            raise
        address = self._address()
        topics = [await self._topic_metadata(name, address) for name in names]
        return log_pb2.MetadataResponse(gateways=[address], topics=topics)

    async def _topic_metadata(self, topic: str, address: str) -> log_pb2.TopicMetadata:
        try:
            check_topic_name(topic)
            state, _ = await self._registry.describe_or_create(topic)
        except MainstemError as error:
            return log_pb2.TopicMetadata(topic=topic, error=error_to_message(error))
        return log_pb2.TopicMetadata(
            topic=topic,
            topic_id=state.topic_id,
            partition_count=state.partition_count,
            leader=address,
        )

    async def _read_stream(
        self,
        context: Context,
        answers: asyncio.Queue[log_pb2.ProduceResponse | None],
        room: asyncio.Semaphore,
    ) -> None:
        """Reads requests and puts their answers into `answers` as they come; None when all are there."""
        held: set[str] = set()
        open_count = 0
        all_answered = asyncio.Event()
        all_answered.set()

        def answer(response: log_pb2.ProduceResponse) -> None:
            nonlocal open_count
            open_count -= 1
            answers.put_nowait(response)
            if open_count == 0:
                all_answered.set()

        def when_done(
            request: log_pb2.ProduceRequest, payload: Payload
        ) -> Callable[[asyncio.Future[Appended]], None]:
            # Keep of the request only what the answer needs: its payload may be megabytes.
            head = log_pb2.ProduceRequest(
                correlation_id=request.correlation_id, topic=request.topic
            )

            def done(future: asyncio.Future[Appended]) -> None:
                if future.cancelled():
                    return
                failure = future.exception()
                if failure is None:
                    answer(_answer(head, payload, future.result()))
                else:
                    error = self._refused(failure)
                    if error.retriable:
                        held.add(head.topic)
                    answer(_answer_refused(head, error))

            return done

        drained = asyncio.create_task(self._draining.wait())
        try:
            while True:
                await room.acquire()
                reading = asyncio.ensure_future(context.read())
                await asyncio.wait({reading, drained}, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    reading.cancel()
                    break
                request = reading.result()
                if request is grpc.aio.EOF:
                    break
                open_count += 1
                all_answered.clear()
                try:
                    if request.resume:
                        held.discard(request.topic)
                    elif request.topic in held:
                        raise HeldError(
                            f"an earlier batch of topic {request.topic!r} on this stream was refused; "
                            "send that one first, with `resume`",
                            topic=request.topic,
                        )
                    accepted = await self._accept(request)
                except Exception as failure:
                    error = self._refused(failure)
                    if error.retriable:
                        held.add(request.topic)
                    answer(_answer_refused(request, error))
                    continue
                if request.acks == log_pb2.ACKS_NONE:
                    answer(_answer_unacknowledged(request))
                else:
                    accepted.future.add_done_callback(when_done(request, accepted.payload))
                del request, reading, accepted
            await all_answered.wait()
        finally:
            drained.cancel()
            answers.put_nowait(None)

    async def _accept(self, request: log_pb2.ProduceRequest) -> _Accepted:
        """Checks a request and queues it. Raises MainstemError; then nothing of it was taken."""
        known = self._registry.leading(request.topic)
        if known is None:
            check_topic_name(request.topic)
            known = await self._registry.lead(request.topic)
        payload = read_payload(request, self._rules(request, known), known.sticky, _now_ms())
        assert known.appender is not None
        future = known.appender.submit(payload.slices, payload.queue_bytes)
        # Whoever asked may be gone when it fails: the failure is then nobody's to look at.
        future.add_done_callback(_retrieve)
        self._metrics.produce_records.labels(request.topic).inc(payload.record_count)
        self._metrics.produce_bytes.labels(request.topic).inc(payload.record_bytes)
        return _Accepted(payload, future)

    def _rules(self, request: log_pb2.ProduceRequest, known: KnownTopic) -> PayloadRules:
        if request.WhichOneof("payload") is None:
            raise InvalidRecordError(
                "the request has neither `arrow` nor `records`", topic=request.topic
            )
        if request.acks not in log_pb2.Acks.values():
            raise InvalidRecordError(f"acks is {request.acks}; it must be one of the enum Acks")
        assert known.appender is not None
        state = known.appender.state
        return PayloadRules(
            topic=request.topic,
            partition_count=state.partition_count,
            config=state.config,
            message_bytes_max=self._message_bytes_max,
            request_bytes_max=self._request_bytes_max,
        )

    def _refused(self, failure: BaseException) -> MainstemError:
        """The failure as one of our errors, counted; one that is not ours is a fault, and logged."""
        if isinstance(failure, MainstemError):
            error = failure
        elif isinstance(failure, Exception):
            log.error("request failed", exc_info=failure)
            error = InternalError(f"the gateway failed on this request: {failure!r}")
        else:
            raise failure
        self._metrics.produce_rejected.labels(error.code).inc()
        return error


def _answer(
    request: log_pb2.ProduceRequest, payload: Payload, appended: Appended
) -> log_pb2.ProduceResponse:
    results: dict[int, log_pb2.PartitionResult] = {}
    for batch in appended.batches:
        result = results.get(batch.partition)
        if result is None:
            results[batch.partition] = log_pb2.PartitionResult(
                partition=batch.partition,
                base_offset=batch.base_offset,
                record_count=batch.record_count,
            )
        else:
            result.record_count += batch.record_count
    response = log_pb2.ProduceResponse(
        correlation_id=request.correlation_id,
        table_version=appended.table_version,
        results=[results[partition] for partition in sorted(results)],
    )
    if payload.placed is not None:
        offsets = np.zeros(len(payload.placed), dtype=np.int64)
        for partition, result in results.items():
            rows = np.flatnonzero(payload.placed == partition)
            offsets[rows] = result.base_offset + np.arange(len(rows))
        response.positions.extend(
            log_pb2.RecordPosition(partition=int(partition), offset=int(offset))
            for partition, offset in zip(payload.placed, offsets, strict=True)
        )
    return response


def _answer_unacknowledged(request: log_pb2.ProduceRequest) -> log_pb2.ProduceResponse:
    return log_pb2.ProduceResponse(correlation_id=request.correlation_id, table_version=-1)


def _answer_refused(
    request: log_pb2.ProduceRequest, error: MainstemError
) -> log_pb2.ProduceResponse:
    return log_pb2.ProduceResponse(
        correlation_id=request.correlation_id, table_version=-1, error=error_to_message(error)
    )


def _retrieve(future: asyncio.Future[Appended]) -> None:
    if not future.cancelled():
        future.exception()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""How a produce request becomes a batch with offsets: its topic, its payload, the appender."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from mainstem.config import GatewayConfig
from mainstem.delta_log import Appended, TableState
from mainstem.delta_log.append import retrieve
from mainstem.errors import (
    BackPressureError,
    InvalidRecordError,
    MainstemError,
    StoreUnavailableError,
    UnknownTopicError,
)
from mainstem.ingest_gateway.failures import as_ours
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.payloads import (
    NotInlineError,
    Payload,
    PayloadRules,
    read_payload,
)
from mainstem.ingest_gateway.producer_id_source import ProducerIdSource
from mainstem.ingest_gateway.requests import RequestDoor
from mainstem.ingest_gateway.services.call import Call
from mainstem.ingest_gateway.services.owners import check_owner
from mainstem.ingest_gateway.topics import GatewayTopic, GatewayTopics
from mainstem.ingest_gateway.transactions import Term, TransactionCoordination, TransactionRef
from mainstem.protocol.v1 import log_pb2, transactions_pb2
from mainstem.records import check_topic_name

#: The partition of each record where the gateway chose it.
Placed = npt.NDArray[np.int32] | None

_ACKS = frozenset(log_pb2.Acks.values())


@dataclass(frozen=True, slots=True)
class Accepted:
    """A batch with its offsets.

    Attributes:
        future: Tells when the batch is durable.
        partitions: Of its slices, with their numbers of records.
        placed: The partition of each record where the gateway chose it.
    """

    future: asyncio.Future[Appended]
    partitions: tuple[tuple[int, int], ...]
    placed: Placed


class Acceptance:
    """Takes the requests of all producers, whichever call they come by.

    Args:
        producer_ids: Knows whose producer ids are.
        door: Has the threads in which large payloads are looked at.
        transactions: Takes what is sent in a transaction.
    """

    def __init__(
        self,
        topics: GatewayTopics,
        producer_ids: ProducerIdSource,
        config: GatewayConfig,
        metrics: GatewayMetrics,
        door: RequestDoor,
        transactions: TransactionCoordination,
    ) -> None:
        self._topics = topics
        self._producer_ids = producer_ids
        self._transactions = transactions
        self._metrics = metrics
        self._door = door
        self._message_bytes_max = config.number("message.max.bytes")
        self._request_bytes_max = config.number("socket.request.max.bytes")

    async def accept(self, request: log_pb2.ProduceRequest, call: Call) -> Accepted:
        """Checks a request and queues it, leading its topic if need be.

        Raises:
            MainstemError: Nothing of it was taken.
        """
        accepted = await self.accept_led(request, call)
        if accepted is not None:
            return accepted
        if request.transactional_id:
            term = await self._transactions.started()
            check_owner(term, request.transactional_id, call)
            term.check_open(_transaction(request))  # or a topic would be created for nobody
            found = await self._found(request.topic, call)
            return await self._stage(term, request, found, call)
        creates = partial(call.check_creates_itself, request.topic)
        topic = await self._topics.lead_or_create(request.topic, creates)
        return await self._queue(request, topic, call)

    async def accept_led(self, request: log_pb2.ProduceRequest, call: Call) -> Accepted | None:
        """`accept` without waiting for anything but the processor; None when the topic is not led.

        Requests of one topic that come one after the other are queued in this order.
        """
        if request.transactional_id:
            term, found = self._transactions.now(), self._topics.current(request.topic)
            if term is not None and found is not None:
                return await self._stage(term, request, found[:2], call)
        else:
            known = self._topics.leading(request.topic)
            if known is not None:
                return await self._queue(request, known, call)
        check_topic_name(request.topic)
        _check_shape(request)  # a request that cannot be taken creates no topic
        return None

    async def _queue(
        self, request: log_pb2.ProduceRequest, known: GatewayTopic, call: Call
    ) -> Accepted:
        if request.producer_id:
            self._producer_ids.check_owner(request.producer_id, call.owner)
        appender = known.appender
        assert appender is not None
        payload = await self._payload(request, appender.state, known)
        try:
            future = appender.submit(
                payload.slices,
                payload.queue_bytes,
                write_ahead=request.acks == log_pb2.ACKS_LEADER,
            )
        except BackPressureError as error:
            raise _with_reason(error, appender.trouble) from None
        # The caller may be gone when it fails: then nobody looks at the failure.
        future.add_done_callback(retrieve)
        return self._accepted(request, payload, future)

    async def _stage(
        self,
        term: Term,
        request: log_pb2.ProduceRequest,
        found: tuple[TableState, GatewayTopic],
        call: Call,
    ) -> Accepted:
        """Takes a request into its transaction: it is answered at once, and is no row yet."""
        ref = _transaction(request)
        check_owner(term, ref.transactional_id, call)
        term.check_open(ref)
        state, known = found
        topic_id = state.topic_id
        payload = await self._payload(request, state, known)
        batches = await term.add(ref, request.topic, topic_id, payload.slices, payload.queue_bytes)
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        future.set_result(Appended(-1, batches))
        return self._accepted(request, payload, future)

    async def _found(self, name: str, call: Call) -> tuple[TableState, GatewayTopic]:
        """A topic that a transaction sends to, wherever it is led; created if the gateway may."""
        try:
            await self._topics.look(name)
        except UnknownTopicError:
            await self._topics.lead_or_create(name, partial(call.check_creates_itself, name))
        found = self._topics.current(name, any_age=True)
        if found is None:
            raise StoreUnavailableError(f"topic {name!r} cannot be read now; try again", topic=name)
        return found[:2]

    async def _payload(
        self, request: log_pb2.ProduceRequest, state: TableState, known: GatewayTopic
    ) -> Payload:
        _check_shape(request)
        rules = PayloadRules(
            topic=request.topic,
            partition_count=state.partition_count,
            config=state.config,
            message_bytes_max=self._message_bytes_max,
            request_bytes_max=self._request_bytes_max,
        )
        read = partial(
            read_payload,
            request,
            rules,
            known.sticky,
            _now_ms(),
            ipc_stream=request.arrow.ipc_stream,
        )
        try:
            return read(inline=True)
        except NotInlineError:
            return await self._door.in_thread(read)

    def _accepted(
        self, request: log_pb2.ProduceRequest, payload: Payload, future: asyncio.Future[Appended]
    ) -> Accepted:
        self._metrics.accepted(request.topic, payload.record_count, payload.record_bytes)
        partitions = tuple((slice_.partition, slice_.records.num_rows) for slice_ in payload.slices)
        return Accepted(future, partitions, payload.placed)

    def trouble(self, topic: str) -> MainstemError | None:
        """Why the store does not take what was accepted for a topic; None: it does."""
        known = self._topics.leading(topic)
        return None if known is None or known.appender is None else known.appender.trouble

    def refused(self, failure: BaseException) -> MainstemError:
        """The failure as one of our errors, counted; one that is not ours is logged as a fault."""
        error = as_ours(failure)
        self._metrics.produce_rejected.labels(error.code).inc()
        return error


def _with_reason(error: BackPressureError, trouble: MainstemError | None) -> BackPressureError:
    """The refusal, with the reason for which the queue does not empty."""
    if trouble is None:
        return error
    told = BackPressureError(
        f"{error.message}. The queue does not empty, since {trouble.message}",
        retry_delay_ms=error.retry_delay_ms,
    )
    told.facts = error.facts
    return told


def _transaction(request: log_pb2.ProduceRequest) -> TransactionRef:
    return TransactionRef.of(
        transactions_pb2.TransactionId(
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            number=request.transaction_number,
        )
    )


def _check_shape(request: log_pb2.ProduceRequest) -> None:
    if request.WhichOneof("payload") is None:
        raise InvalidRecordError(
            "the request has neither `arrow` nor `records`", topic=request.topic
        )
    if request.acks not in _ACKS:
        raise InvalidRecordError(
            f"acks is {request.acks}; it must be one of the enum Acks", topic=request.topic
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

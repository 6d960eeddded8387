"""The produce calls of a fake gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc

from mainstem.errors import HeldError, MainstemError, RequestTooLargeError
from mainstem.protocol import error_to_message, error_to_status, refused_records
from mainstem.protocol.v1 import log_pb2, log_pb2_grpc
from mainstem.testing._fake_fault import Fault
from mainstem.testing._fake_log import FakeLog


class ProduceService(log_pb2_grpc.LogServicer):
    """Serves `mainstem.v1.Log` but for its fetches.

    Args:
        address: host:port of the gateway.
    """

    def __init__(self, log: FakeLog, address: Callable[[], str]) -> None:
        self._log = log
        self._address = address

    def Produce(self, request: log_pb2.ProduceRequest, context: Any) -> log_pb2.ProduceResponse:
        outcome = self._log.decide(request)
        if isinstance(outcome, MainstemError):
            context.abort_with_status(error_to_status(outcome))
        if isinstance(outcome, Fault):
            context.abort(grpc.StatusCode.UNAVAILABLE, "the fake gateway broke the call")
        assert isinstance(outcome, log_pb2.ProduceResponse)
        return outcome

    def ProduceStream(
        self, request_iterator: Iterator[log_pb2.ProduceRequest], context: Any
    ) -> Iterator[log_pb2.ProduceResponse]:
        log = self._log
        log.stream_count += 1
        held: set[str] = set()
        silent: set[str] = set()
        last_id = 0
        for request in request_iterator:
            if request.correlation_id <= last_id:
                log.violations.append(
                    f"correlation id {request.correlation_id} came after {last_id}"
                )
            last_id = request.correlation_id
            if request.topic in silent:
                continue
            if request.resume:
                if request.topic not in held:
                    log.violations.append(f"resume of {request.topic}, which is not held")
                held.discard(request.topic)
            if request.topic in held:
                log.requests.append(request)
                yield _refusal(
                    request, HeldError(f"an earlier batch of topic {request.topic} was refused")
                )
                continue
            outcome = log.decide(request)
            if isinstance(outcome, MainstemError):
                in_part = isinstance(outcome, RequestTooLargeError) or refused_records(outcome)
                if outcome.retriable or (request.resends_rest and in_part):
                    held.add(request.topic)
                yield _refusal(request, outcome)
            elif outcome is Fault.SILENCE:
                silent.add(request.topic)
            elif isinstance(outcome, Fault):
                context.abort(grpc.StatusCode.UNAVAILABLE, "the fake gateway broke the stream")
            else:
                yield outcome

    def InitProducer(
        self, request: log_pb2.InitProducerRequest, context: Any
    ) -> log_pb2.InitProducerResponse:
        try:
            return log_pb2.InitProducerResponse(producer_id=self._log.new_producer_id())
        except MainstemError as error:
            context.abort_with_status(error_to_status(error))
            raise

    def Metadata(self, request: log_pb2.MetadataRequest, context: Any) -> log_pb2.MetadataResponse:
        log = self._log
        log.metadata_count += 1
        if log.on_metadata is not None and (error := log.on_metadata(request)) is not None:
            context.abort_with_status(error_to_status(error))
        return log.topics.metadata(request.topics, self._address())


def _refusal(request: log_pb2.ProduceRequest, error: MainstemError) -> log_pb2.ProduceResponse:
    return log_pb2.ProduceResponse(
        correlation_id=request.correlation_id,
        error=error_to_message(error),
        refused_records=refused_records(error),
    )

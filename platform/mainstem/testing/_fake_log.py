"""The produce calls of a fake gateway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import grpc

from mainstem.errors import HeldError, MainstemError
from mainstem.protocol import error_to_message, error_to_status
from mainstem.protocol.v1 import log_pb2, log_pb2_grpc
from mainstem.testing._fake_fault import Fault

if TYPE_CHECKING:
    from mainstem.testing._fake_gateway import FakeGateway


class LogService(log_pb2_grpc.LogServicer):
    def __init__(self, gateway: FakeGateway) -> None:
        self._gateway = gateway

    def Produce(self, request: log_pb2.ProduceRequest, context: Any) -> log_pb2.ProduceResponse:
        outcome = self._gateway.decide(request)
        if isinstance(outcome, MainstemError):
            context.abort_with_status(error_to_status(outcome))
        if isinstance(outcome, Fault):
            context.abort(grpc.StatusCode.UNAVAILABLE, "the fake gateway broke the call")
        assert isinstance(outcome, log_pb2.ProduceResponse)
        return outcome

    def ProduceStream(
        self, request_iterator: Iterator[log_pb2.ProduceRequest], context: Any
    ) -> Iterator[log_pb2.ProduceResponse]:
        gateway = self._gateway
        gateway.stream_count += 1
        held: set[str] = set()
        last_id = 0
        for request in request_iterator:
            if request.correlation_id <= last_id:
                gateway.violations.append(
                    f"correlation id {request.correlation_id} came after {last_id}"
                )
            last_id = request.correlation_id
            if request.resume:
                if request.topic not in held:
                    gateway.violations.append(f"resume of {request.topic}, which is not held")
                held.discard(request.topic)
            if request.topic in held:
                gateway.requests.append(request)
                yield _refusal(
                    request, HeldError(f"an earlier batch of topic {request.topic} was refused")
                )
                continue
            outcome = gateway.decide(request)
            if isinstance(outcome, MainstemError):
                if outcome.retriable:
                    held.add(request.topic)
                yield _refusal(request, outcome)
            elif outcome is Fault.SILENCE:
                gateway.wait_for_stop(context.is_active)
                return
            elif isinstance(outcome, Fault):
                context.abort(grpc.StatusCode.UNAVAILABLE, "the fake gateway broke the stream")
            else:
                yield outcome

    def InitProducer(
        self, request: log_pb2.InitProducerRequest, context: Any
    ) -> log_pb2.InitProducerResponse:
        try:
            return log_pb2.InitProducerResponse(producer_id=self._gateway.new_producer_id())
        except MainstemError as error:
            context.abort_with_status(error_to_status(error))
            raise

    def Metadata(self, request: log_pb2.MetadataRequest, context: Any) -> log_pb2.MetadataResponse:
        gateway = self._gateway
        gateway.metadata_count += 1
        if gateway.on_metadata is not None and (error := gateway.on_metadata(request)) is not None:
            context.abort_with_status(error_to_status(error))
        answer = log_pb2.MetadataResponse(gateways=[gateway.address])
        for name in request.topics or sorted(gateway.topics):
            try:
                topic = gateway.topic(name)
            except MainstemError as error:
                answer.topics.add(topic=name, error=error_to_message(error))
            else:
                answer.topics.add(
                    topic=name,
                    topic_id=topic.topic_id,
                    partition_count=topic.partition_count,
                    leader=topic.leader or gateway.address,
                )
        return answer


def _refusal(request: log_pb2.ProduceRequest, error: MainstemError) -> log_pb2.ProduceResponse:
    return log_pb2.ProduceResponse(
        correlation_id=request.correlation_id, error=error_to_message(error)
    )

"""One bidirectional ProduceStream, and the connection to one leader."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import grpc

from mainstem.client.callbacks import unexpected
from mainstem.client.producer.accumulator import TopicBuffer
from mainstem.client.producer.pieces import Piece
from mainstem.client.producer.queue import Request
from mainstem.client.producer.requests import Outgoing, encode_request
from mainstem.errors import GatewayUnavailableError, MainstemError
from mainstem.protocol.v1 import log_pb2

_log = logging.getLogger("mainstem.client")

_METHOD = "/mainstem.v1.Log/ProduceStream"


class ProduceStream:
    """A stream to one gateway: requests go out in the order of `send`, answers come to a callback.

    gRPC pulls the requests in a thread of its own and hands on one at a time, so what is queued
    here is bounded by the caller's limit of requests in flight. Its end is reported exactly once.

    Args:
        channel: To the leader.
        acks: For every request.
        compression: Of the gRPC messages.
        on_answer: Called for each answer, in the stream's receiving thread.
        on_end: Called once, in that thread, with the reason.
        on_fault: Called before that if `on_answer` failed: what became of its records is not known
            any more.
        explain: The error that a failure of the call means.

    Attributes:
        channel: As given.
    """

    def __init__(
        self,
        channel: grpc.Channel,
        acks: log_pb2.Acks,
        compression: grpc.Compression,
        on_answer: Callable[[ProduceStream, log_pb2.ProduceResponse], None],
        on_end: Callable[[ProduceStream, MainstemError], None],
        on_fault: Callable[[MainstemError], None],
        explain: Callable[[grpc.RpcError], MainstemError],
        name: str,
    ) -> None:
        self._on_fault = on_fault
        self.channel = channel
        self._explain = explain
        self._on_answer = on_answer
        self._on_end = on_end
        self._requests: SimpleQueue[Outgoing | None] = SimpleQueue()
        # Requests are encoded here, so the call needs no serialiser.
        method: Any = channel.stream_stream(
            _METHOD,
            request_serializer=None,
            response_deserializer=log_pb2.ProduceResponse.FromString,
        )
        call = method(_encoded(self._requests, acks), compression=compression)
        # The thread that frees a call takes a lock of gRPC's, so only the receiving thread keeps
        # it.
        self._cancel = weakref.WeakMethod(call.cancel)
        self._receiver = threading.Thread(target=self._receive, args=[call], name=name, daemon=True)
        del call
        self._receiver.start()

    def send(self, topic: TopicBuffer, request: Request[Piece]) -> None:
        """Queues a request. After the stream's end it goes nowhere, which `on_end` has told."""
        self._requests.put(Outgoing.of(request, topic.name))

    def cancel(self) -> None:
        """Ends the stream at once. What is unanswered may or may not be in the log."""
        self._requests.put(None)
        cancel = self._cancel()
        if cancel is not None:
            cancel()

    def join(self, timeout_s: float) -> None:
        """Waits for the receiving thread, unless it is the caller."""
        if self._receiver is not threading.current_thread():
            self._receiver.join(timeout_s)

    def _receive(self, call: Any) -> None:
        error: MainstemError = GatewayUnavailableError("the gateway ended the stream; retrying")
        try:
            for answer in call:
                self._on_answer(self, answer)
        except grpc.RpcError as failure:
            error = self._explain(failure)
        except Exception as failure:
            _log.exception("the answers of %s cannot be taken", self._receiver.name)
            error = unexpected("taking an answer", failure)
            self._on_fault(error)
        finally:
            # Releases gRPC's thread, which waits for the next request.
            self._requests.put(None)
            call.cancel()
            self._on_end(self, error)


def _encoded(requests: SimpleQueue[Outgoing | None], acks: log_pb2.Acks) -> Iterator[bytes]:
    while (request := requests.get()) is not None:
        yield encode_request(request, acks)


class Link:
    """The connection to one leader: its stream, what is in flight on it, and when to connect again.

    Attributes:
        stream: The open stream, if any.
        in_flight: Whose request each correlation id on that stream is, the oldest first.
        retry_at: Monotonic seconds before which no new stream is opened.
        failures: Streams that broke since the last answer.
        asked_at: When the others were asked, as the leader did not answer, who leads its topics.
    """

    __slots__ = (
        "address",
        "asked_at",
        "failures",
        "in_flight",
        "next_id",
        "retry_at",
        "stream",
        "token",
    )

    def __init__(self, address: str) -> None:
        self.address = address
        self.stream: ProduceStream | None = None
        # Identity of the stream for TopicQueue, which may ask before the stream is open.
        self.token: object = object()
        self.in_flight: dict[int, TopicBuffer] = {}
        self.next_id = 1
        self.retry_at = 0.0
        self.failures = 0
        self.asked_at = 0.0

    def waiting_since(self) -> float:
        """When the oldest request without an answer was sent; infinite if there is none."""
        for correlation_id, topic in self.in_flight.items():
            return topic.queue.in_flight[correlation_id].sent_at
        return float("inf")

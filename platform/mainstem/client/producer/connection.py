"""The connections to the leaders, and the bidirectional stream of requests and answers on each."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterator, Set
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

import grpc

from mainstem.client.backoff import backoff_s
from mainstem.client.callbacks import unexpected
from mainstem.client.gateways import Gateways
from mainstem.client.producer.accumulator import TopicBuffer
from mainstem.client.producer.pieces import Piece
from mainstem.client.producer.queue import Request
from mainstem.client.producer.requests import Outgoing, encode_request
from mainstem.client.producer.settings import ProducerSettings
from mainstem.errors import (
    GatewayUnavailableError,
    MainstemError,
    OutcomeUnknownError,
    SessionExpiredError,
)
from mainstem.protocol import error_from_message
from mainstem.protocol.v1 import log_pb2

_log = logging.getLogger("mainstem.client")

#: A leader that has not answered for so long may hang, while another has its topics already: the
#: other gateways are asked, about so often. Seldomer it would take longer than it must to go on.
_SILENT_S: Final = 2.0
_ASK_EVERY_S: Final = 0.5

_METHOD: Final = "/mainstem.v1.Log/ProduceStream"

#: In the trailing metadata of a stream that the gateway ended, with the reason.
_END_KEY: Final = "mainstem-end"


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
        session_over: Called when the gateway ends the stream for that.

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
        session_over: Callable[[], MainstemError],
        name: str,
    ) -> None:
        self._on_fault = on_fault
        self.channel = channel
        self._explain = explain
        self._session_over = session_over
        self._on_answer = on_answer
        self._on_end = on_end
        self._requests: SimpleQueue[Outgoing | None] = SimpleQueue()
        # Requests are encoded here, so the call needs no serialiser.
        method: Any = channel.stream_stream(
            _METHOD,
            request_serializer=None,
            response_deserializer=log_pb2.ProduceResponse.FromString,
        )
        self._left = threading.Event()
        call = method(_encoded(self._requests, acks, self._left), compression=compression)
        # The thread that frees a call takes a lock of gRPC's, so only the receiving thread keeps
        # it.
        self._cancel = weakref.WeakMethod(call.cancel)
        self._receiver = threading.Thread(target=self._receive, args=[call], name=name, daemon=True)
        del call
        self._receiver.start()

    def send(self, topic: TopicBuffer, request: Request[Piece]) -> None:
        """Queues a request. After the stream's end it goes nowhere, which `on_end` has told."""
        self._requests.put(Outgoing.of(request, topic.name))

    @property
    def left(self) -> bool:
        """Whether a request has left: so far there was a connection."""
        return self._left.is_set()

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
            if dict(call.trailing_metadata() or ()).get(_END_KEY) == SessionExpiredError.code:
                error = self._session_over()
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


def _encoded(
    requests: SimpleQueue[Outgoing | None], acks: log_pb2.Acks, left: threading.Event
) -> Iterator[bytes]:
    while (request := requests.get()) is not None:
        yield encode_request(request, acks)
        # gRPC comes for the next request when this one has been written to a connection.
        left.set()


class Link:
    """The connection to one leader: its stream, what is in flight on it, and when to connect again.

    Guarded by the sender's lock, like `Links`.

    Attributes:
        stream: The open stream, if any.
        token: Identity of the stream for TopicQueue, which may ask before the stream is open.
        in_flight: Whose request each correlation id on that stream is, the oldest first.
        retry_at: Monotonic seconds before which no new stream is opened.
        failures: Streams that broke since the last answer.
        ask_at: Monotonic seconds before which the others are not asked, as this leader does not
            answer, who leads its topics.
    """

    __slots__ = (
        "address",
        "ask_at",
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
        self.token: object = object()
        self.in_flight: dict[int, TopicBuffer] = {}
        self.next_id = 1
        self.retry_at = 0.0
        self.failures = 0
        self.ask_at = 0.0

    def send(self, topic: TopicBuffer, request: Request[Piece]) -> None:
        """Sends a request, which has `next_id`, on the open stream."""
        assert self.stream is not None
        self.next_id += 1
        self.in_flight[request.correlation_id] = topic
        self.stream.send(topic, request)

    def take(self, answer: log_pb2.ProduceResponse) -> TopicBuffer | None:
        """The topic of the request that is answered; None: nothing is.

        It is a notice, or the request was given up, as another gateway had the topic meanwhile.
        """
        number = answer.correlation_id
        if answer.HasField("notice"):
            if number in self.in_flight:
                self.in_flight[number].queue.trouble = error_from_message(answer.notice)
            return None
        if number >= self.next_id:
            _log.error("%s answered an unknown request: %d", self.address, number)
        return self.in_flight.pop(number, None)

    def end(self, error: MainstemError, retry_at: float) -> tuple[object, list[TopicBuffer]]:
        """The stream is over. Returns its token, and the topics with something in flight on it."""
        token, topics = self.token, list(dict.fromkeys(self.in_flight.values()))
        self.token = object()
        self.stream = None
        self.in_flight.clear()
        self.retry_at = retry_at
        self.failures += 1
        if isinstance(error, SessionExpiredError):
            _log.debug("the session at %s is over, signing in again", self.address)
        elif topics or self.failures > 1:
            level = logging.WARNING if self.failures == 1 else logging.DEBUG
            _log.log(level, "the stream to %s broke, trying again: %s", self.address, error)
        return token, topics

    def give_up(self, topic: TopicBuffer) -> bool:
        """Does not wait for the topic's answers any more; returns whether any were to come.

        Those of other topics may come yet.
        """
        given_up = [number for number, one in self.in_flight.items() if one is topic]
        for number in given_up:
            del self.in_flight[number]
        return bool(given_up)

    def waiting_since(self) -> float:
        """When the oldest request without an answer was sent; infinite if there is none."""
        for correlation_id, topic in self.in_flight.items():
            return topic.queue.in_flight[correlation_id].sent_at
        return float("inf")

    def is_silent(self, now: float) -> bool:
        """Whether it has not answered for so long that it may hang."""
        return now - self.waiting_since() >= _SILENT_S

    def no_answer(self, now: float, limit: str = "") -> MainstemError:
        """The error that says for how long it has not answered."""
        waited_ms = (now - self.waiting_since()) * 1000
        return OutcomeUnknownError(
            f"{self.address} did not answer within {waited_ms:.0f} ms{limit}"
        )


class Links:
    """The connections to all leaders of one producer, or to the coordinator of its transactions.

    Args:
        gateways: Has the channels, and is told of gateways that fail.
        on_answer, on_end, on_fault: As of ProduceStream, the first two with the link.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        gateways: Gateways,
        on_answer: Callable[[Link, ProduceStream, log_pb2.ProduceResponse], None],
        on_end: Callable[[Link, ProduceStream, MainstemError], None],
        on_fault: Callable[[MainstemError], None],
    ) -> None:
        self._settings = settings
        self._gateways = gateways
        self._on_answer = on_answer
        self._on_end = on_end
        self._on_fault = on_fault
        self._answer_s_max = settings.request_timeout_ms / 1000
        self._links: dict[str, Link] = {}

    def _open(self, link: Link) -> ProduceStream:
        gzip = self._settings.compression_type == "gzip"
        channels, address = self._gateways.channels, link.address
        channel = channels.get(address)

        def session_over() -> MainstemError:
            channels.session_over(address, channel)
            return SessionExpiredError("the session is over; signing in again")

        return ProduceStream(
            channel,
            self._settings.acks,
            grpc.Compression.Gzip if gzip else grpc.Compression.NoCompression,
            partial(self._on_answer, link),
            partial(self._on_end, link),
            self._on_fault,
            partial(self._gateways.failed, address=address, channel=channel),
            session_over,
            f"mainstem-producer {address}",
        )

    def get(self, address: str) -> Link | None:
        """The connection to a leader, if there is one."""
        return self._links.get(address)

    def to(self, address: str) -> Link:
        """The connection to a leader; its stream may have to be opened."""
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = Link(address)
        return link

    def send(self, link: Link, topic: TopicBuffer, request: Request[Piece]) -> None:
        """Sends a request, on a new stream if none is open."""
        if link.stream is None:
            link.stream = self._open(link)
        link.send(topic, request)

    def may_have_left(self, topic: TopicBuffer) -> bool:
        """Whether what is in flight of the topic may have reached a gateway."""
        return any(
            link.stream is not None and link.stream.left
            for link in self._links.values()
            if topic in link.in_flight.values()
        )

    def overdue(self, now: float) -> list[Link]:
        """Those that have not answered within request.timeout.ms."""
        limit_s = self._answer_s_max
        return [one for one in self._links.values() if now - one.waiting_since() >= limit_s]

    def to_ask_about(self, now: float) -> list[Link]:
        """Those that are silent, while another gateway may have their topics already; each of them
        once in a while."""
        silent = [one for one in self._links.values() if one.is_silent(now) and now >= one.ask_at]
        for link in silent:
            link.ask_at = now + backoff_s(_ASK_EVERY_S, _ASK_EVERY_S, 0)
        return silent

    def next_look(self) -> float:
        """When `overdue` or `to_ask_about` has something at the earliest; infinite for never."""
        at = float("inf")
        for link in self._links.values():
            since = link.waiting_since()
            at = min(at, since + self._answer_s_max)
            at = min(at, max(since + _SILENT_S, link.ask_at))
        return at

    def release(self, leaders: Set[str]) -> list[Callable[[], None]]:
        """Forgets those that are of no use any more: nothing is under way, and they lead none of
        our topics. Returns what ends them, to be called without the lock."""
        ends: list[Callable[[], None]] = []
        for link in list(self._links.values()):
            if link.in_flight or link.address in leaders:
                continue
            del self._links[link.address]
            if link.stream is not None:
                ends.append(link.stream.cancel)
                link.stream = None
            ends += [channel.close for channel in self._gateways.channels.take(link.address)]
        return ends

    def give_up(
        self, topic: TopicBuffer, leader: str, now: float
    ) -> tuple[object, MainstemError] | None:
        """Another gateway, `leader`, has the topic now. If its old one hangs, what that has not
        answered is for the new one: returns the old stream's token, and why."""
        link = self._links.get(topic.info.leader)
        if link is None or leader == link.address or not link.is_silent(now):
            return None
        error = link.no_answer(now)
        if not link.give_up(topic):
            return None
        _log.warning("%s leads topic %s now: %s", leader, topic.name, error)
        return link.token, error

    def clear(self) -> list[ProduceStream]:
        """Forgets all; returns the open streams, for the caller to end."""
        streams = [link.stream for link in self._links.values() if link.stream is not None]
        for link in self._links.values():
            link.stream = None
        self._links.clear()
        return streams

    def abandon(self) -> None:
        """Waits for no answer any more."""
        for link in self._links.values():
            link.in_flight.clear()

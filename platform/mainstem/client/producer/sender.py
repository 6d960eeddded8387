"""Moves pieces to the leaders and answers back: the I/O around the pure TopicQueue.

Three kinds of threads come here. Callers of produce() send what they have just filled. Each
stream's receiving thread sends on when an answer makes room. One background thread looks after
what is overdue: lingering records, retries, timeouts, old metadata. All share one lock; nobody
takes a topic's lock while holding it.
"""

from __future__ import annotations

import functools
import logging
import random
import threading
from collections.abc import Callable, Sequence

import grpc

from mainstem.client.backoff import backoff_s
from mainstem.client.callbacks import unexpected
from mainstem.client.gateways import FIRST_REFRESH_S, Gateways
from mainstem.client.metadata import MetadataClient, TopicAnswer
from mainstem.client.producer.accumulator import TopicBuffer
from mainstem.client.producer.budget import Budget
from mainstem.client.producer.connection import Link, ProduceStream
from mainstem.client.producer.pieces import Piece
from mainstem.client.producer.queue import Failure, QueuePolicy
from mainstem.client.producer.requests import (
    PieceOutcome,
    Remainder,
    accepted,
    failed,
    remainder,
)
from mainstem.client.producer.sequences import IdentityKeeper
from mainstem.client.producer.settings import ProducerSettings
from mainstem.client.results import ProducerIdentity, TopicMetadata
from mainstem.errors import MainstemError, OutcomeUnknownError, UnknownTopicError
from mainstem.protocol import error_from_message
from mainstem.protocol.v1 import log_pb2

_log = logging.getLogger("mainstem.client")

#: Records that linger are made a piece after this even when no request of their topic may go out,
#: so that they expire.
_CUT_AFTER_S = 1.0

#: The background thread looks at everything at least so often.
_LOOK_EVERY_S = 10.0

#: Threads end at once when they are told to; one that does not is left behind as a daemon.
_JOIN_S = 5.0

#: A leader that has not answered for so long may hang, while another has its topics already: the
#: other gateways are asked, so often.
_SILENT_S = 2.0
_ASK_EVERY_S = 0.5

#: `complete(topic, piece, base_offsets, table_version, error)`: a piece left; called unlocked.
Complete = Callable[[TopicBuffer, Piece, Sequence[int] | None, int, MainstemError | None], None]


class Sender:
    """Sends the pieces of all topics of one producer.

    Attributes:
        lock: Guards everything here, and the engine's accounts.
        progress: Notified when a piece left: flush(), poll() and a full produce() wait for it.
        topics: Every topic that was used.
        undone: The pieces that were enqueued and have not left, with their topics.
        budget: The account of buffer.memory.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        policy: QueuePolicy,
        gateways: Gateways,
        metadata: MetadataClient,
        complete: Complete,
        fault: Callable[[MainstemError], None],
        clock: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self.lock = threading.Lock()
        self.progress = threading.Condition(self.lock)
        self.topics: dict[str, TopicBuffer] = {}
        self.undone: dict[Piece, TopicBuffer] = {}
        self.budget = Budget(settings.buffer_memory)
        self._wake = threading.Condition(self.lock)
        self._planned = 0.0
        self._settings = settings
        self._policy = policy
        self._gateways = gateways
        self._metadata = metadata
        self._complete = complete
        self._fault = fault
        self._clock = clock
        self._rng = rng
        self._identity = IdentityKeeper()
        self._links: dict[str, Link] = {}
        self._active: dict[TopicBuffer, None] = {}
        self._last_number = 0
        self._ready_before = 0
        self._request_timeout_s = settings.request_timeout_ms / 1000
        self._metadata_age_s = settings.metadata_max_age_ms / 1000
        self._refresh_after_s = min(FIRST_REFRESH_S, self._metadata_age_s)
        self._refresh_at = clock() + self._refresh_after_s
        self._refreshing = False
        self._stopped = False
        self._compression = (
            grpc.Compression.Gzip
            if settings.compression_type == "gzip"
            else grpc.Compression.NoCompression
        )
        self._thread = threading.Thread(target=self._run, name="mainstem-producer", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ called by producing threads

    def cut(self, topic: TopicBuffer, *, ready: bool) -> None:
        """Makes a piece of the open records and queues it; the caller holds the topic's lock."""
        if not topic.created_at:
            topic.created_at = self._clock()
        piece = topic.cut(ready=ready)
        unused = topic.reserved - piece.memory_bytes
        topic.reserved = 0
        topic.limit = min(topic.limit, 0)
        with self.lock:
            self.budget.release(unused)
        self.enqueue(topic, piece)

    def enqueue(self, topic: TopicBuffer, piece: Piece) -> None:
        """Queues a piece; the caller holds the topic's lock, which keeps the order."""
        with self.lock:
            self._last_number += 1
            piece.number = self._last_number
            self.undone[piece] = topic
            topic.queue.add(piece)
            self._active[topic] = None
            self._plan(min(piece.deadline, piece.created_at + self._policy.linger_s))

    def pump(self) -> None:
        """Sends what may be sent now."""
        now = self._clock()
        with self.lock:
            self._pump(now)

    def mark_ready(self) -> int:
        """What was enqueued so far no longer waits for linger.ms; returns the number after it."""
        now = self._clock()
        with self.lock:
            self._ready_before = self._last_number + 1
            self._pump(now)
            return self._ready_before

    def prepare(self) -> None:
        """Asks for a producer id already, if there is none: a topic is about to be used."""
        now = self._clock()
        with self.lock:
            if self._settings.idempotent and self._identity.current is None:
                self._identity.wanted = True
                self._plan(max(now, self._identity.retry_at))

    def may_go_out(self, topic: TopicBuffer) -> bool:
        """Whether a request of the topic could go out now. A guess without the lock."""
        if topic.queue.waiting or topic.queue.retrying:
            return False
        link = self._links.get(topic.info.leader)
        return link is None or (
            self._may_send(topic) and self._opens_at(topic, link) <= self._clock()
        )

    def _may_send(self, topic: TopicBuffer) -> bool:
        """Whether fewer requests of the topic are in flight than may be."""
        return len(topic.queue.in_flight) < self._settings.max_in_flight

    @staticmethod
    def _opens_at(topic: TopicBuffer, link: Link) -> float:
        """When a small request of the topic may go out; monotonic seconds."""
        return max(link.retry_at, topic.lane.next_at) if topic.queue.in_flight else link.retry_at

    def wake_by(self, at: float) -> None:
        """Makes the background thread look at the latest at `at` (monotonic seconds)."""
        if at < self._planned:
            with self.lock:
                self._plan(at)

    def abandon(self, error: MainstemError) -> None:
        """Fails everything that has not left."""
        with self.lock:
            lost = [(t, t.queue.abandon(error)) for t in self.topics.values()]
            for link in self._links.values():
                link.in_flight.clear()
            self._active.clear()
        for topic, failures in lost:
            self._report(topic, failed(failures))

    def abandon_all(self, error: MainstemError) -> None:
        """As `abandon`, also for what no queue knows of any more, after a fault of ours."""
        self.abandon(error)
        with self.lock:
            left = list(self.undone.items())
        for piece, topic in left:
            self._complete(topic, piece, None, -1, error)

    def stop(self) -> None:
        """Ends threads and connections. What is still queued is lost: abandon() it first."""
        with self.lock:
            self._stopped = True
            self._wake.notify_all()
            self.progress.notify_all()
            streams = [link.stream for link in self._links.values() if link.stream is not None]
            for link in self._links.values():
                link.stream = None
        for stream in streams:
            stream.cancel()
        for stream in streams:
            stream.join(_JOIN_S)
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)
        self._gateways.channels.close()

    # -------------------------------------------------------------------------- sending (lock held)

    def _pump(self, now: float) -> None:
        """Sends what every topic may send now."""
        sent = True
        while sent and self._active:
            sent = False
            for topic in list(self._active):
                if self._send_one(topic, now):
                    sent = True

    def _send_one(self, topic: TopicBuffer, now: float) -> bool:
        link = self._link(topic.info.leader)
        if self._stopped or not self._may_send(topic) or now < link.retry_at:
            return False
        opens_at = self._opens_at(topic, link)
        if now < opens_at and not topic.queue.is_pressing(self._ready_before):
            self._plan(opens_at)
            return False
        identity = self._identity.current
        request = topic.queue.take(now, link.token, link.next_id, self._ready_before, identity)
        if request is None:
            self._want_identity(topic, now)
            return False
        link.next_id += 1
        link.in_flight[request.correlation_id] = topic
        topic.lane.sent(now, self._settings.max_in_flight)
        if link.stream is None:
            link.stream = ProduceStream(
                self._gateways.channels.get(link.address),
                self._settings.acks,
                self._compression,
                functools.partial(self._on_answer, link),
                functools.partial(self._on_end, link),
                self._fault,
                functools.partial(self._gateways.failed, address=link.address),
                f"mainstem-producer {link.address}",
            )
        link.stream.send(topic, request)
        if not topic.queue.sendable:
            del self._active[topic]
        self._plan(now + self._request_timeout_s)
        return True

    def _want_identity(self, topic: TopicBuffer, now: float) -> None:
        """Has the background thread ask for a producer id, if the topic waits for one."""
        keeper = self._identity
        if not keeper.wanted and topic.queue.wants_identity(keeper.current):
            keeper.wanted = True
            self._plan(max(now, keeper.retry_at))

    def _link(self, address: str) -> Link:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = Link(address)
        return link

    def _break(
        self, link: Link, error: MainstemError, now: float
    ) -> list[tuple[TopicBuffer, list[Failure[Piece]]]]:
        """The link's stream is over: puts back what was unanswered, and waits before the next."""
        topics = dict.fromkeys(link.in_flight.values())
        token, link.token = link.token, object()
        link.stream = None
        link.in_flight.clear()
        wait_s = self._backoff_s(link.failures)
        link.retry_at = now + max(wait_s, error.retry_delay_ms / 1000)
        link.failures += 1
        if topics or link.failures > 1:
            level = logging.WARNING if link.failures == 1 else logging.DEBUG
            _log.log(level, "the stream to %s broke, trying again: %s", link.address, error)
        failures = []
        for topic in topics:
            failures.append((topic, topic.queue.broken(token, error)))
            if topic.queue.sendable:
                self._active[topic] = None
        # The leader may have moved.
        self._refresh_at = min(self._refresh_at, now)
        self._plan(now)
        return failures

    def _backoff_s(self, failures: int) -> float:
        policy = self._policy
        return backoff_s(policy.backoff_s, policy.backoff_max_s, failures, self._rng.random())

    # ------------------------------------------------------------------------ the streams' threads

    def _on_answer(
        self, link: Link, stream: ProduceStream, answer: log_pb2.ProduceResponse
    ) -> None:
        now = self._clock()
        with self.lock:
            if link.stream is not stream:
                return
            topic = link.in_flight.pop(answer.correlation_id, None)
            if topic is None:
                # Of a request that was given up, as another gateway had the topic meanwhile.
                if answer.correlation_id >= link.next_id:
                    number = answer.correlation_id
                    _log.error("%s answered an unknown request: %d", link.address, number)
                return
            link.failures = 0
            sent_at = topic.queue.in_flight[answer.correlation_id].sent_at
            topic.lane.answered(now - sent_at, answer.table_version)
            if answer.HasField("error"):
                outcomes = self._on_refusal(topic, answer, now)
            else:
                outcomes = accepted(topic.name, topic.queue.answered(answer.correlation_id), answer)
            if topic.queue.sendable:
                self._active[topic] = None
            self._pump(now)
        self._report(topic, outcomes)
        self._cut_overdue(now)

    def _on_refusal(
        self, topic: TopicBuffer, answer: log_pb2.ProduceResponse, now: float
    ) -> list[PieceOutcome]:
        error = error_from_message(answer.error)
        refused = topic.queue.in_flight[answer.correlation_id]
        rest = remainder(refused, error, answer.refused_records, topic.compression)
        if rest is not None:
            return self._on_refused_in_part(topic, answer.correlation_id, rest, error, now)
        # The wire's word counts: a newer gateway may have codes that this client does not know.
        retriable = answer.error.retriable or error.retriable
        failures = topic.queue.refused(answer.correlation_id, error, now, retriable=retriable)
        _log.debug("a request of topic %s was refused: %s", topic.name, error)
        if error.code == "NOT_LEADER":
            self._refresh_at = min(self._refresh_at, now)
        self._plan(now)
        return failed(failures)

    def _on_refused_in_part(
        self,
        topic: TopicBuffer,
        correlation_id: int,
        rest: Remainder,
        error: MainstemError,
        now: float,
    ) -> list[PieceOutcome]:
        """Sends again what is left; fails what will never be taken."""
        for piece, parts in rest.replaced:
            if not piece.done:
                del self.undone[piece]
                self.undone.update(dict.fromkeys(parts, topic))
        lost: list[Failure[Piece]] = [(piece, error) for piece in rest.lost if not piece.done]
        for piece, _ in lost:
            piece.done = True
        lost += topic.queue.refused_in_part(correlation_id, rest.left, error, now)
        _log.debug("a request of topic %s was refused in part: %s", topic.name, error)
        self._plan(now)
        return failed(lost)

    def _on_end(self, link: Link, stream: ProduceStream, error: MainstemError) -> None:
        now = self._clock()
        with self.lock:
            if link.stream is not stream or self._stopped:
                return
            broken = self._break(link, error, now)
        for topic, failures in broken:
            self._report(topic, failed(failures))

    def _report(self, topic: TopicBuffer, outcomes: list[PieceOutcome]) -> None:
        """Hands on what left; called without a lock."""
        for piece, base_offsets, table_version, error in outcomes:
            if isinstance(error, UnknownTopicError):
                self.mark_stale(topic)
            self._complete(topic, piece, base_offsets, table_version, error)

    def mark_stale(self, topic: TopicBuffer) -> None:
        """The next record of the topic asks the gateway again whether it exists."""
        with topic.lock:
            topic.stale = True
            topic.limit = -1

    # -------------------------------------------------------------------------- background thread

    def _plan(self, at: float) -> None:
        if at < self._planned:
            self._planned = at
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self.lock:
                if self._stopped:
                    return
                now = self._clock()
                self._planned = self._next_look(now)
                if self._planned > now:
                    self._wake.wait(self._planned - now)
                if self._stopped:
                    return
                # While it is awake, nobody needs to wake it.
                self._planned = 0.0
            try:
                self._look()
            except Exception as failure:
                # Without it nothing would expire, and flush() might wait for ever.
                _log.exception("the producer's background thread failed")
                self._fault(unexpected("the producer's background thread", failure))
                return

    def _next_look(self, now: float) -> float:
        at = now + _LOOK_EVERY_S
        if not self._refreshing and self.topics:
            at = min(at, self._refresh_at)
        at = min(at, self._identity.next_call())
        for topic in self.topics.values():
            queue = topic.queue
            link = self._link(topic.info.leader)
            may_send = self._may_send(topic)
            opens_at = self._opens_at(topic, link)
            if topic.created_at:
                at = min(at, topic.created_at + _CUT_AFTER_S)
                # Behind what waits already they would only wait, too.
                if may_send and not queue.sendable:
                    at = min(at, max(topic.created_at + self._policy.linger_s, opens_at))
            if queue.idle:
                continue
            at = min(at, queue.next_deadline())
            if may_send:
                at = min(at, max(queue.next_send(self._identity.current), opens_at))
        for link in self._links.values():
            since = link.waiting_since()
            at = min(at, since + self._request_timeout_s)
            at = min(at, max(since + _SILENT_S, link.asked_at + _ASK_EVERY_S))
        # Waking up for something that turns out to be blocked must not become a busy loop.
        return max(at, now + 0.0005)

    def _look(self) -> None:
        now = self._clock()
        broken = []
        streams = []
        with self.lock:
            expired = [(topic, topic.queue.expire(now)) for topic in self.topics.values()]
            for link in self._links.values():
                waited_s = now - link.waiting_since()
                if link.stream is None:
                    continue
                if waited_s >= self._request_timeout_s:
                    streams.append((link.address, link.stream))
                    broken += self._break(link, self._no_answer(link, waited_s), now)
                elif waited_s >= _SILENT_S and now >= link.asked_at + _ASK_EVERY_S:
                    link.asked_at = now
                    self._gateways.doubt(link.address)
                    self._refresh_at = min(self._refresh_at, now)
            for topic in list(self._active):
                if not topic.queue.sendable:
                    del self._active[topic]
            self._pump(now)
            refresh = now >= self._refresh_at and not self._refreshing and bool(self.topics)
            if refresh:
                self._refreshing = True
            names = list(self.topics)
            ask = self._identity.begin(now)
        for address, stream in streams:
            self._gateways.doubt(address)
            self._gateways.channels.renew(address, stream.channel, self._request_timeout_s)
            stream.cancel()
        for topic, failures in expired + broken:
            self._report(topic, failed(failures))
        self._cut_overdue(now)
        if refresh:
            self._metadata.refresh(names, self._request_timeout_s, self._refreshed)
        if ask:
            self._metadata.init_producer(self._request_timeout_s, self._identified)

    def _no_answer(self, link: Link, waited_s: float) -> MainstemError:
        limit = ""
        if waited_s >= self._request_timeout_s:
            limit = f", request.timeout.ms ({self._settings.request_timeout_ms} ms)"
        return OutcomeUnknownError(
            f"{link.address} did not answer within {waited_s * 1000:.0f} ms{limit}"
        )

    def _give_up(
        self, topic: TopicBuffer, info: TopicMetadata, now: float
    ) -> list[tuple[TopicBuffer, list[Failure[Piece]]]]:
        """Another gateway leads the topic now. If its old leader hangs, what that one has not
        answered goes to the new one; the lock is held."""
        link = self._links.get(topic.info.leader)
        if link is None or info.leader == link.address or now - link.waiting_since() < _SILENT_S:
            return []
        given_up = [number for number, one in link.in_flight.items() if one is topic]
        if not given_up:
            return []
        error = self._no_answer(link, now - link.waiting_since())
        _log.warning("%s leads topic %s now: %s", info.leader, topic.name, error)
        for number in given_up:
            del link.in_flight[number]
        failures = topic.queue.broken(link.token, error)
        if topic.queue.sendable:
            self._active[topic] = None
        return [(topic, failures)]

    def _cut_overdue(self, now: float) -> None:
        """Makes pieces of records that have waited for linger.ms, where their request could go."""
        cut = False
        for topic in list(self.topics.values()):
            created_at = topic.created_at
            if not created_at or now - created_at < self._policy.linger_s:
                continue
            if now - created_at < _CUT_AFTER_S and not self.may_go_out(topic):
                continue
            with topic.lock:
                if topic.values and topic.created_at == created_at:
                    self.cut(topic, ready=True)
                    cut = True
        if cut:
            self.pump()

    def _identified(self, answer: ProducerIdentity | MainstemError) -> None:
        """Takes over a producer id; called by one of gRPC's threads."""
        now = self._clock()
        lost = []
        with self.lock:
            if self._stopped:
                return
            keeper = self._identity
            if isinstance(answer, ProducerIdentity):
                keeper.given(answer)
                self._pump(now)
            else:
                wait_s = self._backoff_s(keeper.failures)
                keeper.failed(now, max(wait_s, answer.retry_delay_ms / 1000))
                for topic in self.topics.values():
                    if not topic.queue.wants_identity(keeper.current):
                        continue
                    topic.queue.last_error = answer
                    if not answer.retriable:
                        lost.append((topic, topic.queue.abandon(answer)))
                # After an error that no retry cures, the next topic that needs an id asks again.
                keeper.wanted = answer.retriable
            self._plan(now)
        _log.debug("asked for a producer id: %s", answer)
        for topic, failures in lost:
            self._report(topic, failed(failures))

    def _refreshed(self, answers: dict[str, TopicAnswer]) -> None:
        """Takes over new metadata; called by one of gRPC's threads."""
        gone = []
        given_up = []
        now = self._clock()
        with self.lock:
            if self._stopped:
                return
            self._refreshing = False
            wait_s = self._policy.backoff_max_s
            if answers:
                wait_s = self._refresh_after_s
                self._refresh_after_s = min(2 * wait_s, self._metadata_age_s)
            self._refresh_at = now + wait_s
            for name, answer in answers.items():
                topic = self.topics.get(name)
                if topic is None:
                    continue
                if isinstance(answer, TopicMetadata):
                    given_up += self._give_up(topic, answer, now)
                    topic.info = answer
                elif isinstance(answer, UnknownTopicError):
                    gone.append(topic)
            self._pump(now)
            self._plan(now)
        for topic, failures in given_up:
            self._report(topic, failed(failures))
        for topic in gone:
            self.mark_stale(topic)

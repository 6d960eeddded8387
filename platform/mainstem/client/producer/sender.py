"""Moves pieces to the leaders and answers back: the I/O around the pure TopicQueue.

Three kinds of threads come here. Callers of produce() send what they have just filled. Each
stream's receiving thread sends on when an answer makes room. One background thread looks after
what is overdue: lingering records, retries, timeouts, old metadata. All share one lock, which
nobody else takes; while it is held no topic's lock is taken, and nobody is told of anything.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Callable

from mainstem.client.backoff import backoff_s
from mainstem.client.callbacks import unexpected
from mainstem.client.gateways import Gateways
from mainstem.client.metadata import MetadataClient, RefreshSchedule, TopicAnswer
from mainstem.client.producer.accumulator import TopicBuffer
from mainstem.client.producer.alarm import Alarm
from mainstem.client.producer.connection import Link, Links, ProduceStream
from mainstem.client.producer.delivery import Reports
from mainstem.client.producer.memory import BufferMemory
from mainstem.client.producer.pieces import Piece
from mainstem.client.producer.queue import QueuePolicy
from mainstem.client.producer.requests import PieceOutcome, accepted, failed, remainder
from mainstem.client.producer.sequences import IdentityKeeper
from mainstem.client.producer.settings import ProducerSettings
from mainstem.client.producer.transactions import Transactions
from mainstem.client.results import ProducerIdentity, TopicMetadata
from mainstem.errors import (
    AuthenticationError,
    MainstemError,
    ProducerFencedError,
    UnknownTopicError,
)
from mainstem.protocol import error_from_message
from mainstem.protocol.v1 import log_pb2

_log = logging.getLogger("mainstem.client")

#: Records that linger are made a piece after this even when no request of their topic may go out,
#: so that they expire.
_CUT_AFTER_S = 1.0

#: The background thread looks at everything at least so often.
_LOOK_EVERY_S = 10.0

#: Links that are of no use any more are looked for so often, as that goes over all topics.
_RELEASE_EVERY_S = 1.0

#: Threads end at once when they are told to; one that does not is left behind as a daemon.
_JOIN_S = 5.0

#: Pieces that have ended, by topic. What is done under the lock returns them, and whoever had the
#: lock tells of them without it.
Ended = list[tuple[TopicBuffer, list[PieceOutcome]]]


class Sender:
    """Sends the pieces of all topics of one producer. Thread-safe.

    Args:
        memory: Gets back what an open buffer did not need.
        reports: Knows each piece from `enqueue` on, and tells what became of it.
        transactions: Told of each piece that fails, before anybody else is; None: there are none.
        fault: Called with an error after which the producer cannot go on.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        policy: QueuePolicy,
        gateways: Gateways,
        metadata: MetadataClient,
        memory: BufferMemory,
        reports: Reports,
        transactions: Transactions | None,
        fault: Callable[[MainstemError], None],
        clock: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self._lock = threading.Lock()
        self._settings = settings
        self._policy = policy
        self._gateways = gateways
        self._metadata = metadata
        self._memory = memory
        self._reports = reports
        self._transactions = transactions
        self._fault = fault
        self._clock = clock
        self._rng = rng
        self._topics: dict[str, TopicBuffer] = {}
        # Of a thousand topics few have anything to do at a time, and a look is for those: which
        # have something to send, and which have open records.
        self._active: dict[TopicBuffer, None] = {}
        self._open: dict[TopicBuffer, None] = {}
        #: No piece expires before.
        self._expires_at = math.inf
        #: Links that are of no use are looked for then.
        self._release_at = 0.0
        self._links = Links(settings, gateways, self._on_answer, self._on_end, fault)
        self._identity = IdentityKeeper(asks=transactions is None)
        #: Of transactions: it takes all requests, whoever leads their topics. Empty: leaders do.
        self._coordinator = ""
        self._refresh = RefreshSchedule(clock(), settings.metadata_max_age_ms / 1000)
        self._last_number = 0
        self._ready_before = 0
        self._request_timeout_s = settings.request_timeout_ms / 1000
        self._stopped = False
        self._alarm = Alarm("mainstem-producer", self._look, self._look_failed, clock)
        self._alarm.start()

    # ------------------------------------------------------------------ called by producing threads

    def add(self, topic: TopicBuffer) -> TopicBuffer:
        """Takes a topic; returns the one to use, as another thread may have been faster."""
        with self._lock:
            return self._topics.setdefault(topic.name, topic)

    def topic(self, name: str) -> TopicBuffer | None:
        return self._topics.get(name)

    def topics(self) -> list[TopicBuffer]:
        """Every topic that was used."""
        with self._lock:
            return list(self._topics.values())

    def prepare(self) -> None:
        """Asks for a producer id already, if there is none: a topic is about to be used."""
        now = self._clock()
        with self._lock:
            if self._settings.idempotent and self._identity.current is None:
                self._alarm.by(self._identity.want(now))

    def opened(self, topic: TopicBuffer) -> None:
        """The topic has its first open record; the caller holds the topic's lock."""
        with self._lock:
            self._open[topic] = None
            self._alarm.by(topic.created_at + self._policy.linger_s)

    def cut(self, topic: TopicBuffer, *, ready: bool) -> None:
        """Makes a piece of the open records and queues it; the caller holds the topic's lock."""
        if not topic.created_at:
            topic.created_at = self._clock()
        piece = topic.cut(ready=ready)
        self._memory.release(topic.reserved - piece.memory_bytes)
        topic.reserved = 0
        topic.limit = min(topic.limit, 0)
        self.enqueue(topic, piece)

    def enqueue(self, topic: TopicBuffer, piece: Piece) -> None:
        """Queues a piece; the caller holds the topic's lock, which keeps the order."""
        with self._lock:
            self._last_number += 1
            piece.number = self._last_number
            self._reports.begin(topic.name, piece)
            topic.queue.add(piece)
            self._active[topic] = None
            if not topic.created_at:
                self._open.pop(topic, None)
            self._expires_at = min(self._expires_at, piece.deadline)
            self._alarm.by(min(piece.deadline, piece.created_at + self._policy.linger_s))

    def pump(self) -> None:
        """Sends what may be sent now."""
        now = self._clock()
        with self._lock:
            self._pump(now)

    def mark_ready(self) -> int:
        """What was enqueued so far no longer waits for linger.ms; returns the number after it."""
        now = self._clock()
        with self._lock:
            self._ready_before = self._last_number + 1
            self._pump(now)
            return self._ready_before

    def may_go_out(self, topic: TopicBuffer) -> bool:
        """Whether a request of the topic could go out now. A guess without the lock."""
        if topic.queue.waiting or topic.queue.retrying:
            return False
        link = self._links.get(self._target(topic))
        return link is None or (
            self._may_send(topic) and self._opens_at(topic, link) <= self._clock()
        )

    def begin(self, identity: ProducerIdentity, coordinator: str) -> None:
        """A transaction is begun: what is enqueued from now on is of it."""
        with self._lock:
            self._identity.given(identity)
            self._coordinator = coordinator
            self._release_at = 0.0

    @property
    def transaction_record_count(self) -> int:
        """Records of the open transaction that were sent."""
        with self._lock:
            return sum(topic.queue.numbered_count for topic in self._topics.values())

    def finish_transaction(self) -> None:
        """The transaction is over, and nothing of it is left."""
        with self._lock:
            self._identity.current = None
            for topic in self._topics.values():
                topic.queue.finish_transaction()

    def discard(self, error: MainstemError) -> None:
        """Fails everything that has not ended, and is ready for the next transaction: nothing that
        was refused or held before gets in its way."""
        streams: list[ProduceStream] = []
        with self._lock:
            topics = [topic for topic in self._topics.values() if not topic.queue.idle]
            ended = [(topic, failed(topic.queue.abandon(error))) for topic in topics]
            self._active.clear()
            if topics:
                streams = self._links.clear()
        for stream in streams:
            stream.cancel()
        self._tell(ended)

    def abandon(self, error: MainstemError) -> None:
        """Fails everything that has not ended."""
        with self._lock:
            ended = [(t, failed(t.queue.abandon(error))) for t in self._topics.values()]
            self._links.abandon()
            self._active.clear()
        self._tell(ended)
        # After a fault of ours there may be some that no queue knows of any more.
        self._reports.fail_all(error)

    def stop(self) -> None:
        """Ends threads and connections. What is still queued is lost: abandon() it first."""
        with self._lock:
            self._stopped = True
            streams = self._links.clear()
        for stream in streams:
            stream.cancel()
        for stream in streams:
            stream.join(_JOIN_S)
        self._alarm.stop(_JOIN_S)
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
        link = self._links.to(self._target(topic))
        if self._stopped or not self._may_send(topic) or now < link.retry_at:
            return False
        opens_at = self._opens_at(topic, link)
        if now < opens_at and not topic.queue.is_pressing(self._ready_before):
            self._alarm.by(opens_at)
            return False
        keeper = self._identity
        request = topic.queue.take(
            now, link.token, link.next_id, self._ready_before, keeper.current
        )
        if request is None:
            if not keeper.wanted and topic.queue.wants_identity(keeper.current):
                self._alarm.by(self._identity.want(now))
            return False
        self._links.send(link, topic, request)
        topic.lane.sent(now, self._settings.max_in_flight)
        if not topic.queue.sendable:
            del self._active[topic]
        self._alarm.by(now + self._request_timeout_s)
        return True

    def _target(self, topic: TopicBuffer) -> str:
        """host:port of the gateway that takes the topic's requests."""
        return self._coordinator or topic.info.leader

    def _may_send(self, topic: TopicBuffer) -> bool:
        """Whether fewer requests of the topic are in flight than may be."""
        return len(topic.queue.in_flight) < self._settings.max_in_flight

    @staticmethod
    def _opens_at(topic: TopicBuffer, link: Link) -> float:
        """When a small request of the topic may go out; monotonic seconds."""
        return max(link.retry_at, topic.lane.next_at) if topic.queue.in_flight else link.retry_at

    def _break(self, link: Link, error: MainstemError, now: float, *, left: bool = True) -> Ended:
        """The link's stream is over: puts back what was unanswered, and waits before the next."""
        wait_s = max(self._backoff_s(link.failures), error.retry_delay_ms / 1000)
        token, topics = link.end(error, now + wait_s)
        # The leader may have moved.
        self._refresh.soon(now)
        self._alarm.by(now)
        return [(topic, self._put_back(topic, token, error, left=left)) for topic in topics]

    def _put_back(
        self, topic: TopicBuffer, token: object, error: MainstemError, *, left: bool = True
    ) -> list[PieceOutcome]:
        failures = topic.queue.broken(token, error, left=left)
        if topic.queue.sendable:
            self._active[topic] = None
        return failed(failures)

    def _backoff_s(self, failures: int) -> float:
        policy = self._policy
        return backoff_s(policy.backoff_s, policy.backoff_max_s, failures, self._rng.random())

    # ------------------------------------------------------------------------ the streams' threads

    def _on_answer(
        self, link: Link, stream: ProduceStream, answer: log_pb2.ProduceResponse
    ) -> None:
        now = self._clock()
        with self._lock:
            if link.stream is not stream:
                return
            topic = link.take(answer)
            if topic is None:
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
        self._tell([(topic, outcomes)])
        self._cut_overdue(now)

    def _on_refusal(
        self, topic: TopicBuffer, answer: log_pb2.ProduceResponse, now: float
    ) -> list[PieceOutcome]:
        error = error_from_message(answer.error)
        _log.debug("a request of topic %s was refused: %s", topic.name, error)
        self._alarm.by(now)
        refused = topic.queue.in_flight[answer.correlation_id]
        rest = remainder(refused, error, answer.refused_records, topic.compression)
        if rest is not None:
            for piece, parts in rest.replaced:
                if not piece.done:
                    self._reports.replace(piece, parts)
            left, number = rest.left, answer.correlation_id
            return failed(rest.lose(error) + topic.queue.refused_in_part(number, left, error, now))
        if error.code == "NOT_LEADER":
            self._refresh.soon(now)
        # The wire's word counts: a newer gateway may have codes that this client does not know.
        retriable = answer.error.retriable or error.retriable
        return failed(topic.queue.refused(answer.correlation_id, error, now, retriable=retriable))

    def _on_end(self, link: Link, stream: ProduceStream, error: MainstemError) -> None:
        now = self._clock()
        with self._lock:
            if link.stream is not stream or self._stopped:
                return
            ended = self._break(link, error, now)
            if isinstance(error, AuthenticationError) and not error.retriable:
                ended += self._refused(link, error)
        self._tell(ended)

    def _refused(self, link: Link, error: MainstemError) -> Ended:
        """A gateway does not believe who the client is: fails what is for it, instead of trying
        until delivery.timeout.ms."""
        topics = [one for one in self._topics.values() if self._target(one) == link.address]
        ended = [(topic, failed(topic.queue.turned_away(error))) for topic in topics]
        for topic in topics:
            self._active.pop(topic, None)
        return ended

    def _tell(self, ended: Ended) -> None:
        """Hands on what has ended; called without a lock."""
        for topic, outcomes in ended:
            for piece, base_offsets, table_version, error in outcomes:
                if isinstance(error, UnknownTopicError):
                    topic.mark_stale()
                if error is not None and self._transactions is not None:
                    self._transactions.lost(error)
                try:
                    self._reports.completed(topic.name, piece, base_offsets, table_version, error)
                finally:
                    if isinstance(error, ProducerFencedError):
                        self._fault(error)

    # -------------------------------------------------------------------------- background thread

    def _look(self) -> float:
        """Does what is overdue; returns when to look again."""
        now = self._clock()
        hanging = []
        names: list[str] = []
        ends: list[Callable[[], None]] = []
        with self._lock:
            ended = self._expire(now)
            for link in self._links.overdue(now):
                assert link.stream is not None
                hanging.append((link.address, link.stream))
                limit = f", request.timeout.ms ({self._settings.request_timeout_ms} ms)"
                error = link.no_answer(now, limit)
                ended += self._break(link, error, now, left=link.stream.left)
            for link in self._links.to_ask_about(now):
                self._gateways.doubt(link.address)
                self._refresh.soon(now)
            for topic in list(self._active):
                if not topic.queue.sendable:
                    del self._active[topic]
            self._pump(now)
            if now >= self._release_at:
                self._release_at = now + _RELEASE_EVERY_S
                ends = self._links.release(set(map(self._target, self._topics.values())))
            if self._topics and self._refresh.begin(now):
                names = list(self._topics)
            ask = self._identity.begin(now)
        for address, stream in hanging:
            self._gateways.doubt(address)
            self._gateways.channels.renew(address, stream.channel, self._request_timeout_s)
            stream.cancel()
        for end in ends:
            end()
        self._tell(ended)
        self._cut_overdue(now)
        if names:
            self._metadata.refresh(names, self._request_timeout_s, self._refreshed)
        if ask:
            self._metadata.init_producer(self._request_timeout_s, self._identified)
        with self._lock:
            return self._next_look(self._clock())

    def _expire(self, now: float) -> Ended:
        """Fails what is past its deadline; under the lock."""
        if now < self._expires_at:
            return []
        topics = [one for one in self._topics.values() if not one.queue.idle]
        ended = [
            (topic, failed(topic.queue.expire(now, left=self._links.may_have_left(topic))))
            for topic in topics
            if topic.queue.next_deadline() <= now
        ]
        self._expires_at = min((one.queue.next_deadline() for one in topics), default=math.inf)
        return ended

    def _look_failed(self, failure: Exception) -> None:
        # Without the thread nothing would expire, and flush() might wait for ever.
        _log.error("the producer's background thread failed", exc_info=failure)
        self._fault(unexpected("the producer's background thread", failure))

    def _next_look(self, now: float) -> float:
        at = min(now + _LOOK_EVERY_S, self._identity.next_call(), self._links.next_look())
        at = min(at, self._expires_at)
        if self._topics:
            at = min(at, self._refresh.next_call())
        for topic in {**self._open, **self._active}:
            queue = topic.queue
            link = self._links.to(self._target(topic))
            may_send = self._may_send(topic)
            opens_at = self._opens_at(topic, link)
            if topic.created_at:
                at = min(at, topic.created_at + _CUT_AFTER_S)
                # Behind what waits already they would only wait, too.
                if may_send and not queue.sendable:
                    at = min(at, max(topic.created_at + self._policy.linger_s, opens_at))
            if may_send and queue.sendable:
                at = min(at, max(queue.next_send(self._identity.current), opens_at))
        # Waking up for something that turns out to be blocked must not become a busy loop.
        return max(at, now + 0.0005)

    def _cut_overdue(self, now: float) -> None:
        """Makes pieces of records that have waited for linger.ms, where their request could go."""
        cut = False
        for topic in list(self._open):
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

    # ------------------------------------------------------------- answers to metadata and identity

    def _identified(self, answer: ProducerIdentity | MainstemError) -> None:
        """Takes over a producer id; called by a thread of its own."""
        now = self._clock()
        ended: Ended = []
        with self._lock:
            if self._stopped:
                return
            keeper = self._identity
            if isinstance(answer, ProducerIdentity):
                keeper.given(answer)
                self._pump(now)
            else:
                wait_s = self._backoff_s(keeper.failures)
                keeper.failed(now, max(wait_s, answer.retry_delay_ms / 1000))
                for topic in self._topics.values():
                    if not topic.queue.wants_identity(keeper.current):
                        continue
                    topic.queue.last_error = answer
                    if not answer.retriable:
                        ended.append((topic, failed(topic.queue.abandon(answer))))
                # After an error that no retry cures, the next topic that needs an id asks again.
                keeper.wanted = answer.retriable
            self._alarm.by(now)
        _log.debug("asked for a producer id: %s", answer)
        self._tell(ended)

    def _refreshed(self, answers: dict[str, TopicAnswer]) -> None:
        """Takes over new metadata; called by a thread of its own."""
        gone = []
        ended: Ended = []
        now = self._clock()
        with self._lock:
            if self._stopped:
                return
            if answers:
                self._refresh.answered(now)
            else:
                self._refresh.failed(now, self._backoff_s(self._refresh.failures))
            self._release_at = now
            for name, answer in answers.items():
                topic = self._topics.get(name)
                if topic is None:
                    continue
                if isinstance(answer, TopicMetadata):
                    given_up = self._links.give_up(topic, answer.leader, now)
                    if given_up is not None:
                        ended.append((topic, self._put_back(topic, *given_up)))
                    topic.info = answer
                elif isinstance(answer, UnknownTopicError):
                    gone.append(topic)
            self._pump(now)
            self._alarm.by(now)
        self._tell(ended)
        for topic in gone:
            topic.mark_stale()
        if self._transactions is not None:
            self._transactions.look()

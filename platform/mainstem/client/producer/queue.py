"""What one topic still has to get acknowledged, as a pure state machine: no I/O, no clock, no lock.

A *piece* is a run of records in columns; a *request* is one or more pieces that travel together.
Pieces wait, go out in a request, and leave with an answer or a failure. The order of a topic's
requests is kept under every fault:

* a broken stream puts all requests without an answer back, before anything newer;
* a retriable refusal stops the topic until everything that is in flight was answered (the gateway
  refuses what follows with HELD), and then sends the refused requests again in their order, the
  first with `resume`;
* nothing goes out on another stream while something is in flight on the old one.

With idempotence a request is numbered when it is formed and goes out as the same bytes each time;
`sequences` says why. When one fails for good, its numbers are missing at the gateway, and the
topic goes over to a new producer id:

* nothing new is formed, what is in flight is answered, and what may be stored already is sent again
  with its old numbers until its fate is known;
* then what is left, surely not stored, gets numbers of the new id, in its old order.

A request travels as a whole: when some of its records have run out of time they are reported as
failed, and yet go with the others, since without them the numbers would have a gap.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from mainstem.client.backoff import backoff_s
from mainstem.client.producer.expiry import timeout_error
from mainstem.client.producer.sequences import (
    NOT_IN_SEQUENCE,
    Numbering,
    Numbers,
    taken_in_doubt,
)
from mainstem.client.results import ProducerIdentity
from mainstem.errors import DeliveryTimeoutError, HeldError, MainstemError
from mainstem.protocol import never_left


class Sendable(Protocol):
    """What the state machine needs to know of a piece."""

    number: int
    size: int
    row_count: int
    created_at: float
    deadline: float
    layout: bytes
    alone: bool
    ready: bool
    sent: bool
    done: bool

    @property
    def ranges(self) -> Sequence[tuple[int, int]]:
        """(partition, row count), in row order."""
        ...


P = TypeVar("P", bound=Sendable)


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """The settings that the state machine follows. Times in seconds, sizes in bytes."""

    linger_s: float
    batch_bytes: int
    request_bytes_max: int
    request_records_max: int
    retries: int
    backoff_s: float
    backoff_max_s: float
    delivery_timeout_ms: int


@dataclass(slots=True, eq=False)
class Request(Generic[P]):
    """Pieces that travel together. `pieces` never changes while the request is in flight.

    Attributes:
        number: Its place in the order of the topic's requests; a part of a request has one more
            number behind that of the whole.
        numbers: With idempotence, what its records are counted as.
        in_doubt: It may be stored, under `numbers`.
        sent: It may be stored: an attempt went out whose fate is not known. The attempt that is in
            flight does not count.
    """

    number: tuple[int, ...]
    pieces: list[P]
    numbers: Numbers | None = None
    in_doubt: bool = False
    sent: bool = False
    correlation_id: int = 0
    resume: bool = False
    attempts: int = 0
    sent_at: float = 0.0


#: A piece that failed, and why.
Failure = tuple[P, MainstemError]


@dataclass(slots=True, eq=False)
class TopicQueue(Generic[P]):
    """The pieces and requests of one topic. Every method takes the time; none of them waits.

    Args:
        topic: For messages.
        policy: The settings.
        jitter: Gives a number in [0, 1); spreads the retries of many producers.
        idempotent: Number the records.
    """

    topic: str
    policy: QueuePolicy
    jitter: Callable[[], float] = random.random
    idempotent: bool = False
    waiting: deque[P] = field(default_factory=deque)
    waiting_bytes: int = 0
    retrying: list[Request[P]] = field(default_factory=list)
    in_flight: dict[int, Request[P]] = field(default_factory=dict)
    not_before: float = 0.0
    #: Why the latest attempt failed; and why the leader, which has accepted what is in flight,
    #: cannot answer yet.
    last_error: MainstemError | None = None
    trouble: MainstemError | None = None
    _stream: object = None
    _draining: bool = False
    _resume_on: object = None
    _failures: int = 0
    _formed: int = 0
    # None: a new producer id is needed before anything can be numbered.
    _numbering: Numbering | None = None
    # The id that has a gap.
    _spent: ProducerIdentity | None = None

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is in flight."""
        return not (self.waiting or self.retrying or self.in_flight)

    @property
    def sendable(self) -> bool:
        """Something waits that is not in flight."""
        return bool(self.waiting or self.retrying)

    def is_pressing(self, ready_before: int) -> bool:
        """What would go out next is full, or sent again, or somebody flushes it."""
        return bool(
            self.retrying
            or self.waiting_bytes >= self.policy.batch_bytes
            or (self.waiting and self.waiting[0].number < ready_before)
        )

    def wants_identity(self, current: ProducerIdentity | None) -> bool:
        """Nothing can go out before there is a newer producer id than `current`."""
        return self.sendable and not self.in_flight and self._is_stuck(current)

    def add(self, piece: P) -> None:
        """Queues a piece behind all others."""
        self.waiting.append(piece)
        self.waiting_bytes += piece.size

    def take(
        self,
        now: float,
        stream: object,
        correlation_id: int,
        ready_before: int = 0,
        identity: ProducerIdentity | None = None,
    ) -> Request[P] | None:
        """The next request to send on `stream`, which then is in flight; None: nothing may go now.

        Args:
            now: Monotonic seconds.
            stream: ProducerIdentity of the stream; a new one after each break.
            correlation_id: What the request's answer will carry.
            ready_before: Pieces with a smaller number do not wait for `linger.ms`.
            identity: The newest producer id, with idempotence.
        """
        if self._draining or (self.in_flight and self._stream is not stream):
            return None
        if now < self.not_before:
            return None
        request = self._next(now, ready_before, identity)
        if request is None:
            return None
        request.correlation_id = correlation_id
        request.sent_at = now
        request.resume = self._resume_on is stream
        self._resume_on = None
        self._stream = stream
        self.in_flight[correlation_id] = request
        return request

    def _next(
        self, now: float, ready_before: int, identity: ProducerIdentity | None
    ) -> Request[P] | None:
        if self.idempotent and self._numbering is None:
            in_doubt = self._first_in_doubt()
            if in_doubt is not None:
                self.retrying.remove(in_doubt)
                return in_doubt
            if self.in_flight or not (self.retrying or self._due(now, ready_before)):
                return None
            if not self._renumber(identity):
                return None
        if self.retrying:
            request = self.retrying.pop(0)
            if request.numbers is None:
                request.pieces = [piece for piece in request.pieces if not piece.done]
            return request
        return self._form() if self._due(now, ready_before) else None

    def answered(self, correlation_id: int) -> Request[P]:
        """The request was accepted; it leaves. Pieces that had failed before are still in it."""
        request = self.in_flight.pop(correlation_id)
        self._failures = 0
        self.last_error = self.trouble = None
        self._drained()
        return request

    def refused(
        self, correlation_id: int, error: MainstemError, now: float, *, retriable: bool
    ) -> list[Failure[P]]:
        """The request was refused as a whole. Returns what failed for good."""
        request = self.in_flight.pop(correlation_id)
        numbers = request.numbers
        alone = numbers is not None and not numbers.identity.transaction_number
        if alone and error.code in NOT_IN_SEQUENCE:
            return self._out_of_sequence(request, error, now)
        self._doubt(request, sent=request.sent or taken_in_doubt(error))
        if not retriable:
            self._drained()
            self._lose(request)
            return self._fail(request.pieces, error)
        self._draining = True
        self._resume_on = self._stream
        if isinstance(error, HeldError):
            # Not its own fault: it counts neither as an attempt nor for the backoff. But nothing
            # is in front of it that has its own wait when those failed for good.
            failed = self._retry(request, error, counts=False)
            if self._failures == 0:
                self._back_off(now, error)
        else:
            failed = self._retry(request, error, counts=True)
            self._back_off(now, error)
        self._drained()
        return failed

    def refused_in_part(
        self, correlation_id: int, left: Sequence[list[P]], error: MainstemError, now: float
    ) -> list[Failure[P]]:
        """The request was refused, but what is left of it may be taken: goes again at its place.

        It must not be in doubt: nothing of it is stored. Its numbers are given up with it.

        Args:
            left: Its pieces, without what can never be taken, as one request or as several.
        """
        request = self.in_flight.pop(correlation_id)
        assert not request.in_doubt
        self._draining = True
        self._resume_on = self._stream
        self._lose(request)
        failed = []
        for index, pieces in enumerate(left):
            number = (*request.number, index)
            part = Request(number, pieces, request.numbers, attempts=request.attempts)
            failed += self._retry(part, error, counts=False)
        self._drained()
        return failed

    def _out_of_sequence(
        self, request: Request[P], error: MainstemError, now: float
    ) -> list[Failure[P]]:
        """Its number does not follow: something before it is missing, or the id was forgotten.

        Either way it is not in the log. A producer id that is forgotten after less than a producer
        tries to deliver a record (delivery.timeout.ms) would break that.
        """
        self._doubt(request, sent=False)
        self._lose(request)
        failed = self._retry(request, error, counts=True)
        if request.attempts > 1:
            self._back_off(now, error)
        self._drained()
        return failed

    def broken(
        self, stream: object, error: MainstemError, *, left: bool = True
    ) -> list[Failure[P]]:
        """The stream ended. What had no answer goes first on the next one.

        Args:
            left: Requests may have reached a gateway on it.
        """
        if self._stream is not stream:
            return []
        requests = list(self.in_flight.values())
        self.in_flight.clear()
        self._stream = None
        self._draining = False
        self._resume_on = None
        failed: list[Failure[P]] = []
        left = left and not never_left(error)
        for request in requests:
            # A request that was in doubt before stays so.
            self._doubt(request, sent=request.sent or left)
            failed += self._retry(request, error, counts=True)
        return failed

    def expire(self, now: float, *, left: bool = True) -> list[Failure[P]]:
        """Fails what is past its deadline. A request in flight stays until its answer.

        Args:
            left: What is in flight may have reached a gateway.
        """
        failed: list[P] = []
        for request in self.in_flight.values() if left else ():
            for piece in request.pieces:
                piece.sent = True
        for request in [*self.in_flight.values(), *self.retrying]:
            failed += [p for p in request.pieces if not p.done and p.deadline <= now]
        while self.waiting and self.waiting[0].deadline <= now:
            failed.append(self._pop())
        if not failed:
            return []
        outcome = [pair for piece in failed for pair in self._fail([piece], self._timeout(piece))]
        for request in [r for r in self.retrying if all(p.done for p in r.pieces)]:
            self.retrying.remove(request)
            self._lose(request)
        return outcome

    def abandon(self, error: MainstemError) -> list[Failure[P]]:
        """Fails everything: the producer closes, or its transaction is over. What comes after that
        goes out on another stream."""
        pieces = [piece for r in [*self.in_flight.values(), *self.retrying] for piece in r.pieces]
        pieces += self.waiting
        self.in_flight.clear()
        self.retrying.clear()
        self.waiting.clear()
        self.waiting_bytes = 0
        self._stream = self._resume_on = None
        self._draining = False
        self._failures = 0
        self.not_before = 0.0
        self.last_error = self.trouble = None
        return self._fail(pieces, error)

    def turned_away(self, error: MainstemError) -> list[Failure[P]]:
        """Fails everything, as nobody takes it from this client. What comes later has other
        numbers: some may be missing in the log."""
        for request in [*self.in_flight.values(), *self.retrying]:
            self._lose(request)
        return self.abandon(error)

    @property
    def numbered_count(self) -> int:
        """Records of the open transaction that have got a number."""
        return 0 if self._numbering is None else self._numbering.record_count

    def finish_transaction(self) -> None:
        """What comes now is of another transaction: it is counted from 0 again."""
        self._numbering = self._spent = None

    def next_deadline(self) -> float:
        """When `expire` has something to do at the earliest; infinite when nothing waits."""
        deadlines = [
            piece.deadline
            for request in [*self.in_flight.values(), *self.retrying]
            for piece in request.pieces
            if not piece.done
        ]
        if self.waiting:
            deadlines.append(self.waiting[0].deadline)
        return min(deadlines, default=float("inf"))

    def next_send(self, identity: ProducerIdentity | None = None) -> float:
        """When `take` may have something at the earliest, if fewer are in flight than may be;
        infinite for never."""
        if self._draining or self._is_stuck(identity):
            return float("inf")
        if self.retrying:
            return self.not_before
        if self.waiting:
            oldest = self.waiting[0]
            due = 0.0 if oldest.ready else oldest.created_at + self.policy.linger_s
            return max(self.not_before, due)
        return float("inf")

    def _doubt(self, request: Request[P], *, sent: bool) -> None:
        """Notes whether the request, and so each piece of it, may be stored."""
        request.sent = sent
        request.in_doubt = sent and request.numbers is not None
        for piece in request.pieces:
            piece.sent = sent

    def _is_stuck(self, identity: ProducerIdentity | None) -> bool:
        """Whether no request may be numbered yet, and none is to be sent with its old numbers."""
        if not self.idempotent or self._numbering is not None:
            return False
        if self._first_in_doubt() is not None:
            return False
        return bool(self.in_flight) or identity is None or identity == self._spent

    def _first_in_doubt(self) -> Request[P] | None:
        return next((request for request in self.retrying if request.in_doubt), None)

    def _renumber(self, identity: ProducerIdentity | None) -> bool:
        """Begins at 0 under a new producer id, with what is left of the old one first."""
        if identity is None or identity == self._spent:
            return False
        self._numbering = Numbering(identity)
        for request in self.retrying:
            # It is not stored, so it need not stay whole.
            request.pieces = [piece for piece in request.pieces if not piece.done]
            request.numbers = self._numbering.number(request.pieces)
        return True

    def _lose(self, request: Request[P]) -> None:
        """The request will not be sent again with its numbers: they may be missing."""
        if request.numbers is not None and self._numbering is not None:
            self._spent = self._numbering.identity
            self._numbering = None

    def _due(self, now: float, ready_before: int) -> bool:
        if not self.waiting:
            return False
        oldest = self.waiting[0]
        return (
            oldest.ready
            or oldest.number < ready_before
            or self.waiting_bytes >= self.policy.batch_bytes
            or now >= oldest.created_at + self.policy.linger_s
        )

    def _form(self) -> Request[P]:
        """A request of the oldest pieces: as many as fit and have the same columns."""
        first = self._pop()
        pieces = [first]
        size = first.size
        row_count = first.row_count
        while self.waiting and not first.alone:
            following = self.waiting[0]
            size += following.size
            row_count += following.row_count
            if (
                size > self.policy.request_bytes_max
                or row_count > self.policy.request_records_max
                or following.alone
                or following.layout != first.layout
            ):
                break
            pieces.append(self._pop())
        self._formed += 1
        numbers = self._numbering.number(pieces) if self._numbering is not None else None
        return Request((self._formed,), pieces, numbers)

    def _pop(self) -> P:
        piece = self.waiting.popleft()
        self.waiting_bytes -= piece.size
        return piece

    def _retry(self, request: Request[P], error: MainstemError, counts: bool) -> list[Failure[P]]:
        """Puts a request back at its place, or fails it."""
        if all(piece.done for piece in request.pieces):
            self._lose(request)
            return []
        if counts:
            request.attempts += 1
            self.last_error = error
            if request.attempts > self.policy.retries:
                self._lose(request)
                return self._fail(request.pieces, error)
        place = len(self.retrying)
        while place and self.retrying[place - 1].number > request.number:
            place -= 1
        self.retrying.insert(place, request)
        return []

    def _back_off(self, now: float, error: MainstemError) -> None:
        policy = self.policy
        wait_s = backoff_s(policy.backoff_s, policy.backoff_max_s, self._failures, self.jitter())
        self._failures += 1
        self.not_before = max(self.not_before, now + max(wait_s, error.retry_delay_ms / 1000))

    def _drained(self) -> None:
        if not self.in_flight:
            self._draining = False

    def _fail(self, pieces: list[P], error: MainstemError) -> list[Failure[P]]:
        failed = [(piece, error) for piece in pieces if not piece.done]
        for piece, _ in failed:
            piece.done = True
        return failed

    def _timeout(self, piece: P) -> DeliveryTimeoutError:
        why = self.trouble or self.last_error
        tried = bool(self._failures)
        timeout_ms = self.policy.delivery_timeout_ms
        return timeout_error(self.topic, timeout_ms, why, sent=piece.sent, tried=tried)

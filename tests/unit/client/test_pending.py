"""The state machine of unacknowledged requests, under any order of events."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.length import FULL

from mainstem.client.backoff import backoff_s
from mainstem.client.producer.queue import QueuePolicy, Request, TopicQueue
from mainstem.errors import (
    BackPressureError,
    DeliveryTimeoutError,
    GatewayUnavailableError,
    HeldError,
    InvalidRecordError,
    OutcomeUnknownError,
    StoreUnavailableError,
)

POLICY = QueuePolicy(
    linger_s=0.005,
    batch_bytes=100,
    request_bytes_max=300,
    request_records_max=100,
    retries=2**31,
    backoff_s=0.1,
    backoff_max_s=1.0,
    delivery_timeout_ms=60_000,
)


@dataclass(eq=False)
class Block:
    number: int
    created_at: float = 0.0
    size: int = 50
    row_count: int = 1
    deadline: float = 60.0
    layout: bytes = b"plain"
    alone: bool = False
    ready: bool = False
    sent: bool = False
    done: bool = False
    ranges: tuple[tuple[int, int], ...] = ((0, 1),)


def queue_of(*pieces: Block, policy: QueuePolicy = POLICY) -> TopicQueue[Block]:
    queue: TopicQueue[Block] = TopicQueue("t", policy, lambda: 0.5)
    for piece in pieces:
        queue.add(piece)
    return queue


def numbers(request: Request[Block] | None) -> list[int]:
    return [] if request is None else [piece.number for piece in request.pieces]


def test_a_small_batch_waits_for_linger_and_then_goes() -> None:
    queue = queue_of(Block(1))
    assert queue.take(0.004, "s", 1) is None
    assert queue.next_send() == 0.005
    assert numbers(queue.take(0.005, "s", 1)) == [1]


def test_a_full_batch_does_not_wait_for_linger() -> None:
    assert numbers(queue_of(Block(1), Block(2)).take(0.0, "s", 1)) == [1, 2]


def test_flushed_pieces_do_not_wait_for_linger() -> None:
    assert numbers(queue_of(Block(1)).take(0.0, "s", 1, ready_before=2)) == [1]


def test_what_is_full_or_flushed_or_sent_again_is_pressing_and_nothing_else() -> None:
    queue = queue_of(Block(1))
    assert not queue.is_pressing(ready_before=1)
    assert queue.is_pressing(ready_before=2)
    assert queue_of(Block(1), Block(2)).is_pressing(ready_before=0)
    queue.take(0.005, "s", 1)
    assert not queue.is_pressing(ready_before=2)
    queue.broken("s", GatewayUnavailableError("gone"))
    assert queue.is_pressing(ready_before=0)


def test_a_request_grows_up_to_its_limit_and_leaves_the_rest() -> None:
    queue = queue_of(*(Block(number) for number in range(1, 9)))
    assert numbers(queue.take(0.0, "s", 1)) == [1, 2, 3, 4, 5, 6]
    assert numbers(queue.take(0.0, "s", 2)) == [7, 8]


def test_a_request_holds_no_more_records_than_the_gateway_takes() -> None:
    queue = queue_of(Block(1, row_count=60), Block(2, row_count=40), Block(3, ready=True))
    assert numbers(queue.take(0.0, "s", 1)) == [1, 2]
    assert numbers(queue.take(0.0, "s", 2)) == [3]


def test_a_request_whose_pieces_all_expired_in_flight_is_never_sent_again() -> None:
    for refused in (True, False):
        queue = queue_of(Block(1, deadline=1.0))
        queue.take(0.5, "s", 1)
        assert len(queue.expire(1.0)) == 1
        if refused:
            queue.refused(1, BackPressureError("full"), 1.0, retriable=True)
        else:
            queue.broken("s", GatewayUnavailableError("gone"))
        assert queue.idle


def test_a_request_holds_pieces_of_one_layout_only() -> None:
    queue = queue_of(Block(1, ready=True), Block(2, layout=b"headers", ready=True), Block(3))
    assert numbers(queue.take(1.0, "s", 1)) == [1]
    assert numbers(queue.take(1.0, "s", 2)) == [2]


def test_a_piece_larger_than_a_batch_travels_alone() -> None:
    queue = queue_of(Block(1), Block(2, size=250, alone=True), Block(3))
    assert [numbers(queue.take(1.0, "s", n)) for n in (1, 2, 3)] == [[1], [2], [3]]


def test_after_a_refusal_nothing_goes_until_all_was_answered_and_the_wait_is_over() -> None:
    queue = queue_of(*(Block(n, ready=True, alone=True) for n in (1, 2, 3)))
    queue.take(0.0, "s", 11)
    queue.take(0.0, "s", 12)
    refusal = BackPressureError("full", retry_delay_ms=500)
    assert queue.refused(11, refusal, 1.0, retriable=True) == []
    assert queue.take(9.0, "s", 13) is None, "request 12 has no answer yet"
    queue.refused(12, HeldError("held"), 1.0, retriable=True)
    assert queue.take(1.4, "s", 13) is None, "the gateway asked for 500 ms"
    first = queue.take(1.5, "s", 13)
    second = queue.take(1.5, "s", 14)
    third = queue.take(1.5, "s", 15)
    assert [numbers(first), numbers(second), numbers(third)] == [[1], [2], [3]]
    assert first is not None
    assert second is not None
    assert (first.resume, second.resume) == (True, False)
    assert (first.attempts, second.attempts) == (1, 0), "being held is no attempt of its own"


def test_the_next_request_resumes_even_when_the_refused_one_has_expired() -> None:
    queue = queue_of(Block(1, ready=True, deadline=2.0))
    queue.take(0.0, "s", 1)
    queue.refused(1, BackPressureError("full"), 1.0, retriable=True)
    assert len(queue.expire(2.0)) == 1
    queue.add(Block(2, ready=True))
    request = queue.take(3.0, "s", 2)
    assert numbers(request) == [2]
    assert request is not None
    assert request.resume


def test_a_fatal_refusal_fails_its_own_pieces_and_the_next_request_goes_on() -> None:
    queue = queue_of(*(Block(n, ready=True, alone=True) for n in (1, 2)))
    queue.take(0.0, "s", 1)
    queue.take(0.0, "s", 2)
    error = InvalidRecordError("bad")
    assert [(p.number, e) for p, e in queue.refused(1, error, 0.0, retriable=False)] == [(1, error)]
    assert numbers(queue.answered(2)) == [2]
    assert queue.idle


def test_a_broken_stream_puts_everything_unanswered_back_in_order_before_newer_pieces() -> None:
    queue = queue_of(*(Block(n, ready=True, alone=True) for n in (1, 2, 3)))
    queue.take(0.0, "old", 1)
    queue.take(0.0, "old", 2)
    assert queue.broken("old", GatewayUnavailableError("gone")) == []
    taken = [queue.take(0.0, "new", n) for n in (1, 2, 3)]
    assert [numbers(request) for request in taken] == [[1], [2], [3]]
    assert not any(request.resume for request in taken if request is not None)


def test_nothing_goes_on_a_new_stream_while_the_old_one_owes_answers() -> None:
    queue = queue_of(*(Block(n, ready=True, alone=True) for n in (1, 2)))
    queue.take(0.0, "old", 1)
    assert queue.take(0.0, "new", 1) is None
    queue.answered(1)
    assert numbers(queue.take(0.0, "new", 1)) == [2]


def test_retries_exhausted_fail_with_the_last_error() -> None:
    policy = dataclasses.replace(POLICY, retries=1)
    queue = queue_of(Block(1, ready=True), policy=policy)
    error = GatewayUnavailableError("gone")
    queue.take(0.0, "a", 1)
    assert queue.broken("a", error) == []
    queue.take(0.0, "b", 1)
    assert [(p.number, e) for p, e in queue.broken("b", error)] == [(1, error)]


def test_an_expired_piece_in_flight_fails_at_once_and_is_not_sent_again() -> None:
    queue = queue_of(Block(1, deadline=1.0), Block(2, deadline=2.0))
    queue.take(0.0, "s", 1)
    ((piece, error),) = queue.expire(1.0)
    assert piece.number == 1
    assert isinstance(error, DeliveryTimeoutError)
    assert "may still be in the log" in error.message
    queue.broken("s", GatewayUnavailableError("gone"))
    assert numbers(queue.take(1.5, "n", 1)) == [2]


def test_an_expired_piece_that_was_never_sent_says_so() -> None:
    ((_, error),) = queue_of(Block(1, deadline=1.0)).expire(1.0)
    assert "never sent" in str(error)


def test_an_expired_piece_that_was_refused_each_time_is_not_in_the_log() -> None:
    queue = queue_of(Block(1, deadline=1.0, ready=True))
    queue.take(0.0, "s", 1)
    assert queue.refused(1, BackPressureError("full"), 0.0, retriable=True) == []
    ((piece, error),) = queue.expire(1.0)
    assert "is not in the log; the last error was: full" in str(error)
    assert not piece.sent


def test_an_expired_piece_that_may_have_been_stored_before_it_was_refused_says_so() -> None:
    queue = queue_of(Block(1, deadline=1.0, ready=True))
    queue.take(0.0, "s", 1)
    queue.broken("s", GatewayUnavailableError("gone"))
    queue.take(0.0, "n", 1)
    assert queue.refused(1, BackPressureError("full"), 0.0, retriable=True) == []
    ((_, error),) = queue.expire(1.0)
    assert "may still be in the log" in str(error)


@pytest.mark.parametrize("left", [False, True])
def test_what_is_in_flight_where_there_never_was_a_connection_was_never_sent(left: bool) -> None:
    queue = queue_of(Block(1, deadline=1.0, ready=True), Block(2, deadline=2.0, ready=True))
    queue.take(0.0, "s", 1)
    ((_, error),) = queue.expire(1.0, left=left)
    assert ("never sent" in str(error)) is not left
    queue.broken("s", OutcomeUnknownError("no answer"), left=left)
    ((_, error),) = queue.expire(2.0)
    assert ("never sent" in str(error)) is not left
    assert isinstance(error, DeliveryTimeoutError)
    assert error.facts["sent"] == str(left)


def test_what_the_leader_waits_for_is_told_until_it_answers() -> None:
    queue = queue_of(
        Block(1, deadline=1.0, ready=True, alone=True), Block(2, deadline=2.0, ready=True)
    )
    for number in (1, 2):
        queue.take(0.0, "s", number)
    queue.trouble = StoreUnavailableError("the disk is full")
    ((_, error),) = queue.expire(1.0)
    assert "may still be in the log; the last error was: the disk is full" in str(error)
    assert error.facts["cause"] == "STORE_UNAVAILABLE"
    queue.answered(1)
    ((_, error),) = queue.expire(2.0)
    assert "disk" not in str(error)
    assert "cause" not in error.facts


def test_the_backoff_doubles_to_its_limit_within_its_jitter() -> None:
    assert [round(backoff_s(0.1, 1.0, n, 0.5), 3) for n in range(5)] == [0.1, 0.2, 0.4, 0.8, 1.0]
    assert backoff_s(0.1, 1.0, 0, 0.0) == pytest.approx(0.08)
    assert backoff_s(0.1, 1.0, 10**6, 0.5) == 1.0


class ModelGateway:
    """A stream's other end: stores in order, refuses, and holds as the protocol says."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.held = False

    def handle(self, request: Request[Block], refuse: bool) -> str:
        if request.resume:
            assert self.held, "resume of what is not held"
            self.held = False
        if self.held:
            return "held"
        if refuse:
            self.held = True
            return "refused"
        self.log += [piece.number for piece in request.pieces]
        return "stored"


class QueueMachine(RuleBasedStateMachine):
    """Any order of sends, answers, refusals, breaks (before or after storing) and expiry."""

    @initialize()
    def begin(self) -> None:
        self.queue = queue_of()
        self.gateway = ModelGateway()
        self.now = 0.0
        self.stream = 0
        self.pieces: list[Block] = []
        self.wire: list[Request[Block]] = []
        self.answers: list[tuple[Request[Block], str]] = []
        self.acknowledged: list[int] = []
        self.failed: list[int] = []
        self.next_id = 1

    @rule(size=st.integers(1, 320), wait=st.floats(0.5, 30), ready=st.booleans())
    def add(self, size: int, wait: float, ready: bool) -> None:
        number = len(self.pieces) + 1
        deadline = max(self.now + wait, self.pieces[-1].deadline if self.pieces else 0.0)
        piece = Block(number, self.now, size, deadline=deadline, alone=size > 300, ready=ready)
        self.pieces.append(piece)
        self.queue.add(piece)

    @rule(seconds=st.floats(0.001, 2))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def send(self) -> None:
        request = self.queue.take(self.now, self.stream, self.next_id)
        if request is not None:
            assert request.pieces
            assert all(not piece.done for piece in request.pieces)
            self.next_id += 1
            self.wire.append(request)

    @precondition(lambda self: self.wire)
    @rule(refuse=st.booleans())
    def gateway_handles(self, refuse: bool) -> None:
        request = self.wire.pop(0)
        self.answers.append((request, self.gateway.handle(request, refuse)))

    @precondition(lambda self: self.answers)
    @rule()
    def answer_arrives(self) -> None:
        request, outcome = self.answers.pop(0)
        self._answer(request, outcome)

    @rule()
    def stream_breaks(self) -> None:
        failures = self.queue.broken(self.stream, GatewayUnavailableError("gone"))
        self._fail([piece for piece, _ in failures])
        self.stream += 1
        self.wire.clear()
        self.answers.clear()
        self.gateway.held = False

    @rule()
    def expire(self) -> None:
        self._fail([piece for piece, _ in self.queue.expire(self.now)])

    def _answer(self, request: Request[Block], outcome: str) -> None:
        if outcome == "stored":
            done = self.queue.answered(request.correlation_id)
            for piece in done.pieces:
                if not piece.done:
                    piece.done = True
                    self.acknowledged.append(piece.number)
            return
        error = BackPressureError("full") if outcome == "refused" else HeldError("held")
        failures = self.queue.refused(request.correlation_id, error, self.now, retriable=True)
        self._fail([piece for piece, _ in failures])

    def _fail(self, pieces: list[Block]) -> None:
        self.failed += [piece.number for piece in pieces]

    @invariant()
    def every_piece_is_in_one_place(self) -> None:
        waiting = [p.number for p in self.queue.waiting]
        requests = [*self.queue.retrying, *self.queue.in_flight.values()]
        moving = [p.number for r in requests for p in r.pieces if not p.done]
        everything = sorted(waiting + moving + self.acknowledged + self.failed)
        assert everything == [piece.number for piece in self.pieces]

    @invariant()
    def first_copies_are_in_order(self) -> None:
        first = list(dict.fromkeys(self.gateway.log))
        assert first == sorted(first)
        assert self.acknowledged == sorted(self.acknowledged)
        assert set(self.acknowledged) <= set(self.gateway.log)

    def teardown(self) -> None:
        """Left alone with a healthy gateway, the queue empties: nothing is stuck."""
        if not hasattr(self, "queue"):
            return
        for _ in range(10 * len(self.pieces) + 10):
            while self.wire:
                self.gateway_handles(refuse=False)
            while self.answers:
                self.answer_arrives()
            self.now += 2.0
            self.expire()
            self.send()
        assert self.queue.idle
        self.every_piece_is_in_one_place()
        self.first_copies_are_in_order()


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(
    max_examples=80 if FULL else 30, stateful_step_count=40, deadline=None
)

"""Numbering, and what the queue makes of refusals and breaks, against the gateway's rules."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.length import FULL

from mainstem.client.producer.queue import QueuePolicy, Request, TopicQueue
from mainstem.client.producer.sequences import (
    NOT_TAKEN,
    IdentityKeeper,
    Numbering,
    taken_in_doubt,
)
from mainstem.client.results import ProducerIdentity
from mainstem.errors import (
    BackPressureError,
    DeliveryTimeoutError,
    GatewayUnavailableError,
    HeldError,
    InvalidRecordError,
    MainstemError,
    NotLeaderError,
    OutcomeUnknownError,
    OutOfOrderSequenceError,
    UnknownProducerIdError,
    UnknownTopicError,
)
from mainstem.testing import FakeProducers, FakeRun

POLICY = QueuePolicy(
    linger_s=0.0,
    batch_bytes=1,
    request_bytes_max=120,
    request_records_max=1_000,
    retries=2**31,
    backoff_s=0.1,
    backoff_max_s=1.0,
    delivery_timeout_ms=60_000,
)
FIRST, SECOND = ProducerIdentity(1, 0), ProducerIdentity(2, 0)


@dataclass(eq=False)
class Block:
    number: int
    ranges: tuple[tuple[int, int], ...] = ((0, 2),)
    created_at: float = 0.0
    size: int = 50
    deadline: float = 60.0
    layout: bytes = b"plain"
    alone: bool = True
    ready: bool = True
    sent: bool = False
    done: bool = False
    row_count: int = field(init=False)

    def __post_init__(self) -> None:
        self.row_count = sum(count for _, count in self.ranges)


def queue_of(*pieces: Block, policy: QueuePolicy = POLICY) -> TopicQueue[Block]:
    queue: TopicQueue[Block] = TopicQueue("t", policy, lambda: 0.5, idempotent=True)
    for piece in pieces:
        queue.add(piece)
    return queue


def sent(
    queue: TopicQueue[Block],
    correlation_id: int,
    identity: ProducerIdentity | None = FIRST,
    stream: str = "s",
    now: float = 0.0,
) -> tuple[list[int], ProducerIdentity, tuple[int, ...]]:
    """The next request: its pieces, its producer id, its sequences."""
    request = queue.take(now, stream, correlation_id, identity=identity)
    assert request is not None
    assert request.numbers is not None
    identity, bases = request.numbers
    return [piece.number for piece in request.pieces], identity, bases


def test_each_partition_is_counted_by_records_from_0_through_pieces_and_requests() -> None:
    numbering = Numbering(FIRST)
    first = numbering.number([Block(1, ((0, 2), (2, 3))), Block(2, ((0, 5),))])
    assert first == (FIRST, (0, 0, 2))
    assert numbering.number([Block(3, ((0, 1), (1, 1), (2, 1)))]).base_sequences == (7, 0, 3)


def test_without_a_producer_id_nothing_goes_and_the_queue_says_that_it_wants_one() -> None:
    queue = queue_of()
    assert not queue.wants_identity(None), "there is nothing to send"
    queue.add(Block(1))
    assert queue.take(0.0, "s", 1) is None
    assert queue.wants_identity(None)
    assert queue.next_send(None) == float("inf")
    assert not queue.wants_identity(FIRST)
    assert sent(queue, 1) == ([1], FIRST, (0,))


def test_a_retry_after_a_break_has_its_old_numbers_and_all_its_records() -> None:
    policy = dataclasses.replace(POLICY, batch_bytes=100)
    pieces = Block(1, alone=False, deadline=1.0), Block(2, alone=False)
    queue = queue_of(*pieces, policy=policy)
    assert sent(queue, 1) == ([1, 2], FIRST, (0, 2))
    queue.broken("s", GatewayUnavailableError("gone"))
    ((piece, error),) = queue.expire(1.0)
    assert piece.number == 1
    assert "may still be in the log" in str(error)
    assert sent(queue, 1, stream="n", now=1.0) == ([1, 2], FIRST, (0, 2))
    assert [piece.number for piece in queue.answered(1).pieces if not piece.done] == [2]


def test_a_forgotten_producer_goes_on_under_a_new_id_from_0_and_nothing_fails() -> None:
    queue = queue_of(*(Block(number) for number in (1, 2, 3)))
    sent(queue, 1)
    queue.answered(1)
    assert [sent(queue, n)[2] for n in (2, 3)] == [(2,), (4,)]
    for correlation_id in (2, 3):
        error = UnknownProducerIdError("forgotten")
        assert queue.refused(correlation_id, error, 0.0, retriable=False) == []
    assert queue.take(0.0, "s", 4, identity=FIRST) is None
    assert queue.wants_identity(FIRST)
    assert sent(queue, 4, SECOND) == ([2], SECOND, (0,))
    assert sent(queue, 5, SECOND) == ([3], SECOND, (2,))


def test_after_a_request_failed_for_good_what_was_sent_behind_it_is_answered_before_a_new_id() -> (
    None
):
    queue = queue_of(Block(1), Block(2), Block(3, ((1, 2),)), Block(4))
    for correlation_id in (1, 2, 3):
        sent(queue, correlation_id)
    failed = queue.refused(1, InvalidRecordError("bad"), 0.0, retriable=False)
    assert [piece.number for piece, _ in failed] == [1]
    assert queue.take(0.0, "s", 4, identity=SECOND) is None, "2 and 3 are under way"
    assert not queue.wants_identity(FIRST)
    assert queue.refused(2, OutOfOrderSequenceError("gap"), 0.0, retriable=False) == []
    assert queue.take(0.0, "s", 4, identity=SECOND) is None, "3 is under way"
    queue.answered(3)
    assert sent(queue, 4, SECOND) == ([2], SECOND, (0,))
    assert sent(queue, 5, SECOND) == ([4], SECOND, (2,))


def test_what_may_be_stored_is_sent_with_its_old_numbers_before_the_rest_gets_new_ones() -> None:
    queue = queue_of(Block(1, deadline=1.0), Block(2), Block(3))
    for correlation_id in (1, 2):
        sent(queue, correlation_id)
    queue.broken("s", GatewayUnavailableError("gone"))
    assert len(queue.expire(1.0)) == 1
    assert not queue.wants_identity(FIRST), "it is known first what became of 2"
    assert sent(queue, 1, SECOND, "n", 1.0) == ([2], FIRST, (2,))
    assert queue.take(1.0, "n", 2, identity=SECOND) is None
    assert queue.refused(1, OutOfOrderSequenceError("gap"), 1.0, retriable=False) == []
    assert sent(queue, 2, SECOND, "n", 9.0) == ([2], SECOND, (0,))
    assert sent(queue, 3, SECOND, "n", 9.0) == ([3], SECOND, (2,))


def test_what_was_stored_before_the_id_is_given_up_is_not_sent_again() -> None:
    queue = queue_of(Block(1, deadline=1.0), Block(2), Block(3))
    for correlation_id in (1, 2):
        sent(queue, correlation_id)
    queue.broken("s", GatewayUnavailableError("gone"))
    queue.expire(1.0)
    assert sent(queue, 1, SECOND, "n", 1.0) == ([2], FIRST, (2,))
    queue.answered(1)
    assert sent(queue, 2, SECOND, "n", 1.0) == ([3], SECOND, (0,))


@pytest.mark.parametrize(
    "error", [OutcomeUnknownError("?"), NotLeaderError("moved"), MainstemError("new code")]
)
def test_a_refusal_that_does_not_rule_out_that_it_is_stored_keeps_the_numbers(
    error: MainstemError,
) -> None:
    queue = queue_of(Block(1, deadline=1.0), Block(2))
    sent(queue, 1)
    sent(queue, 2)
    queue.refused(1, error, 0.0, retriable=True)
    queue.refused(2, error, 0.0, retriable=True)
    queue.expire(1.0)
    assert sent(queue, 3, SECOND, now=9.0) == ([2], FIRST, (2,))


def test_a_request_that_was_refused_before_it_was_taken_leaves_without_the_expired_records() -> (
    None
):
    policy = dataclasses.replace(POLICY, batch_bytes=100)
    queue = queue_of(
        Block(1, deadline=1.0),
        Block(2, alone=False, deadline=1.0),
        Block(3, alone=False),
        policy=policy,
    )
    sent(queue, 1)
    assert sent(queue, 2)[0] == [2, 3]
    queue.refused(1, BackPressureError("full"), 0.0, retriable=True)
    queue.refused(2, HeldError("held"), 0.0, retriable=True)
    assert len(queue.expire(1.0)) == 2
    assert queue.wants_identity(FIRST)
    assert sent(queue, 3, SECOND, now=9.0) == ([3], SECOND, (0,))


def test_a_request_in_flight_whose_time_is_up_leaves_no_gap_when_it_is_answered_after_all() -> None:
    queue = queue_of(Block(1, deadline=1.0), Block(2))
    sent(queue, 1)
    assert len(queue.expire(1.0)) == 1
    assert sent(queue, 2) == ([2], FIRST, (2,))
    queue.answered(1)
    queue.answered(2)
    queue.add(Block(3))
    assert sent(queue, 3) == ([3], FIRST, (4,))


def test_a_producer_id_is_not_given_up_for_records_that_were_never_sent() -> None:
    queue = queue_of(Block(1), Block(2, deadline=1.0))
    sent(queue, 1)
    queue.expire(1.0)
    queue.answered(1)
    queue.add(Block(3))
    assert sent(queue, 2) == ([3], FIRST, (2,))


@pytest.mark.parametrize("refused", [True, False])
def test_a_request_that_is_not_sent_again_since_all_its_records_expired_leaves_a_gap(
    refused: bool,
) -> None:
    queue = queue_of(Block(1, deadline=1.0), Block(2))
    sent(queue, 1)
    queue.expire(1.0)
    if refused:
        queue.refused(1, BackPressureError("full"), 1.0, retriable=True)
    else:
        queue.broken("s", GatewayUnavailableError("gone"))
    assert queue.wants_identity(FIRST)
    assert sent(queue, 2, SECOND, "n", 9.0) == ([2], SECOND, (0,))


def test_retries_used_up_leave_a_gap() -> None:
    queue = queue_of(Block(1), Block(2), policy=dataclasses.replace(POLICY, retries=0))
    sent(queue, 1)
    assert len(queue.broken("s", GatewayUnavailableError("gone"))) == 1
    assert queue.wants_identity(FIRST)
    assert sent(queue, 1, SECOND, "n") == ([2], SECOND, (0,))


def test_only_refusals_that_come_before_offsets_are_given_rule_a_batch_out() -> None:
    refusals = BackPressureError(""), HeldError(""), InvalidRecordError(""), UnknownTopicError("")
    assert not any(map(taken_in_doubt, refusals))
    assert all(
        map(taken_in_doubt, (NotLeaderError(""), OutcomeUnknownError(""), MainstemError("")))
    )
    assert "STORE_UNAVAILABLE" not in NOT_TAKEN


def test_one_call_at_a_time_asks_for_a_producer_id_and_a_failed_one_waits() -> None:
    keeper = IdentityKeeper()
    assert not keeper.begin(0.0)
    assert keeper.next_call() == float("inf")
    keeper.wanted = True
    assert keeper.next_call() <= 0.0
    assert keeper.begin(0.0)
    assert not keeper.begin(0.0)
    keeper.failed(1.0, 2.0)
    assert not keeper.begin(2.9)
    assert keeper.next_call() == 3.0
    assert keeper.begin(3.0)
    keeper.given(FIRST)
    assert keeper.current == FIRST
    assert not keeper.begin(9.0)


class Sent(NamedTuple):
    """A request as it went out: what is done to it later is not on the wire."""

    correlation_id: int
    resume: bool
    pieces: tuple[Block, ...]
    identity: ProducerIdentity
    base_sequences: tuple[int, ...]


Answer = tuple[int, "dict[int, int] | MainstemError"]


class ModelGateway:
    """Stores each batch once, refuses what does not follow, and holds as the protocol says."""

    def __init__(self) -> None:
        self.producers = FakeProducers()
        self.logs: dict[int, list[int]] = {partition: [] for partition in range(3)}
        self.held = False
        self.seen: dict[tuple[ProducerIdentity, int, int], object] = {}

    def handle(self, request: Sent, verdict: str) -> dict[int, int] | MainstemError:
        """The base offsets by partition, or why it was refused."""
        if request.resume:
            assert self.held, "resume of what is not held"
            self.held = False
        if self.held:
            return HeldError("held")
        runs = self._runs(request)
        if verdict == "full":
            self.held = True
            return BackPressureError("full")
        if verdict == "bad":
            return InvalidRecordError("bad")
        if verdict == "lost":
            self.held = True
            return OutcomeUnknownError("not stored, but who knows")
        try:
            known = self.producers.check(*request.identity[:2], runs)
        except MainstemError as error:
            return error
        if known is None:
            known = [len(self.logs[run.partition]) for run in runs]
            for piece in request.pieces:
                for partition, count in piece.ranges:
                    self.logs[partition] += [piece.number] * count
            self.producers.accept(*request.identity[:2], runs, known)
        if verdict == "unknown":
            self.held = True
            return OutcomeUnknownError("stored, but who knows")
        return {run.partition: base for run, base in zip(runs, known, strict=True)}

    def _runs(self, request: Sent) -> list[FakeRun]:
        runs: dict[int, FakeRun] = {}
        bases = iter(request.base_sequences)
        for piece in request.pieces:
            for partition, count in piece.ranges:
                base = next(bases)
                content = (piece.number, count, request.pieces)
                place = (request.identity, partition, base)
                assert self.seen.setdefault(place, content) == content, "a retry is the same bytes"
                run = runs.setdefault(partition, FakeRun(partition, base, 0))
                assert run.base_sequence + run.record_count == base
                runs[partition] = run._replace(record_count=run.record_count + count)
        return sorted(runs.values())


class ProducerMachine(RuleBasedStateMachine):
    """Any order of sends, answers, refusals, lost answers, forgotten producers and timeouts."""

    @initialize(timeouts=st.booleans())
    def begin(self, timeouts: bool) -> None:
        self.timeouts = timeouts
        self.queue = queue_of()
        self.gateway = ModelGateway()
        self.now = 0.0
        self.stream = 0
        self.identity: ProducerIdentity | None = None
        self.identity_count = 0
        self.pieces: list[Block] = []
        self.wire: list[Sent] = []
        self.answers: list[Answer] = []
        self.places: dict[int, list[tuple[int, int]]] = {}
        self.failed: dict[int, MainstemError] = {}
        self.next_id = 1

    @rule(
        counts=st.dictionaries(st.integers(0, 2), st.integers(1, 3), min_size=1),
        wait=st.floats(0.5, 10),
        alone=st.booleans(),
    )
    def add(self, counts: dict[int, int], wait: float, alone: bool) -> None:
        deadline = self.now + wait if self.timeouts else float("inf")
        if self.pieces:
            deadline = max(deadline, self.pieces[-1].deadline)
        ranges = tuple(sorted(counts.items()))
        piece = Block(len(self.pieces) + 1, ranges, self.now, deadline=deadline, alone=alone)
        self.pieces.append(piece)
        self.queue.add(piece)

    @rule(seconds=st.floats(0.001, 2))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self._fail(self.queue.expire(self.now))

    @rule()
    def send(self) -> None:
        if len(self.queue.in_flight) == 5:
            return
        request: Request[Block] | None = self.queue.take(
            self.now, self.stream, self.next_id, identity=self.identity
        )
        if request is None:
            return
        assert request.numbers is not None
        assert any(not piece.done for piece in request.pieces)
        self.next_id += 1
        self.wire.append(
            Sent(request.correlation_id, request.resume, tuple(request.pieces), *request.numbers)
        )

    @precondition(lambda self: self.queue.wants_identity(self.identity))
    @rule()
    def a_producer_id_arrives(self) -> None:
        self.identity_count += 1
        self.identity = ProducerIdentity(self.identity_count, 0)

    @rule()
    def another_topic_takes_a_new_producer_id(self) -> None:
        self.identity_count += 1
        self.identity = ProducerIdentity(self.identity_count, 0)

    @precondition(lambda self: self.wire)
    @rule(verdict=st.sampled_from(["store"] * 6 + ["full", "bad", "lost", "unknown"]))
    def gateway_handles(self, verdict: str) -> None:
        request = self.wire.pop(0)
        answer = self.gateway.handle(request, verdict)
        self.answers.append((request.correlation_id, answer))

    @precondition(lambda self: self.answers)
    @rule()
    def answer_arrives(self) -> None:
        correlation_id, answer = self.answers.pop(0)
        if isinstance(answer, MainstemError):
            retriable = answer.retriable
            self._fail(self.queue.refused(correlation_id, answer, self.now, retriable=retriable))
            return
        following = dict(answer)
        for piece in self.queue.answered(correlation_id).pieces:
            places = []
            for partition, count in piece.ranges:
                places.append((partition, following[partition]))
                if following[partition] >= 0:
                    following[partition] += count
            if not piece.done:
                piece.done = True
                self.places[piece.number] = places

    @rule()
    def stream_breaks(self) -> None:
        self._fail(self.queue.broken(self.stream, GatewayUnavailableError("gone")))
        self.stream += 1
        self.wire.clear()
        self.answers.clear()
        self.gateway.held = False

    @precondition(lambda self: not self._in_doubt())
    @rule()
    def gateway_forgets_producers(self) -> None:
        """That takes longer than any record is retried, so no request is left in doubt."""
        self.gateway.producers.forget()

    def _in_doubt(self) -> bool:
        return bool(self.queue.in_flight) or any(r.in_doubt for r in self.queue.retrying)

    def _fail(self, failures: list[tuple[Block, MainstemError]]) -> None:
        self.failed.update({piece.number: error for piece, error in failures})

    @invariant()
    def every_piece_is_in_one_place(self) -> None:
        requests = [*self.queue.retrying, *self.queue.in_flight.values()]
        moving = [p.number for r in requests for p in r.pieces if not p.done]
        waiting = [p.number for p in self.queue.waiting]
        everything = sorted([*waiting, *moving, *self.places, *self.failed])
        assert everything == [piece.number for piece in self.pieces]

    @invariant()
    def nothing_is_stored_twice_and_order_is_kept(self) -> None:
        for partition, log in self.gateway.logs.items():
            wanted = [
                piece.number
                for piece in self.pieces
                for number, count in piece.ranges
                if number == partition and piece.number in log
                for _ in range(count)
            ]
            assert log == wanted

    @invariant()
    def what_was_reported_as_delivered_is_stored_where_it_was_reported(self) -> None:
        for number, places in self.places.items():
            for partition, offset in places:
                log = self.gateway.logs[partition]
                assert log.index(number) == offset or (offset == -1 and number in log)

    @invariant()
    def only_time_and_bad_records_are_reasons_to_fail(self) -> None:
        for error in self.failed.values():
            assert isinstance(error, (DeliveryTimeoutError, InvalidRecordError))
            assert self.timeouts or isinstance(error, InvalidRecordError)

    def teardown(self) -> None:
        """Left alone with a healthy gateway, the queue empties: nothing is stuck."""
        if not hasattr(self, "queue"):
            return
        for _ in range(20 * len(self.pieces) + 20):
            while self.wire:
                self.gateway_handles("store")
            while self.answers:
                self.answer_arrives()
            self.time_passes(2.0)
            if self.queue.wants_identity(self.identity):
                self.a_producer_id_arrives()
            self.send()
        assert self.queue.idle
        self.every_piece_is_in_one_place()
        self.nothing_is_stored_twice_and_order_is_kept()
        self.what_was_reported_as_delivered_is_stored_where_it_was_reported()
        self.only_time_and_bad_records_are_reasons_to_fail()


TestProducerMachine = ProducerMachine.TestCase
TestProducerMachine.settings = settings(
    max_examples=60 if FULL else 30, stateful_step_count=50, deadline=None
)

"""The append queue against a model: dense offsets, bounded bytes, whole requests in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from mainstem.delta_log import ByteBudget, Slice
from mainstem.delta_log.append import AppendQueue, Pending, Portion, ProducerStates
from mainstem.errors import BackPressureError, RequestTooLargeError
from mainstem.records import records_to_wire_batch

PARTITIONS = 3
START = {0: 0, 1: 100, 2: 7}
LIMIT = 100
BUDGET = 150


def _records(count: int) -> pa.RecordBatch:
    return records_to_wire_batch([None] * count, [b""] * count, None, [0] * count)


def _queue(limit: int, budget: ByteBudget, start: Callable[[int], int]) -> AppendQueue[int]:
    return AppendQueue(limit, budget, start, ProducerStates(1_000))


def _accept(
    queue: AppendQueue[int], slices: Sequence[Slice], size: int, token: int
) -> Pending[int]:
    """Accepts a request of which all is new."""
    acceptance = queue.accept(slices, size, token, 0)
    assert acceptance.pending is not None
    assert acceptance.repeated == ()
    return acceptance.pending


#: Slices of a request: partition and number of records.
REQUESTS = st.lists(
    st.tuples(st.integers(0, PARTITIONS - 1), st.integers(1, 4)), min_size=1, max_size=4
)


class Queues(RuleBasedStateMachine):
    """Two topics that share one budget."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = ByteBudget(BUDGET)
        self.queues = [_queue(LIMIT, self.budget, START.__getitem__) for _ in range(2)]
        self.waiting: list[list[tuple[int, list[tuple[int, int]], int]]] = [[], []]
        self.in_commit = [0, 0]
        self.ends = [dict(START) for _ in range(2)]
        self.tokens = 0

    portions = Bundle("portions")

    @rule(topic=st.integers(0, 1), slices=REQUESTS, size=st.integers(0, 120))
    def accept(self, topic: int, slices: list[tuple[int, int]], size: int) -> None:
        queue = self.queues[topic]
        mine = self.in_commit[topic] + sum(request[2] for request in self.waiting[topic])
        everything = sum(self.in_commit) + sum(
            request[2] for waiting in self.waiting for request in waiting
        )
        fits = mine + size <= LIMIT and everything + size <= BUDGET
        request = tuple(Slice(partition, _records(count)) for partition, count in slices)
        if size > min(LIMIT, BUDGET):
            with pytest.raises(RequestTooLargeError):
                queue.accept(request, size, self.tokens, 0)
            return
        if not fits:
            with pytest.raises(BackPressureError) as caught:
                queue.accept(request, size, self.tokens, 0)
            assert caught.value.retry_delay_ms > 0
            return
        pending = _accept(queue, request, size, self.tokens)
        by_partition = sorted(slices, key=lambda one: [p for p, _ in slices].index(one[0]))
        for (partition, count), batch in zip(by_partition, pending.batches, strict=True):
            assert batch.partition == partition
            assert batch.base_offset == self.ends[topic][partition]
            assert batch.record_count == count
            self.ends[topic][partition] += count
        self.waiting[topic].append((self.tokens, slices, size))
        self.tokens += 1

    @rule(target=portions, topic=st.integers(0, 1), bytes_max=st.integers(0, 150))
    def take(self, topic: int, bytes_max: int) -> tuple[int, Portion[int]]:
        portion = self.queues[topic].take(bytes_max)
        waiting = self.waiting[topic]
        expected = waiting[:1]
        for request in waiting[1:]:
            if sum(one[2] for one in expected) + request[2] > bytes_max:
                break
            expected.append(request)
        del waiting[: len(expected)]
        assert [request.token for request in portion.requests] == [one[0] for one in expected]
        assert portion.size_bytes == sum(one[2] for one in expected)
        assert portion.record_count == sum(count for one in expected for _, count in one[1])
        self.in_commit[topic] += portion.size_bytes
        counts: dict[int, int] = {}
        for _, slices, _ in expected:
            for partition, count in slices:
                counts[partition] = counts.get(partition, 0) + count
        assert {batch.partition: batch.record_count for batch in portion.batches()} == counts
        for partition, (base_offset, taken) in portion.by_partition().items():
            first = next(
                batch.base_offset
                for request in portion.requests
                for batch in request.batches
                if batch.partition == partition
            )
            assert base_offset == first
            assert sum(one.records.num_rows for one in taken) == counts[partition]
        return topic, portion

    @rule(taken=consumes(portions))
    def done(self, taken: tuple[int, Portion[int]]) -> None:
        topic, portion = taken
        size_bytes = portion.size_bytes
        self.queues[topic].done(portion)
        self.in_commit[topic] -= size_bytes
        # Who is told of a commit may fail after it, and then the portion is given up as well.
        self.queues[topic].done(portion)

    @invariant()
    def bytes_are_accounted_for(self) -> None:
        for topic, queue in enumerate(self.queues):
            waiting = sum(request[2] for request in self.waiting[topic])
            assert queue.waiting_bytes == waiting
            assert queue.used_bytes == waiting + self.in_commit[topic]
            assert len(queue) == len(self.waiting[topic])
            for partition in range(PARTITIONS):
                assert queue.log_end_offset(partition) == self.ends[topic][partition]
        assert self.budget.used_bytes == sum(queue.used_bytes for queue in self.queues)


TestQueues = Queues.TestCase


@given(st.lists(REQUESTS, min_size=1, max_size=10), st.integers(1, 60))
def test_every_record_leaves_once_at_the_offset_it_was_given(
    requests: list[list[tuple[int, int]]], bytes_max: int
) -> None:
    queue = _queue(10**9, ByteBudget(10**9), lambda _: 0)
    for number, slices in enumerate(requests):
        queue.accept([Slice(p, _records(count)) for p, count in slices], 10, number, 0)
    next_offsets = dict.fromkeys(range(PARTITIONS), 0)
    while len(queue):
        portion = queue.take(bytes_max)
        for partition, (base_offset, taken) in portion.by_partition().items():
            assert base_offset == next_offsets[partition]
            next_offsets[partition] += sum(one.records.num_rows for one in taken)
        queue.done(portion)
    for partition in range(PARTITIONS):
        total = sum(count for slices in requests for p, count in slices if p == partition)
        assert next_offsets[partition] == total
    assert queue.used_bytes == 0


@pytest.mark.parametrize(("limit", "budget"), [(10, 100), (100, 10)])
def test_a_request_larger_than_a_queue_is_refused_by_an_empty_one_as_too_large(
    limit: int, budget: int
) -> None:
    queue = _queue(limit, ByteBudget(budget), lambda _: 0)
    with pytest.raises(RequestTooLargeError, match=r"11 bytes .* takes 10 \(topic.queue.bytes"):
        queue.accept([Slice(0, _records(1))], 11, 0, 0)
    queue.accept([Slice(0, _records(1))], 10, 0, 0)
    with pytest.raises(BackPressureError, match="10 bytes of at most 10"):
        queue.accept([Slice(0, _records(1))], 1, 0, 0)


def test_a_slice_without_records_is_a_fault_of_the_caller_and_takes_nothing() -> None:
    """It would make a data file without rows, and stop the topic for everybody."""
    queue = _queue(10, ByteBudget(10), lambda _: 0)
    with pytest.raises(AssertionError):
        queue.accept([Slice(0, _records(2)), Slice(1, _records(0))], 1, 0, 0)
    assert (len(queue), queue.used_bytes, queue.log_end_offset(0)) == (0, 0, 0)

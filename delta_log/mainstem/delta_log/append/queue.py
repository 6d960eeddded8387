"""Batches that wait for a table commit: offsets in arrival order, bounded in bytes. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mainstem.delta_log.append.producers import ProducerStates, SeenBatch
from mainstem.delta_log.append.transactions import StagedRecords, TransactionMark
from mainstem.delta_log.files import Slice
from mainstem.delta_log.format import Batch, ProducerBatch
from mainstem.errors import BackPressureError, OutOfOrderSequenceError, RequestTooLargeError

Token = TypeVar("Token")

#: Advice to a producer that met a full queue: about one commit interval.
RETRY_DELAY_MS = 100


class ByteBudget:
    """Bytes that may wait in all queues of a gateway together. Not thread-safe: one event loop."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def has_room(self, size_bytes: int) -> bool:
        """Whether `size_bytes` more fit."""
        return self.used_bytes + size_bytes <= self.limit_bytes

    @property
    def is_short(self) -> bool:
        """More than half of it is used: what waits is not to wait without need."""
        return 2 * self.used_bytes > self.limit_bytes


@dataclass(frozen=True, slots=True)
class Pending(Generic[Token]):
    """A request that was accepted: its slices, where each begins in the log, and whom to tell.

    Attributes:
        runs: The same by partition, as producers see them.
        epoch: The leader epoch in which it was accepted.
        mark: Of the transaction that these are the records of; None: of none.
        staged: The records of a large one, in place of slices; None: there are slices.
    """

    slices: tuple[Slice, ...]
    batches: tuple[Batch, ...]
    runs: tuple[Batch, ...]
    size_bytes: int
    token: Token
    epoch: int = 0
    mark: TransactionMark | None = None
    staged: StagedRecords | None = None

    @property
    def record_count(self) -> int:
        return sum(run.record_count for run in self.runs)


@dataclass(frozen=True, slots=True)
class Acceptance(Generic[Token]):
    """What became of a request.

    Attributes:
        pending: What is new of it; None if nothing is.
        repeated: The batches that were accepted before, and what is known of them.
    """

    pending: Pending[Token] | None
    repeated: tuple[SeenBatch[Token], ...] = ()


@dataclass(slots=True)
class Portion(Generic[Token]):
    """What one table commit takes: whole requests in arrival order."""

    requests: list[Pending[Token]] = field(default_factory=list)
    size_bytes: int = 0
    record_count: int = 0

    @property
    def staged(self) -> StagedRecords | None:
        """The records of the large transaction that it is, alone; None: it is none."""
        return self.requests[0].staged if self.requests else None

    def by_partition(self) -> dict[int, tuple[int, list[Slice]]]:
        """For each partition the base offset and the slices, in offset order. Empty where the
        records are staged."""
        found: dict[int, tuple[int, list[Slice]]] = {}
        for request in self.requests:
            for slice_, batch in zip(request.slices, request.batches, strict=True):
                if slice_.partition in found:
                    found[slice_.partition][1].append(slice_)
                else:
                    found[slice_.partition] = (batch.base_offset, [slice_])
        return found

    def marks(self) -> list[TransactionMark]:
        """The transactions in it, in the order of their acceptance."""
        return [request.mark for request in self.requests if request.mark is not None]

    def epochs(self) -> dict[int, list[tuple[int, int]]]:
        """For each partition (leader epoch, base offset) of what was accepted in each epoch, in
        offset order."""
        found: dict[int, list[tuple[int, int]]] = {}
        for request in self.requests:
            for run in request.runs:
                known = found.setdefault(run.partition, [])
                if not known or known[-1][0] != request.epoch:
                    known.append((request.epoch, run.base_offset))
        return found

    def batches(self) -> list[Batch]:
        """What the commit adds, by partition and offset: exact for idempotent producers, whose
        batches may come again, and joined for the others."""
        found: list[Batch] = []
        runs = (run for request in self.requests for run in request.runs)
        for run in sorted(runs, key=lambda run: (run.partition, run.base_offset)):
            last = found[-1] if found else None
            if (
                last is not None
                and last.partition == run.partition
                and last.producer is None
                and run.producer is None
            ):
                joined = last.record_count + run.record_count
                found[-1] = Batch(run.partition, last.base_offset, joined)
            else:
                found.append(run)
        return found


class AppendQueue(Generic[Token]):
    """The queue of one led topic.

    A request that `accept` takes has its offsets, which never change; it leaves in a portion,
    whole, and its bytes count until `done`.

    Args:
        limit_bytes: What may wait or be in commit in this topic.
        budget: What all topics share.
        log_end_offset: The next offset of a partition, at the start.
        producers: What idempotent producers have sent before.
        topic: For messages.
        epoch: The leader epoch in which requests are accepted.
    """

    def __init__(
        self,
        limit_bytes: int,
        budget: ByteBudget,
        log_end_offset: Callable[[int], int],
        producers: ProducerStates[Token],
        topic: str = "",
        epoch: int = 0,
    ) -> None:
        self.producers = producers
        self._topic = topic
        self._epoch = epoch
        self._limit_bytes = limit_bytes
        self._budget = budget
        self._start_offset = log_end_offset
        self._next_offsets: dict[int, int] = {}
        self._waiting: deque[Pending[Token]] = deque()
        self.waiting_bytes = 0
        self.used_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> Token | None:
        """Who waits for the oldest request that is in no portion yet. From any thread."""
        try:
            return self._waiting[0].token
        except IndexError:
            return None

    def log_end_offset(self, partition: int) -> int:
        """One past the last accepted offset."""
        known = self._next_offsets.get(partition)
        return self._start_offset(partition) if known is None else known

    def accept(
        self, slices: Sequence[Slice], size_bytes: int, token: Token, now_ms: int
    ) -> Acceptance[Token]:
        """Gives new records their offsets and queues them, all or nothing.

        Args:
            slices: Each of one or more records. Where a partition has several, they follow each
                other.

        Raises:
            BackPressureError: This topic's queue, or all together, are full. Nothing was taken.
            RequestTooLargeError: Not even an empty queue has room for it.
            OutOfOrderSequenceError, UnknownProducerIdError, ProducerFencedError: An idempotent
                producer's batch does not follow its last one. Nothing was taken.
        """
        assert all(slice_.records.num_rows for slice_ in slices), "a slice has no records"
        new: list[_Run] = []
        repeated: list[SeenBatch[Token]] = []
        numbered: set[tuple[int, int]] = set()
        for run in _runs(slices):
            seen = None
            if run.producer is not None:
                seen = self.producers.check(
                    run.producer, run.partition, run.record_count, now_ms, self._topic
                )
                key = (run.producer.id, run.partition)
                if key in numbered:
                    # Its first run is not accepted yet, so nobody can say what follows it.
                    raise OutOfOrderSequenceError(
                        f"producer {run.producer.id} sent sequences to partition {run.partition} "
                        f"of topic {self._topic!r} that do not follow each other in one request",
                        topic=self._topic,
                        partition=run.partition,
                        producer_id=run.producer.id,
                        producer_epoch=run.producer.epoch,
                        sequence=run.producer.base_sequence,
                    )
                numbered.add(key)
            if seen is None:
                new.append(run)
            else:
                repeated.append(seen)
        if not new:
            return Acceptance(None, tuple(repeated))
        self._check_room(size_bytes)
        self.producers.check_room(len(numbered))
        pending = self._enqueue(new, size_bytes, token, now_ms, self._epoch)
        return Acceptance(pending, tuple(repeated))

    def recover(
        self, slices: Sequence[Slice], size_bytes: int, token: Token, now_ms: int, epoch: int
    ) -> Pending[Token]:
        """Queues what was accepted before a restart, in `epoch`, whatever the limits. The caller
        has made sure that the records get the offsets that they had."""
        return self._enqueue(_runs(slices), size_bytes, token, now_ms, epoch)

    def accept_transaction(
        self,
        slices: Sequence[Slice],
        size_bytes: int,
        token: Token,
        now_ms: int,
        mark: TransactionMark,
    ) -> Pending[Token]:
        """Queues the records of a transaction, whatever the limits: it may be decided elsewhere
        that they belong into the log. The caller has made sure that they come once.

        Args:
            slices: As of `accept`, without producers.
        """
        return self._enqueue(_runs(slices), size_bytes, token, now_ms, self._epoch, mark)

    def accept_staged(
        self, staged: StagedRecords, size_bytes: int, token: Token, mark: TransactionMark
    ) -> Pending[Token]:
        """As `accept_transaction`, with records that are not in memory.

        Args:
            size_bytes: What of them is in memory at a time.
        """
        placed: list[Batch] = []
        for partition, count in sorted(staged.counts.items()):
            assert count > 0
            offset = self.log_end_offset(partition)
            placed.append(Batch(partition, offset, count))
            self._next_offsets[partition] = offset + count
        pending = Pending((), (), tuple(placed), size_bytes, token, self._epoch, mark, staged)
        self._wait(pending)
        return pending

    def _enqueue(
        self,
        runs: Sequence[_Run],
        size_bytes: int,
        token: Token,
        now_ms: int,
        epoch: int,
        mark: TransactionMark | None = None,
    ) -> Pending[Token]:
        batches: list[Batch] = []
        placed: list[Batch] = []
        for run in runs:
            offset = self.log_end_offset(run.partition)
            placed.append(Batch(run.partition, offset, run.record_count, run.producer))
            for slice_ in run.slices:
                count = slice_.records.num_rows
                batches.append(Batch(run.partition, offset, count, slice_.producer))
                offset += count
            self._next_offsets[run.partition] = offset
        slices = tuple(slice_ for run in runs for slice_ in run.slices)
        pending = Pending(slices, tuple(batches), tuple(placed), size_bytes, token, epoch, mark)
        for batch in placed:
            if batch.producer is not None:
                self.producers.accept(batch, token, now_ms)
        self._wait(pending)
        return pending

    def _wait(self, pending: Pending[Token]) -> None:
        self._waiting.append(pending)
        self.waiting_bytes += pending.size_bytes
        self.used_bytes += pending.size_bytes
        self._budget.used_bytes += pending.size_bytes

    def take(self, bytes_max: int) -> Portion[Token]:
        """The next portion: at least one request if any waits, then as many as fit `bytes_max`. One
        with staged records is alone in its portion."""
        portion: Portion[Token] = Portion()
        while self._waiting:
            head = self._waiting[0]
            is_full = portion.size_bytes + head.size_bytes > bytes_max
            is_alone = head.staged is not None or portion.staged is not None
            if portion.requests and (is_full or is_alone):
                break
            self._waiting.popleft()
            portion.requests.append(head)
            portion.size_bytes += head.size_bytes
            portion.record_count += head.record_count
        self.waiting_bytes -= portion.size_bytes
        return portion

    def done(self, portion: Portion[Token]) -> None:
        """Frees the bytes of a portion that was committed, or given up. Once: of one that was
        committed, who is told may fail, and it is given up as well."""
        size_bytes, portion.size_bytes = portion.size_bytes, 0
        self.used_bytes -= size_bytes
        self._budget.used_bytes -= size_bytes

    def _check_room(self, size_bytes: int) -> None:
        limit_bytes = min(self._limit_bytes, self._budget.limit_bytes)
        if size_bytes > limit_bytes:
            raise RequestTooLargeError(
                f"the request's records take {size_bytes} bytes of memory, and the queue takes "
                f"{limit_bytes} (topic.queue.bytes, queued.max.bytes); send less at a time",
                topic=self._topic,
                limit_bytes=limit_bytes,
            )
        if self.used_bytes + size_bytes > self._limit_bytes:
            raise self._full(
                self.used_bytes, self._limit_bytes, size_bytes, "the topic's queue holds"
            )
        if not self._budget.has_room(size_bytes):
            raise self._full(
                self._budget.used_bytes,
                self._budget.limit_bytes,
                size_bytes,
                "the gateway's queues hold",
            )

    def _full(self, used: int, limit: int, size: int, which: str) -> BackPressureError:
        return BackPressureError(
            f"{which} {used} bytes of at most {limit}: a batch of {size} bytes was not accepted; "
            f"send it again in {RETRY_DELAY_MS} ms",
            retry_delay_ms=RETRY_DELAY_MS,
            queued_bytes=used,
            limit_bytes=limit,
        )


@dataclass(frozen=True, slots=True)
class _Run:
    """Slices of one request that follow each other in one partition."""

    partition: int
    slices: tuple[Slice, ...]
    producer: ProducerBatch | None

    @property
    def record_count(self) -> int:
        return sum(slice_.records.num_rows for slice_ in self.slices)


def _runs(slices: Sequence[Slice]) -> list[_Run]:
    """The slices by partition; a producer's sequences must follow each other to be one run."""
    runs: dict[int, list[_Run]] = {}
    for slice_ in slices:
        found = runs.setdefault(slice_.partition, [])
        last = found[-1] if found else None
        if last is not None and _follows(last, slice_):
            found[-1] = _Run(last.partition, (*last.slices, slice_), last.producer)
        else:
            found.append(_Run(slice_.partition, (slice_,), slice_.producer))
    return [run for found in runs.values() for run in found]


def _follows(run: _Run, slice_: Slice) -> bool:
    first, then = run.producer, slice_.producer
    if first is None or then is None:
        return first is then
    return (first.id, first.epoch, first.base_sequence + run.record_count) == (
        then.id,
        then.epoch,
        then.base_sequence,
    )

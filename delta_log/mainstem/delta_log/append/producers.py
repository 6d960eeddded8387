"""What each idempotent producer has sent last to each partition, so that a batch counts once. Pure.

A batch is new when its first sequence follows the last one, a duplicate when it is one that was
accepted before, and out of order otherwise.

Source: KIP-98 (sequence numbers, the window of five batches), KIP-360 (unknown producers).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Generic, TypeVar

from mainstem.delta_log.table import Batch, ProducerBatch
from mainstem.errors import (
    OutOfOrderSequenceError,
    ProducerFencedError,
    UnknownProducerIdError,
)
from mainstem.limits import IN_FLIGHT_BATCHES_MAX

Token = TypeVar("Token")


@dataclass(slots=True)
class SeenBatch(Generic[Token]):
    """A batch that was accepted: where it is, and who waits for its commit.

    Attributes:
        token: What was accepted with it, while the commit is pending; None afterwards.
        table_version: The commit that has it; -1 while it is pending.
    """

    batch: Batch
    token: Token | None
    table_version: int


@dataclass(slots=True)
class _Producer(Generic[Token]):
    """A producer's state in one partition.

    Attributes:
        pending: Accepted, not committed, in order. All of them: a batch that is forgotten here
            would be taken for an old one, and be acknowledged before its commit.
        window: The newest that were committed.
    """

    epoch: int
    last_sequence: int
    updated_ms: int
    # Lists, which are short: an empty deque has room for 64, and there are many producers.
    pending: list[SeenBatch[Token]] = field(default_factory=list)
    window: list[SeenBatch[Token]] = field(default_factory=list)

    def keep(self, seen: SeenBatch[Token]) -> None:
        """Puts a committed batch into the window."""
        self.window.append(seen)
        del self.window[:-IN_FLIGHT_BATCHES_MAX]


class ProducerStates(Generic[Token]):
    """The producers of one topic.

    Args:
        expiration_ms: A producer that sent nothing for this long is forgotten.
    """

    def __init__(self, expiration_ms: int) -> None:
        self._expiration_ms = expiration_ms
        self._producers: dict[tuple[int, int], _Producer[Token]] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def restore(
        self, producer_id: int, partition: int, last_sequence: int, updated_ms: int, epoch: int = 0
    ) -> None:
        """Takes a producer's registers as they were committed."""
        self._producers[producer_id, partition] = _Producer(epoch, last_sequence, updated_ms)

    def restore_batch(self, batch: Batch, table_version: int) -> None:
        """Takes a batch that a commit names, oldest first, after the registers."""
        if batch.producer is None:
            return
        known = self._producers.get((batch.producer.id, batch.partition))
        if known is None or batch.producer.epoch != known.epoch:
            return
        if batch.last_sequence <= known.last_sequence:
            known.keep(SeenBatch(batch, None, table_version))

    def check(
        self, producer: ProducerBatch, partition: int, record_count: int, now_ms: int, topic: str
    ) -> SeenBatch[Token] | None:
        """None: the batch is new. Otherwise the batch that it repeats.

        The base offset of that is -1 if it is so old that nobody remembers its place.

        Raises:
            OutOfOrderSequenceError: Batches before it are missing.
            UnknownProducerIdError: The producer is not known here, or was forgotten, and does not
                begin at 0.
            ProducerFencedError: Its epoch is over.
        """
        known = self._known(producer.id, partition, now_ms)
        if known is None:
            if producer.base_sequence != 0:
                raise UnknownProducerIdError(
                    f"producer {producer.id} is not known in partition {partition} of topic "
                    f"{topic!r}, or was forgotten after producer.id.expiration.ms; take a new "
                    "producer id and begin at sequence 0",
                    **_facts(producer, partition, topic, 0),
                )
            return None
        if producer.epoch < known.epoch:
            raise ProducerFencedError(
                f"epoch {producer.epoch} of producer {producer.id} is over; "
                f"{known.epoch} is in force",
                **_facts(producer, partition, topic, known.last_sequence + 1),
            )
        expected = 0 if producer.epoch > known.epoch else known.last_sequence + 1
        if producer.base_sequence == expected:
            return None
        if producer.base_sequence + record_count <= expected:
            return _repeated(known, Batch(partition, -1, record_count, producer))
        raise OutOfOrderSequenceError(
            f"producer {producer.id} sent sequence {producer.base_sequence} to partition "
            f"{partition} of topic {topic!r}, where {expected} comes next",
            **_facts(producer, partition, topic, expected),
        )

    def accept(self, batch: Batch, token: Token, now_ms: int) -> None:
        """Notes a new batch, which `check` has let pass, with the offsets that it got."""
        producer = batch.producer
        assert producer is not None
        known = self._known(producer.id, batch.partition, now_ms)
        if known is None or known.epoch < producer.epoch:
            known = _Producer(producer.epoch, -1, now_ms)
            self._producers[producer.id, batch.partition] = known
        known.last_sequence = batch.last_sequence
        known.updated_ms = now_ms
        known.pending.append(SeenBatch(batch, token, -1))

    def committed(self, batches: Iterable[Batch], table_version: int) -> None:
        """Notes that accepted batches are in the table now, in the order of their acceptance."""
        for batch in batches:
            if batch.producer is None:
                continue
            known = self._producers.get((batch.producer.id, batch.partition))
            # Not there: accepted in an epoch that is over.
            if known is not None and known.pending and known.pending[0].batch == batch:
                seen = known.pending.pop(0)
                seen.token = None
                seen.table_version = table_version
                known.keep(seen)

    def expire(self, now_ms: int) -> list[tuple[int, int]]:
        """Forgets who was silent for too long; returns their (producer id, partition)."""
        gone = [key for key, known in self._producers.items() if self._is_over(known, now_ms)]
        for key in gone:
            del self._producers[key]
        return gone

    def _known(self, producer_id: int, partition: int, now_ms: int) -> _Producer[Token] | None:
        known = self._producers.get((producer_id, partition))
        return None if known is None or self._is_over(known, now_ms) else known

    def _is_over(self, known: _Producer[Token], now_ms: int) -> bool:
        return now_ms - known.updated_ms >= self._expiration_ms and not known.pending


def _repeated(known: _Producer[Token], batch: Batch) -> SeenBatch[Token]:
    """What is known of a batch whose sequences were all accepted before."""
    assert batch.producer is not None
    for seen in chain(known.window, known.pending):
        first = seen.batch.producer
        assert first is not None
        ahead = batch.producer.base_sequence - first.base_sequence
        if ahead == 0 and batch.record_count == seen.batch.record_count:
            return seen
        if ahead >= 0 and batch.last_sequence <= seen.batch.last_sequence:
            # A part of it: the producer cut its batches differently this time.
            offset = seen.batch.base_offset + ahead
            part = Batch(batch.partition, offset, batch.record_count, batch.producer)
            return SeenBatch(part, seen.token, seen.table_version)
    for seen in known.pending:
        first = seen.batch.producer
        assert first is not None
        if first.base_sequence <= batch.last_sequence <= seen.batch.last_sequence:
            # Across several: commits keep the order, so this one comes last.
            return SeenBatch(batch, seen.token, -1)
    return SeenBatch(batch, None, -1)


def _facts(producer: ProducerBatch, partition: int, topic: str, expected: int) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "sequence": producer.base_sequence,
        "expected_sequence": expected,
    }

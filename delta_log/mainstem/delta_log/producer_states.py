"""What each idempotent producer has sent last to each partition, so that a batch counts once. Pure.

A batch is new when its first sequence follows the last one, a duplicate when it is one of the last
few batches or lies wholly before, and out of order otherwise.

Source: KIP-98 (sequence numbers, the window of five batches), KIP-360 (unknown producers).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from mainstem.delta_log.actions import Batch, ProducerBatch
from mainstem.errors import (
    OutOfOrderSequenceError,
    ProducerFencedError,
    UnknownProducerIdError,
)

Token = TypeVar("Token")

#: Batches of a producer and partition that are answered with their original offsets when they come
#: again. Kafka's number, and at least `max.in.flight.requests.per.connection` of our producer.
WINDOW_BATCHES: Final = 5


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
    """A producer's state in one partition."""

    epoch: int
    last_sequence: int
    updated_ms: int
    window: deque[SeenBatch[Token]]


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
        self, producer_id: int, partition: int, last_sequence: int, updated_ms: int
    ) -> None:
        """Takes a producer's register as it was committed."""
        known = self._producers.get((producer_id, partition))
        if known is None:
            self._producers[producer_id, partition] = _Producer(
                0, last_sequence, updated_ms, deque(maxlen=WINDOW_BATCHES)
            )
        else:
            known.last_sequence = last_sequence
            known.updated_ms = updated_ms

    def restore_batch(self, batch: Batch, table_version: int) -> None:
        """Takes a batch that a commit names, oldest first, after the registers."""
        if batch.producer is None:
            return
        known = self._producers.get((batch.producer.id, batch.partition))
        if known is not None and batch.last_sequence <= known.last_sequence:
            known.epoch = max(known.epoch, batch.producer.epoch)
            known.window.append(SeenBatch(batch, None, table_version))

    def check(
        self, producer: ProducerBatch, partition: int, record_count: int, now_ms: int, topic: str
    ) -> SeenBatch[Token] | None:
        """None: the batch is new. Otherwise the batch that it repeats.

        The base offset of that is -1 if it is so old that nobody remembers its place.

        Raises:
            OutOfOrderSequenceError: Batches before it are missing.
            UnknownProducerIdError: The producer is not known here, or was forgotten, and does not begin at 0.
            ProducerFencedError: Its epoch is over.
        """
        known = self._known(producer.id, partition, now_ms)
        if known is None:
            if producer.base_sequence != 0:
                raise UnknownProducerIdError(
                    f"producer {producer.id} is not known in partition {partition} of topic {topic!r}, "
                    "or was forgotten after producer.id.expiration.ms; take a new producer id and "
                    "begin at sequence 0",
                    **_facts(producer, partition, topic, 0),
                )
            return None
        if producer.epoch < known.epoch:
            raise ProducerFencedError(
                f"epoch {producer.epoch} of producer {producer.id} is over; {known.epoch} is in force",
                **_facts(producer, partition, topic, known.last_sequence + 1),
            )
        expected = 0 if producer.epoch > known.epoch else known.last_sequence + 1
        if producer.base_sequence == expected:
            return None
        if producer.epoch == known.epoch and producer.base_sequence < expected:
            for seen in known.window:
                ours = seen.batch.producer
                assert ours is not None
                if (ours.base_sequence, seen.batch.record_count) == (
                    producer.base_sequence,
                    record_count,
                ):
                    return seen
            if producer.base_sequence + record_count <= expected:
                # It is in the log, but nobody remembers where.
                return SeenBatch(Batch(partition, -1, record_count, producer), None, -1)
        raise OutOfOrderSequenceError(
            f"producer {producer.id} sent sequence {producer.base_sequence} to partition {partition} of topic "
            f"{topic!r}, where {expected} comes next",
            **_facts(producer, partition, topic, expected),
        )

    def accept(self, batch: Batch, token: Token, now_ms: int) -> None:
        """Notes a new batch, which `check` has let pass, with the offsets that it got."""
        assert batch.producer is not None
        key = (batch.producer.id, batch.partition)
        known = self._producers.get(key)
        if known is None or known.epoch < batch.producer.epoch:
            known = _Producer(batch.producer.epoch, -1, now_ms, deque(maxlen=WINDOW_BATCHES))
            self._producers[key] = known
        known.last_sequence = batch.last_sequence
        known.updated_ms = now_ms
        known.window.append(SeenBatch(batch, token, -1))

    def committed(self, batches: Iterable[Batch], table_version: int) -> None:
        """Notes that accepted batches are in the table now."""
        for batch in batches:
            if batch.producer is None:
                continue
            known = self._producers.get((batch.producer.id, batch.partition))
            for seen in known.window if known is not None else ():
                if seen.batch == batch:
                    seen.token = None
                    seen.table_version = table_version

    def expire(self, now_ms: int) -> list[tuple[int, int]]:
        """Forgets who was silent for too long; returns their (producer id, partition)."""
        gone = [
            key
            for key, known in self._producers.items()
            if now_ms - known.updated_ms >= self._expiration_ms
            and all(seen.token is None for seen in known.window)
        ]
        for key in gone:
            del self._producers[key]
        return gone

    def _known(self, producer_id: int, partition: int, now_ms: int) -> _Producer[Token] | None:
        known = self._producers.get((producer_id, partition))
        if known is None or any(seen.token is not None for seen in known.window):
            return known
        return None if now_ms - known.updated_ms >= self._expiration_ms else known


def _facts(producer: ProducerBatch, partition: int, topic: str, expected: int) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "sequence": producer.base_sequence,
        "expected_sequence": expected,
    }

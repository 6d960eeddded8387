"""What each idempotent producer has sent last to each partition, so that a batch counts once. Pure.

A batch is new when its first sequence follows the last one, a duplicate when it is one that was
accepted before, and out of order otherwise.

Source: KIP-98 (sequence numbers, the window of five batches), KIP-360 (unknown producers).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from mainstem.delta_log.append.producer_ids import ProducerIds
from mainstem.delta_log.append.producer_memory import (
    FORGET_STEP_MAX,
    PlacedBatch,
    ProducerMemory,
    ProducerRecords,
    pack_record,
    producer_key,
    unpack_record,
    window_batches,
    window_with,
)
from mainstem.delta_log.format import Batch, ProducerBatch
from mainstem.errors import (
    BackPressureError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    UnknownProducerIdError,
)
from mainstem.limits import IN_FLIGHT_BATCHES_MAX

Token = TypeVar("Token")

#: What a producer costs with a batch under way.
BUSY_BYTES: Final = 512

#: Advice to a producer that finds no room: the others' batches are committed soon.
_RETRY_DELAY_MS: Final = 100


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
        window: The newest batches that were committed, packed. Their sequences end where those of
            the pending ones begin.
        pending: Accepted, not committed, in order. All of them: a batch that is forgotten here
            would be taken for an old one, and be acknowledged before its commit.
    """

    epoch: int
    last_sequence: int
    used_ms: int
    window: bytes = b""
    pending: list[SeenBatch[Token]] = field(default_factory=list)

    def committed_batches(self) -> Iterable[PlacedBatch]:
        """Those in the window, newest first."""
        pending = sum(seen.batch.record_count for seen in self.pending)
        return window_batches(self.window, self.last_sequence - pending)


class ProducerStates(Generic[Token]):
    """The producers of one topic. Times are of a clock that nobody sets.

    Args:
        expiration_ms: A producer that sent nothing for this long is forgotten.
        memory: What all topics share; None: this one has no bound.
        ids: Which ids were given out; None: all of them.
    """

    def __init__(
        self,
        expiration_ms: int,
        memory: ProducerMemory | None = None,
        ids: ProducerIds | None = None,
    ) -> None:
        self._expiration_ms = expiration_ms
        self._memory = memory or ProducerMemory(2**63)
        self._ids = ids
        #: With nothing under way.
        self._records = ProducerRecords()
        #: With a batch under way.
        self._busy: dict[int, _Producer[Token]] = {}
        #: The record that was looked at last.
        self._unpacked: tuple[bytes, _Producer[Token]] = b"", _Producer(0, -1, 0)
        self._membership: int | None = None

    def __len__(self) -> int:
        return len(self._records) + len(self._busy)

    @property
    def size_bytes(self) -> int:
        """What is remembered takes about so much memory."""
        return self._records.size_bytes + BUSY_BYTES * len(self._busy)

    # -- begin and end -----------------------------------------------------------------------------

    def restore(
        self,
        producer_id: int,
        partition: int,
        epoch: int,
        last_sequence: int,
        now_ms: int,
        recent: Iterable[PlacedBatch] = (),
    ) -> None:
        """Takes what the table says of a producer. Call it for those heard of last at the end; only
        so many are kept as the memory has room for. The producer has its whole time again: how long
        it was silent, no clock can tell for certain.

        Args:
            recent: Its batches in recent commits, newest first.
        """
        window = b""
        for one in reversed(_contiguous(recent, last_sequence)):
            window = window_with(window, one.record_count, one.base_offset, one.table_version)
        packed = pack_record(epoch, last_sequence, now_ms, window)
        self._records.put(producer_key(producer_id, partition), packed)
        self._records.forget_down_to(self._memory.limit_bytes)

    def begin(self, now_ms: int) -> None:
        """Counts against what all topics share, from now on. On the event loop of all."""
        self._membership = self._memory.join(self._records, now_ms)
        self._memory.make_room(now_ms)

    def end(self) -> None:
        """Forgets everything, and counts no more."""
        if self._membership is not None:
            self._memory.leave(self._membership)
            self._count_busy(-len(self._busy))
            self._membership = None
        self._records = ProducerRecords()
        self._busy = {}

    # -- batches -----------------------------------------------------------------------------------

    def check(
        self, producer: ProducerBatch, partition: int, record_count: int, now_ms: int, topic: str
    ) -> SeenBatch[Token] | None:
        """None: the batch is new. Otherwise the batch that it repeats.

        The base offset of that is -1 if it is so old that nobody remembers its place.

        Raises:
            OutOfOrderSequenceError: Batches before it are missing.
            UnknownProducerIdError: The producer is not known here, or was forgotten, and does not
                begin at 0; or nobody has given this id out.
            ProducerFencedError: Its epoch is over.
        """
        known = self._known(producer_key(producer.id, partition), now_ms)
        if known is None:
            if producer.base_sequence != 0:
                raise UnknownProducerIdError(
                    f"producer {producer.id} is not known in partition {partition} of topic "
                    f"{topic!r}, or was forgotten after producer.id.expiration.ms or for want of "
                    "producer.state.max.bytes; take a new producer id and begin at sequence 0",
                    **_facts(producer, partition, topic, 0),
                )
            if self._ids is not None and not self._ids.has_given(producer.id):
                raise UnknownProducerIdError(
                    f"no gateway of this warehouse has given out the producer id {producer.id}; "
                    "take one with InitProducer and begin at sequence 0",
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

    def check_room(self, batch_count: int) -> None:
        """Whether so many more batches may be under way.

        Raises:
            BackPressureError: Those that are have all the memory there is.
        """
        busy_bytes, limit_bytes = self._memory.busy_bytes, self._memory.limit_bytes
        if busy_bytes and busy_bytes + batch_count * BUSY_BYTES > limit_bytes:
            raise BackPressureError(
                f"producers with batches under way take {busy_bytes} bytes of the {limit_bytes} "
                f"of producer.state.max.bytes; send the batch again in {_RETRY_DELAY_MS} ms",
                retry_delay_ms=_RETRY_DELAY_MS,
                queued_bytes=busy_bytes,
                limit_bytes=limit_bytes,
            )

    def accept(self, batch: Batch, token: Token, now_ms: int) -> None:
        """Notes a new batch, which `check` has let pass, with the offsets that it got."""
        producer = batch.producer
        assert producer is not None
        key = producer_key(producer.id, batch.partition)
        known = self._known(key, now_ms)
        if key not in self._busy:
            self._resized(-self._records.take(key))
            self._count_busy(1)
        if known is None or known.epoch < producer.epoch:
            known = _Producer(producer.epoch, -1, now_ms)
        self._busy[key] = known
        known.last_sequence = batch.last_sequence
        known.used_ms = now_ms
        known.pending.append(SeenBatch(batch, token, -1))
        if self._memory.used_bytes > self._memory.limit_bytes:
            self._memory.make_room(now_ms)

    def committed(self, batches: Iterable[Batch], table_version: int) -> None:
        """Notes that accepted batches are in the table now, in the order of their acceptance."""
        for batch in batches:
            if batch.producer is None:
                continue
            key = producer_key(batch.producer.id, batch.partition)
            known = self._busy.get(key)
            # Not there: accepted in an epoch that is over.
            if known is None or known.pending[0].batch != batch:
                continue
            del known.pending[0]
            known.window = window_with(
                known.window, batch.record_count, batch.base_offset, table_version
            )
            if not known.pending:
                del self._busy[key]
                self._count_busy(-1)
                packed = pack_record(known.epoch, known.last_sequence, known.used_ms, known.window)
                self._resized(self._records.put(key, packed))

    # -- forgetting --------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> None:
        """Forgets some of those who were silent for too long, longest first. What it costs is
        bounded; who is left over is unknown all the same."""
        count = 0
        while count < FORGET_STEP_MAX:
            oldest_ms = self._records.oldest_used_ms()
            if oldest_ms is None or now_ms - oldest_ms < self._expiration_ms:
                break
            self._resized(-self._records.forget_oldest())
            count += 1
        if count:
            self._memory.metrics.producers_forgotten("expired", count)

    def take_forgotten(self, count_max: int) -> list[tuple[int, int, bool]]:
        """(producer id, partition, whether its epoch was written down) of those that were forgotten
        since, and did not come back: each is told once."""
        forgotten = self._records.forgotten
        taken, forgotten[:count_max] = forgotten[:count_max], []
        return [
            (producer_id, partition, has_epoch)
            for producer_id, partition, has_epoch in taken
            if (key := producer_key(producer_id, partition)) not in self._busy
            and self._records.get(key) is None
        ]

    def _known(self, key: int, now_ms: int) -> _Producer[Token] | None:
        known = self._busy.get(key)
        if known is not None:
            return known
        packed = self._records.get(key)
        if packed is None:
            return None
        if self._unpacked[0] is packed:  # `accept` comes right after `check`
            known = self._unpacked[1]
        else:
            known = _Producer(*unpack_record(packed))
            self._unpacked = packed, known
        return known if now_ms - known.used_ms < self._expiration_ms else None

    def _resized(self, by_bytes: int) -> None:
        if self._membership is not None:
            self._memory.used_bytes += by_bytes

    def _count_busy(self, count: int) -> None:
        if self._membership is not None:
            self._memory.used_bytes += count * BUSY_BYTES
            self._memory.busy_bytes += count * BUSY_BYTES


def _contiguous(recent: Iterable[PlacedBatch], last_sequence: int) -> list[PlacedBatch]:
    """The newest of these batches whose sequences lead up to the last one. Before them may be those
    of an earlier time of the producer, which also began at 0."""
    found: list[PlacedBatch] = []
    for one in recent:
        if one.base_sequence + one.record_count != last_sequence + 1:
            break
        found.append(one)
        last_sequence = one.base_sequence - 1
        if len(found) == IN_FLIGHT_BATCHES_MAX:
            break
    return found


def _repeated(known: _Producer[Token], batch: Batch) -> SeenBatch[Token]:
    """What is known of a batch whose sequences were all accepted before."""
    assert batch.producer is not None
    first, end = batch.producer.base_sequence, batch.last_sequence + 1
    for one in known.committed_batches():
        if one.base_sequence <= first and end <= one.base_sequence + one.record_count:
            # All of it, or a part: the producer may cut its batches differently this time.
            offset = one.base_offset + first - one.base_sequence
            found = Batch(batch.partition, offset, batch.record_count, batch.producer)
            return SeenBatch(found, None, one.table_version)
    for seen in known.pending:
        assert seen.batch.producer is not None
        begins = seen.batch.producer.base_sequence
        if begins < end <= seen.batch.last_sequence + 1:
            if begins <= first:
                offset = seen.batch.base_offset + first - begins
                found = Batch(batch.partition, offset, batch.record_count, batch.producer)
                return SeenBatch(found, seen.token, -1)
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

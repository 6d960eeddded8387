"""Batches that wait for a table commit: offsets in arrival order, bounded in bytes. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa

from mainstem.delta_log.actions import Batch
from mainstem.errors import BackPressureError

Token = TypeVar("Token")

#: Advice to a producer that met a full queue: about one commit interval.
RETRY_DELAY_MS = 100


class ByteBudget:
    """Bytes that may wait in all queues of a gateway together. Not thread-safe: one event loop."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def has_room(self, size_bytes: int) -> bool:
        """Whether `size_bytes` more fit. An empty budget takes one batch of any size."""
        return self.used_bytes == 0 or self.used_bytes + size_bytes <= self.limit_bytes


@dataclass(frozen=True, slots=True)
class Slice:
    """Records of one request for one partition: wire batch and size."""

    partition: int
    records: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Pending(Generic[Token]):
    """A request that was accepted: its slices, where each begins in the log, and whom to tell."""

    slices: tuple[Slice, ...]
    batches: tuple[Batch, ...]
    size_bytes: int
    token: Token


@dataclass(slots=True)
class Group(Generic[Token]):
    """What one table commit takes: whole requests in arrival order."""

    requests: list[Pending[Token]] = field(default_factory=list)
    size_bytes: int = 0
    record_count: int = 0

    def by_partition(self) -> dict[int, tuple[int, list[pa.RecordBatch]]]:
        """For each partition the base offset and the wire batches, in offset order."""
        found: dict[int, tuple[int, list[pa.RecordBatch]]] = {}
        for request in self.requests:
            for slice_, batch in zip(request.slices, request.batches, strict=True):
                if slice_.partition in found:
                    found[slice_.partition][1].append(slice_.records)
                else:
                    found[slice_.partition] = (batch.base_offset, [slice_.records])
        return found

    def batches(self) -> list[Batch]:
        """What the commit adds to each partition, by partition."""
        return [
            Batch(partition, base_offset, sum(records.num_rows for records in batches))
            for partition, (base_offset, batches) in sorted(self.by_partition().items())
        ]


class AppendQueue(Generic[Token]):
    """The queue of one led topic.

    A request that `accept` takes has its offsets, which never change; it leaves in a group, whole,
    and its bytes count until `done`.

    Args:
        limit_bytes: What may wait or be in commit in this topic.
        budget: What all topics share.
        log_end_offset: The next offset of a partition, at the start.
    """

    def __init__(
        self, limit_bytes: int, budget: ByteBudget, log_end_offset: Callable[[int], int]
    ) -> None:
        self._limit_bytes = limit_bytes
        self._budget = budget
        self._start_offset = log_end_offset
        self._next_offsets: dict[int, int] = {}
        self._waiting: deque[Pending[Token]] = deque()
        self.waiting_bytes = 0
        self.used_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def log_end_offset(self, partition: int) -> int:
        """One past the last accepted offset."""
        known = self._next_offsets.get(partition)
        return self._start_offset(partition) if known is None else known

    def accept(self, slices: Sequence[Slice], size_bytes: int, token: Token) -> Pending[Token]:
        """Gives the records their offsets and queues them, all or nothing.

        Args:
            slices: Each of one or more records. Where a partition has several, they follow each
                other.

        Raises:
            BackPressureError: This topic's queue, or all together, are full. Nothing was taken.
        """
        assert all(slice_.records.num_rows for slice_ in slices), "a slice has no records"
        if self.used_bytes and self.used_bytes + size_bytes > self._limit_bytes:
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
        batches = []
        for slice_ in slices:
            base_offset = self.log_end_offset(slice_.partition)
            count = slice_.records.num_rows
            self._next_offsets[slice_.partition] = base_offset + count
            batches.append(Batch(slice_.partition, base_offset, count))
        pending = Pending(tuple(slices), tuple(batches), size_bytes, token)
        self._waiting.append(pending)
        self.waiting_bytes += size_bytes
        self.used_bytes += size_bytes
        self._budget.used_bytes += size_bytes
        return pending

    def take(self, bytes_max: int) -> Group[Token]:
        """The next group: at least one request if any waits, then as many as fit `bytes_max`."""
        group: Group[Token] = Group()
        while self._waiting:
            head = self._waiting[0]
            if group.requests and group.size_bytes + head.size_bytes > bytes_max:
                break
            self._waiting.popleft()
            group.requests.append(head)
            group.size_bytes += head.size_bytes
            group.record_count += sum(batch.record_count for batch in head.batches)
        self.waiting_bytes -= group.size_bytes
        return group

    def done(self, group: Group[Token]) -> None:
        """Frees the bytes of a group that was committed, or given up."""
        self.used_bytes -= group.size_bytes
        self._budget.used_bytes -= group.size_bytes

    def _full(self, used: int, limit: int, size: int, which: str) -> BackPressureError:
        return BackPressureError(
            f"{which} {used} bytes of at most {limit}: a batch of {size} bytes was not accepted; "
            f"send it again in {RETRY_DELAY_MS} ms",
            retry_delay_ms=RETRY_DELAY_MS,
            queued_bytes=used,
            limit_bytes=limit,
        )

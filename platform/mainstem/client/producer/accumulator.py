"""The records of one topic before they are a piece, and how a piece is made of them.

What happens once a record is in `per_record`. All else happens once a piece, in the thread that
fills it: a second Python thread would only fight for the interpreter lock.
"""

from __future__ import annotations

import random
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mainstem.client.per_record import OpenRecords, binary_column
from mainstem.client.producer.memory import BufferMemory
from mainstem.client.producer.pieces import (
    RECORD_OVERHEAD_BYTES,
    BatchPromise,
    Piece,
    Receipts,
    headers_column,
    order_by_partition,
    serialise,
)
from mainstem.client.producer.queue import QueuePolicy, TopicQueue
from mainstem.client.producer.settings import ProducerSettings
from mainstem.client.results import TopicMetadata
from mainstem.errors import RecordTooLargeError
from mainstem.limits import HEADER_OVERHEAD_BYTES, KIB
from mainstem.records import partitions_for_keys

#: Memory is reserved in such steps, so that most records need not ask for it.
_RESERVE_BYTES: Final = 64 * KIB

#: Between two small requests at most, however long answers take.
_SPREAD_S_MAX: Final = 0.05

#: What the answers of one commit count for in the time that an answer is thought to take.
_ANSWER_WEIGHT: Final = 0.2


class Lane:
    """The requests of one topic to its leader.

    Attributes:
        next_at: Monotonic seconds before which a small request waits while others are in flight.
    """

    __slots__ = ("_answer_s", "_version", "next_at")

    def __init__(self) -> None:
        self.next_at = 0.0
        self._answer_s = 0.0
        self._version = -1

    def sent(self, now: float, in_flight_max: int) -> None:
        """Notes a request, and when the next small one goes: those that may be in flight are spread
        over the time that an answer takes.

        An answer waits for a table commit, which takes all that came by then. If as many as may be
        in flight went out as fast as records come, those after them would miss the commit and wait
        for two.
        """
        self.next_at = now + min(self._answer_s / in_flight_max, _SPREAD_S_MAX)

    def answered(self, seconds: float, table_version: int) -> None:
        """Notes how long an answer took. Of those that a commit gives the first counts, which took
        longest: requests that go out shortly before a commit have short ones.

        Args:
            table_version: The commit; negative: the answer waited for none.
        """
        if table_version < 0 or table_version != self._version:
            self._answer_s += _ANSWER_WEIGHT * (seconds - self._answer_s)
        self._version = table_version


Headers = list[tuple[str, bytes | None]]


class TopicBuffer(OpenRecords):
    """A topic as the producer knows it: its open records, its metadata and its queue.

    Attributes:
        lock: Guards the open records. Taken before the sender's lock, never after.
        info: Partitions and leader; replaced as a whole by a metadata refresh.
        queue: What was cut and is not acknowledged; guarded by the sender's lock.
        lane: When its next small request goes; guarded likewise.
        limit: `append` refuses when `used` would exceed this: the memory that was reserved, at most
            batch.size; negative when something has to be looked at first.
        stale: The gateway said that the topic does not exist: ask again before the next record.
        closed: No more records, unless the producer opens it again: it ends, or no transaction is
            open.
        compression: Of the pieces: lz4, zstd or None.
    """

    __slots__ = (
        "_next_round_robin",
        "_rng",
        "_round_robin",
        "_sticky",
        "_sticky_bytes",
        "_sticky_linger_s",
        "_sticky_since",
        "batch_bytes",
        "closed",
        "compression",
        "created_at",
        "delivery_timeout_s",
        "info",
        "lane",
        "name",
        "queue",
        "reserved",
        "stale",
    )

    def __init__(
        self,
        info: TopicMetadata,
        settings: ProducerSettings,
        policy: QueuePolicy,
        rng: random.Random,
    ) -> None:
        super().__init__()
        self.name = info.topic
        self.info = info
        self.queue: TopicQueue[Piece] = TopicQueue(
            info.topic, policy, rng.random, idempotent=settings.idempotent
        )
        self.lane = Lane()
        self.batch_bytes = policy.batch_bytes
        self.delivery_timeout_s = policy.delivery_timeout_ms / 1000
        self.reserved = 0
        self.stale = False
        self.closed = False
        compression = settings.compression_type
        self.compression = compression if compression in ("lz4", "zstd") else None
        self._round_robin = settings.partitioner == "round_robin"
        self._next_round_robin = 0
        self._rng = rng
        self._sticky = rng.randrange(info.partition_count)
        self._sticky_bytes = 0
        self._sticky_linger_s = settings.sticky_linger_ms / 1000
        self._sticky_since = 0.0
        self.created_at = 0.0  # the thread that appends the first record is told to look

    def check_size(self, size: int, request_bytes_max: int, memory_bytes: int) -> None:
        """Refuses a record of `size` bytes, overhead included, that never fits.

        Raises:
            RecordTooLargeError: It is larger than max.request.size or buffer.memory.
        """
        record_bytes = size - RECORD_OVERHEAD_BYTES
        limit_bytes, limit = request_bytes_max, f"max.request.size ({request_bytes_max} bytes)"
        if record_bytes <= request_bytes_max:
            if size <= memory_bytes:
                return
            each = f"{RECORD_OVERHEAD_BYTES} of them for each record"
            limit_bytes, limit = memory_bytes, f"buffer.memory ({memory_bytes} bytes, {each})"
        raise RecordTooLargeError(
            f"a record of topic {self.name} has {record_bytes} bytes; the limit is {limit}",
            topic=self.name,
            size_bytes=record_bytes,
            limit_bytes=limit_bytes,
        )

    def reserve(self, memory: BufferMemory, size: int) -> bool:
        """Makes `limit` allow a record of `size` bytes, if there is room; under the lock."""
        need = self.used + size - self.reserved
        if need > 0:
            taken = memory.reserve(need, min(_RESERVE_BYTES, memory.total_bytes // 64))
            if not taken:
                return False
            self.reserved += taken
        self.limit = min(self.reserved, max(self.batch_bytes, self.used + size))
        return True

    def mark_stale(self) -> None:
        """The next record of the topic asks the gateway again whether it exists."""
        with self.lock:
            self.stale = True
            self.limit = -1

    def cut(self, *, ready: bool) -> Piece:
        """Makes a piece of the open records; the caller holds the lock and there is at least one.

        Args:
            ready: The batch is over: it need not wait for linger.ms.
        """
        row_count = len(self.values)
        keys = self._keys_column(row_count)
        timestamps_ms = self.times_ms()
        if self.timestamps_ms:
            timestamps_ms[list(self.timestamps_ms)] = list(self.timestamps_ms.values())
        partitions = self._place(keys, row_count)
        if self.explicit:
            if isinstance(partitions, int):
                partitions = np.full(row_count, partitions, dtype=np.int32)
            partitions[list(self.explicit)] = list(self.explicit.values())
        order, ranges = order_by_partition(partitions, row_count)
        receipts = self._receipts(order, timestamps_ms) if self.waiters else None
        headers = None
        if self.headers:
            rows = list(self.headers)
            headers = headers_column(rows, list(self.headers.values()), row_count)
        if order is not None:
            timestamps_ms = timestamps_ms[order]
            if keys.null_count < row_count:
                keys = binary_column(self.keys, order)
            headers = None if headers is None else headers.take(pa.array(order))
        values = binary_column(self.values, order)
        message, layout = serialise(keys, values, headers, timestamps_ms, None, self.compression)
        piece = Piece(
            message=message,
            layout=layout,
            ranges=ranges,
            row_count=row_count,
            memory_bytes=self.used,
            created_at=self.created_at,
            deadline=self.created_at + self.delivery_timeout_s,
            # Larger than batch.size: a single record.
            alone=self.used > self.batch_bytes,
            ready=ready,
            receipts=receipts,
        )
        self._spend(self.used, self.created_at, over=ready)
        self.clear()
        self.created_at = 0.0
        return piece

    def part(
        self,
        batch: pa.RecordBatch,
        partitions: npt.NDArray[np.int32] | None,
        memory_bytes: int,
        created_at: float,
        promise: BatchPromise,
        part_index: int,
    ) -> Piece:
        """Makes a piece of rows that came in columns (the columns of WIRE_SCHEMA).

        Args:
            partitions: One a row, -1 where the partitioner decides; None: it decides for all.
        """
        row_count = batch.num_rows
        keys = batch.column("key")
        placed = self._place(keys, row_count)
        if partitions is not None:
            placed = np.where(partitions >= 0, partitions, placed).astype(np.int32)
        order, ranges = order_by_partition(placed, row_count)
        headers = batch.column("headers")
        message, layout = serialise(
            keys,
            batch.column("value"),
            None if headers.null_count == row_count else headers,
            batch.column("timestamp").view(pa.int64()).to_numpy(zero_copy_only=False),
            order,
            self.compression,
        )
        self._spend(memory_bytes, created_at, over=True)
        return Piece(
            message=message,
            layout=layout,
            ranges=ranges,
            row_count=row_count,
            memory_bytes=memory_bytes,
            created_at=created_at,
            deadline=created_at + self.delivery_timeout_s,
            promise=promise,
            part_index=part_index,
        )

    def _keys_column(self, row_count: int) -> pa.Array:
        if self.keys[0] is None and self.keys.count(None) == row_count:
            return pa.nulls(row_count, pa.binary())
        return binary_column(self.keys)

    def _place(self, keys: pa.Array, row_count: int) -> npt.NDArray[np.int32] | int:
        """The partition of each row by the partitioner; an int when it is the same for all."""
        partition_count = self.info.partition_count
        if partition_count == 1:
            return 0
        if self._round_robin:
            start = self._next_round_robin
            self._next_round_robin = (start + row_count) % partition_count
            return (np.arange(start, start + row_count) % partition_count).astype(np.int32)
        if keys.null_count == row_count:
            return self._sticky
        partitions = partitions_for_keys(keys, partition_count)
        if keys.null_count:
            partitions[keys.is_null().to_numpy(zero_copy_only=False)] = self._sticky
        return partitions

    def _spend(self, size: int, now: float, *, over: bool) -> None:
        """Counts towards batch.size, and moves the sticky partition on when that is reached, or
        when a batch is over and sticky.partitioning.linger.ms has passed."""
        if not self._sticky_bytes:
            self._sticky_since = now
        self._sticky_bytes += size
        over = over and now - self._sticky_since >= self._sticky_linger_s
        partition_count = self.info.partition_count
        if partition_count > 1 and (over or self._sticky_bytes >= self.batch_bytes):
            self._sticky_bytes = 0
            step = self._rng.randrange(1, partition_count)
            self._sticky = (self._sticky + step) % partition_count

    def _receipts(
        self, order: npt.NDArray[np.int64] | None, timestamps_ms: npt.NDArray[np.int64]
    ) -> Receipts:
        asked = np.fromiter(self.waiters, dtype=np.int64, count=len(self.waiters))
        rows = asked
        if order is not None:
            row_of = np.empty(len(order), dtype=np.int64)
            row_of[order] = np.arange(len(order))
            rows = row_of[asked]
        return Receipts(list(self.waiters.values()), rows, timestamps_ms[asked])


def record_bytes(value: bytes | None, key: bytes | None, headers: Headers | None) -> int:
    """Bytes of a record as buffer.memory, batch.size and max.request.size count them."""
    size = RECORD_OVERHEAD_BYTES
    if value is not None:
        size += len(value)
    if key is not None:
        size += len(key)
    for name, content in headers or ():
        size += HEADER_OVERHEAD_BYTES + len(name) + (0 if content is None else len(content))
    return size

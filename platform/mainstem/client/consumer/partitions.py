"""The partitions that a consumer reads, and the buffer between its fetching threads and it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

import pyarrow as pa

from mainstem.client.positions import OFFSET_INVALID, TopicPartition
from mainstem.errors import MainstemError


class Start(Enum):
    """What has to be found out before a partition can be fetched."""

    READY = auto()
    COMMITTED = auto()
    RESET = auto()
    EARLIEST = auto()
    LATEST = auto()


class Partition:
    """One assigned partition. Changed with the lock of its `Partitions` held.

    Attributes:
        position: The next offset that the application gets; OFFSET_INVALID until it is known.
        fetch_offset: The next offset to fetch: position, and what is buffered.
        start: What is to be found out first.
        generation: Goes up when what was fetched before is void.
        queued: Chunks that were not handed out to their end.
        stored: The offset that store_offsets() left to be committed, if any.
        committed: The last offset that automatic commits sent.
        leader_epoch: What the last answer said, or what was committed with the position; 0: not
            known. Fetches and commits say it, so that a log which was put back from an older copy
            is told from the one that was read.
        added_later: It came to its topic after the subscription: it is read from its start.
        high_watermark, log_start_offset: As the last answer said.
        durable_mark: Likewise, with fetch.visibility=durable; else 0.
        source: The gateway whose answer came last; empty: none has.
        failed: It cannot be read on; the error was raised, or waits to be.
        retry_at: Monotonic seconds before which it is left alone.
        failures: How often a request for it has failed in a row.
    """

    __slots__ = (
        "added_later",
        "committed",
        "durable_mark",
        "failed",
        "failures",
        "fetch_offset",
        "generation",
        "high_watermark",
        "leader_epoch",
        "log_start_offset",
        "partition",
        "paused",
        "position",
        "queued",
        "retry_at",
        "source",
        "start",
        "stored",
        "stored_metadata",
        "topic",
        "topic_id",
        "tp",
    )

    def __init__(self, tp: TopicPartition, topic_id: str = "") -> None:
        self.tp = tp
        self.topic = tp.topic
        self.partition = tp.partition
        self.topic_id = topic_id
        self.position = OFFSET_INVALID
        self.fetch_offset = OFFSET_INVALID
        self.start = Start.COMMITTED
        self.generation = 0
        self.queued = 0
        self.paused = False
        self.stored: int | None = None
        self.stored_metadata = ""
        self.committed = OFFSET_INVALID
        self.leader_epoch = 0
        self.added_later = False
        self.source = ""
        self.failed: MainstemError | None = None
        self.retry_at = 0.0
        self.failures = 0
        self.high_watermark = OFFSET_INVALID
        self.durable_mark = OFFSET_INVALID
        self.log_start_offset = OFFSET_INVALID

    @property
    def behind(self) -> bool:
        """The last answer did not bring all that was there."""
        return max(self.high_watermark, self.durable_mark) > self.fetch_offset

    def go_to(self, offset: int) -> None:
        """Goes on at `offset`; what is buffered is void."""
        self.generation += 1
        self.position = self.fetch_offset = offset
        self.leader_epoch = 0
        self.start = Start.READY
        self.failed = None
        self.retry_at = 0.0

    def find(self, start: Start) -> None:
        """Goes on where `start` will be found to be; what is buffered is void."""
        self.generation += 1
        self.position = self.fetch_offset = OFFSET_INVALID
        self.leader_epoch = 0
        self.start = start
        self.failed = None
        self.retry_at = 0.0


@dataclass(slots=True)
class Chunk:
    """Records of one partition as they came; `batch` None: a stretch that has none."""

    owner: Partition
    generation: int
    batch: pa.RecordBatch | None
    next_offset: int
    size_bytes: int
    source: str


class Partitions:
    """The assigned partitions, what was fetched of them, and who waits for what.

    Attributes:
        lock: Held for every change.
        arrived: There are chunks, or something that the application's thread has to see.
        wanted: There is something to fetch, or room in the buffer: fetching threads wait for it.
        news: What is to be fetched has changed: the worker waits for it.
        assigned: By topic and partition.
        chunks: In the order of their arrival.
        buffered: Bytes of the chunks, by the leader that they came from.
        attention: The application's thread has something to do beside records.
        errors: To be raised by the next poll.
        changes: Counts changes of what is to be fetched.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.arrived = threading.Condition(self.lock)
        self.wanted = threading.Condition(self.lock)
        self.news = threading.Condition(self.lock)
        self.assigned: dict[TopicPartition, Partition] = {}
        self.chunks: deque[Chunk] = deque()
        self.buffered: dict[str, int] = {}
        self.attention = False
        self.errors: deque[MainstemError] = deque()
        self.changes = 0
        self.closed = False

    def find(self, tp: TopicPartition) -> Partition:
        """The assigned partition; the lock is held.

        Raises:
            RuntimeError: It is not assigned.
        """
        one = self.assigned.get(tp)
        if one is None:
            raise RuntimeError(f"{tp.topic}-{tp.partition} is not assigned to this consumer")
        return one

    def changed(self) -> None:
        """Wakes the fetching threads and the worker; the lock is held."""
        self.changes += 1
        self.wanted.notify_all()
        self.news.notify_all()

    def call_attention(self) -> None:
        """Makes the application's thread look up; the lock is held."""
        self.attention = True
        self.arrived.notify_all()

    def fail(self, partition: Partition, error: MainstemError) -> None:
        """The partition cannot be read on; the next poll says so. The lock is held."""
        partition.failed = error
        self.errors.append(error)
        self.call_attention()

    def tell_once(self, error: MainstemError) -> None:
        """The next poll raises it, unless it is to raise the same already. The lock is held."""
        if all(one.message != error.message for one in self.errors):
            self.errors.append(error)
            self.call_attention()

    def tell(self, error: MainstemError) -> None:
        """The next poll raises it; holds no lock."""
        with self.lock:
            self.errors.append(error)
            self.call_attention()

    def put(self, chunk: Chunk) -> None:
        """Adds a chunk; the lock is held."""
        chunk.owner.queued += 1
        self.chunks.append(chunk)
        self.buffered[chunk.source] = self.buffered.get(chunk.source, 0) + chunk.size_bytes
        self.arrived.notify_all()

    def pop(self) -> Chunk | None:
        """The next chunk that is still good; the lock is held. Its bytes count on: `release`."""
        while self.chunks:
            chunk = self.chunks.popleft()
            if self.is_current(chunk):
                return chunk
            self.release(chunk)
        return None

    def is_current(self, chunk: Chunk) -> bool:
        """Nothing voided the chunk; the lock is held."""
        owner = chunk.owner
        return (
            chunk.generation == owner.generation
            and not owner.paused
            and self.assigned.get(owner.tp) is owner
        )

    def release(self, chunk: Chunk) -> None:
        """The chunk was handed out, or is void; the lock is held."""
        chunk.owner.queued -= 1
        self.buffered[chunk.source] -= chunk.size_bytes
        self.wanted.notify_all()

    def purge(self) -> None:
        """Drops what is not good any more; the lock is held."""
        kept: deque[Chunk] = deque()
        for chunk in self.chunks:
            if self.is_current(chunk):
                kept.append(chunk)
            else:
                self.release(chunk)
        self.chunks = kept
        self.changed()

    def forget(self) -> None:
        """Nothing was fetched, whatever the buffer's account says; the lock is held."""
        self.chunks.clear()
        self.buffered.clear()
        for one in self.assigned.values():
            one.queued = 0
            if one.start is Start.READY:
                one.generation += 1
                one.fetch_offset = one.position
        self.changed()

    def drop(self, gone: Iterable[TopicPartition]) -> None:
        """Takes partitions away, with what was fetched of them; the lock is held."""
        for tp in gone:
            found = self.assigned.pop(tp, None)
            if found is not None:
                found.generation += 1
        self.purge()

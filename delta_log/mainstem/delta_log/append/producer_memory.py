"""What is remembered of producers that have nothing under way: packed, within a budget. Pure.

A topic can have hundreds of thousands of them within a day, so that each is some two hundred bytes:
one `bytes` object in a dictionary that is ordered by last use. All topics of a gateway share a
budget; when it is full, the producer that has been silent for longest is forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple

from mainstem.delta_log.metrics import AppenderMetrics, NoMetrics
from mainstem.limits import IN_FLIGHT_BATCHES_MAX, PARTITION_COUNT_MAX

log = logging.getLogger(__name__)

#: What a record costs beside its packed bytes: the integer that is its key, the head of its `bytes`
#: object, and its place in a dictionary, of which one to three are free for each that is taken.
RECORD_OVERHEAD_BYTES: Final = 160

#: Records that are forgotten in one step of the event loop: a fraction of a millisecond.
FORGET_STEP_MAX: Final = 256

#: Producers silent for less may have a batch under way that is not here yet, as after a connection
#: broke: a `delivery.timeout.ms` of the default.
_RECENT_MS: Final = 120_000

#: Between two warnings that such producers are forgotten.
_WARN_INTERVAL_MS: Final = 60_000

_PARTITION_BITS: Final = 14
_UINT32_MAX: Final = 2**32 - 1

#: Epoch, last sequence, and when it was used.
_HEAD: Final = Struct("<Iqq")
#: Of the newest batch: record count, base offset, table version.
_NEWEST: Final = Struct("<Iqq")
#: Of each one before it: record count, and how far its offset and version are before those of the
#: next newer one.
_OLDER: Final = Struct("<III")

assert PARTITION_COUNT_MAX <= 1 << _PARTITION_BITS


def producer_key(producer_id: int, partition: int) -> int:
    """One integer for both, which is half as large as a tuple of them."""
    return producer_id << _PARTITION_BITS | partition


def producer_of(key: int) -> tuple[int, int]:
    """(producer id, partition) of a key."""
    return key >> _PARTITION_BITS, key & ((1 << _PARTITION_BITS) - 1)


class PlacedBatch(NamedTuple):
    """A committed batch of a producer in a partition.

    Attributes:
        table_version: The commit that has it.
    """

    base_sequence: int
    record_count: int
    base_offset: int
    table_version: int


def pack_record(epoch: int, last_sequence: int, used_ms: int, window: bytes) -> bytes:
    """A producer in a partition, with nothing under way.

    Args:
        used_ms: When it was heard of last.
        window: Its newest committed batches: see `window_with`.
    """
    return _HEAD.pack(epoch, last_sequence, used_ms) + window


def unpack_record(packed: bytes) -> tuple[int, int, int, bytes]:
    """The arguments of `pack_record`."""
    epoch, last_sequence, used_ms = _HEAD.unpack_from(packed)
    return epoch, last_sequence, used_ms, packed[_HEAD.size :]


def window_with(window: bytes, record_count: int, base_offset: int, table_version: int) -> bytes:
    """The window after one more batch, whose sequences follow those of the window's newest.

    The batches before it that are billions of offsets or versions away leave the window: what
    nobody has asked for in so long does not come again.
    """
    newest = _NEWEST.pack(record_count, base_offset, table_version)
    if not window:
        return newest
    count, offset, version = _NEWEST.unpack_from(window)
    offsets, versions = base_offset - offset, table_version - version
    if offsets > _UINT32_MAX or versions > _UINT32_MAX:
        return newest
    kept = _NEWEST.size + (IN_FLIGHT_BATCHES_MAX - 2) * _OLDER.size
    return newest + _OLDER.pack(count, offsets, versions) + window[_NEWEST.size : kept]


def window_batches(window: bytes, last_sequence: int) -> Iterator[PlacedBatch]:
    """The batches of a window, newest first.

    Args:
        last_sequence: Of the newest.
    """
    if not window:
        return
    count, offset, version = _NEWEST.unpack_from(window)
    first = last_sequence - count + 1
    yield PlacedBatch(first, count, offset, version)
    for count, offsets, versions in _OLDER.iter_unpack(window[_NEWEST.size :]):
        first, offset, version = first - count, offset - offsets, version - versions
        yield PlacedBatch(first, count, offset, version)


class ProducerRecords:
    """The packed records of one topic, by last use."""

    def __init__(self) -> None:
        #: In the order of their use: what is used is taken out and put in again.
        self._records: dict[int, bytes] = {}
        #: The first of them, last one first, as they were a while ago: to look for the first of a
        #: dictionary takes longer with everything that was taken out of it.
        self._first: list[tuple[int, bytes]] = []
        self.size_bytes = 0
        #: (producer id, partition, whether its epoch was written down) of those forgotten, until
        #: somebody takes them.
        self.forgotten: list[tuple[int, int, bool]] = []

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: int) -> bytes | None:
        return self._records.get(key)

    def put(self, key: int, packed: bytes) -> int:
        """Adds a record that is not there, as the one that was used last; returns its size."""
        self._records[key] = packed
        size_bytes = RECORD_OVERHEAD_BYTES + len(packed)
        self.size_bytes += size_bytes
        return size_bytes

    def take(self, key: int) -> int:
        """Takes a record out, if it is there; returns the bytes that this frees."""
        packed = self._records.pop(key, None)
        if packed is None:
            return 0
        size_bytes = RECORD_OVERHEAD_BYTES + len(packed)
        self.size_bytes -= size_bytes
        return size_bytes

    def oldest_used_ms(self) -> int | None:
        """When the one that has been silent for longest was used; None: there is none."""
        while True:
            while self._first:
                key, packed = self._first[-1]
                if self._records.get(key) is packed:
                    used_ms: int = _HEAD.unpack_from(packed)[2]
                    return used_ms
                self._first.pop()  # used since, or gone
            if not self._records:
                return None
            self._first = list(islice(self._records.items(), FORGET_STEP_MAX))[::-1]

    def forget_oldest(self) -> int:
        """Forgets the one that `oldest_used_ms` has told of; returns the bytes that this frees."""
        key, packed = self._first.pop()
        producer_id, partition = producer_of(key)
        self.forgotten.append((producer_id, partition, _HEAD.unpack_from(packed)[0] > 0))
        return self.take(key)

    def forget_down_to(self, limit_bytes: int) -> None:
        """Forgets the oldest until no more than this is left."""
        while self.size_bytes > limit_bytes and self.oldest_used_ms() is not None:
            self.forget_oldest()


class ProducerMemory:
    """What may be remembered of producers in all topics of a gateway together. Not thread-safe: one
    event loop.

    Args:
        limit_bytes: Kept to as long as there are producers without anything under way.

    Attributes:
        busy_bytes: The part of `used_bytes` that belongs to producers with something under way.
    """

    def __init__(self, limit_bytes: int, metrics: AppenderMetrics | None = None) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.busy_bytes = 0
        self.metrics = metrics or NoMetrics()
        self._topics: dict[int, ProducerRecords] = {}
        self._count = 0
        #: For each topic a time that is not after its oldest use. Some of the topics have left.
        self._by_age: list[tuple[int, int]] = []
        self._warned_ms: int | None = None

    def join(self, records: ProducerRecords, now_ms: int) -> int:
        """Counts the records of a topic; returns a number to leave with."""
        self._count += 1
        self._topics[self._count] = records
        self.used_bytes += records.size_bytes
        oldest_ms = records.oldest_used_ms()
        heappush(self._by_age, (now_ms if oldest_ms is None else oldest_ms, self._count))
        return self._count

    def leave(self, number: int) -> None:
        """The topic counts no more."""
        self.used_bytes -= self._topics.pop(number).size_bytes
        if len(self._by_age) > 2 * len(self._topics) + FORGET_STEP_MAX:
            self._by_age = [one for one in self._by_age if one[1] in self._topics]
            heapify(self._by_age)

    def make_room(self, now_ms: int) -> None:
        """Forgets those that have been silent for longest until the limit is kept; some at a time,
        as after a topic has joined with many."""
        count = 0
        for _ in range(FORGET_STEP_MAX):
            if self.used_bytes <= self.limit_bytes or not self._by_age:
                break
            looked_ms, number = self._by_age[0]
            topic = self._topics.get(number)
            if topic is None:
                heappop(self._by_age)
                continue
            oldest_ms = topic.oldest_used_ms()
            if oldest_ms is None and looked_ms >= now_ms:
                break  # no topic has any that could be forgotten
            if oldest_ms is None or oldest_ms > looked_ms:
                heapreplace(self._by_age, (now_ms if oldest_ms is None else oldest_ms, number))
                continue
            self.used_bytes -= topic.forget_oldest()
            self._warn(now_ms, now_ms - oldest_ms)
            count += 1
        if count:
            self.metrics.producers_forgotten("evicted", count)

    def _warn(self, now_ms: int, silent_ms: int) -> None:
        is_due = self._warned_ms is None or now_ms - self._warned_ms >= _WARN_INTERVAL_MS
        if silent_ms < _RECENT_MS and is_due:
            self._warned_ms = now_ms
            log.warning(
                "producer.state.max.bytes is too small: producers are forgotten that were silent "
                "for %d ms only, and a batch of theirs whose answer was lost may be stored twice",
                silent_ms,
            )

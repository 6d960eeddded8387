"""The newest committed records of the topics that are led here, in memory, bounded in bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

import pyarrow as pa

from mainstem.delta_log import Slice
from mainstem.delta_log.append import CommittedRecords
from mainstem.ingest_gateway.fetching.columns import batch_of_slices
from mainstem.limits import FETCHED_RECORD_OVERHEAD_BYTES, KIB

#: What a slice and a run cost beside the records: the objects that hold them.
_SLICE_OVERHEAD_BYTES = KIB
_RUN_OVERHEAD_BYTES = KIB

_base_offset = attrgetter("base_offset")


class CachedRun:
    """The records of one commit for one partition: offsets [base_offset, end_offset), no gap.

    `batch` may be called in any thread.
    """

    __slots__ = ("_batch", "_slices", "base_offset", "end_offset", "memory_bytes", "record_bytes")

    def __init__(self, base_offset: int, slices: Sequence[Slice]) -> None:
        rows = sum(slice_.records.num_rows for slice_ in slices)
        size = sum(slice_.size_bytes for slice_ in slices)
        self.base_offset = base_offset
        self.end_offset = base_offset + rows
        #: About what the records are in an answer.
        self.record_bytes = size + rows * FETCHED_RECORD_OVERHEAD_BYTES
        self.memory_bytes = (
            self.record_bytes + len(slices) * _SLICE_OVERHEAD_BYTES + _RUN_OVERHEAD_BYTES
        )
        self._slices: Sequence[Slice] = tuple(slices)
        self._batch: pa.RecordBatch | None = None

    def batch(self) -> pa.RecordBatch:
        """All of the run, with the columns of an answer; made when it is first asked for."""
        # In this order: a reader that finds no batch has found the slices, which another thread
        # that makes the same batch at this moment is about to drop.
        slices = self._slices
        batch = self._batch
        if batch is None:
            batch = self._batch = batch_of_slices(self.base_offset, slices)
            self._slices = ()
        return batch


class _Tail:
    """The runs of one partition, each following the one before it."""

    __slots__ = ("runs", "topic_id")

    def __init__(self, topic_id: str) -> None:
        self.topic_id = topic_id
        self.runs: list[CachedRun] = []


class TailCache:
    """Runs of records by topic and partition; the oldest of all topics go first.

    Lives on the event loop.

    Args:
        limit_bytes: Of memory, all topics together.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.used_bytes = 0
        self._tails: dict[str, dict[int, _Tail]] = {}
        #: Every run that is cached, the oldest first, and where it is.
        self._age: dict[CachedRun, tuple[str, int]] = {}

    def add(self, records: CommittedRecords) -> dict[int, int]:
        """Takes what a commit added; returns the bytes of its records by partition."""
        added: dict[int, int] = {}
        for partition, (base_offset, slices) in records.partitions.items():
            run = CachedRun(base_offset, slices)
            tails = self._tails.setdefault(records.topic, {})
            tail = tails.get(partition)
            if tail is not None and (
                tail.topic_id != records.topic_id or tail.runs[-1].end_offset != base_offset
            ):
                # Another gateway led the topic meanwhile, or it was made again.
                self._forget(tail)
                tail = None
            if tail is None:
                tail = tails[partition] = _Tail(records.topic_id)
            tail.runs.append(run)
            self._age[run] = (records.topic, partition)
            self.used_bytes += run.memory_bytes
            added[partition] = run.record_bytes
        while self.used_bytes > self._limit_bytes:
            self._evict_oldest()
        return added

    def start_offset(self, topic: str, topic_id: str, partition: int, high_watermark: int) -> int:
        """From here to the high watermark every record is cached; that itself if none is."""
        tail = self._tail(topic, topic_id, partition)
        if tail is None or tail.runs[-1].end_offset != high_watermark:
            return high_watermark
        return tail.runs[0].base_offset

    def runs(
        self, topic: str, topic_id: str, partition: int, offset: int, bytes_max: int
    ) -> list[CachedRun]:
        """The runs from the one with `offset` on, until they have `bytes_max` bytes or more.

        The first may begin before `offset`.
        """
        tail = self._tail(topic, topic_id, partition)
        if tail is None:
            return []
        found: list[CachedRun] = []
        index = max(bisect_right(tail.runs, offset, key=_base_offset) - 1, 0)
        # What lies before `offset` in the first run does not count.
        left = bytes_max
        while index < len(tail.runs) and left > 0:
            run = tail.runs[index]
            found.append(run)
            if run.base_offset >= offset:
                left -= run.record_bytes
            else:
                rows = run.end_offset - run.base_offset
                left -= run.record_bytes * max(run.end_offset - offset, 0) // rows
            index += 1
        return found

    def forget(self, topic: str) -> None:
        """Drops what is cached of a topic that is no longer led here."""
        for tail in self._tails.pop(topic, {}).values():
            self._forget(tail)

    def _tail(self, topic: str, topic_id: str, partition: int) -> _Tail | None:
        tail = self._tails.get(topic, {}).get(partition)
        return tail if tail is not None and tail.topic_id == topic_id else None

    def _forget(self, tail: _Tail) -> None:
        for run in tail.runs:
            del self._age[run]
            self.used_bytes -= run.memory_bytes
        tail.runs.clear()

    def _evict_oldest(self) -> None:
        run, (topic, partition) = next(iter(self._age.items()))
        del self._age[run]
        self.used_bytes -= run.memory_bytes
        tails = self._tails[topic]
        runs = tails[partition].runs
        assert runs[0] is run, "the oldest run of all is not the oldest of its partition"
        runs.pop(0)
        if not runs:
            del tails[partition]
            if not tails:
                del self._tails[topic]

"""Records between the high watermark and the durable mark of the topics that are led here: in the
write-ahead log, and in no table yet.

Memory: they are the ones that wait in the queues of their topics, which are bounded.
"""

from __future__ import annotations

from collections import deque

from mainstem.delta_log.append import CommittedRecords
from mainstem.ingest_gateway.fetching.tail_cache import CachedRun


class DurableTail:
    """Runs of records by topic and partition, in offset order without a gap. On the event loop."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, deque[CachedRun]]] = {}
        self._ids: dict[str, str] = {}

    def add(self, records: CommittedRecords) -> dict[int, int]:
        """Takes what is certain from now on; returns the bytes of its records by partition."""
        if self._ids.get(records.topic) != records.topic_id:
            self.forget(records.topic)
            self._ids[records.topic] = records.topic_id
        partitions = self._topics.setdefault(records.topic, {})
        added: dict[int, int] = {}
        for partition, (base_offset, slices) in records.partitions.items():
            run = CachedRun(base_offset, slices)
            runs = partitions.setdefault(partition, deque())
            if runs and runs[-1].end_offset != base_offset:
                runs.clear()  # what was before it is not here any more
            runs.append(run)
            added[partition] = run.record_bytes
        return added

    def committed(self, records: CommittedRecords) -> None:
        """Drops what a commit has brought into the table."""
        partitions = self._topics.get(records.topic)
        if partitions is None:
            return
        for partition, (base_offset, slices) in records.partitions.items():
            runs = partitions.get(partition)
            if runs is None:
                continue
            end_offset = base_offset + sum(slice_.records.num_rows for slice_ in slices)
            while runs and runs[0].end_offset <= end_offset:
                runs.popleft()
            if not runs:
                del partitions[partition]

    def durable_mark(self, topic: str, topic_id: str, partition: int, high_watermark: int) -> int:
        """One past the last record that is certain; at least the high watermark."""
        runs = self._runs(topic, topic_id, partition)
        if not runs or runs[0].base_offset > high_watermark:
            return high_watermark
        return max(int(runs[-1].end_offset), high_watermark)

    def runs(
        self, topic: str, topic_id: str, partition: int, offset: int, bytes_max: int
    ) -> list[CachedRun]:
        """The runs with records from `offset` on, until they have `bytes_max` bytes or more."""
        found: list[CachedRun] = []
        for run in self._runs(topic, topic_id, partition):
            if bytes_max <= 0:
                break
            if run.end_offset > offset:
                found.append(run)
                bytes_max -= run.record_bytes
        return found

    def forget(self, topic: str) -> None:
        """Drops what there is of a topic that is not led here any more."""
        self._topics.pop(topic, None)
        self._ids.pop(topic, None)

    def _runs(self, topic: str, topic_id: str, partition: int) -> deque[CachedRun]:
        if self._ids.get(topic) != topic_id:
            return deque()
        return self._topics.get(topic, {}).get(partition, deque())

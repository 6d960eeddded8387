"""What readers are told of the topics that are led here: new records, and the end of a lead."""

from __future__ import annotations

from mainstem.delta_log.append import CommittedRecords
from mainstem.ingest_gateway.fetching.durable_tail import DurableTail
from mainstem.ingest_gateway.fetching.tail_cache import TailCache
from mainstem.ingest_gateway.fetching.waiters import FetchWaiters


class Arrivals:
    """On the event loop, between the topics, which call `committed` and `closed`, and the fetches.

    Attributes:
        cache: The newest records.
        durable_tail: Those that are about to be committed.
        waiters: The fetches that wait for more.
    """

    def __init__(self, cache_bytes: int) -> None:
        self.cache = TailCache(cache_bytes)
        self.durable_tail = DurableTail()
        self.waiters = FetchWaiters()

    def committed(self, records: CommittedRecords) -> None:
        """A commit has added records to a topic."""
        self.durable_tail.committed(records)
        if records.partitions:
            self.waiters.appended(records.topic, self.cache.add(records))
        else:  # more than there is memory for: whoever waits finds them in the table
            self.waiters.changed(records.topic)

    def durable(self, records: CommittedRecords) -> None:
        """Records are in the write-ahead log, and will be committed."""
        self.waiters.durable(records.topic, self.durable_tail.add(records))

    def closed(self, topic: str) -> None:
        """The topic is not led here any more: deleted, lost, or given up."""
        self.cache.forget(topic)
        self.durable_tail.forget(topic)
        self.waiters.changed(topic)

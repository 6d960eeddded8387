"""What readers are told of the topics that are led here: new records, and the end of a lead."""

from __future__ import annotations

from mainstem.delta_log.append import CommittedRecords
from mainstem.ingest_gateway.fetching.tail_cache import TailCache
from mainstem.ingest_gateway.fetching.waiters import FetchWaiters


class Arrivals:
    """On the event loop, between the topics, which call `committed` and `closed`, and the fetches.

    Attributes:
        cache: The newest records.
        waiters: The fetches that wait for more.
    """

    def __init__(self, cache_bytes: int) -> None:
        self.cache = TailCache(cache_bytes)
        self.waiters = FetchWaiters()

    def committed(self, records: CommittedRecords) -> None:
        """A commit has added records to a topic."""
        self.waiters.appended(records.topic, self.cache.add(records))

    def closed(self, topic: str) -> None:
        """The topic is not led here any more: deleted, lost, or given up."""
        self.cache.forget(topic)
        self.waiters.changed(topic)

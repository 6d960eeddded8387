"""The steps of a consumer's calls, for callers that wait in their own way: event loops, and clients
of other shapes. What waits and what takes are apart, so that a wait that is cancelled has taken
nothing."""

from __future__ import annotations

import threading

import pyarrow as pa

from mainstem.client.consumer.engine import ConsumerEngine
from mainstem.client.consumer.one_thread import OneThread
from mainstem.client.consumer.reader import deadline_of
from mainstem.client.consumer.records import ConsumerRecord
from mainstem.client.positions import TopicPartition
from mainstem.errors import MainstemError


class StepwiseConsumer:
    """What `Consumer` is made of."""

    def __init__(self, engine: ConsumerEngine) -> None:
        self._engine = engine
        self._partitions = engine.partitions
        self._reader = engine.reader
        # The owner may enter again: callbacks call back into the consumer.
        self._busy = threading.RLock()

    def wait_ready(self, timeout: float) -> bool:
        """Sees to everything that is due, and waits until there are records; takes none.

        Raises:
            As `poll`.
        """
        with self._alone():
            self._reader.begin()
            return self._wait_for_records(timeout)

    def take_ready_many(self, limit: int) -> list[ConsumerRecord]:
        """Up to `limit` records that are there, if nothing else is due."""
        records: list[ConsumerRecord] = []
        with self._alone():
            if not self._partitions.attention:
                self._reader.begin()
                self._reader.take(limit, records)
        return records

    def consume_more(self, num_messages: int, timeout: float) -> list[ConsumerRecord] | None:
        """More records for a call that has some already: none of those counts as done by it.

        Returns:
            None where something else is due first: the caller hands out what it has.
        """
        records: list[ConsumerRecord] = []
        with self._alone():
            try:
                if self._wait_for_records(timeout, attend=False):
                    self._reader.take(num_messages, records)
            except MainstemError:
                return None  # the next call raises it
            return None if self._partitions.attention and not records else records

    def take_ready_batches(self, limit: int) -> dict[TopicPartition, pa.RecordBatch]:
        """Up to `limit` rows that are there, if nothing else is due."""
        with self._alone():
            if self._partitions.attention:
                return {}
            self._reader.begin()
            return self._reader.take_batches(limit)

    def undo(self) -> None:
        """Takes back what the latest call has given: nobody got it, and the next call gives it."""
        with self._alone():
            self._engine.undo()

    @property
    def commits_automatically(self) -> bool:
        """enable.auto.commit, with a group to commit to."""
        return self._engine.settings.auto_commit

    def poll_limit(self, max_records: int | None) -> int:
        """max.poll.records, unless the caller says otherwise."""
        limit = self._engine.settings.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise ValueError(f"max_records is {limit}; it must be at least 1")
        return limit

    def _wait_for_records(
        self, timeout: float | None, *, attend: bool = True, decode: bool = True
    ) -> bool:
        """Sees to everything that is due, and waits until there are records."""
        engine = self._engine
        # In a callback nothing can come that is not there: no rebalance goes on.
        deadline = deadline_of(0.0 if engine.in_callback else timeout)
        while True:
            if attend:
                engine.attend(self)
                if engine.closed:
                    return False  # by a callback
            elif self._partitions.attention:
                return False
            if decode:
                if self._reader.load():
                    return True
            elif self._reader.at < len(self._reader.records) or self._reader.has_rows():
                return True
            if not self._reader.wait(deadline, lambda: engine.closed):
                return False
            engine.polls += 1

    def _alone(self) -> OneThread:
        return OneThread(self._busy, self._engine)

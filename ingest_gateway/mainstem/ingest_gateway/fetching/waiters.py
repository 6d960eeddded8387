"""Fetches that wait for records: one object each, woken by commits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping


class FetchWaiter:
    """A fetch that waits until its partitions have got `bytes_missing` more bytes."""

    __slots__ = ("bytes_missing", "durable", "partitions", "woken")

    def __init__(
        self,
        partitions: Iterable[tuple[str, int]],
        bytes_missing: int,
        woken: asyncio.Future[None],
        *,
        durable: bool,
    ) -> None:
        self.partitions = frozenset(partitions)
        self.bytes_missing = bytes_missing
        self.woken = woken
        self.durable = durable

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class FetchWaiters:
    """All fetches that wait. Lives on the event loop."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[int, set[FetchWaiter]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @contextlib.contextmanager
    def waiting(
        self,
        partitions: Iterable[tuple[str, int]],
        bytes_missing: int,
        timeout_s: float,
        *,
        durable: bool = False,
    ) -> Iterator[FetchWaiter]:
        """A waiter for the block. It is woken when the partitions may have that many bytes more, or
        something has happened to one of the topics, or the time is over."""
        loop = asyncio.get_running_loop()
        waiter = FetchWaiter(partitions, bytes_missing, loop.create_future(), durable=durable)
        self._add(waiter)
        timer = loop.call_later(timeout_s, waiter.wake)
        try:
            yield waiter
        finally:
            timer.cancel()
            self._remove(waiter)

    def appended(self, topic: str, bytes_by_partition: Mapping[int, int]) -> None:
        """A commit has added bytes to partitions of a topic. A fetch that was told of them before
        looks too early at worst."""
        self._add_bytes(topic, bytes_by_partition, durable_only=False)

    def _add_bytes(
        self, topic: str, bytes_by_partition: Mapping[int, int], *, durable_only: bool
    ) -> None:
        partitions = self._by_topic.get(topic)
        if partitions is None:
            return
        for partition, size_bytes in bytes_by_partition.items():
            for waiter in partitions.get(partition, ()):
                if durable_only and not waiter.durable:
                    continue
                waiter.bytes_missing -= size_bytes
                if waiter.bytes_missing <= 0:
                    waiter.wake()

    def durable(self, topic: str, bytes_by_partition: Mapping[int, int]) -> None:
        """Bytes are certain, but not committed yet: some fetches read those too."""
        self._add_bytes(topic, bytes_by_partition, durable_only=True)

    def changed(self, topic: str) -> None:
        """Something else has happened to the topic: the fetches that wait for it look again."""
        for waiters in self._by_topic.get(topic, {}).values():
            for waiter in waiters:
                waiter.wake()

    def waits_for(self, topic: str) -> bool:
        return topic in self._by_topic

    def wake_all(self) -> None:
        for topic in self._by_topic:
            self.changed(topic)

    def _add(self, waiter: FetchWaiter) -> None:
        self._count += 1
        for topic, partition in waiter.partitions:
            self._by_topic.setdefault(topic, {}).setdefault(partition, set()).add(waiter)

    def _remove(self, waiter: FetchWaiter) -> None:
        self._count -= 1
        for topic, partition in waiter.partitions:
            partitions = self._by_topic[topic]
            partitions[partition].discard(waiter)
            if not partitions[partition]:
                del partitions[partition]
                if not partitions:
                    del self._by_topic[topic]

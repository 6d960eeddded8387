"""The topics that are open here: whose turn each one is, and when one that is not led is closed."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mainstem.delta_log import Appender, OpenTopic, Topics
from mainstem.errors import BackPressureError, ShuttingDownError
from mainstem.ingest_gateway.payloads import StickyPlacement
from mainstem.limits import TOPICS_OPEN_MAX

T = TypeVar("T")

#: Topics that are open and not led. Each holds a state in memory and a descriptor, so that the next
#: description costs little; a listing of ten thousand must not keep them all.
IDLE_OPEN_MAX = 128

#: Calls that may wait for one topic to be opened, changed or deleted.
WAITERS_MAX = 1_000

#: How long a topic that is given up or deleted has for committing what it accepted.
CLOSE_TIMEOUT_S = 30.0


@dataclass(slots=True)
class KnownTopic:
    """A topic that is open here."""

    opened: OpenTopic
    sticky: StickyPlacement
    appender: Appender | None = None
    failed_at: float = 0.0


@dataclass(slots=True)
class Slot:
    """What serialises the opening and closing of one topic."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    known: KnownTopic | None = None
    users: int = 0


class OpenTopics:
    """The open topics of a gateway, and the operations that are under way on them.

    Lives on one event loop; the store's calls run in `pool`. An operation that has begun runs to
    its end even if the caller goes away: half-way it would leave a store open that nobody closes,
    or an appender that still commits beside its successor.
    """

    def __init__(self, topics: Topics, pool: Executor) -> None:
        self._topics = topics
        self._pool = pool
        self._slots: dict[str, Slot] = {}
        #: Open and not led, the longest unused first.
        self._idle: dict[str, None] = {}
        self._operations: set[asyncio.Task[Any]] = set()
        self._draining = False
        self._dice = random.Random()
        #: Told of each topic that is no longer led here.
        self.on_closed: Callable[[str], None] = lambda _: None

    def find(self, topic: str) -> KnownTopic | None:
        """The topic if it is open right now, without waiting: the hot path."""
        slot = self._slots.get(topic)
        return slot.known if slot is not None else None

    def led(self) -> Iterator[Appender]:
        """The appenders that have not failed. The metrics ask from another thread."""
        for slot in list(self._slots.values()):
            known = slot.known
            appender = known.appender if known is not None else None
            if appender is not None and appender.failure is None:
                yield appender

    @contextlib.asynccontextmanager
    async def holding(self, topic: str, waiters_max: int = WAITERS_MAX) -> AsyncIterator[Slot]:
        """The topic's slot, for this caller alone; it goes when it is neither used nor open.

        Raises:
            BackPressureError: Too many topics are open, or too many calls wait for this one.
        """
        slot = self._slots.get(topic)
        if slot is None:
            if len(self._slots) >= TOPICS_OPEN_MAX:
                raise BackPressureError(
                    f"the gateway has {TOPICS_OPEN_MAX} topics open, its limit; "
                    "use another gateway",
                    limit_topics=TOPICS_OPEN_MAX,
                )
            slot = self._slots[topic] = Slot()
        if slot.users >= waiters_max:
            raise BackPressureError(
                f"{slot.users} calls wait for topic {topic!r} already; try again later",
                retry_delay_ms=1_000,
                topic=topic,
                limit_calls=waiters_max,
            )
        slot.users += 1
        try:
            async with slot.lock:
                yield slot
        finally:
            slot.users -= 1
            if slot.users == 0 and slot.known is None:
                del self._slots[topic]

    async def open(self, topic: str, slot: Slot) -> KnownTopic:
        """The topic of a slot that the caller holds.

        Raises:
            UnknownTopicError: There is none.
        """
        if slot.known is None:
            opened = await self.run(self._topics.open, topic)
            slot.known = KnownTopic(opened, StickyPlacement(self._dice))
        return slot.known

    async def close(self, slot: Slot, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Closes the topic of a slot that the caller holds; what it accepted is committed first."""
        known, slot.known = slot.known, None
        if known is None:
            return
        if known.appender is not None:
            await known.appender.close(timeout_s)
            self.on_closed(known.opened.topic)

    async def used(self, topic: str, slot: Slot) -> None:
        """Notes a use that did not lead the topic, whose slot the caller holds; closes what was
        unused the longest."""
        if self._draining:
            await self.close(slot)
        elif slot.known is not None and slot.known.appender is None:
            self._keep_idle(topic)

    def keep_open(self, topic: str) -> None:
        """The topic is about to be led: it is not closed for want of use any more."""
        self._idle.pop(topic, None)

    def begin(self, operation: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts an operation that runs to its end, also when its caller goes away."""
        task = asyncio.get_running_loop().create_task(operation)
        self._operations.add(task)
        task.add_done_callback(self._ended)
        return task

    async def finish(self, operation: Coroutine[Any, Any, T]) -> T:
        """Runs an operation to its end, whether the caller waits for that or not."""
        return await asyncio.shield(self.begin(operation))

    def check_running(self) -> None:
        """Raises ShuttingDownError while the gateway drains."""
        if self._draining:
            raise ShuttingDownError(
                "the gateway is shutting down; try again after its restart", retry_delay_ms=500
            )

    async def run(self, call: Callable[..., T], *arguments: object) -> T:
        """Runs a call that blocks in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)

    async def drain(self, ends_at: float) -> bool:
        """Takes no more, commits what was accepted, and closes every topic.

        Args:
            ends_at: On the monotonic clock.

        Returns:
            Whether all of that was done by then.
        """
        self._draining = True
        closing = {self.begin(self._drain(topic, ends_at)) for topic in list(self._slots)}
        operations = closing | self._operations
        if operations:
            await asyncio.wait(operations, timeout=max(ends_at - time.monotonic(), 0.0))
        # What began before may have opened a topic since; nothing does any more.
        closing |= {self.begin(self._drain(topic, ends_at)) for topic in list(self._slots)}
        if closing:
            await asyncio.wait(closing, timeout=max(ends_at - time.monotonic(), 0.1))
        return all(task.done() and task.exception() is None and task.result() for task in closing)

    async def _drain(self, topic: str, ends_at: float) -> bool:
        async with self.holding(topic, waiters_max=sys.maxsize) as slot:
            await self.close(slot, max(ends_at - time.monotonic(), 0.0))
        return time.monotonic() < ends_at

    def _keep_idle(self, topic: str) -> None:
        self._idle.pop(topic, None)
        self._idle[topic] = None
        for other in list(self._idle)[: max(len(self._idle) - IDLE_OPEN_MAX, 0)]:
            slot = self._slots.get(other)
            if slot is not None and slot.users:
                continue  # its user takes or keeps it
            del self._idle[other]
            if slot is not None and slot.known is not None and slot.known.appender is None:
                del self._slots[other]

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._operations.discard(task)
        if not task.cancelled():
            task.exception()  # seen, though the caller may be gone

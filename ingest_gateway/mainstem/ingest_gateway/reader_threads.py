"""The threads that read topics for fetches, so that a store that hangs holds up its topic alone.

A call that has not come back after `SLOW_S` gives its turn to another, in one more thread, and
while a topic has `SLOW_CALLS_MAX` such calls, nothing else is read of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from mainstem.errors import StoreUnavailableError

T = TypeVar("T")

#: A read of a file takes milliseconds, a large answer from a slow store seconds: it loses nothing
#: but its turn.
SLOW_S: Final = 1.0

#: Slow calls of one topic. More of them would only wait at the same place.
SLOW_CALLS_MAX: Final = 2

#: Threads beside those that have their turn: slow calls of so many topics that hang.
EXTRA_THREADS: Final = 28

#: A call that has not come back by then is given up by the one who waits for it.
DEADLINE_S: Final = 60.0


class Reading:
    """One call. Its thread says which topic it reads at the moment."""

    __slots__ = ("has_turn", "topic")

    def __init__(self, topic: str = "") -> None:
        self.topic = topic
        self.has_turn = True


class ReaderThreads:
    """Lives on the event loop.

    Args:
        count: Calls that have their turn at a time.
    """

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count + EXTRA_THREADS, thread_name_prefix="fetch")
        self._turns = asyncio.Semaphore(count)
        self._slow: set[Reading] = set()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def refusal(self, topic: str) -> StoreUnavailableError | None:
        """Why nothing is read of the topic now."""
        count = sum(reading.topic == topic for reading in self._slow)
        if count < SLOW_CALLS_MAX:
            return None
        return StoreUnavailableError(
            f"{count} reads of topic {topic!r} have not come back from the store for {SLOW_S:g} s; "
            "no other is begun until one does",
            topic=topic,
        )

    async def run(
        self,
        call: Callable[[Reading], T],
        topic: str = "",
        on_slow: Callable[[], None] = lambda: None,
    ) -> T:
        """Runs a call that reads topics; it sets `Reading.topic` as it goes on.

        Args:
            topic: The first one.
            on_slow: Called when it gives its turn to another.

        Raises:
            StoreUnavailableError: It has not come back for `DEADLINE_S`.
        """
        await self._turns.acquire()
        loop = asyncio.get_running_loop()
        reading = Reading(topic)
        try:
            future = loop.run_in_executor(self._pool, call, reading)
        except RuntimeError:  # closed
            self._turns.release()
            raise
        timer = loop.call_later(SLOW_S, self._lend_turn, reading, on_slow)

        def done(ended: asyncio.Future[Any]) -> None:
            timer.cancel()
            self._slow.discard(reading)
            if reading.has_turn:
                self._turns.release()
            if not ended.cancelled():
                ended.exception()  # nobody may wait for it any more

        future.add_done_callback(done)
        try:
            async with asyncio.timeout(DEADLINE_S):
                # The thread goes on whatever becomes of the one who waits.
                return await asyncio.shield(future)
        except TimeoutError:
            raise StoreUnavailableError(
                f"the store has not answered a read of topic {reading.topic!r} for "
                f"{DEADLINE_S:g} s; try again later",
                topic=reading.topic,
            ) from None

    def _lend_turn(self, reading: Reading, on_slow: Callable[[], None]) -> None:
        if len(self._slow) < EXTRA_THREADS:
            on_slow()
            self._slow.add(reading)
            reading.has_turn = False
            self._turns.release()

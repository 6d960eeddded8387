"""What is under way on the topics of a gateway. It runs to its end, also when nobody waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from mainstem.errors import ShuttingDownError

T = TypeVar("T")


class Operations:
    """Lives on one event loop; the store's calls run in `pool`.

    An operation that has begun runs to its end even if the caller goes away: half-way it would
    leave an appender that still commits beside its successor.
    """

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._tasks: set[asyncio.Task[Any]] = set()
        self._draining = False

    @property
    def under_way(self) -> frozenset[asyncio.Task[Any]]:
        """What has begun and not ended."""
        return frozenset(self._tasks)

    def begin(self, operation: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts an operation that runs to its end, also when its caller goes away."""
        task = asyncio.get_running_loop().create_task(operation)
        self.track(task)
        return task

    def track(self, task: asyncio.Task[Any]) -> None:
        """Counts a task among what is under way."""
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def finish(self, operation: Coroutine[Any, Any, T]) -> T:
        """Runs an operation to its end, whether the caller waits for that or not."""
        return await asyncio.shield(self.begin(operation))

    async def run(self, call: Callable[..., T], *arguments: object) -> T:
        """Runs a call that blocks in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)

    def check_running(self) -> None:
        """Raises ShuttingDownError while the gateway drains."""
        if self._draining:
            raise ShuttingDownError(
                "the gateway is shutting down; try again after its restart", retry_delay_ms=500
            )

    def refuse(self) -> None:
        """From now on the gateway drains."""
        self._draining = True

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen, though the caller may be gone

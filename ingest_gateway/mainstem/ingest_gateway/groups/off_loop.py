"""Computes the targets of large groups beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.supervised import SupervisedTask

T = TypeVar("T")


class OffLoop:
    """Lives on the event loop; see `Targets`, whose `compute` it is."""

    def __init__(self, metrics: GatewayMetrics) -> None:
        self._metrics = metrics
        self._tasks: list[SupervisedTask] = []

    def compute(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Runs `work` in a thread, then `done` with its result on the loop."""

        async def computed() -> None:
            done(await asyncio.to_thread(work))

        self._tasks = [task for task in self._tasks if not task.done]
        self._tasks.append(
            SupervisedTask("assign partitions", computed, self._metrics, returns=True)
        )

    async def close(self) -> None:
        """What is not done by now is not done any more."""
        for task in self._tasks:
            await task.stop()

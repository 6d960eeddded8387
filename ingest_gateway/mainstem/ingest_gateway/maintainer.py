"""Writes checkpoints and cleans the log of the topics that a gateway leads, beside the hot path."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import structlog

from mainstem.delta_log import OpenTopic, Store
from mainstem.delta_log.table import LiveTable, freeze_heap, write_checkpoint
from mainstem.ingest_gateway.gateway_metrics import GatewayMetrics

log = structlog.get_logger()

#: After a failed checkpoint: the log is complete without it, so there is no hurry.
RETRY_AFTER_S = 30.0


class Maintainer:
    """One thread for the checkpoints of all topics: they are rare, and two would only compete.

    Args:
        interval_commits: Table commits of a topic between two checkpoints.
    """

    def __init__(self, interval_commits: int, metrics: GatewayMetrics) -> None:
        self._interval_commits = interval_commits
        self._metrics = metrics
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._running: dict[str, asyncio.Task[None]] = {}
        self._not_before: dict[str, float] = {}
        self._closing = False

    def committed(self, opened: OpenTopic, interval_commits: int | None = None) -> None:
        """Notes a commit; starts a checkpoint when it is due. Never blocks and never raises.

        Args:
            interval_commits: Of this table; None: that of topics.
        """
        behind = opened.state.version - max(opened.state.checkpoint_version, 0)
        interval = interval_commits or self._interval_commits
        if self._closing or behind < interval or opened.topic in self._running:
            return
        if time.monotonic() < self._not_before.get(opened.topic, 0.0):
            return
        task = asyncio.get_running_loop().create_task(self._checkpoint(opened))
        self._running[opened.topic] = task
        task.add_done_callback(lambda _: self._running.pop(opened.topic, None))

    async def close(self, timeout_s: float) -> bool:
        """Waits for the checkpoints that run; returns whether they ended in time."""
        self._closing = True
        tasks = list(self._running.values())
        pending: set[asyncio.Task[None]] = set()
        if tasks:
            _, pending = await asyncio.wait(tasks, timeout=timeout_s)
        self._pool.shutdown(wait=False, cancel_futures=True)
        return not pending

    async def _checkpoint(self, opened: OpenTopic) -> None:
        started = time.monotonic()
        loop = asyncio.get_running_loop()
        # What the checkpoint has to say: no log file goes before a replay of it has said so.
        live = LiveTable.of(opened.state)
        try:
            version = await loop.run_in_executor(self._pool, _write, opened.store, live)
        except asyncio.CancelledError:
            raise
        # Whatever it is, the log is complete without the checkpoint. A panic in delta-rs is no
        # Exception.
        except BaseException as error:
            self._metrics.checkpoints.labels("failed").inc()
            self._not_before[opened.topic] = time.monotonic() + RETRY_AFTER_S
            log.warning(
                "checkpoint failed, will be tried again", topic=opened.topic, error=repr(error)
            )
            return
        opened.state.checkpoint_version = max(version, opened.state.checkpoint_version)
        self._not_before.pop(opened.topic, None)
        self._metrics.checkpoints.labels("written").inc()
        freeze_heap()
        log.info(
            "checkpoint written",
            topic=opened.topic,
            table_version=version,
            seconds=round(time.monotonic() - started, 3),
        )


def _write(store: Store, live: LiveTable) -> int:
    """Writes a checkpoint through a store of its own: the topic's is closed with the topic, and a
    checkpoint that has begun goes on."""
    own = store.bind("")
    try:
        store.check_bound()  # so `own` is the same directory: a name never gets an old one back
        return write_checkpoint(own, live)
    finally:
        own.close()

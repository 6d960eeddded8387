"""Writes checkpoints and cleans the log of the topics that a gateway leads, beside the hot path."""

from __future__ import annotations

import asyncio
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import structlog

from mainstem.delta_log import ObjectStore, OpenTopic
from mainstem.delta_log.format import LAST_CHECKPOINT
from mainstem.delta_log.upkeep import LiveTable, freeze_heap, repair_log, write_checkpoint
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.supervised import SupervisedTask
from mainstem.limits import CHECKPOINT_INTERVAL_COMMITS

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
        #: By the table's URI, here and below: a topic may have the name of a system table.
        self._running: dict[str, SupervisedTask] = {}
        self._not_before: dict[str, float] = {}
        self._closing = False
        #: The store through which a topic's log was looked at, while it is led.
        self._looked_at: weakref.WeakValueDictionary[str, ObjectStore] = (
            weakref.WeakValueDictionary()
        )

    def committed(self, opened: OpenTopic, interval_commits: int | None = None) -> None:
        """Notes a commit; starts a checkpoint when it is due. Never blocks and never raises.

        Args:
            interval_commits: Of this table; None: that of topics.
        """
        behind = opened.state.version - max(opened.state.checkpoint_version, 0)
        is_due = behind >= (interval_commits or self._interval_commits)
        uri = opened.store.uri
        is_new = self._looked_at.get(uri) is not opened.store
        if self._closing or uri in self._running or not (is_due or is_new):
            return
        if time.monotonic() < self._not_before.get(uri, 0.0):
            return
        # Once for each time that it is led: what its last leader, or a restored copy, has left.
        self._looked_at[uri] = opened.store
        self._running[uri] = SupervisedTask(
            "maintain topic",
            lambda: self._maintain(opened, is_new, is_due),
            self._metrics,
            returns=True,
            topic=opened.topic,
        )

    def committed_own(self, opened: OpenTopic) -> None:
        """`committed`, for the platform's own tables."""
        self.committed(opened, CHECKPOINT_INTERVAL_COMMITS)

    async def close(self, timeout_s: float) -> bool:
        """Waits for the checkpoints that run; returns whether they ended in time."""
        self._closing = True
        tasks = list(self._running.values())
        ended = await asyncio.gather(*(task.finish(timeout_s) for task in tasks))
        for task in tasks:
            await task.stop(0.0)
        self._pool.shutdown(wait=False, cancel_futures=True)
        return all(ended)

    async def _maintain(self, opened: OpenTopic, is_new: bool, is_due: bool) -> None:
        if is_new:
            await self._repair(opened)
        if is_due:
            await self._checkpoint(opened)
        self._running.pop(opened.store.uri, None)

    async def _repair(self, opened: OpenTopic) -> None:
        loop = asyncio.get_running_loop()
        try:
            repairs = await loop.run_in_executor(self._pool, repair_log, opened.store)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.warning("the log could not be mended", topic=opened.topic, error=repr(error))
            return
        for repair in repairs:
            is_pointer = repair.file == LAST_CHECKPOINT
            self._metrics.log_repairs.labels("pointer" if is_pointer else "checkpoint").inc()
            log.warning("log mended", topic=opened.topic, file=repair.file, reason=repair.what)

    async def _checkpoint(self, opened: OpenTopic) -> None:
        started = time.monotonic()
        loop = asyncio.get_running_loop()
        # What the checkpoint has to say: no log file goes before a replay of it has said so.
        live = LiveTable.of(opened.state)
        try:
            version = await loop.run_in_executor(self._pool, write_checkpoint, opened.store, live)
        except asyncio.CancelledError:
            raise
        # Whatever it is, the log is complete without the checkpoint. A panic in delta-rs is no
        # Exception.
        except BaseException as error:
            self._metrics.checkpoints.labels("failed").inc()
            self._not_before[opened.store.uri] = time.monotonic() + RETRY_AFTER_S
            log.warning(
                "checkpoint failed, will be tried again", topic=opened.topic, error=repr(error)
            )
            return
        opened.state.note_checkpoint(version)
        self._not_before.pop(opened.store.uri, None)
        self._metrics.checkpoints.labels("written").inc()
        freeze_heap()
        log.info(
            "checkpoint written",
            topic=opened.topic,
            table_version=version,
            seconds=round(time.monotonic() - started, 3),
        )

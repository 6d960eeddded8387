"""A leader's commits: the records of a group, with the roll-ups that wait for one; or these alone.

Runs on the appender's loop; one commit at a time: the caller sees to that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from mainstem.delta_log.actions import Register
from mainstem.delta_log.append_actions import WrittenFile, append_actions, write_slices
from mainstem.delta_log.append_queue import Group
from mainstem.delta_log.appender_metrics import AppenderMetrics
from mainstem.delta_log.committer import TableCommit
from mainstem.delta_log.leader_log import LeaderLog
from mainstem.delta_log.roller import Roller
from mainstem.delta_log.store import Store

Token = TypeVar("Token")


class GroupCommitter:
    """Writes data files and commits them.

    Args:
        store: The topic's.
    """

    def __init__(
        self,
        store: Store,
        log: LeaderLog,
        roller: Roller,
        metrics: AppenderMetrics,
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._log = log
        self._roller = roller
        self._metrics = metrics
        self._clock_ms = clock_ms
        self._monotonic = monotonic

    async def append(self, group: Group[Token], wal: Register | None) -> int:
        """Adds the records of a group to the table.

        Args:
            wal: Says up to which request of the write-ahead log the table has all from now on.

        Returns:
            The table version that has them.

        Raises:
            MainstemError: The topic is lost.
        """
        started = self._monotonic()
        now_ms = self._clock_ms()
        written = await self._write(group, now_ms)
        encoded = self._monotonic()
        self._metrics.append_seconds("encode", encoded - started)
        batches = group.batches()
        actions = append_actions(self._log.state, [one.file for one in written], batches, now_ms)
        if wal is not None:
            actions.append(wal)
        swaps = self._roller.take(len(written))

        def build() -> TableCommit:
            nonlocal swaps
            # Again after each conflict: the winner may have removed what a roll-up replaces.
            swaps = self._roller.checked(swaps)
            return TableCommit.of(
                "APPEND",
                [*actions, *self._roller.actions(swaps, now_ms)],
                timestamp_ms=now_ms,
                batches=batches,
            )

        version = await self._log.commit(build)
        assert version is not None
        self._roller.committed(swaps, written)
        self._metrics.append_seconds("commit", self._monotonic() - encoded)
        return version

    async def swap(self) -> None:
        """Commits roll-ups alone: no records came that they could have gone with.

        Raises:
            MainstemError: The topic is lost.
        """
        now_ms = self._clock_ms()
        swaps = self._roller.take(0)

        def build() -> TableCommit | None:
            nonlocal swaps
            swaps = self._roller.checked(swaps)
            if not swaps:
                return None
            actions = self._roller.actions(swaps, now_ms)
            return TableCommit.of("ROLL UP", actions, timestamp_ms=now_ms)

        if await self._log.commit(build) is not None:
            self._roller.committed(swaps)

    async def _write(self, group: Group[Token], now_ms: int) -> list[WrittenFile]:
        """Writes a data file for each partition of a group."""
        write = partial(
            write_slices,
            self._store,
            compression_type=self._log.state.config.compression_type,
            now_ms=now_ms,
            content_bytes_max=self._roller.content_bytes_max,
        )
        writes = [
            asyncio.ensure_future(self._log.until_stored(write, partition, base_offset, slices))
            for partition, (base_offset, slices) in sorted(group.by_partition().items())
        ]
        try:
            return await asyncio.gather(*writes)
        except BaseException:
            for one in writes:  # or they would go on trying while the store fails
                one.cancel()
            raise

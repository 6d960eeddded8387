"""Where open transactions keep what was sent: in memory up to a bound, and beyond it in the store.

On the event loop; staged objects are written in a thread of the pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence, Set
from concurrent.futures import Executor
from functools import partial
from typing import Final

import structlog

from mainstem.delta_log import Slice
from mainstem.delta_log.format import Batch
from mainstem.delta_log.staging import StagingArea
from mainstem.errors import BackPressureError, MainstemError
from mainstem.ingest_gateway.transactions.opened import OpenTransaction
from mainstem.limits import MIB

log = structlog.get_logger()

#: A transaction of more does not wait for others to need the memory: its end would take as long as
#: writing all of it.
OBJECT_BYTES: Final = 8 * MIB

#: While objects are written, what comes meanwhile may take as much again as the bound.
_HARD_FACTOR: Final = 2

_RETRY_DELAY_MS: Final = 100


class Staging:
    """What all open transactions of a coordinator have sent.

    Args:
        limit_bytes: That it keeps in memory.
    """

    def __init__(self, area: StagingArea, pool: Executor, limit_bytes: int) -> None:
        self._area = area
        self._pool = pool
        self._limit_bytes = limit_bytes
        self._locks: dict[OpenTransaction, asyncio.Lock] = {}
        self.used_bytes = 0

    def begin(self, opened: OpenTransaction) -> None:
        """A transaction may add from now on."""
        self._locks[opened] = asyncio.Lock()

    async def add(
        self,
        opened: OpenTransaction,
        topic: str,
        topic_id: str,
        slices: Sequence[Slice],
        size_bytes: int,
    ) -> tuple[Batch, ...]:
        """Takes records; see `OpenTransaction.add`. Returns when there is room for more.

        Raises:
            BackPressureError: Too much waits to be written. Nothing was taken.
            StoreUnavailableError: What is too much could not be written; the records are taken.
        """
        if self.used_bytes + size_bytes > _HARD_FACTOR * self._limit_bytes and self.used_bytes:
            raise BackPressureError(
                f"open transactions hold {self.used_bytes} bytes in memory of at most "
                f"{self._limit_bytes} (transaction.memory.bytes) and as much again while they are "
                f"written; send the batch again in {_RETRY_DELAY_MS} ms",
                retry_delay_ms=_RETRY_DELAY_MS,
                queued_bytes=self.used_bytes,
                limit_bytes=self._limit_bytes,
            )
        before = opened.memory_bytes
        batches = opened.add(topic, topic_id, slices, size_bytes)
        self.used_bytes += opened.memory_bytes - before
        if opened.memory_bytes >= OBJECT_BYTES:
            await self.write(opened)
        while self.used_bytes > self._limit_bytes:
            await self.write(max(self._locks, key=lambda one: one.memory_bytes))
        return batches

    async def write(self, opened: OpenTransaction) -> None:
        """Puts what a transaction has in memory alone into a staged object: durable then.

        Raises:
            StoreUnavailableError: The store failed; it is in memory as before.
        """
        lock = self._locks.get(opened)
        if lock is None:
            return  # it has ended meanwhile
        async with lock:
            taken = opened.take_memory()
            if not taken:
                return
            freed = opened.memory_bytes
            try:
                written = await asyncio.get_running_loop().run_in_executor(
                    self._pool, partial(self._area.write, taken)
                )
            except BaseException:
                opened.put_back(taken)
                raise
            if opened not in self._locks:  # it was given up while this was written
                await self.delete({written.name})
                return
            opened.staged(taken, written.name, freed)
            self.used_bytes -= freed

    def end(self, opened: OpenTransaction) -> None:
        """Nothing of it is needed in memory any more."""
        if self._locks.pop(opened, None) is not None:
            self.used_bytes -= opened.memory_bytes
            opened.memory_bytes = 0

    def give_up(self, opened: OpenTransaction) -> set[str]:
        """An aborted transaction: returns its staged objects, to be deleted."""
        self.end(opened)
        return {name for sent in opened.topics.values() for name in sent.staged}

    async def sweep(self, needed: Set[str]) -> None:
        """Deletes what earlier terms have left, but for what is needed. Of a later term, which may
        have taken the tables meanwhile, it deletes nothing."""
        try:
            await asyncio.get_running_loop().run_in_executor(
                self._pool, partial(self._area.sweep, needed)
            )
        except MainstemError as error:
            log.warning("staged objects were not looked through", error=error.message)

    async def delete(self, names: Iterable[str]) -> None:
        """Deletes objects that nobody needs; what fails is left for the next start."""
        wanted = sorted(names)
        if not wanted:
            return
        try:
            await asyncio.get_running_loop().run_in_executor(
                self._pool, partial(self._area.delete, wanted)
            )
        except MainstemError as error:
            log.warning("staged objects are left", count=len(wanted), error=error.message)

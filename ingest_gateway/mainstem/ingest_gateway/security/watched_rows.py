"""A small system table that every gateway follows: its rows here are those of half a second ago."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from typing import Final, Generic, TypeVar

import structlog

from mainstem.delta_log.append import retrieve
from mainstem.delta_log.system import RowTable
from mainstem.errors import MainstemError

log = structlog.get_logger()

R = TypeVar("R")
T = TypeVar("T")

#: `close` waits no longer for a store that hangs.
_CLOSE_S_MAX: Final = 2.0

#: Between two looks at the table: a change is in force everywhere within a second.
LOOK_EVERY_S: Final = 0.5


class WatchedRows(Generic[R]):
    """On the event loop; the table's calls run in `pool`, one at a time.

    While the table cannot be read, the rows that were read before stay in force.

    Args:
        name: Of the table, for the log.
        open_table: Opens it, and makes it if it is not there; blocks.
        on_rows: Called with the newest row of each key, at the start and when they have changed.
    """

    def __init__(
        self,
        name: str,
        open_table: Callable[[], RowTable[R]],
        pool: Executor,
        on_rows: Callable[[Mapping[str, R]], None],
    ) -> None:
        self._name = name
        self._open_table = open_table
        self._pool = pool
        self._on_rows = on_rows
        self._lock = asyncio.Lock()
        self._table: RowTable[R] | None = None
        self._rows: dict[str, R] | None = None
        self._fails = False

    @property
    def rows(self) -> Mapping[str, R]:
        """The newest that were read."""
        return self._rows or {}

    async def start(self) -> None:
        """Opens the table and reads it.

        Raises:
            StoreUnavailableError: The store failed.
        """
        await self._alone(self._start)

    async def look(self) -> None:
        """Reads what has changed.

        Raises:
            StoreUnavailableError: The store failed.
        """
        await self._alone(self._look)

    async def update(self, change: Callable[[dict[str, R]], Mapping[str, R | None]]) -> None:
        """Changes rows, here at once and everywhere within a second. See `RowTable.update`."""

        async def write() -> None:
            assert self._table is not None
            table = self._table
            await self._run(lambda: table.update(change))
            await self._look()

        await self._alone(write)

    async def close(self) -> None:
        """Waits until nothing uses the table, for some seconds at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S_MAX), self._lock:
                pass

    async def watch(self) -> None:
        """Looks again and again, until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self.look()
            except MainstemError as error:
                if not self._fails:  # once, not twice a second
                    log.warning(
                        "a table of security cannot be read; what was read before stays in force",
                        table=self._name,
                        error=error.message,
                    )
                self._fails = True
            else:
                self._fails = False

    async def _start(self) -> None:
        self._table = await self._run(self._open_table)
        await self._look()

    async def _look(self) -> None:
        assert self._table is not None
        rows = await self._run(self._table.read)
        if rows != self._rows:
            self._rows = rows
            self._on_rows(rows)

    async def _alone(self, work: Callable[[], Awaitable[None]]) -> None:
        """Works with the table while nobody else does. It goes on when the caller goes away: the
        thread would still use the table when the next caller came to it."""

        async def locked() -> None:
            async with self._lock:
                await work()

        working = asyncio.ensure_future(locked())
        working.add_done_callback(retrieve)
        await asyncio.shield(working)

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

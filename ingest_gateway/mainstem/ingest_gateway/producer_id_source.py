"""Gives producer ids out: numbers that the gateway has taken from `system/producer_ids`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Final, TypeVar

from mainstem.delta_log import ObjectStore
from mainstem.delta_log.append import ProducerIds, retrieve
from mainstem.delta_log.system import ProducerIdsTable
from mainstem.delta_log.table import OpenTopic
from mainstem.errors import UnknownProducerIdError

T = TypeVar("T")

#: Numbers that are taken with one commit.
BLOCK: Final = 1_000


class ProducerIdSource:
    """The producer ids of one gateway. On the event loop; the table's calls run in `pool`.

    Args:
        on_commit: Called after each commit to the table, for maintenance.
    """

    def __init__(
        self,
        store: ObjectStore,
        pool: Executor,
        on_commit: Callable[[OpenTopic], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._pool = pool
        self._on_commit = on_commit
        self._lock = asyncio.Lock()
        self._numbers: Iterator[int] = iter(())
        self._table: ProducerIdsTable | None = None
        self._ids: ProducerIds | None = None

    async def start(self) -> ProducerIds:
        """Opens the table, and makes it if it is not there.

        Returns:
            Tells which ids were given out, by any gateway of the warehouse.

        Raises:
            StoreUnavailableError: The store failed.
        """
        self._table = table = await self._run(lambda: ProducerIdsTable(self._store))
        self._ids = ProducerIds(await self._run(table.secret))
        return self._ids

    def check_owner(self, producer_id: int, owner: str) -> None:
        """Whether an id is that principal's, where it is asked who calls. One that is another's is
        refused as one that nobody has: the answer does not tell which there are.

        Raises:
            UnknownProducerIdError: It is not.
        """
        assert self._ids is not None
        if owner and not self._ids.has_given(producer_id, owner):
            raise UnknownProducerIdError(
                f"no gateway of this warehouse has given the producer id {producer_id} to {owner}; "
                "take one with InitProducer and begin at sequence 0",
                producer_id=producer_id,
            )

    async def next(self, owner: str = "") -> int:
        """An id that nobody has, or had.

        Args:
            owner: The principal that it is for; empty: nobody is asked who they are.

        Raises:
            StoreUnavailableError: The store failed.
        """
        assert self._ids is not None
        number = next(self._numbers, None)
        if number is None:
            # It goes on when the caller goes away: the thread would still use the table when the
            # next caller came to it.
            taking = asyncio.ensure_future(self._next_number())
            taking.add_done_callback(retrieve)
            number = await asyncio.shield(taking)
        return self._ids.of(number, owner)

    async def close(self) -> None:
        """Releases the table."""
        async with self._lock:
            self._table = None

    async def _next_number(self) -> int:
        async with self._lock:
            number = next(self._numbers, None)  # another call may have taken a block meanwhile
            return await self._take_block() if number is None else number

    async def _take_block(self) -> int:
        assert self._table is not None, "closed"
        table = self._table
        self._numbers = iter(await self._run(lambda: table.take(BLOCK)))
        self._on_commit(table.opened)
        return next(self._numbers)

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

"""The access control lists of a warehouse, followed and changed by one gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor

from mainstem.delta_log import ObjectStore
from mainstem.delta_log.system import AclsChange, AclsTable, all_rules
from mainstem.ingest_gateway.security.watched_rows import WatchedRows
from mainstem.security import AclBinding, Acls


class FollowedAcls:
    """On the event loop; the table's calls run in `pool`.

    Where the rules are not in force, the table is opened and read only when somebody asks: a
    warehouse that needs no rules gets no table of them.

    Args:
        acls: Gets the rules.
        in_force: Whether the rules decide here: then they are followed from `start` on.

    Attributes:
        acls: Decides by the rules that were read last.
        in_force: As given.
    """

    def __init__(self, acls: Acls, store: ObjectStore, pool: Executor, *, in_force: bool) -> None:
        self.acls = acls
        self.in_force = in_force
        self._rows = WatchedRows("acls", lambda: AclsTable(store), pool, self._take)
        self._opening = asyncio.Lock()
        self._is_open = False

    async def start(self) -> None:
        """Reads the rules, if they are in force.

        Raises:
            StoreUnavailableError: The store failed.
            LogDamagedError: There are rules that are not understood.
        """
        if self.in_force:
            await self._open()

    async def watch(self) -> None:
        """Follows the table, until it is cancelled."""
        await self._rows.watch()

    async def rules(self) -> list[AclBinding]:
        """The rules of now.

        Raises:
            StoreUnavailableError: The store failed.
        """
        await self._open()
        await self._rows.look()
        return all_rules(self._rows.rows)

    async def change(self, change: AclsChange) -> None:
        """Adds or removes rules: in force here at once, and everywhere within a second.

        Raises:
            StoreUnavailableError, OutcomeUnknownError: See `RowTable.update`.
            PolicyViolationError: There would be too many rules.
        """
        await self._open()
        await self._rows.update(change)

    async def close(self) -> None:
        """Waits until nothing uses the table, for some seconds at most."""
        await self._rows.close()

    async def _open(self) -> None:
        async with self._opening:
            if not self._is_open:
                await self._rows.start()
                self._is_open = True

    def _take(self, rows: Mapping[str, tuple[AclBinding, ...]]) -> None:
        self.acls.replace(all_rules(rows))

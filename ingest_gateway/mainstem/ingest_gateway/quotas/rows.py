"""Follows the table `system/quotas`, once anybody has made it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Final

import structlog

from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.system import QuotaRow, QuotasTable, quota_entity, quota_key
from mainstem.errors import InvalidConfigError, MainstemError
from mainstem.ingest_gateway.quotas.quotas import Quotas
from mainstem.ingest_gateway.security import WatchedRows
from mainstem.security import QuotaEntity, QuotaName

log = structlog.get_logger()

#: Between two looks for the table where there is none: most warehouses never have one.
LOOK_FOR_IT_EVERY_S: Final = 2.0

#: Entities with quotas: the table is one of few rows.
QUOTAS_MAX: Final = 1_000

#: What one alteration makes of the values of an entity.
Alter = Callable[[dict[QuotaName, float]], None]


class FollowedQuotas:
    """On the event loop; the table's calls run in `pool`.

    Args:
        quotas: Is told what is in force.
    """

    def __init__(self, store: ObjectStore, pool: Executor, quotas: Quotas) -> None:
        self._store = store
        self._pool = pool
        self._quotas = quotas
        self._rows = WatchedRows("quotas", lambda: QuotasTable(store), pool, self._changed)
        self._lock = asyncio.Lock()
        self._is_open = False

    async def run(self) -> None:
        """Follows the table until it is cancelled."""
        fails = False
        while not self._is_open:
            try:
                exists = await asyncio.get_running_loop().run_in_executor(
                    self._pool, QuotasTable.exists, self._store
                )
                if exists:
                    await self._open()
                    break
                fails = False
            except MainstemError as error:
                if not fails:  # once, not every two seconds
                    log.warning("quotas cannot be read; none is in force", error=error.message)
                fails = True
            await asyncio.sleep(LOOK_FOR_IT_EVERY_S)
        await self._rows.watch()

    async def alter(self, alterations: Mapping[QuotaEntity, Alter]) -> None:
        """Changes the quotas of some, all or none; in force here when this returns.

        Raises:
            InvalidConfigError: There would be too many.
            StoreUnavailableError: The store failed.
            OutcomeUnknownError: Nobody can tell whether they were changed.
        """
        await self._open()

        def change(rows: dict[str, QuotaRow]) -> Mapping[str, QuotaRow | None]:
            changed: dict[str, QuotaRow | None] = {}
            for entity, alter in alterations.items():
                key = quota_key(entity)
                old = rows.get(key)
                values = dict(old or {})
                alter(values)
                if values != (old or {}):
                    changed[key] = values or None
            count = len({**rows, **changed}) - sum(row is None for row in changed.values())
            if count > QUOTAS_MAX and count > len(rows):
                raise InvalidConfigError(
                    f"there would be quotas of {count} entities, and {QUOTAS_MAX} are the most; "
                    "use <default>",
                    limit_quotas=QUOTAS_MAX,
                )
            return changed

        await self._rows.update(change)

    async def _open(self) -> None:
        async with self._lock:
            if not self._is_open:
                await self._rows.start()
                self._is_open = True

    def _changed(self, rows: Mapping[str, QuotaRow]) -> None:
        self._quotas.replace({quota_entity(key): row for key, row in rows.items() if row})

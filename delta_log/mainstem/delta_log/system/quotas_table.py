"""The table `system/quotas`: how much of a gateway somebody may use. One row for each entity."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.system.row_table import RowTable
from mainstem.delta_log.topics import SYSTEM, Topics
from mainstem.security import QuotaEntity, QuotaName

NAME: Final = "quotas"

QuotaRow = Mapping[QuotaName, float]


class QuotasTable(RowTable[QuotaRow]):
    """The table, open; made if it is not there. Calls block; one caller at a time."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store, NAME, operation="QUOTAS", encode=_encode, decode=_decode)

    @staticmethod
    def exists(store: ObjectStore) -> bool:
        """Whether anybody has set a quota."""
        return Topics(store, folder=SYSTEM).exists(NAME)


def quota_key(entity: QuotaEntity) -> str:
    """The key of an entity's row, whatever characters its names have."""
    return json.dumps([entity.principal, entity.client_id])


def quota_entity(key: str) -> QuotaEntity:
    """The way back."""
    principal, client_id = json.loads(key)
    return QuotaEntity(principal, client_id)


def _encode(row: QuotaRow) -> dict[str, float]:
    return {name.value: value for name, value in row.items()}


def _decode(body: Mapping[str, Any]) -> QuotaRow:
    known = set(QuotaName)  # a newer gateway may have more
    return {QuotaName(name): float(value) for name, value in body.items() if name in known}

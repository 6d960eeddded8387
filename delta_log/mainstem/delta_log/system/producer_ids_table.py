"""The table `system/producer_ids`: the secret of producer ids, and how many were given out.

Gateways take numbers from it in blocks, so that no two give the same one, now or ever. What a
gateway has not given out of a block when it ends is lost.

Source: KIP-730 (blocks of producer ids).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.system.row_table import RowTable
from mainstem.errors import InternalError
from mainstem.limits import PRODUCER_NUMBER_MAX

NAME: Final = "producer_ids"

_KEY: Final = "warehouse"
_SECRET_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class ProducerIdsRow:
    """The only row.

    Attributes:
        secret: In hexadecimal.
        next_number: All before it are given out, or were taken to be.
    """

    secret: str
    next_number: int


class ProducerIdsTable(RowTable[ProducerIdsRow]):
    """The table, open; made if it is not there. Calls block; one caller at a time."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store, NAME, operation="PRODUCER IDS", encode=asdict, decode=_decode)

    def secret(self) -> bytes:
        """The secret of `ProducerIds`; made if there is none.

        Raises:
            StoreUnavailableError: The store failed.
        """
        rows = self.read()
        if _KEY not in rows:
            self.update(lambda rows: {} if _KEY in rows else {_KEY: _first_row()})
            rows = self.read()
        return bytes.fromhex(rows[_KEY].secret)

    def take(self, count: int) -> range:
        """Takes the next numbers: nobody else gets them.

        Raises:
            StoreUnavailableError: The store failed. The numbers may be lost.
            InternalError: There are none left.
        """
        taken = range(0)

        def change(rows: dict[str, ProducerIdsRow]) -> Mapping[str, ProducerIdsRow]:
            nonlocal taken
            row = rows.get(_KEY) or _first_row()
            taken = range(row.next_number, row.next_number + count)
            if taken.stop > PRODUCER_NUMBER_MAX + 1:
                raise InternalError(f"all {PRODUCER_NUMBER_MAX} producer ids are given out")
            return {_KEY: replace(row, next_number=taken.stop)}

        self.update(change)
        return taken


def _first_row() -> ProducerIdsRow:
    return ProducerIdsRow(secrets.token_hex(_SECRET_BYTES), 1)


def _decode(body: Mapping[str, Any]) -> ProducerIdsRow:
    return ProducerIdsRow(body["secret"], body["next_number"])

"""The table `system/cluster`: a row for each gateway, with the topics whose lease it holds.

Each gateway replaces its own row, by its id, and takes those away that are not renewed any more: a
row that is gone has no leases. Leases keep gateways from fighting; what keeps them
from both writing is the epoch in the topic's own log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.system.row_table import RowTable
from mainstem.delta_log.topics import SYSTEM, Topics

NAME: Final = "cluster"


@dataclass(frozen=True, slots=True)
class GatewayRow:
    """What a gateway says of itself.

    Attributes:
        incarnation: A new one each time the gateway starts.
        heartbeat_ms: When it wrote the row, by its own clock.
        topics: Whose lease it holds, sorted.
    """

    gateway_id: str
    incarnation: str
    address: str
    rack: str
    heartbeat_ms: int
    topics: tuple[str, ...] = ()


class ClusterTable(RowTable[GatewayRow]):
    """The table, open; made if it is not there. Calls block; one caller at a time."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store, NAME, operation="HEARTBEAT", encode=asdict, decode=_decode)


def last_heartbeat_ms(store: ObjectStore) -> int:
    """When a gateway was heard of last, by its own clock; 0: none is known. Blocks.

    Raises:
        StoreUnavailableError: The store failed.
        LogDamagedError: The table is damaged.
    """
    if not Topics(store, folder=SYSTEM).exists(NAME):
        return 0
    rows = ClusterTable(store).read().values()
    return max((row.heartbeat_ms for row in rows), default=0)


def _decode(body: Mapping[str, Any]) -> GatewayRow:
    return GatewayRow(
        body["gateway_id"],
        body["incarnation"],
        body["address"],
        body["rack"],
        body["heartbeat_ms"],
        tuple(body["topics"]),
    )

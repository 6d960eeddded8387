"""The table `system/cluster`: a row for each gateway, with the topics whose lease it holds.

Each gateway replaces its own row, by its id. Leases keep gateways from fighting; what keeps them
from both writing is the epoch in the topic's own log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from mainstem.delta_log.store import Store
from mainstem.delta_log.system.row_table import RowTable

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

    def __init__(self, store: Store) -> None:
        super().__init__(store, NAME, operation="HEARTBEAT", encode=asdict, decode=_decode)

    def write(
        self, gateway_id: str, make: Callable[[dict[str, GatewayRow]], GatewayRow | None]
    ) -> None:
        """Replaces the gateway's row by what `make` makes of the rows that are there.

        Args:
            make: Called again when another gateway was first; raises to write nothing. None takes
                the row away: its leases are free at once.

        Raises:
            StoreUnavailableError: The store failed, or other gateways were always first.
            MainstemError: What `make` raised.
        """
        self.update(lambda rows: {gateway_id: make(rows)})


def _decode(body: Mapping[str, Any]) -> GatewayRow:
    return GatewayRow(
        body["gateway_id"],
        body["incarnation"],
        body["address"],
        body["rack"],
        body["heartbeat_ms"],
        tuple(body["topics"]),
    )

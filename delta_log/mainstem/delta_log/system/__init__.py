"""The platform's own small tables and objects below `system/`."""

from mainstem.delta_log.system.gateway_beats import (
    DIRECTORY,
    BeatName,
    GatewayBeat,
    gateway_key,
    last_heartbeat_ms,
    new_incarnation,
    read_beat,
)
from mainstem.delta_log.system.producer_ids_table import ProducerIdsTable
from mainstem.delta_log.system.row_table import RowTable
from mainstem.delta_log.system.warehouse_id import (
    WAREHOUSE_FILE,
    make_warehouse_id,
    read_warehouse_id,
)

__all__ = [
    "DIRECTORY",
    "WAREHOUSE_FILE",
    "BeatName",
    "GatewayBeat",
    "ProducerIdsTable",
    "RowTable",
    "gateway_key",
    "last_heartbeat_ms",
    "make_warehouse_id",
    "new_incarnation",
    "read_beat",
    "read_warehouse_id",
]

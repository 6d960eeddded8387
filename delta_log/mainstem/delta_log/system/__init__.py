"""The platform's own small tables below `system/`."""

from mainstem.delta_log.system.cluster_table import ClusterTable, GatewayRow, last_heartbeat_ms
from mainstem.delta_log.system.producer_ids_table import ProducerIdsTable
from mainstem.delta_log.system.row_table import RowTable
from mainstem.delta_log.system.warehouse_id import (
    WAREHOUSE_FILE,
    make_warehouse_id,
    read_warehouse_id,
)

__all__ = [
    "WAREHOUSE_FILE",
    "ClusterTable",
    "GatewayRow",
    "ProducerIdsTable",
    "RowTable",
    "last_heartbeat_ms",
    "make_warehouse_id",
    "read_warehouse_id",
]

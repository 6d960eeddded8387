"""The platform's own small tables below `system/`."""

from mainstem.delta_log.system.cluster_table import ClusterTable, GatewayRow, last_heartbeat_ms
from mainstem.delta_log.system.producer_ids_table import ProducerIdsTable
from mainstem.delta_log.system.row_table import RowTable

__all__ = ["ClusterTable", "GatewayRow", "ProducerIdsTable", "RowTable", "last_heartbeat_ms"]

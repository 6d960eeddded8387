"""The platform's own small tables and objects below `system/`."""

from mainstem.delta_log.system.acls_table import AclsChange, AclsTable, all_rules
from mainstem.delta_log.system.appended_table import AppendedRow, AppendedTable, Appending
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
from mainstem.delta_log.system.quotas_table import (
    QuotaRow,
    QuotasTable,
    quota_entity,
    quota_key,
)
from mainstem.delta_log.system.row_table import RowTable
from mainstem.delta_log.system.users_table import (
    USERS_TABLE,
    Deletion,
    User,
    change_users,
    check_changes,
    open_users,
)
from mainstem.delta_log.system.warehouse_id import (
    WAREHOUSE_FILE,
    make_warehouse_id,
    read_warehouse_id,
)
from mainstem.delta_log.system.whole_look import (
    LOOK_KEY,
    PINNED_S,
    UNKNOWN_VERSION,
    published_versions,
    whole_versions,
)

__all__ = [
    "DIRECTORY",
    "LOOK_KEY",
    "PINNED_S",
    "UNKNOWN_VERSION",
    "USERS_TABLE",
    "WAREHOUSE_FILE",
    "AclsChange",
    "AclsTable",
    "AppendedRow",
    "AppendedTable",
    "Appending",
    "BeatName",
    "Deletion",
    "GatewayBeat",
    "ProducerIdsTable",
    "QuotaRow",
    "QuotasTable",
    "RowTable",
    "User",
    "all_rules",
    "change_users",
    "check_changes",
    "gateway_key",
    "last_heartbeat_ms",
    "make_warehouse_id",
    "new_incarnation",
    "open_users",
    "published_versions",
    "quota_entity",
    "quota_key",
    "read_beat",
    "read_warehouse_id",
    "whole_versions",
]

"""Keeps a table's log short and whole: checkpoints, log clean-up, repair."""

from mainstem.delta_log.upkeep.live_table import (
    LiveTable,
)
from mainstem.delta_log.upkeep.log_cleanup import (
    clean_log,
    cut_off_ms,
    cut_off_version,
)
from mainstem.delta_log.upkeep.log_repair import (
    Repair,
    damaged_checkpoints,
    pointer_fault,
    repair_log,
)
from mainstem.delta_log.upkeep.maintenance import (
    create_checkpoint,
    freeze_heap,
    write_checkpoint,
)

__all__ = [
    "LiveTable",
    "Repair",
    "clean_log",
    "create_checkpoint",
    "cut_off_ms",
    "cut_off_version",
    "damaged_checkpoints",
    "freeze_heap",
    "pointer_fault",
    "repair_log",
    "write_checkpoint",
]

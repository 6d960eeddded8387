"""Copies of topics outside the warehouse, and the way back: data files as they are, and a manifest.

A copy is of one version of the topic's table, so it is consistent while others write. It is whole
once its manifest is there, which is written last.
"""

from mainstem.delta_log.backup.backup import back_up
from mainstem.delta_log.backup.manifest import (
    BACKUP_VERSION,
    MANIFEST,
    BackupFile,
    Manifest,
    PartitionCopy,
    read_manifest,
)
from mainstem.delta_log.backup.restore import check_backup, restore

__all__ = [
    "BACKUP_VERSION",
    "MANIFEST",
    "BackupFile",
    "Manifest",
    "PartitionCopy",
    "back_up",
    "check_backup",
    "read_manifest",
    "restore",
]

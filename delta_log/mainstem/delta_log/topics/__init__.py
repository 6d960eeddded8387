"""The topics of a warehouse: how they are created, opened, listed, changed and deleted."""

from mainstem.delta_log.topics.topics import (
    OFFSETS_TABLE,
    SYSTEM,
    TOPICS,
    TRANSACTIONS_TABLE,
    Topics,
    added_partitions,
    altered_config,
)

__all__ = [
    "OFFSETS_TABLE",
    "SYSTEM",
    "TOPICS",
    "TRANSACTIONS_TABLE",
    "Topics",
    "added_partitions",
    "altered_config",
]

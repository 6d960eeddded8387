"""The commit log: topics as Delta tables, one committer, group commit, and reading by offset."""

from mainstem.errors import extra_of

with extra_of("mainstem.delta_log"):
    from mainstem.delta_log.append import Appended, Appender, ByteBudget, CommittedRecords
    from mainstem.delta_log.files import RollUpMemory, Slice, read_data_file
    from mainstem.delta_log.metrics import AppenderMetrics
    from mainstem.delta_log.store import LocalStore, ObjectStore
    from mainstem.delta_log.table import (
        Committed,
        Committer,
        Conflict,
        OpenTopic,
        OutcomeUnknown,
        TableState,
        load_table,
    )
    from mainstem.delta_log.topics import Topics

__all__ = [
    "Appended",
    "Appender",
    "AppenderMetrics",
    "ByteBudget",
    "Committed",
    "CommittedRecords",
    "Committer",
    "Conflict",
    "LocalStore",
    "ObjectStore",
    "OpenTopic",
    "OutcomeUnknown",
    "RollUpMemory",
    "Slice",
    "TableState",
    "Topics",
    "load_table",
    "read_data_file",
]

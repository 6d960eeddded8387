"""The commit log: topics as Delta tables, one committer, group commit, and reading by offset."""

from mainstem.delta_log.append_queue import ByteBudget, Slice
from mainstem.delta_log.append_waiter import Appended
from mainstem.delta_log.appender import Appender, CommittedRecords
from mainstem.delta_log.appender_metrics import AppenderMetrics
from mainstem.delta_log.committer import Committed, Committer, Conflict, OutcomeUnknown
from mainstem.delta_log.data_file import read_data_file
from mainstem.delta_log.local_store import LocalStore
from mainstem.delta_log.roll_up import RollUpMemory
from mainstem.delta_log.snapshot import load_table, refresh_table
from mainstem.delta_log.store import Store
from mainstem.delta_log.table_state import TableState
from mainstem.delta_log.topics import OpenTopic, Topics

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
    "OpenTopic",
    "OutcomeUnknown",
    "RollUpMemory",
    "Slice",
    "Store",
    "TableState",
    "Topics",
    "load_table",
    "read_data_file",
    "refresh_table",
]

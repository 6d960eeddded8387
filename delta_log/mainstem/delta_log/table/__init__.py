"""A topic's Delta table: its actions and state, and how it is read, committed to and kept small."""

from mainstem.delta_log.table import registers
from mainstem.delta_log.table.actions import (
    WRITER_FEATURES,
    Action,
    Batch,
    CommitInfo,
    DataFile,
    Metadata,
    ProducerBatch,
    Protocol,
    Register,
    Remove,
    decode_commit,
    decode_info,
    encode_commit,
    register_value,
    same_table,
)
from mainstem.delta_log.table.clocks import (
    LogClock,
    SteadyClock,
    time_elapsed_ms,
    time_elapsed_s,
    wall_clock_ms,
)
from mainstem.delta_log.table.commit_drivers import (
    AsyncCommits,
    FileSuperseded,
    claim_lead,
    commit_beside_leader,
    is_expired,
    replace_files,
)
from mainstem.delta_log.table.commit_loop import (
    BESIDE_LEADER,
    CHANGE,
    LEADER,
    Build,
    Landed,
    LogOvertakenError,
    OthersFirstError,
    topic_deleted_error,
)
from mainstem.delta_log.table.committer import (
    CommitOutcome,
    Committed,
    Committer,
    Conflict,
    FileGone,
    NewFile,
    NotThere,
    OutcomeUnknown,
    Overtaken,
    TableCommit,
)
from mainstem.delta_log.table.file_index import PartitionFiles
from mainstem.delta_log.table.followed import OpenTopic
from mainstem.delta_log.table.last_checkpoint import last_checkpoint_version
from mainstem.delta_log.table.live_table import LiveTable, check_checkpoint
from mainstem.delta_log.table.log_cleanup import clean_log, cut_off_ms, cut_off_version
from mainstem.delta_log.table.log_files import (
    LAST_CHECKPOINT,
    LOG,
    LogFiles,
    checkpoint_path,
    commit_path,
)
from mainstem.delta_log.table.log_repair import (
    Repair,
    damaged_checkpoints,
    pointer_fault,
    repair_log,
)
from mainstem.delta_log.table.maintenance import (
    create_checkpoint,
    freeze_heap,
    write_checkpoint,
)
from mainstem.delta_log.table.parquet import parquet_file
from mainstem.delta_log.table.read_ahead import read_ahead
from mainstem.delta_log.table.removals import Removal, Removals, known_paths, read_removals
from mainstem.delta_log.table.replay import check_replay, open_delta_table
from mainstem.delta_log.table.snapshot import commits_written_ms, load_table, read_commit
from mainstem.delta_log.table.state import FORMAT, TableState
from mainstem.delta_log.table.topics import (
    SYSTEM,
    TOPICS,
    Topics,
    added_partitions,
    altered_config,
)
from mainstem.delta_log.table.trimming import (
    HIGH_WATERMARK,
    believed_ms,
    file_time_ms,
    trim_step,
    trim_targets,
)
from mainstem.delta_log.table.version_mark import VersionMark

__all__ = [
    "BESIDE_LEADER",
    "CHANGE",
    "FORMAT",
    "HIGH_WATERMARK",
    "LAST_CHECKPOINT",
    "LEADER",
    "LOG",
    "SYSTEM",
    "TOPICS",
    "WRITER_FEATURES",
    "Action",
    "AsyncCommits",
    "Batch",
    "Build",
    "CommitInfo",
    "CommitOutcome",
    "Committed",
    "Committer",
    "Conflict",
    "DataFile",
    "FileGone",
    "FileSuperseded",
    "Landed",
    "LiveTable",
    "LogClock",
    "LogFiles",
    "LogOvertakenError",
    "Metadata",
    "NewFile",
    "NotThere",
    "OpenTopic",
    "OthersFirstError",
    "OutcomeUnknown",
    "Overtaken",
    "PartitionFiles",
    "ProducerBatch",
    "Protocol",
    "Register",
    "Removal",
    "Removals",
    "Remove",
    "Repair",
    "SteadyClock",
    "TableCommit",
    "TableState",
    "Topics",
    "VersionMark",
    "added_partitions",
    "altered_config",
    "believed_ms",
    "check_checkpoint",
    "check_replay",
    "checkpoint_path",
    "claim_lead",
    "clean_log",
    "commit_beside_leader",
    "commit_path",
    "commits_written_ms",
    "create_checkpoint",
    "cut_off_ms",
    "cut_off_version",
    "damaged_checkpoints",
    "decode_commit",
    "decode_info",
    "encode_commit",
    "file_time_ms",
    "freeze_heap",
    "is_expired",
    "known_paths",
    "last_checkpoint_version",
    "load_table",
    "open_delta_table",
    "parquet_file",
    "pointer_fault",
    "read_ahead",
    "read_commit",
    "read_removals",
    "register_value",
    "registers",
    "repair_log",
    "replace_files",
    "same_table",
    "time_elapsed_ms",
    "time_elapsed_s",
    "topic_deleted_error",
    "trim_step",
    "trim_targets",
    "wall_clock_ms",
    "write_checkpoint",
]

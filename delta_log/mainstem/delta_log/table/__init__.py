"""A topic's Delta table: its state, and how it is read, followed and committed to."""

from mainstem.delta_log.table.async_driver import TOPIC_CALLS_MAX, AsyncCommits
from mainstem.delta_log.table.blocking_commits import claim_lead, commit_beside_leader, commit_under
from mainstem.delta_log.table.commit_loop import (
    BESIDE_LEADER,
    CHANGE,
    CREATE,
    Build,
    Landed,
    LogOvertakenError,
    OthersFirstError,
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
    put_new_files,
)
from mainstem.delta_log.table.file_index import (
    FileIndex,
    PartitionFiles,
)
from mainstem.delta_log.table.followed import (
    OpenTopic,
)
from mainstem.delta_log.table.removals import (
    Removal,
    Removals,
    known_paths,
    read_removals,
)
from mainstem.delta_log.table.replacing import FileSuperseded, is_expired, replace_files
from mainstem.delta_log.table.replay import (
    check_replay,
    open_delta_table,
)
from mainstem.delta_log.table.snapshot import (
    action_rows,
    commits_written_ms,
    has_log,
    load_table,
    read_commit,
)
from mainstem.delta_log.table.state import (
    FORMAT,
    FORMAT_PROPERTY,
    PARTITIONS_PROPERTY,
    TableState,
)
from mainstem.delta_log.table.trimming import (
    HIGH_WATERMARK,
    believed_ms,
    file_time_ms,
    trim_step,
    trim_targets,
)
from mainstem.delta_log.table.version_mark import (
    VersionMark,
)

__all__ = [
    "BESIDE_LEADER",
    "CHANGE",
    "CREATE",
    "FORMAT",
    "FORMAT_PROPERTY",
    "HIGH_WATERMARK",
    "PARTITIONS_PROPERTY",
    "TOPIC_CALLS_MAX",
    "AsyncCommits",
    "Build",
    "CommitOutcome",
    "Committed",
    "Committer",
    "Conflict",
    "FileGone",
    "FileIndex",
    "FileSuperseded",
    "Landed",
    "LogOvertakenError",
    "NewFile",
    "NotThere",
    "OpenTopic",
    "OthersFirstError",
    "OutcomeUnknown",
    "Overtaken",
    "PartitionFiles",
    "Removal",
    "Removals",
    "TableCommit",
    "TableState",
    "VersionMark",
    "action_rows",
    "believed_ms",
    "check_replay",
    "claim_lead",
    "commit_beside_leader",
    "commit_under",
    "commits_written_ms",
    "file_time_ms",
    "has_log",
    "is_expired",
    "known_paths",
    "load_table",
    "open_delta_table",
    "put_new_files",
    "read_commit",
    "read_removals",
    "replace_files",
    "trim_step",
    "trim_targets",
]

"""Checkpoints, and removal of old log files, for tables that no gateway looks after.

A gateway writes them for the topics that it leads, as they grow. A topic that is only maintained
and a table of the platform have nobody else.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from mainstem.config import ConfigKey, ConfigValue
from mainstem.delta_log.format import LogFiles
from mainstem.delta_log.table import OpenTopic
from mainstem.delta_log.upkeep import (
    LiveTable,
    clean_log,
    create_checkpoint,
    cut_off_ms,
    cut_off_version,
    damaged_checkpoints,
    pointer_fault,
    repair_log,
)
from mainstem.jobs.job import (
    NEVER_MS,
    NOTHING,
    SYSTEM_TABLES,
    Counts,
    Job,
    JobOutcome,
    OutcomeKind,
    Plan,
    PlanLine,
    TableView,
    Task,
    TaskResult,
)

log = logging.getLogger(__name__)

_MIN_COMMITS: Final = "checkpoint.min.commits"


@dataclass(frozen=True, slots=True)
class LogSeen:
    """What the job looks at.

    Attributes:
        faults: What readers of the log stumble over.
    """

    files: LogFiles
    faults: tuple[str, ...]


class LogCleanup(Job[Task, TaskResult]):
    """The job.

    Args:
        min_commits: Since the last checkpoint, for a new one.
    """

    name: ClassVar[str] = "log-cleanup"
    system_tables: ClassVar[tuple[str, ...]] = SYSTEM_TABLES
    OPTIONS: ClassVar[tuple[ConfigKey, ...]] = (
        ConfigKey(
            _MIN_COMMITS,
            "int",
            100,
            "So many table commits since the last checkpoint are worth a new one: "
            "opening the table reads them one by one.",
            minimum=1,
            maximum=1_000_000,
        ),
    )

    def __init__(self, min_commits: int = 100) -> None:
        self._min_commits = min_commits

    @classmethod
    def of(cls, options: Mapping[str, ConfigValue]) -> Self:
        """From options by their names."""
        return cls(*(int(value) for value in options.values()))

    def examine(self, opened: OpenTopic, now_ms: int) -> LogSeen:
        files = LogFiles.of(opened.store)
        faults = [error.message for _, error in damaged_checkpoints(opened.store, files)]
        fault = pointer_fault(opened.store)
        return LogSeen(files, tuple(faults) if fault is None else (*faults, fault))

    def plan(self, table: TableView, now_ms: int) -> Plan[Task]:
        state, seen = table.state, table.seen
        assert isinstance(seen, LogSeen)
        files = seen.files
        lines = [PlanLine(None, f"mend: {fault}", Counts(files=1)) for fault in seen.faults]
        checkpoints = set(files.checkpoints)
        behind = state.version - state.checkpoint_version
        if behind >= self._min_commits:
            what = f"checkpoint {state.version}, {behind} commits after the last"
            lines.append(PlanLine(None, what, Counts.of(state)))
            checkpoints.add(state.version)
        kept_ms = state.config.log_retention_ms
        cut_off = cut_off_version(files, now_ms, kept_ms)
        oldest_kept = max((one for one in checkpoints if one <= cut_off), default=0)
        old = [version for version in files.commits if version < oldest_kept]
        if old:
            size = sum(files.commits[version].size_bytes for version in old)
            what = f"remove commit files {min(old)} to {max(old)}"
            lines.append(PlanLine(None, what, Counts(files=len(old), bytes=size)))
        # The first checkpoint with anything before it makes commit files superfluous in its time.
        first = min(
            (one for one in checkpoints if one > min(files.commits, default=one)), default=None
        )
        due_ms = None if first is None else cut_off_ms(files, first, kept_ms)
        return Plan(
            table.topic,
            table.folder,
            state.version,
            lines=tuple(lines),
            due_ms=NEVER_MS if due_ms is None else due_ms,
        )

    def commit(
        self,
        opened: OpenTopic,
        plan: Plan[Task],
        results: Sequence[TaskResult],
        now_ms: int,
    ) -> JobOutcome:
        store, state = opened.store, opened.state
        before = LogFiles.of(store)
        mended = repair_log(store)
        for repair in mended:
            log.warning("%s: mended %s: %s", opened.topic, repair.file, repair.what)
        due = state.version - state.checkpoint_version >= self._min_commits
        if due:
            create_checkpoint(store, LiveTable.of(state))
        removed = clean_log(store, state.config.log_retention_ms)
        if not due and not removed and not mended:
            return NOTHING  # nothing is old enough, or another clean-up was first
        return JobOutcome(OutcomeKind.OK, _counts(before), _counts(LogFiles.of(store)))


def _counts(files: LogFiles) -> Counts:
    size = sum(info.size_bytes for info in files.commits.values())
    return Counts(files=len(files.commits), bytes=size)

"""Checkpoints, and removal of old log files, for tables that no gateway looks after.

A gateway writes them for the topics that it leads, as they grow. A topic that is only maintained
and a table of the platform have nobody else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from mainstem.config import ConfigKey, ConfigValue
from mainstem.delta_log.table import LOG, LiveTable, OpenTopic, clean_log, create_checkpoint
from mainstem.jobs.job import (
    NOTHING,
    SYSTEM_TABLES,
    Counts,
    Job,
    Outcome,
    OutcomeKind,
    Plan,
    PlanLine,
    TableView,
    Task,
    TaskResult,
)

_MIN_COMMITS: Final = "checkpoint.min.commits"

_COMMIT: Final = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True, slots=True)
class LogFile:
    """The commit file of one version."""

    version: int
    size_bytes: int
    modified_ms: int


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

    def look(self, opened: OpenTopic, now_ms: int) -> tuple[LogFile, ...]:
        return tuple(
            LogFile(int(match[1]), info.size_bytes, info.modified_ms)
            for info in opened.store.list_files(LOG)
            if (match := _COMMIT.fullmatch(info.name))
        )

    def plan(self, table: TableView, now_ms: int) -> Plan[Task]:
        state, files = table.state, table.seen
        assert isinstance(files, tuple)
        lines: list[PlanLine] = []
        behind = state.version - state.checkpoint_version
        if behind >= self._min_commits:
            lines.append(
                PlanLine(
                    None,
                    f"checkpoint {state.version}, {behind} commits after the last",
                    Counts.of(state),
                )
            )
        covered = state.version if lines else state.checkpoint_version
        old = removable(files, covered, now_ms - state.config.log_retention_ms)
        if old:
            size = sum(file.size_bytes for file in old)
            what = f"remove commit files {old[0].version} to {old[-1].version}"
            lines.append(PlanLine(None, what, Counts(files=len(old), bytes=size)))
        return Plan(table.topic, table.folder, state.version, lines=tuple(lines))

    def commit(
        self,
        opened: OpenTopic,
        plan: Plan[Task],
        results: Sequence[TaskResult],
        now_ms: int,
    ) -> Outcome:
        store = opened.store
        before = self.look(opened, now_ms)
        state = opened.state
        due = state.version - state.checkpoint_version >= self._min_commits
        if due:
            create_checkpoint(store, LiveTable.of(state)).cleanup_metadata()
        else:
            clean_log(store)
        after = self.look(opened, now_ms)
        if not due and len(after) >= len(before):
            return NOTHING  # delta-rs keeps them for now, or another was first
        return Outcome(OutcomeKind.OK, _counts(before), _counts(after))


def removable(
    files: Sequence[LogFile], checkpoint_version: int, not_after_ms: int
) -> list[LogFile]:
    """The commit files that a checkpoint has made superfluous and that are old enough, by version.
    Pure. delta-rs may keep some of them, never remove more."""
    return [
        file
        for file in sorted(files, key=lambda one: one.version)
        if file.version < checkpoint_version and file.modified_ms <= not_after_ms
    ]


def _counts(files: Sequence[LogFile]) -> Counts:
    return Counts(files=len(files), bytes=sum(file.size_bytes for file in files))

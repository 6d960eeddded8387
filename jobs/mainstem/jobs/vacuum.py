"""Vacuum: data files that were removed from a table long enough ago are deleted from the store.

What to delete is in the log: its own removals, which checkpoints keep for
`delta.deletedFileRetentionDuration`. No data directory is listed; what the log has forgotten, or
never knew, is for `vacuum-orphans`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self

from mainstem.config import TOPIC_KEYS, ConfigKey, ConfigValue
from mainstem.delta_log.format import Register, registers
from mainstem.delta_log.table import OpenTopic, Removals, check_replay, read_removals
from mainstem.jobs.file_deletion import (
    DeleteFiles,
    DeletionJob,
    DeletionPlan,
    FilesDeleted,
    deletion_plan,
    raise_register,
)
from mainstem.jobs.job import NEVER_MS, JobOutcome, Plan, TableView

_MIN_AGE: Final = "vacuum.min.age.ms"


@dataclass(frozen=True, slots=True)
class Removed:
    """Files that may be deleted.

    Attributes:
        due_ms: When the next one may.
    """

    removals: Removals
    due_ms: int


class Vacuum(DeletionJob):
    """The job.

    Args:
        min_age_ms: Since the removal. None: as each topic's setting says.
    """

    name: ClassVar[str] = "vacuum"
    OPTIONS: ClassVar[tuple[ConfigKey, ...]] = (TOPIC_KEYS[_MIN_AGE],)

    def __init__(self, min_age_ms: int | None = None) -> None:
        self._min_age_ms = min_age_ms

    @classmethod
    def of(cls, options: Mapping[str, ConfigValue]) -> Self:
        """From options, which have the names of the topic settings that they replace."""
        return cls(int(options[_MIN_AGE]) if _MIN_AGE in options else None)

    def examine(self, opened: OpenTopic, now_ms: int) -> Removed:
        state = opened.state
        min_age_ms = self._min_age_ms
        if min_age_ms is None:
            min_age_ms = state.config.vacuum_min_age_ms
        until_ms = now_ms - min_age_ms
        done_ms = state.register_value(registers.VACUUMED)
        found = read_removals(opened.store, state, after_ms=done_ms, until_ms=until_ms)
        if found.files:
            check_replay(opened.store, state)
        due_ms = NEVER_MS if found.next_ms is None else found.next_ms + min_age_ms
        return Removed(found, due_ms)

    def plan(self, table: TableView, now_ms: int) -> DeletionPlan:
        seen = table.seen
        assert isinstance(seen, Removed)
        files = [(one.path, one.size_bytes) for one in seen.removals.files]
        # Not up to when this clock says: one that is a year ahead would have what is removed for
        # a year taken for deleted, and nobody would delete it.
        until_ms = max((one.removed_ms for one in seen.removals.files), default=0)
        plan = deletion_plan(table, files, "removed", until_ms=until_ms)
        return replace(plan, due_ms=seen.due_ms)

    def commit(
        self,
        opened: OpenTopic,
        plan: Plan[DeleteFiles],
        results: Sequence[FilesDeleted],
        now_ms: int,
    ) -> JobOutcome:
        outcome = super().commit(opened, plan, results, now_ms)
        assert isinstance(plan, DeletionPlan)
        # So that the next run passes over them: they stay in the log for some time yet.
        done = Register(registers.VACUUMED, plan.until_ms)
        landed = raise_register(opened, "VACUUM", done, now_ms)
        if landed is None:
            return outcome
        return replace(outcome, attempts=landed.attempts, version=landed.version)

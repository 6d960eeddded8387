"""Retention: data files at the front of a partition that are too old, or too much, are removed.

A file goes whole or stays, so a record may outlive its time by as long as the newest record of its
file does. Files go from the front only: the log start offset moves over them in the same table
commit, and the end stays where it is, also when the last file goes.

What time it is, the log has a say in: see `believed_ms`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import ClassVar, Final, Self

from mainstem.config import ConfigKey, ConfigValue
from mainstem.delta_log.format import DataFile, Remove
from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.system import last_heartbeat_ms
from mainstem.delta_log.table import (
    OpenTopic,
    TableCommit,
    TableState,
    believed_ms,
    commit_beside_leader,
    file_time_ms,
    trim_step,
)
from mainstem.delta_log.topics import SYSTEM
from mainstem.jobs.job import (
    NEVER_MS,
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
from mainstem.records import format_timestamp_ms

#: Kafka's, for both limits.
UNLIMITED: Final = -1


@dataclass(frozen=True, slots=True)
class Expired:
    """The files at the front of a partition that are to go, by offset.

    Attributes:
        reasons: For each file, the setting that asks for it.
        log_start_offset: What it is once they are gone.
    """

    files: tuple[DataFile, ...]
    reasons: tuple[str, ...]
    log_start_offset: int

    def start_before(self, end_offset: int) -> int:
        """The same for what lies before an end alone: a producer that appends old records all the
        time must not keep a run going."""
        if self.log_start_offset <= end_offset:
            return self.log_start_offset
        reached = (file.last_offset + 1 for file in self.files if file.base_offset < end_offset)
        return max(reached, default=0)


def expired(
    files: Sequence[DataFile],
    start_offset: int,
    end_offset: int,
    *,
    now_ms: int,
    retention_ms: int,
    retention_bytes: int,
) -> Expired:
    """What retention removes of a partition. Pure.

    From the front, until a file is neither too old nor too much: behind one that is too much may be
    one that is too old. The newest file goes too, by time.

    Args:
        files: All of the partition, by offset.
        start_offset, end_offset: Of the log.
        retention_ms: A file goes when its time is longer ago. `UNLIMITED`: none does.
        retention_bytes: Files go while so many bytes are left without them. `UNLIMITED`: none do.
    """
    left = sum(file.size_bytes for file in files)
    reasons: list[str] = []
    written: list[int] = []
    for index, file in enumerate(files):
        left -= file.size_bytes
        time_ms = file_time_ms(file)
        if time_ms > now_ms:  # by a leader whose clock was ahead: no later than what follows it
            written = written or _written_ms(files)
            time_ms = min(time_ms, written[index])
        dated_out = retention_ms != UNLIMITED and time_ms < now_ms - retention_ms
        if dated_out or file.last_offset < start_offset:
            reasons.append("retention.ms")
        elif retention_bytes != UNLIMITED and left >= retention_bytes:
            reasons.append("retention.bytes")
        else:
            break
    gone = files[: len(reasons)]
    if not gone:
        reached = start_offset
    elif len(gone) == len(files):
        reached = end_offset  # keyed compaction may have left nothing at the end
    else:
        reached = gone[-1].last_offset + 1
    return Expired(tuple(gone), tuple(reasons), max(start_offset, reached))


def first_due_ms(files: Sequence[DataFile], retention_ms: int) -> int:
    """The first time at which a partition whose first file stays now may lose it by its age. Pure.

    What keeps the first file keeps all. It may be a file of the future, which counts as written
    before those after it: so none of them is later than this.

    Args:
        files: As for `expired`.
    """
    if retention_ms == UNLIMITED or not files:
        return NEVER_MS
    return min(file_time_ms(files[0]), _written_ms(files)[0]) + retention_ms + 1


def _written_ms(files: Sequence[DataFile]) -> list[int]:
    """For each file, in the order of offsets, the earliest time of its own and of those after."""
    times = (file.modified_ms for file in reversed(files))
    return list(itertools.accumulate(times, min))[::-1]


class Retention(Job[Task, TaskResult]):
    """The job. It has no tasks: what goes is decided by the log alone."""

    name: ClassVar[str] = "retention"
    system_tables: ClassVar[tuple[str, ...]] = ("audit", "job_history")
    OPTIONS: ClassVar[tuple[ConfigKey, ...]] = ()

    def __init__(self) -> None:
        #: When a gateway was heard of last.
        self._alive_ms = 0

    def begin(self, warehouse: ObjectStore) -> None:
        self._alive_ms = last_heartbeat_ms(warehouse)

    @classmethod
    def of(cls, options: Mapping[str, ConfigValue]) -> Self:
        """It has no options: how long records are kept is a topic's own setting."""
        return cls()

    def plan(self, table: TableView, now_ms: int) -> Plan[Task]:
        lines: list[PlanLine] = []
        state = table.state
        for partition, found in self._expired(state, table.folder, now_ms).items():
            pairs = zip(found.reasons, found.files, strict=True)
            for why, group in itertools.groupby(pairs, key=itemgetter(0)):
                files = [file for _, file in group]
                offsets = f"{files[0].base_offset} to {files[-1].last_offset}"
                newest = format_timestamp_ms(max(file.timestamp_ms_max for file in files))
                what = f"remove offsets {offsets} ({why}), the newest record of {newest}"
                lines.append(PlanLine(partition, what, Counts.of(files)))
        # By the wall clock: the time that the log believes in is never later.
        due_ms = NEVER_MS
        if _is_asked(state, table.folder):
            due_ms = min(
                first_due_ms(state.files(partition).sorted(), state.config.retention_ms)
                for partition in range(state.partition_count)
            )
        return Plan(table.topic, table.folder, state.version, lines=tuple(lines), due_ms=due_ms)

    def commit(
        self,
        opened: OpenTopic,
        plan: Plan[Task],
        results: Sequence[TaskResult],
        now_ms: int,
    ) -> JobOutcome:
        removed: list[DataFile] = []
        ends: dict[int, int] = {}

        def build(state: TableState) -> TableCommit | None:
            # Planned again: settings and files may have changed since, and files of the front that
            # compaction has merged meanwhile are other files now.
            found = self._expired(state, plan.folder, now_ms)
            for partition in () if ends else range(state.partition_count):
                ends[partition] = state.log_end_offset(partition)
            starts = {
                partition: one.start_before(ends.get(partition, 0))
                for partition, one in found.items()
            }
            actions = trim_step(state, starts, now_ms)
            gone = {action.path for action in actions if isinstance(action, Remove)}
            removed[:] = [file for path in gone if (file := state.file(path))]
            if not actions:
                return None
            return TableCommit.of(
                "RETENTION",
                actions,
                timestamp_ms=now_ms,
                frees_space=True,
                survives_appends=True,
            )

        before, attempts, version = Counts(), 0, None
        # A commit removes so many files; each moves the starts over some more.
        while (landed := commit_beside_leader(opened, build)) is not None:
            before += Counts.of(removed)
            attempts += landed.attempts
            version = landed.version
        if version is None:
            return JobOutcome(
                OutcomeKind.SUPERSEDED, error="what was to go is gone, or is to stay by now"
            )
        return JobOutcome(OutcomeKind.OK, before, Counts(), attempts, version)

    def _expired(self, state: TableState, folder: str, now_ms: int) -> dict[int, Expired]:
        """What is to go, by partition; partitions of which nothing is are left out."""
        config = state.config
        if not _is_asked(state, folder):
            return {}
        now_ms = believed_ms(state, now_ms, self._alive_ms, config.retention_ms)
        found = {}
        for partition in range(state.partition_count):
            one = expired(
                state.files(partition).sorted(),
                state.log_start_offset(partition),
                state.log_end_offset(partition),
                now_ms=now_ms,
                retention_ms=config.retention_ms,
                retention_bytes=config.retention_bytes,
            )
            if one.files:
                found[partition] = one
        return found


def _is_asked(state: TableState, folder: str) -> bool:
    """Whether retention is for the table at all."""
    config = state.config
    # Of the platform's own tables only those that say so: a week is no time for a group's offsets.
    asked = folder != SYSTEM or {"retention.ms", "retention.bytes"} & config.overrides.keys()
    return config.deletes and bool(asked)

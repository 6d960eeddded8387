"""Keyed compaction: of each key only the last record stays, by offset. Kafka's log cleaner.

For topics with `compact` in `cleanup.policy`, and for the offsets table. What stays is as it was:
offset, timestamp, headers and all. The newest records are left alone, so that a reader who keeps up
sees every one: those in files younger than `compaction.min.age.ms`, which take the place of Kafka's
active segment, and those younger than `min.compaction.lag.ms`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from mainstem.config import TOPIC_KEYS, ConfigKey, ConfigValue, TopicConfig
from mainstem.delta_log.format import Action, DataFile, Register, registers
from mainstem.delta_log.store import ObjectStore, time_elapsed_s
from mainstem.delta_log.system import last_heartbeat_ms
from mainstem.delta_log.table import (
    FileSuperseded,
    Landed,
    OpenTopic,
    TableCommit,
    TableState,
    believed_ms,
    is_expired,
    replace_files,
)
from mainstem.delta_log.topics import OFFSETS_TABLE, SYSTEM
from mainstem.jobs.job import (
    NEVER_MS,
    Counts,
    Job,
    JobOutcome,
    OutcomeKind,
    Plan,
    PlanLine,
    TableView,
)
from mainstem.jobs.key_cleaning import CleaningResult, CleaningTask, clean_partition
from mainstem.jobs.task_files import (
    COMMIT_S_MAX,
    commit_by_halves,
    commit_groups,
    commit_with_files,
    delete_files,
    file_limits,
    left_out,
)
from mainstem.jobs.tombstones import TombstoneRun, added, freed, tombstone_runs
from mainstem.limits import MIB

_MAP_BYTES: Final = "dedupe.buffer.bytes"

#: Of the platform's own tables: their readers want the last row of each key, and have no use
#: for tombstones.
_SYSTEM_SETTINGS: Final = {"cleanup.policy": "compact", "delete.retention.ms": 0}


class KeyedCompaction(Job[CleaningTask, CleaningResult]):
    """The job.

    Args:
        map_bytes_max: Memory for the keys of one partition; three times as much is used for a
            moment. Records beyond it stay for the next run.
        settings: Take the place of the topics' own, by name.
    """

    name: ClassVar[str] = "keyed-compaction"
    system_tables: ClassVar[tuple[str, ...]] = (OFFSETS_TABLE,)
    tasks_stand_alone: ClassVar[bool] = True
    OPTIONS: ClassVar[tuple[ConfigKey, ...]] = (
        TOPIC_KEYS["compaction.min.age.ms"],
        ConfigKey(
            _MAP_BYTES,
            "int",
            128 * MIB,
            "Memory for the keys of one partition; up to three times as much is used for a "
            "moment. Records beyond it stay for the next run. "
            "Kafka: log.cleaner.dedupe.buffer.size.",
            unit="bytes",
            minimum=MIB,
            # One Arrow column has all keys, while they are merged half as many once more: 2 GiB.
            maximum=1024 * MIB,
        ),
        TOPIC_KEYS["min.cleanable.dirty.ratio"],
    )

    def __init__(
        self, map_bytes_max: int = 128 * MIB, settings: Mapping[str, ConfigValue] | None = None
    ) -> None:
        self._map_bytes_max = map_bytes_max
        self._settings = dict(settings or {})
        #: When a gateway was heard of last.
        self._alive_ms = 0

    def begin(self, warehouse: ObjectStore) -> None:
        self._alive_ms = last_heartbeat_ms(warehouse)

    @classmethod
    def of(cls, options: Mapping[str, ConfigValue]) -> Self:
        """From options, by the names in `OPTIONS`."""
        settings = dict(options)
        return cls(int(settings.pop(_MAP_BYTES, 128 * MIB)), settings)

    def plan(self, table: TableView, now_ms: int) -> Plan[CleaningTask]:
        state = table.state
        config = _config(table.folder, state).altered(self._settings, [])
        # A clock that is ahead would take tombstones that nobody has read.
        now_ms = believed_ms(state, now_ms, self._alive_ms, config.delete_retention_ms)
        tasks: list[CleaningTask] = []
        lines: list[PlanLine] = []
        partitions = range(state.partition_count if config.compacts else 0)
        found = [
            plan
            for partition in partitions
            if (plan := plan_partition(state, partition, config, now_ms)) is not None
        ]
        target_bytes, window_ms = file_limits(config, int(config.get("compaction.target.bytes")))
        for one in found:
            counts = Counts.of(one.files)
            tasks.append(
                CleaningTask(
                    counts.bytes,
                    partition=one.partition,
                    files=one.files,
                    cleaned_offset=one.cleaned_offset,
                    end_offset=one.end_offset,
                    runs=one.runs,
                    expired=one.expired,
                    keeps_tombstones=config.delete_retention_ms > 0,
                    map_bytes_max=self._map_bytes_max,
                    file_bytes_target=target_bytes,
                    file_window_ms=window_ms,
                    compression_type=config.compression_type,
                )
            )
            lines.append(PlanLine(one.partition, one.what, counts))
        # By the wall clock: the time that the log believes in is never later.
        due_ms = min(
            (
                next_due_ms(state, partition, config, now_ms)
                for partition in partitions
                if not found
            ),
            default=NEVER_MS,
        )
        return Plan(table.topic, table.folder, state.version, tuple(tasks), tuple(lines), due_ms)

    def run_task(self, store: ObjectStore, task: CleaningTask) -> CleaningResult:
        return clean_partition(store, task)

    def commit(
        self,
        opened: OpenTopic,
        plan: Plan[CleaningTask],
        results: Sequence[CleaningResult],
        now_ms: int,
    ) -> JobOutcome:
        landed: list[Landed] = []
        taken: list[CleaningResult] = []
        cleanings = zip(plan.tasks, results, strict=True)
        given_up: list[tuple[CleaningTask, CleaningResult]] = []

        def commit(group: Sequence[tuple[CleaningTask, CleaningResult]]) -> None:
            found = _Commit(opened.store, plan.folder, group, now_ms)
            one = commit_with_files(opened, found.build)
            if one is not None:
                landed.append(one)
            taken.extend(found.taken)
            found.delete_rest()

        ends_at = time_elapsed_s() + COMMIT_S_MAX
        for group in commit_groups(cleanings, lambda one: len(one[1].removed)):
            given_up += commit_by_halves(group, commit, ends_at)
        delete_files(opened.store, [file for _, result in given_up for file in result.added])
        left = len(results) - len(taken) - len(given_up)
        error = left_out(f"{left} partitions: {_LEFT_OUT}" if left else "", len(given_up))
        if not landed:
            return JobOutcome(OutcomeKind.SUPERSEDED, error=error)
        return JobOutcome(
            OutcomeKind.OK,
            Counts.of(file for result in taken for file in result.removed),
            Counts.of(file for result in taken for file in result.added),
            max(one.attempts for one in landed),
            landed[-1].version,
            error,
        )


class _Commit:
    """One table commit: the partitions that still are as their tasks found them."""

    def __init__(
        self,
        store: ObjectStore,
        folder: str,
        cleanings: Sequence[tuple[CleaningTask, CleaningResult]],
        now_ms: int,
    ) -> None:
        self._store = store
        self._folder = folder
        self._cleanings = cleanings
        self._now_ms = now_ms
        #: What the last commit that was built has.
        self.taken: list[CleaningResult] = []

    def build(self, state: TableState) -> TableCommit | None:
        """The commit; None: all were superseded, or the policy has changed."""
        self.taken = []
        actions: list[Action] = []
        needed: list[str] = []
        config = _config(self._folder, state)
        for task, result in self._cleanings:
            if not config.compacts or not is_current(state, task, result):
                continue
            if any(is_expired(state, file) for file in result.added):
                continue  # this process slept, and vacuum has taken them
            try:
                actions += cleaning_actions(
                    state, task, result, self._now_ms, config.delete_retention_ms
                )
            except FileSuperseded:
                continue
            needed += [file.path for file in result.added]
            self.taken.append(result)
        if not actions:
            return None
        return TableCommit.of(
            "KEYED COMPACTION",
            actions,
            timestamp_ms=self._now_ms,
            needed_files=needed,
            survives_appends=True,
        )

    def delete_rest(self) -> None:
        """Removes the files of what was left out."""
        left = [result for _, result in self._cleanings if result not in self.taken]
        delete_files(self._store, [file for result in left for file in result.added])


_LEFT_OUT: Final = (
    "another writer compacted the partition or removed its files first, or cleanup.policy changed"
)


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """What is to be done to one partition; the attributes are those of a `CleaningTask`.

    Attributes:
        what: The same in words.
    """

    partition: int
    files: tuple[DataFile, ...]
    cleaned_offset: int
    end_offset: int
    runs: tuple[TombstoneRun, ...]
    expired: tuple[TombstoneRun, ...]
    what: str


def plan_partition(
    state: TableState, partition: int, config: TopicConfig, now_ms: int
) -> CleaningPlan | None:
    """Whether a partition is to be compacted now, and how far. None: not now. Pure."""
    cleaned = state.cleaned_offset(partition)
    files = state.files(partition).sorted()
    end = _head(files, cleaned, config, now_ms)
    runs = tuple(tombstone_runs(state, partition))
    expired = tuple(run for run in runs if run.expiry_ms <= now_ms)
    new_bytes = sum(_bytes_between(file, cleaned, end) for file in files)
    old_bytes = sum(_bytes_between(file, 0, cleaned) for file in files)
    ratio = new_bytes / max(new_bytes + old_bytes, 1)
    earliest_ms = min(
        (one.timestamp_ms_min for one in files if cleaned <= one.last_offset < end), default=now_ms
    )
    due = end > cleaned and (
        ratio > config.min_cleanable_dirty_ratio
        or now_ms - earliest_ms > config.max_compaction_lag_ms
    )
    if due:
        what = f"compact by key: offsets {cleaned} to {end - 1} are new, {ratio:.0%} of the bytes"
    elif expired:
        end = cleaned
        what = f"drop tombstones before offset {expired[-1].end_offset}"
    else:
        return None
    before = tuple(file for file in files if file.base_offset < end)
    return CleaningPlan(partition, before, cleaned, end, runs, expired, what)


def next_due_ms(state: TableState, partition: int, config: TopicConfig, now_ms: int) -> int:
    """The first time at which a partition that `plan_partition` has nothing for may have something,
    without another commit. Pure."""
    cleaned = state.cleaned_offset(partition)
    files = state.files(partition).sorted()
    end = _head(files, cleaned, config, now_ms)
    times = [run.expiry_ms for run in tombstone_runs(state, partition)]
    seen = [file for file in files if cleaned <= file.last_offset < end]
    times += [file.timestamp_ms_min + config.max_compaction_lag_ms + 1 for file in seen]
    # The first file that is too young keeps those behind it from being looked at.
    young = next((file for file in files if file.last_offset >= end), None)
    if young is not None:
        old_ms = young.modified_ms + config.compaction_min_age_ms
        lag_ms = config.min_compaction_lag_ms
        times.append(max(old_ms, young.timestamp_ms_max + lag_ms) if lag_ms else old_ms)
    return min(times, default=NEVER_MS)


def _head(files: Sequence[DataFile], cleaned: int, config: TopicConfig, now_ms: int) -> int:
    """The first offset that is left alone for its youth; with none, the end of the files."""
    written_ms_max = now_ms - config.compaction_min_age_ms
    lag_ms = config.min_compaction_lag_ms
    end = cleaned
    for file in files:
        if file.last_offset < cleaned:
            continue
        if file.modified_ms > written_ms_max or (
            lag_ms and file.timestamp_ms_max > now_ms - lag_ms
        ):
            return max(file.base_offset, cleaned)
        end = file.last_offset + 1
    return end


def _bytes_between(file: DataFile, start_offset: int, end_offset: int) -> float:
    """About how many bytes of a file are records in [start_offset, end_offset)."""
    offsets = min(file.last_offset + 1, end_offset) - max(file.base_offset, start_offset)
    return file.size_bytes * max(offsets, 0) / (file.last_offset + 1 - file.base_offset)


def is_current(state: TableState, task: CleaningTask, result: CleaningResult) -> bool:
    """Whether the partition still is as the task found it: no other compaction came in between,
    and nobody removed its files.

    What else rewrites files, keeping every record, does not matter where it leaves alone those that
    the task replaces.
    """
    return (
        not result.superseded
        and state.cleaned_offset(task.partition) == task.cleaned_offset
        and tuple(tombstone_runs(state, task.partition)) == task.runs
    )


def cleaning_actions(
    state: TableState,
    task: CleaningTask,
    result: CleaningResult,
    now_ms: int,
    retention_ms: int,
) -> list[Action]:
    """The actions that make a task's result part of the table.

    Raises:
        FileSuperseded: Somebody else removed one of the files first.
    """
    partition = task.partition
    actions = replace_files(state, result.removed, result.added, now_ms=now_ms, data_change=True)
    staying = [run for run in task.runs if run not in task.expired]
    numbers = freed(partition, task.expired)
    if result.has_tombstones:
        numbers += added(
            partition, staying, result.cleaned_offset, now_ms=now_ms, retention_ms=retention_ms
        )
    if result.cleaned_offset > task.cleaned_offset:
        numbers.append(Register(registers.cleaned(partition), result.cleaned_offset))
    # Of a run that ends and one that begins in the same place only the new one counts.
    return [*actions, *{register.name: register for register in numbers}.values()]


def _config(folder: str, state: TableState) -> TopicConfig:
    """The settings that are in force for the table."""
    return state.config.altered(_SYSTEM_SETTINGS, []) if folder == SYSTEM else state.config

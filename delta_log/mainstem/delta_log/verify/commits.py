"""Walks the commit files of a table that still exist, and compares each with what it adds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from mainstem.delta_log.format import (
    Action,
    Batch,
    CommitInfo,
    DataFile,
    Metadata,
    Register,
    Remove,
    commit_path,
    decode_commit,
    last_checkpoint_version,
    registers,
)
from mainstem.delta_log.store import NotFound, ObjectStore, wall_clock_ms
from mainstem.delta_log.table import TableState, commits_written_ms
from mainstem.errors import LogDamagedError


class Findings(Protocol):
    """Where findings go."""

    checked_count: int

    def add(self, code: str, message: str) -> None: ...


class CommitWalk:
    """Goes through the versions from the oldest commit file to `state.version`.

    Log clean-up removes files in any order and may have been killed: behind a gap that it can have
    left, the walk begins again.

    Args:
        commits: For what commits say of themselves.
        statistics: For the `nullCount` of the files that they add.
    """

    def __init__(
        self, store: ObjectStore, state: TableState, commits: Findings, statistics: Findings
    ) -> None:
        self._store = store
        self._state = state
        self._commits = commits
        self._statistics = statistics
        #: Where it began, the last time; what is before it is not judged. A topic that was created
        #: in the log of a deleted one begins there.
        self.first_version = 0
        #: Nothing of the topic's commits is missing.
        self._is_whole = False
        self._is_from_zero = False
        self._files: dict[str, DataFile] = {}
        self._ends: dict[int, int] = {}
        self._numbers: dict[str, int] = {}
        self._topic_id = ""
        self._epoch_starts: set[tuple[int, int, int]] = set()
        self._end_before: dict[int, int] = {}

    def run(self) -> None:
        """Walks; findings go to the two results."""
        self.first_version = version = min(
            commits_written_ms(self._store), default=self._state.version + 1
        )
        self._is_whole = self._is_from_zero = version == 0
        while version <= self._state.version:
            try:
                data = self._store.read(commit_path(version))
                actions = decode_commit(data, commit_path(version))
            except NotFound:
                following = self._behind_clean_up(version)
                if following is not None:
                    self._forget()
                    self._is_whole = self._is_from_zero = False
                    self.first_version = version = following
                    continue
                self._commits.add("COMMIT_WRONG", f"{commit_path(version)} is not there")
                return
            except LogDamagedError as error:
                self._commits.add("LOG_DAMAGED", error.message)
                return
            if self._is_another_topic(actions):
                self._forget()
                self._is_whole = True
                self.first_version = version
            self._check_checksum(version, actions)
            self._check_null_counts(data)
            self._check(version, actions)
            self._commits.checked_count += 1
            version += 1
        self._check_files()
        if self._is_whole:
            self._check_checkpoint()

    def may_begin_epoch(self, producer_id: int, partition: int, offset: int) -> bool:
        """Whether a producer's new epoch began there, or the commit that says so is gone."""
        if (producer_id, partition, offset) in self._epoch_starts:
            return True
        return not self._is_whole and offset < self._end_before.get(partition, 2**63)

    def check_null_count(self, path: str, stats: Mapping[str, Any]) -> None:
        """No record is without offset or timestamp, and the statistics must say so."""
        counts = stats.get("nullCount") or {}
        for column in ("offset", "timestamp"):
            if counts.get(column) != 0:
                self._statistics.add(
                    "STATISTICS_WRONG",
                    f"the log says nullCount.{column} {counts.get(column)} of {path}; "
                    "the file has 0",
                )

    def _behind_clean_up(self, missing: int) -> int | None:
        """The version to go on with if log clean-up can have taken a file; None: it is lost.

        It takes what a checkpoint has and what is past its retention, as then the file before is.
        """
        checkpoint = max(self._state.checkpoint_version, last_checkpoint_version(self._store))
        files = commits_written_ms(self._store)
        cutoff_ms = wall_clock_ms() - self._state.config.log_retention_ms
        if missing > checkpoint or files.get(missing - 1, 0) > cutoff_ms:
            return None
        return min((one for one in files if one > missing), default=self._state.version + 1)

    def _is_another_topic(self, actions: Sequence[Action]) -> bool:
        """Whether a commit creates a topic in the log of one that was deleted."""
        created = next((one for one in actions if isinstance(one, Metadata)), None)
        if created is None:
            return False
        before, self._topic_id = self._topic_id, created.id
        return before not in ("", created.id)

    def _forget(self) -> None:
        self._files.clear()
        self._ends.clear()
        self._numbers.clear()
        self._end_before.clear()
        self._epoch_starts.clear()

    def _check_checksum(self, version: int, actions: Sequence[Action]) -> None:
        """One that is there was compared when the file was decoded."""
        if self._state.format > 1 and not any(
            isinstance(one, CommitInfo) and one.has_checksum for one in actions
        ):
            self._commits.add(
                "LOG_DAMAGED",
                f"{commit_path(version)} has no checksum, which every commit of the table has",
            )

    def _check_null_counts(self, data: bytes) -> None:
        for line in data.splitlines():
            added = json.loads(line).get("add")
            if added is not None:
                self.check_null_count(added["path"], json.loads(added["stats"]))

    def _check(self, version: int, actions: Sequence[Action]) -> None:
        info = next((one for one in actions if isinstance(one, CommitInfo)), None)
        swapped, gone = self._apply_removes(actions)
        added: dict[int, list[DataFile]] = {}
        moved: list[DataFile] = []
        for action in actions:
            if isinstance(action, DataFile):
                self._files[action.path] = action
                if action.data_change:
                    added.setdefault(action.partition, []).append(action)
                else:
                    moved.append(action)
        batches: dict[int, list[Batch]] = {}
        for batch in info.batches if info is not None else ():
            batches.setdefault(batch.partition, []).append(batch)
            by = batch.producer
            if by is not None and by.epoch > 0 and by.base_sequence == 0:
                self._epoch_starts.add((by.id, batch.partition, batch.base_offset))
        numbers: dict[str, int] = {}
        for action in actions:
            if isinstance(action, Register):
                if registers.is_transaction(action.name) and (
                    action.updated_ms == registers.FORGOTTEN_MS
                ):
                    self._numbers.pop(action.name, None)
                else:
                    numbers[action.name] = action.value
        if any(name.startswith(registers.RESTORED) for name in numbers):
            # Its files are those of another table, of which nothing is known but what they say.
            added.clear()
        for partition in sorted(gone.keys() & added.keys() - batches.keys()):
            self._check_thinned(version, partition, added.pop(partition), gone[partition])
        for partition in sorted({*added, *batches}):
            self._check_append(
                version,
                partition,
                sorted((file.base_offset, file.record_count) for file in added.get(partition, ())),
                sorted((one.base_offset, one.record_count) for one in batches.get(partition, ())),
                numbers.get(registers.leo(partition)),
            )
        self._check_registers(version, numbers, {*added, *batches})
        self._check_transactions(version, numbers, has_records=bool(added or batches))
        self._check_moved(version, moved, swapped)

    def _apply_removes(
        self, actions: Sequence[Action]
    ) -> tuple[list[DataFile | None], dict[int, list[DataFile | None]]]:
        """The files that a commit swaps for others with the same records, and by partition those
        of which records go; None: one of before the oldest commit file."""
        swapped: list[DataFile | None] = []
        gone: dict[int, list[DataFile | None]] = {}
        for action in actions:
            if isinstance(action, Remove):
                file = self._files.pop(action.path, None)
                if action.data_change:
                    gone.setdefault(action.partition, []).append(file)
                else:
                    swapped.append(file)
        return swapped, gone

    def _check_append(
        self,
        version: int,
        partition: int,
        added: list[tuple[int, int]],
        named: list[tuple[int, int]],
        leo: int | None,
    ) -> None:
        where = f"version {version}, partition {partition}"
        files, batches = _span(added), _span(named)
        if files is None or batches is None or files != batches:
            self._commits.add(
                "COMMIT_WRONG",
                f"{where}: the files have {_shown(added)}, the batches {_shown(named)}",
            )
            return
        before = self._ends.get(partition, 0 if self._is_whole else None)
        if before is not None and files[0] != before:
            self._commits.add(
                "COMMIT_WRONG", f"{where}: records begin at {files[0]}, not at the end {before}"
            )
        self._end_before.setdefault(partition, files[0])
        if leo != files[1]:
            self._commits.add(
                "COMMIT_WRONG", f"{where}: records end at {files[1]}, and the register says {leo}"
            )

    def _check_registers(self, version: int, numbers: dict[str, int], appended: set[int]) -> None:
        for name, value in numbers.items():
            before = self._numbers.get(name)
            self._numbers[name] = value
            if before is None:
                continue
            ends = name.startswith(("mainstem/leo/", "mainstem/lso/", "mainstem/cleaned/"))
            begins = name == registers.EPOCH or registers.is_transaction(name)
            if (ends and value < before) or (begins and value <= before):
                self._commits.add(
                    "COMMIT_WRONG", f"version {version} sets {name} from {before} to {value}"
                )
        for partition in range(self._state.partition_count):
            end = numbers.get(registers.leo(partition))
            if end is None:
                continue
            before = self._ends.get(partition)
            self._ends[partition] = end
            if partition not in appended and before is not None and end != before:
                self._commits.add(
                    "COMMIT_WRONG",
                    f"version {version} moves the end of partition {partition} from {before} to "
                    f"{end} without records",
                )

    def _check_transactions(
        self, version: int, numbers: dict[str, int], *, has_records: bool
    ) -> None:
        """A transaction comes with its records, and a fence without any."""
        for name, value in numbers.items():
            is_fence = value % 2 == 1
            if registers.is_transaction(name) and is_fence == has_records:
                what = "a fence with" if is_fence else "a transaction without"
                self._commits.add(
                    "COMMIT_WRONG", f"version {version} has {what} records: {name} is {value}"
                )

    def _check_moved(
        self, version: int, moved: list[DataFile], removed: list[DataFile | None]
    ) -> None:
        """Maintenance neither adds nor loses a record."""
        known = [file for file in removed if file is not None]
        if len(known) < len(removed) or not (moved or removed):
            return
        for before, after in _swaps(known, moved):
            if _extent(before) != _extent(after):
                partition = (before or after)[0].partition
                self._commits.add(
                    "COMMIT_WRONG",
                    f"version {version} swaps files of partition {partition} with "
                    f"{_shown(_runs(before))} for files with {_shown(_runs(after))}",
                )

    def _check_thinned(
        self, version: int, partition: int, added: list[DataFile], gone: list[DataFile | None]
    ) -> None:
        """Maintenance that removes records adds none."""
        known = [file for file in gone if file is not None]
        if len(known) < len(gone):
            return
        left = sum(file.record_count for file in known) - sum(file.record_count for file in added)
        if (
            left < 0
            or min(file.base_offset for file in added) < min(file.base_offset for file in known)
            or max(file.last_offset for file in added) > max(file.last_offset for file in known)
        ):
            before, after = (_shown(_runs(files)) for files in (known, added))
            self._commits.add(
                "COMMIT_WRONG",
                f"version {version} swaps files of partition {partition} with {before} for files "
                f"with more: {after}",
            )

    @property
    def _checkpoint_wrong(self) -> str:
        """The code where a checkpoint says something else than the commit files. It may be deleted
        only where all of them are there, from the log's first: without, it has what they said."""
        return "CHECKPOINT_WRONG" if self._is_from_zero else "COMMIT_WRONG"

    def _check_files(self) -> None:
        """The newest state must say of each file what the commit said that added it."""
        for file in self._state:
            added = self._files.get(file.path)
            if added is not None and replace(added, data_change=file.data_change) != file:
                self._commits.add(
                    self._checkpoint_wrong,
                    f"checkpoint {self._state.checkpoint_version} and the commit files differ in "
                    f"what they say of {file.path}",
                )

    def _check_checkpoint(self) -> None:
        """With all commit files there, the newest state must be what they add up to."""
        state = self._state
        files = {file.path for file in state}
        if files != set(self._files):
            example = min(files ^ set(self._files))
            self._commits.add(
                self._checkpoint_wrong,
                f"checkpoint {state.checkpoint_version} and the commit files name different data "
                f"files, for one {example}",
            )
        for name, value in self._numbers.items():
            if registers.parse_producer(name) is None and state.register_value(name) != value:
                self._commits.add(
                    self._checkpoint_wrong,
                    f"checkpoint {state.checkpoint_version} and the commit files differ in {name}: "
                    f"{state.register_value(name)} and {value}",
                )


def _swaps(
    removed: list[DataFile], added: list[DataFile]
) -> Iterator[tuple[list[DataFile], list[DataFile]]]:
    """The files of a commit that were swapped for each other: those whose offsets overlap."""
    before: list[DataFile] = []
    after: list[DataFile] = []
    end = (-1, -1)
    sides = [(file, before) for file in removed] + [(file, after) for file in added]
    for file, side in sorted(sides, key=lambda one: (one[0].partition, one[0].base_offset)):
        if (file.partition, file.base_offset) > end and (before or after):
            yield before.copy(), after.copy()
            before.clear()
            after.clear()
        side.append(file)
        end = max(end, (file.partition, file.last_offset))
    if before or after:
        yield before, after


def _extent(files: list[DataFile]) -> tuple[int, int, int] | None:
    """The first offset, the last one, and how many records there are."""
    if not files:
        return None
    return (
        min(file.base_offset for file in files),
        max(file.last_offset for file in files),
        sum(file.record_count for file in files),
    )


def _runs(files: list[DataFile]) -> list[tuple[int, int]]:
    return sorted((file.base_offset, file.record_count) for file in files)


def _span(runs: list[tuple[int, int]]) -> tuple[int, int] | None:
    """[start, end) that runs of (base offset, count) cover without gap or overlap, else None."""
    if not runs:
        return None
    start = end = runs[0][0]
    for base, count in runs:
        if base != end:
            return None
        end += count
    return start, end


def _shown(runs: list[tuple[int, int]]) -> str:
    """Runs for people, the first few."""
    if not runs:
        return "no records"
    shown = ", ".join(f"{base} to {base + count - 1}" for base, count in runs[:3])
    return f"offsets {shown}{' ...' if len(runs) > 3 else ''}"

"""Vacuum of orphans: data files in the store that no version of the table knows are deleted.

They are left by a writer that was killed between a file and its commit, and by removals that the
log forgot before `vacuum` saw them. Finding them takes a listing of every data directory, so this
runs rarely.

A file that nobody knows may also be one that is about to be committed. An append's is told by its
name: it begins at the offset at which its partition ends, and no append begins anywhere else, so it
is spared until the end has moved on. What a job or a roll-up has written is protected by its age;
one that waited for longer is refused by its own commit, since this job says in the log up to which
time of writing it deletes, before it does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self

from mainstem.config import ConfigKey, ConfigValue
from mainstem.delta_log.format import Register, registers
from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.table import OpenTopic, TableState, check_replay, known_paths, load_table
from mainstem.errors import InvalidConfigError
from mainstem.jobs.file_deletion import (
    DeleteFiles,
    DeletionJob,
    DeletionPlan,
    deletion_plan,
    raise_register,
)
from mainstem.jobs.job import Plan, TableView
from mainstem.limits import UNCOMMITTED_FILE_MS_MAX

_MIN_AGE: Final = "orphan.min.age.ms"

_DIRECTORY: Final = re.compile(r"partition=(\d+)")
_FILE: Final = re.compile(r"(\d{20})-[0-9a-f]{32}\.parquet")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A data file as a listing has it."""

    path: str
    partition: int
    base_offset: int
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Listing:
    """What is in the store, and what the log knows, read after it was listed."""

    files: tuple[StoredFile, ...]
    known: frozenset[str]
    state: TableState


class VacuumOrphans(DeletionJob):
    """The job.

    Args:
        min_age_ms: Since a file was written.

    Raises:
        InvalidConfigError: That is less than a file may wait for its commit.
    """

    name: ClassVar[str] = "vacuum-orphans"
    OPTIONS: ClassVar[tuple[ConfigKey, ...]] = (
        ConfigKey(
            _MIN_AGE,
            "int",
            86_400_000,
            "Files that were written later are left alone: their commit may still come. "
            f"At least {UNCOMMITTED_FILE_MS_MAX} ms, the longest that a commit may take.",
            unit="ms",
            minimum=0,
            maximum=2**63 - 1,
        ),
    )

    def __init__(self, min_age_ms: int = 86_400_000) -> None:
        if min_age_ms < UNCOMMITTED_FILE_MS_MAX:
            raise InvalidConfigError(
                f"{_MIN_AGE} is {min_age_ms} ms; a file may wait {UNCOMMITTED_FILE_MS_MAX} ms for "
                "its commit, and a younger one could be deleted just before it becomes part of "
                "the table",
                name=_MIN_AGE,
                value=min_age_ms,
            )
        self._min_age_ms = min_age_ms

    @classmethod
    def of(cls, options: Mapping[str, ConfigValue]) -> Self:
        """From options by their names."""
        return cls(*(int(value) for value in options.values()))

    def examine(self, opened: OpenTopic, now_ms: int) -> Listing:
        # In this order: what is committed between the listing and the log is known then.
        files = list_data_files(opened.store)
        known = frozenset(known_paths(opened.store))
        state = load_table(opened.store)
        seen = Listing(tuple(files), known, state)
        if find_orphans(seen, now_ms - self._min_age_ms):
            check_replay(opened.store, state)
        return seen

    def plan(self, table: TableView, now_ms: int) -> DeletionPlan:
        seen = table.seen
        assert isinstance(seen, Listing)
        orphans = find_orphans(seen, now_ms - self._min_age_ms)
        files = [(one.path, one.size_bytes) for one in orphans]
        # Not up to when this clock says: one that is a year ahead would have every writer's files
        # taken for deleted for a year. What the files themselves say will do, and what writers do.
        found_ms = max((one.modified_ms for one in orphans), default=0)
        written_ms = max((one.modified_ms for one in seen.state), default=found_ms)
        until_ms = min(now_ms - self._min_age_ms, max(found_ms, written_ms))
        return deletion_plan(table, files, "orphaned", until_ms=until_ms)

    def prepare(self, opened: OpenTopic, plan: Plan[DeleteFiles], now_ms: int) -> Plan[DeleteFiles]:
        assert isinstance(plan, DeletionPlan)
        said = Register(registers.ORPHANED, plan.until_ms)
        raise_register(opened, "VACUUM ORPHANS", said, now_ms)
        # From here on no commit brings one of the files in. One may have, since they were listed.
        known = known_paths(opened.store)
        tasks = tuple(
            DeleteFiles(task.weight_bytes, tuple(path for path in task.paths if path not in known))
            for task in plan.tasks
        )
        return replace(
            plan, tasks=tasks, paths=tuple(path for path in plan.paths if path not in known)
        )


def list_data_files(store: ObjectStore) -> list[StoredFile]:
    """Every file with the name of a data file. What has another name is not ours."""
    return [
        StoredFile(
            f"{directory}/{info.name}",
            int(place[1]),
            int(name[1]),
            info.size_bytes,
            info.modified_ms,
        )
        for directory in store.list_directories("")
        if (place := _DIRECTORY.fullmatch(directory)) is not None
        for info in store.list_files(directory)
        if (name := _FILE.fullmatch(info.name)) is not None
    ]


def find_orphans(seen: Listing, not_after_ms: int) -> list[StoredFile]:
    """The files that no version knows and no commit can still bring. Pure.

    Args:
        not_after_ms: Files that were written later are left alone.
    """
    state = seen.state
    return [
        file
        for file in seen.files
        if file.path not in seen.known
        and not state.is_active(file.path)
        and file.modified_ms <= not_after_ms
        and file.base_offset < state.log_end_offset(file.partition)
    ]

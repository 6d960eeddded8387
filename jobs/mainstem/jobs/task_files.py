"""The data files that a job's tasks write, until their commit. Shared by the jobs."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from mainstem.config import TopicConfig
from mainstem.delta_log.files import DataFileMissing
from mainstem.delta_log.format import DataFile
from mainstem.delta_log.store import ObjectStore, time_elapsed_s
from mainstem.delta_log.table import (
    Build,
    FileGone,
    Landed,
    OpenTopic,
    OthersFirstError,
    commit_beside_leader,
    load_table,
)
from mainstem.errors import LogDamagedError, MainstemError
from mainstem.limits import KIB

T = TypeVar("T")

#: For so long a job tries to commit one table beside writers that are always first. What it has not
#: committed then is for its next run.
COMMIT_S_MAX: Final = 60.0

#: Files that one table commit removes, where that can be chosen: a commit file of 2.5 MB, which the
#: leader reads between two of its own.
COMMIT_FILES_MAX: Final = 10_000

#: What retention keeps is in so many files or more: it removes whole files, and one that held all
#: of a slow topic would keep all of it for as long as something is added.
_RETENTION_PARTS: Final = 8

#: Files of fewer bytes are not worth a rule.
_TARGET_BYTES_MIN: Final = 64 * KIB


def file_limits(config: TopicConfig, target_bytes: int) -> tuple[int, int | None]:
    """How large files may become, and how long their times may reach, so that retention can remove
    them one by one.

    Args:
        target_bytes: How large they should be otherwise.

    Returns:
        Bytes; and milliseconds: files whose times are not in the same window of this length are not
        to become one. None: any may.
    """
    window_ms = None
    if config.deletes and config.retention_ms > 0:
        window_ms = max(config.retention_ms // _RETENTION_PARTS, 1)
    if config.deletes and config.retention_bytes > 0:
        part_bytes = max(config.retention_bytes // _RETENTION_PARTS, _TARGET_BYTES_MIN)
        target_bytes = min(target_bytes, part_bytes)
    return target_bytes, window_ms


def commit_groups(results: Iterable[T], file_count: Callable[[T], int]) -> Iterator[list[T]]:
    """Results of tasks, in their order, in groups for a table commit each.

    Args:
        file_count: How many files the commit of one removes.
    """
    group: list[T] = []
    count = 0
    for one in results:
        files = file_count(one)
        if group and count + files > COMMIT_FILES_MAX:
            yield group
            group, count = [], 0
        group.append(one)
        count += files
    if group:
        yield group


def check_superseded(store: ObjectStore, missing: DataFileMissing) -> None:
    """A file that a task does not find is one that another writer removed first, or lost.

    Raises:
        DataFileMissing: The table still has it. The other tasks of the table go on.
    """
    if load_table(store).is_active(str(missing.facts["file"])):
        raise missing


def commit_with_files(opened: OpenTopic, build: Build) -> Landed | None:
    """As `commit_beside_leader`, for a commit that adds files that tasks wrote, which it names as
    its `needed_files`: nothing that is not there becomes part of the table.

    A run may take long, or be stopped between its tasks and its commit; what is written and not
    committed is protected from vacuum by its age only.

    Raises:
        LogDamagedError: A file is gone.
    """
    try:
        return commit_beside_leader(opened, build)
    except FileGone as gone:
        raise LogDamagedError(
            f"{gone.path}, which a job's task wrote, is gone before its commit: vacuum keeps "
            "new files for too short a time; nothing was done",
            file=gone.path,
        ) from gone


def commit_by_halves(
    group: Sequence[T], commit: Callable[[Sequence[T]], None], ends_at: float
) -> list[T]:
    """Commits a group; where other writers are always first, its first half, and so on: what has
    half the files is encoded and written in half the time.

    Args:
        commit: Commits some of them, in one table commit.
        ends_at: When nothing more is tried, by `time_elapsed_s`.

    Returns:
        What was given up, of which nothing is committed.
    """
    pending = deque([list(group)])
    given_up: list[T] = []
    while pending:
        part = pending.popleft()
        try:
            commit(part)
        except OthersFirstError:
            if time_elapsed_s() >= ends_at or len(part) == 1:
                given_up += part
            else:
                middle = len(part) // 2
                pending.extendleft([part[middle:], part[:middle]])
    return given_up


def left_out(superseded: str, given_up_count: int) -> str:
    """What a run says of what it has not committed; empty: it has committed all.

    Args:
        superseded: What is said of those that another writer has dealt with.
    """
    parts = [superseded] if superseded else []
    if given_up_count:
        parts.append(
            f"{given_up_count} were given up, since other writers were first at every version: "
            "the next run does them"
        )
    return "; ".join(parts)


def delete_files(store: ObjectStore, files: Iterable[DataFile]) -> None:
    """Removes files that were never part of the table. What cannot be removed is for vacuum."""
    for file in files:
        with contextlib.suppress(MainstemError):
            store.delete(file.path)

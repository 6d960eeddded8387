"""Log clean-up: removes commit files that a checkpoint has made superfluous, oldest first.

**If a version's commit file is there, no later one was ever removed.** At every moment, also when
the process is killed and while several clean the same log, the commit files that are there are one
run of versions up to the newest. A writer that slept relies on it: see `Committer`. Whatever else
removes log files, as delta-rs and Spark do in any order, may leave gaps: readers bear with that.

Source: Delta protocol, section "Metadata Cleanup".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mainstem.delta_log.store import ObjectInfo, Store
from mainstem.delta_log.table.clocks import SteadyClock
from mainstem.delta_log.table.live_table import check_readable
from mainstem.delta_log.table.snapshot import LOG, commit_path
from mainstem.errors import LogDamagedError

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")

#: Whatever else belongs to one version: checkpoints in parts or of other kinds, checksums.
_OF_VERSION: Final = re.compile(
    r"(\d{20})\.(?:checkpoint\.(?:\d{10}\.\d{10}\.|[0-9a-f-]{36}\.)?(?:parquet|json)|crc)"
)

#: What delta-rs and the object store library leave of a write that was interrupted.
_STAGED: Final = re.compile(r".*#\d+")

#: What may still be on its way to its name is younger.
_LEFTOVER_MS_MIN: Final = 3_600_000

_CLOCK: Final = SteadyClock()


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of a log, as a listing has them.

    Attributes:
        commits: The commit file of each version.
        checkpoints: The versions with a checkpoint in one file, the only kind that is used.
        others: The names of the files of each version that are not its commit file.
        staged: Left by writes that were interrupted, or of writes that go on.
    """

    commits: Mapping[int, ObjectInfo]
    checkpoints: frozenset[int] = frozenset()
    others: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    staged: tuple[ObjectInfo, ...] = ()

    @classmethod
    def of(cls, store: Store) -> LogFiles:
        """Lists the log of the table at the root of `store`."""
        commits: dict[int, ObjectInfo] = {}
        checkpoints: set[int] = set()
        others: dict[int, tuple[str, ...]] = {}
        staged: list[ObjectInfo] = []
        for info in store.list_files(LOG):
            if match := _COMMIT.fullmatch(info.name):
                commits[int(match[1])] = info
            elif match := _OF_VERSION.fullmatch(info.name):
                version = int(match[1])
                others[version] = (*others.get(version, ()), info.name)
                if _CHECKPOINT.fullmatch(info.name):
                    checkpoints.add(version)
            elif _STAGED.fullmatch(info.name):
                staged.append(info)
        return cls(commits, frozenset(checkpoints), others, tuple(staged))


def cut_off_version(files: LogFiles, now_ms: int, kept_ms: int) -> int:
    """The newest version whose commit file was written `kept_ms` ago or longer; -1: none. Pure.

    A file is as old as the time between the commits after it adds up to, in which a step back
    counts as nothing: files of the future, that a clock which was ahead has left, do not keep all
    that come after them.
    """
    age_ms = 0
    later_ms = now_ms
    for version in sorted(files.commits, reverse=True):
        written_ms = files.commits[version].modified_ms
        age_ms += max(later_ms - written_ms, 0)
        if age_ms >= kept_ms:
            return version
        later_ms = written_ms
    return -1


def clean_log(store: Store, kept_ms: int, clock: SteadyClock = _CLOCK) -> int:
    """Removes the log files before the newest whole checkpoint that is not younger than `kept_ms`,
    by ascending version. Blocks.

    What stays is readable from that checkpoint: it is read first. Another clean-up at the same time
    does no harm, nor that this one is interrupted.

    Args:
        kept_ms: The table's `delta.logRetentionDuration`: versions that were the newest at some
            moment of that time stay.

    Returns:
        How many commit files were removed, by this or by another at the same time.

    Raises:
        LogDamagedError: No checkpoint that is old enough can be read, and one is damaged. Nothing
            was removed.
        StoreUnavailableError: The store failed; some files may be gone, oldest first.
    """
    now_ms = clock.now_ms(kept_ms)
    files = LogFiles.of(store)
    _sweep(store, files, now_ms)
    base = _oldest_needed(store, files, cut_off_version(files, now_ms, kept_ms))
    # What a listing can miss is newer than it is. And a commit file that comes back after it, by a
    # writer that slept, is taken away again by that writer or by the next clean-up.
    count = 0
    for version in sorted(files.commits.keys() | files.others.keys()):
        if version >= base:
            break
        if version in files.commits:
            store.delete(commit_path(version))
            count += 1
        for name in files.others.get(version, ()):
            store.delete(f"{LOG}/{name}")
    return count


def _oldest_needed(store: Store, files: LogFiles, cut_off: int) -> int:
    """The version of the newest whole checkpoint up to `cut_off`; 0 if there is nothing to do."""
    damage: LogDamagedError | None = None
    oldest = min(files.commits.keys() | files.others.keys(), default=0)
    for version in sorted(files.checkpoints, reverse=True):
        if version > cut_off:
            continue
        if version <= oldest:
            break
        try:
            check_readable(store, version)
        except LogDamagedError as error:
            damage = damage or error
            continue
        return version
    if damage is not None:
        raise damage
    return 0


def _sweep(store: Store, files: LogFiles, now_ms: int) -> None:
    """Removes what interrupted writes left."""
    store.sweep(LOG, now_ms - _LEFTOVER_MS_MIN)
    for info in files.staged:
        if info.modified_ms <= now_ms - _LEFTOVER_MS_MIN:
            store.delete(f"{LOG}/{info.name}")

"""Log clean-up: removes commit files that a checkpoint has made superfluous, oldest first.

**If a version's commit file is there, no later one was ever removed.** At every moment, also when
the process is killed and while several clean the same log, the commit files that are there are one
run of versions up to the newest. A writer that slept relies on it: see `Committer`. Whatever else
removes log files, as delta-rs and Spark do in any order, may leave gaps: readers bear with that.

Source: Delta protocol, section "Metadata Cleanup".
"""

from __future__ import annotations

import itertools
from typing import Final

from mainstem.delta_log.format import LOG, LogFiles, check_whole, checkpoint_path, commit_path
from mainstem.delta_log.store import STEADY_CLOCK, NotFound, ObjectStore, SteadyClock
from mainstem.errors import LogDamagedError

#: What may still be on its way to its name is younger.
_LEFTOVER_MS_MIN: Final = 3_600_000


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


def cut_off_ms(files: LogFiles, version: int, kept_ms: int) -> int | None:
    """From when on `cut_off_version` is `version` or a later one, if the log stays as it is; None:
    never. Pure."""
    written_ms = [info.modified_ms for at, info in sorted(files.commits.items()) if at >= version]
    if not written_ms:
        return None
    between_ms = sum(max(later - one, 0) for one, later in itertools.pairwise(written_ms))
    return 0 if between_ms >= kept_ms else written_ms[-1] + kept_ms - between_ms


def clean_log(
    store: ObjectStore,
    kept_ms: int,
    clock: SteadyClock = STEADY_CLOCK,
    *,
    version_max: int | None = None,
) -> int:
    """Removes the log files before the newest whole checkpoint that is not younger than `kept_ms`,
    by ascending version. Blocks.

    What stays is readable from that checkpoint: it is read first. Another clean-up at the same time
    does no harm, nor that this one is interrupted.

    Args:
        kept_ms: The table's `delta.logRetentionDuration`: versions that were the newest at some
            moment of that time stay.
        version_max: The newest checkpoint that may be used for it; None: any.

    Returns:
        How many commit files were removed, by this or by another at the same time.

    Raises:
        StoreUnavailableError: The store failed; some files may be gone, oldest first.
    """
    now_ms = clock.now_ms(kept_ms)
    files = LogFiles.of(store)
    _sweep(store, files, now_ms)
    cut_off = cut_off_version(files, now_ms, kept_ms)
    if version_max is not None:
        cut_off = min(cut_off, version_max)
    base = _oldest_needed(store, files, cut_off)
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


def _oldest_needed(store: ObjectStore, files: LogFiles, cut_off: int) -> int:
    """The version of the newest whole checkpoint up to `cut_off`; 0 if there is nothing to do."""
    oldest = min(files.commits.keys() | files.others.keys(), default=0)
    for version in reversed(files.checkpoints):
        if oldest < version <= cut_off:
            path = checkpoint_path(version)
            try:
                check_whole(store.read(path), f"{store.uri}/{path}")
            except (NotFound, LogDamagedError):
                continue  # an older one will do, or nothing goes
            return version
    return 0


def _sweep(store: ObjectStore, files: LogFiles, now_ms: int) -> None:
    """Removes what interrupted writes left."""
    store.sweep(LOG, now_ms - _LEFTOVER_MS_MIN)
    for info in files.staged:
        if info.modified_ms <= now_ms - _LEFTOVER_MS_MIN:
            store.delete(f"{LOG}/{info.name}")

"""What the log knows of data files that are no longer part of the table, or that it ever knew of.

Source: Delta protocol, sections "Add File and Remove File" (a removal stays in the log as a
tombstone until it expires) and "Checkpoints".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.delta_log.format import DataFile, LogFiles, Remove, open_checkpoint
from mainstem.delta_log.store import NotFound, ObjectStore
from mainstem.delta_log.table.snapshot import commits_written_ms, read_commit
from mainstem.delta_log.table.state import TableState
from mainstem.errors import LogDamagedError


@dataclass(frozen=True, slots=True)
class Removal:
    """A file that was removed from the table at `removed_ms`, and may still be in the store."""

    path: str
    size_bytes: int
    removed_ms: int


@dataclass(slots=True)
class Removals:
    """What was removed in a time.

    Attributes:
        files: Those of the time that was asked for.
        next_ms: When the first file after it was removed; None: none was.
    """

    files: list[Removal] = field(default_factory=list)
    next_ms: int | None = None

    def later(self, removed_ms: int) -> None:
        """There is a removal after the time."""
        self.next_ms = removed_ms if self.next_ms is None else min(self.next_ms, removed_ms)


def read_removals(
    store: ObjectStore, state: TableState, *, after_ms: int, until_ms: int
) -> Removals:
    """The removals in (after_ms, until_ms] that the log still has; lists no data directory.

    They are in the checkpoint that `state` was loaded from, unless they have expired there, and in
    the commit files after it. A commit that took long to land removed its files when it landed.

    Raises:
        LogDamagedError: A file of the log is damaged, or log clean-up came in between: try again.
    """
    found = Removals()
    if state.checkpoint_version >= 0:
        _take_checkpoint(store, state.checkpoint_version, found, after_ms, until_ms)
    landed_ms = commits_written_ms(store)
    for version in range(state.checkpoint_version + 1, state.version + 1):
        try:
            actions = read_commit(store, version)
        except NotFound as error:
            raise _overtaken(store, version) from error
        for action in actions:
            if isinstance(action, Remove):
                removed_ms = max(action.removed_ms, landed_ms.get(version, 0))
                if removed_ms <= after_ms:
                    continue
                if removed_ms > until_ms:
                    found.later(removed_ms)
                else:
                    found.files.append(Removal(action.path, action.size_bytes, removed_ms))
    found.files = [one for one in found.files if not state.is_active(one.path)]
    return found


def known_paths(store: ObjectStore) -> set[str]:
    """Every data file that any version knows of whose commit file or checkpoint is still there.

    Files that become part of the table while this runs may be missing.

    Raises:
        LogDamagedError: A file of the log is damaged, or log clean-up came in between: try again.
    """
    files = LogFiles.of(store)
    known: set[str] = set()
    for version in files.checkpoints:
        for column in ("add", "remove"):
            for paths in _checkpoint_columns(store, version, column, ["path"]):
                known.update(map(unquote, paths[0].drop_null().to_pylist()))
    newest_checkpoint = max(files.checkpoints, default=-1)
    for version in _commit_versions(files):
        try:
            actions = read_commit(store, version)
        except NotFound as error:
            # Another's clean-up removes files in any order, and may have been killed: the
            # checkpoint, which was read, has what they say.
            if version <= newest_checkpoint:
                continue
            raise _overtaken(store, version) from error
        known.update(one.path for one in actions if isinstance(one, DataFile | Remove))
    return known


def _commit_versions(files: LogFiles) -> range:
    # While commits go on, a listing of a local directory can have a newer file and lack an older
    # one: what lies between is read whether it was listed or not.
    versions = files.commits
    return range(min(versions), max(versions) + 1) if versions else range(0)


def _take_checkpoint(
    store: ObjectStore, version: int, found: Removals, after_ms: int, until_ms: int
) -> None:
    columns = ["path", "size", "deletionTimestamp"]
    for paths, sizes, times in _checkpoint_columns(store, version, "remove", columns):
        wanted = pc.and_(pc.greater(times, after_ms), pc.less_equal(times, until_ms))
        for path, size, removed_ms in zip(
            *(column.filter(wanted).to_pylist() for column in (paths, sizes, times)), strict=True
        ):
            found.files.append(Removal(unquote(path), size or 0, removed_ms))
        later_ms = pc.min(times.filter(pc.greater(times, max(after_ms, until_ms)))).as_py()
        if later_ms is not None:
            found.later(later_ms)


def _checkpoint_columns(
    store: ObjectStore, version: int, action: str, fields: list[str]
) -> Iterator[list[pa.Array]]:
    """Some fields of one action's column; null in the rows of other actions."""
    try:
        with open_checkpoint(store, version) as parquet:
            if action not in parquet.schema_arrow.names:
                return
            wanted = [f"{action}.{name}" for name in fields]
            for batch in parquet.iter_batches(columns=wanted, use_threads=False):
                rows = batch.column(action)
                yield [pc.struct_field(rows, name) for name in fields]
    except NotFound as error:
        raise _overtaken(store, version) from error


def _overtaken(store: ObjectStore, version: int) -> LogDamagedError:
    return LogDamagedError(
        f"the log of {store.uri} was cleaned up to version {version} while it was read, or its "
        "file is lost; nothing was done, try again",
        table_version=version,
    )

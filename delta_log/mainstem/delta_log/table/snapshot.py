"""Reading a table's state from its store: the newest checkpoint, then the commit files after it.

delta-rs does not read the log for us: it has no way to list `txn` actions, and it cannot read
through an `ObjectStore`, so not through one that injects faults.

Source: Delta protocol, sections "Delta Log Entries" and "Checkpoints".
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.delta_log.format import (
    LAST_CHECKPOINT,
    LOG,
    ROWS_AT_A_TIME,
    Action,
    AddedFiles,
    ForeignTableError,
    LogFiles,
    Protocol,
    action_from_json,
    checkpoint_path,
    commit_path,
    decode_commit,
    last_checkpoint_version,
    open_checkpoint,
    read_adds,
)
from mainstem.delta_log.store import NotFound, ObjectStore, is_there, read_ahead
from mainstem.delta_log.table.state import TableState
from mainstem.errors import LogDamagedError, UnknownTopicError, UnsupportedTableError

#: Attempts to load a table whose files are removed while it is read. Clean-ups are minutes apart.
_LOAD_ATTEMPTS_MAX: Final = 5


def has_log(store: ObjectStore, directory: str) -> bool:
    """Whether there is a table in the directory: any of its commit or checkpoint files.

    Raises:
        StoreUnavailableError: The store failed, or it may not be read.
    """
    # A log may have thousands of files: it is listed only where the usual ones are not there.
    # Clean-up removes the first one once the other is there, which is optional.
    for path in (commit_path(0), LAST_CHECKPOINT):
        if is_there(store, f"{directory}/{path}"):
            return True
    return LogFiles.of(store, f"{directory}/{LOG}").newest >= 0


def read_commit(store: ObjectStore, version: int) -> list[Action]:
    """The actions of one version. Raises NotFound, or LogDamagedError for a torn file."""
    path = commit_path(version)
    return decode_commit(store.read(path), f"{store.uri}/{path}")


def commits_written_ms(store: ObjectStore) -> dict[int, int]:
    """When each commit file that is there was written, by version; ms since 1970."""
    return {version: info.modified_ms for version, info in LogFiles.of(store).commits.items()}


def load_table(store: ObjectStore, version: int | None = None) -> TableState:
    """The state of the table at the root of `store`.

    Args:
        version: None: the newest.

    Raises:
        UnknownTopicError: There is no table.
        ForeignTableError: It is none of ours.
        UnsupportedTableError: It has a feature that we do not know.
        LogDamagedError: A commit file or checkpoint is missing or torn; the message names it.
    """
    try:
        for _ in range(_LOAD_ATTEMPTS_MAX - 1):
            try:
                return _load_once(store, version)
            except _Overtaken:
                continue
        return _load_once(store, version)
    except UnsupportedTableError:
        raise
    except LogDamagedError as error:
        if _is_foreign(store):
            raise ForeignTableError(store.uri) from error
        raise


def _is_foreign(store: ObjectStore) -> bool:
    """Whether a log that makes no sense to us is another writer's, whose commit files have no end
    or name no partition."""
    try:
        first = store.read(commit_path(0))
    except NotFound:
        return False
    return b'"protocol"' in first and b"mainstem" not in first


class _Overtaken(LogDamagedError):
    """A file that should be there is not: log clean-up came in between, or it was lost."""


def _load_once(store: ObjectStore, until: int | None) -> TableState:
    files = LogFiles.of(store)
    if files.newest < 0:
        raise UnknownTopicError(f"there is no topic table at {store.uri}", table=store.uri)
    newest = files.newest if until is None else until
    state = TableState(store.uri)
    damage: LogDamagedError | None = None
    for version in reversed(files.checkpoints):
        if version > newest:
            continue
        try:
            actions, added = _read_checkpoint(store, version)
        except LogDamagedError as error:
            damage = damage or error
            continue  # an older one, or the commit files alone, may say the same, only slower
        state.begin(version, actions, added)
        break
    # Whether they were listed or not: while commits go on, a listing of a local directory can have
    # a newer file and lack an older one.
    versions = range(state.version + 1, newest + 1)
    with contextlib.closing(read_ahead(store, map(commit_path, versions))) as contents:
        for version in versions:
            try:
                data = next(contents)
            except NotFound as error:
                raise damage or _missing(store, files, version, newest) from error
            state.apply(version, decode_commit(data, f"{store.uri}/{commit_path(version)}"))
    state.check_complete()
    return state


def _missing(store: ObjectStore, files: LogFiles, version: int, newest: int) -> _Overtaken:
    path = f"{store.uri}/{commit_path(version)}"
    what = f"the log {store.uri}/{LOG} has version {newest}, but {path} is missing"
    named = last_checkpoint_version(store)
    if named >= version and named not in files.checkpoints:
        path = f"{store.uri}/{checkpoint_path(named)}"
        what += f", and so is the checkpoint {path}, which has what it said"
    return _Overtaken(what, file=path)


def _read_checkpoint(store: ObjectStore, version: int) -> tuple[list[Action], AddedFiles]:
    try:
        with open_checkpoint(store, version) as file:
            rows = action_rows(file, ("protocol", "metaData", "txn"))
            actions = [
                action
                for name, found in rows.items()
                for row in found
                if (action := action_from_json({name: row}))
            ]
            for action in actions:
                if isinstance(action, Protocol):
                    action.check_supported(store.uri)  # before files that may be unlike ours
            return actions, read_adds(file)
    except NotFound as error:
        path = f"{store.uri}/{checkpoint_path(version)}"
        raise _Overtaken(f"the checkpoint {path} is missing", file=path) from error


def action_rows(file: pq.ParquetFile, kinds: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """The rows of a checkpoint, by kind of action; without a column for a kind there are none. Not
    for files: there are too many."""
    there = file.schema_arrow.names
    wanted = [kind for kind in kinds if kind in there]
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    # All kinds at once: most of a small checkpoint's reading is beginning to read. Some rows at a
    # time: those of files have room for every kind.
    for batch in file.iter_batches(ROWS_AT_A_TIME, columns=wanted, use_threads=False):
        for kind in wanted:
            found[kind] += _rows(batch.column(kind))
    return found


def _rows(column: pa.Array) -> list[dict[str, Any]]:
    present = column.drop_null() if column.null_count else column
    return [
        {
            key: dict(value)
            if isinstance(value, list) and value and isinstance(value[0], tuple)
            else value
            for key, value in row.items()
        }
        for row in present.to_pylist()
    ]

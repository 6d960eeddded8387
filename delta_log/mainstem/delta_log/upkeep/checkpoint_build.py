"""What a checkpoint has to say: an older one, and the commit files after it, row by row in Arrow.

Nothing that a leader has in memory goes into it. So when both say the same, `live_table` has
compared two replays of the log by different code.

Source: Delta protocol, section "Action Reconciliation".
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mainstem.config import interval_ms
from mainstem.delta_log.format import (
    CHECKPOINT_SCHEMA,
    ROWS_AT_A_TIME,
    CheckpointWriter,
    LogFiles,
    check_whole,
    checkpoint_path,
    commit_path,
    decode_rows,
    read_checkpoint,
)
from mainstem.delta_log.store import NotFound, ObjectStore, SteadyClock, read_ahead
from mainstem.errors import LogDamagedError

#: Which field tells actions of a kind apart; None: the newest one counts.
_KEYS: Final[dict[str, str | None]] = {
    "add": "path",
    "remove": "path",
    "txn": "appId",
    "metaData": None,
    "protocol": None,
}

#: Delta's, where the table does not say how long it remembers removed files.
_REMOVED_KEPT: Final = "interval 1 weeks"


@dataclass(slots=True)
class _Newer:
    """The actions after the older checkpoint that still count, by kind and key."""

    actions: dict[str, dict[str, Mapping[str, Any]]] = field(
        default_factory=lambda: {kind: {} for kind in _KEYS}
    )

    def take(self, row: Mapping[str, Any]) -> None:
        for kind, key in _KEYS.items():
            body = row.get(kind)
            if body is None:
                continue
            if key == "path":
                body = {**body, "path": _normal(body["path"])}
                for other in ("add", "remove"):
                    self.actions[other].pop(body["path"], None)
            self.actions[kind]["" if key is None else str(body[key])] = body

    def keys(self, kind: str) -> pa.Array:
        """Of those rows of an older checkpoint that do not count any more."""
        kinds = ("add", "remove") if _KEYS[kind] == "path" else (kind,)
        return pa.array([key for one in kinds for key in self.actions[one]], pa.string())


def build_checkpoint(store: ObjectStore, version: int, clock: SteadyClock) -> bytes:
    """The content of a checkpoint of `version`, from what is in the store. Blocks.

    Args:
        clock: For removed files and registers that have expired.

    Raises:
        NotFound: A commit file is not there: log clean-up has passed, or it is lost.
        LogDamagedError: A commit file is torn; or the log cannot be replayed without a checkpoint
            that is damaged.
        StoreUnavailableError: The store failed.
    """
    base, older, damage = _newest_whole(store, version)
    newer = _Newer()
    paths = [commit_path(one) for one in range(base + 1, version + 1)]
    with contextlib.closing(read_ahead(store, paths)) as contents:
        for path in paths:
            try:
                data = next(contents)
            except NotFound as error:
                raise damage or error from error
            for row in decode_rows(data, f"{store.uri}/{path}"):
                newer.take(row)
    writer = CheckpointWriter()
    if base < 0:
        expiry = _Expiry.of(_configuration(newer, None), clock)
    else:
        with read_checkpoint(older, f"{store.uri}/{checkpoint_path(base)}") as parquet:
            expiry = _Expiry.of(_configuration(newer, parquet), clock)
            kinds = [kind for kind in _KEYS if kind in parquet.schema_arrow.names]
            for batch in parquet.iter_batches(ROWS_AT_A_TIME, columns=kinds, use_threads=False):
                for kind in kinds:
                    _write_older(writer, kind, batch.column(kind), newer, expiry)
    for kind, actions in newer.actions.items():
        kept = [body for body in actions.values() if not expiry.has_come(kind, body)]
        writer.write(kind, pa.array(kept, CHECKPOINT_SCHEMA.field(kind).type))
    return writer.finish()


@dataclass(frozen=True, slots=True)
class _Expiry:
    """Up to when removed files and registers are not kept any more; ms since 1970."""

    removed_ms: int
    registers_ms: int

    @classmethod
    def of(cls, configuration: Mapping[str, str], clock: SteadyClock) -> _Expiry:
        kept = interval_ms(configuration.get("delta.deletedFileRetentionDuration", _REMOVED_KEPT))
        registers = configuration.get("delta.setTransactionRetentionDuration")
        registers_ms = -1
        if registers is not None:
            registers_ms = clock.now_ms(interval_ms(registers)) - interval_ms(registers)
        return cls(clock.now_ms(kept) - kept, registers_ms)

    def has_come(self, kind: str, body: Mapping[str, Any]) -> bool:
        if kind == "remove":
            return (body.get("deletionTimestamp") or 0) <= self.removed_ms
        if kind == "txn":
            updated_ms = body.get("lastUpdated")
            return updated_ms is not None and updated_ms <= self.registers_ms
        return False

    def kept(self, kind: str, rows: pa.StructArray) -> pa.Array | None:
        """Which rows are kept; None: all."""
        if kind == "remove":
            at = pc.fill_null(pc.struct_field(rows, "deletionTimestamp"), 0)
            return pc.greater(at, self.removed_ms)
        if kind == "txn":
            at = pc.struct_field(rows, "lastUpdated")
            return pc.fill_null(pc.greater(at, self.registers_ms), True)
        return None


def _newest_whole(store: ObjectStore, version: int) -> tuple[int, bytes, LogDamagedError | None]:
    """The newest checkpoint before `version` that can be read, with its content; -1 without one.
    And what is wrong with a newer one."""
    damage: LogDamagedError | None = None
    for older in reversed(LogFiles.of(store).checkpoints):
        if older >= version:
            continue
        try:
            data = store.read(checkpoint_path(older))
            check_whole(data, f"{store.uri}/{checkpoint_path(older)}")
        except LogDamagedError as error:
            damage = damage or error
        except NotFound:
            continue
        else:
            return older, data, damage
    return -1, b"", damage


def _configuration(newer: _Newer, older: pq.ParquetFile | None) -> Mapping[str, str]:
    body = newer.actions["metaData"].get("")
    if body is None:
        if older is None:
            return {}
        found = older.read(["metaData.configuration"]).column("metaData").drop_null().to_pylist()
        body = found[0]
    return dict(body.get("configuration") or {})


def _write_older(
    writer: CheckpointWriter, kind: str, rows: pa.StructArray, newer: _Newer, expiry: _Expiry
) -> None:
    """Writes the rows of an older checkpoint that still count."""
    rows = rows.filter(rows.is_valid())
    if not len(rows):
        return
    key = _KEYS[kind]
    if key is None:
        if newer.actions[kind]:
            return
    else:
        keys = pc.struct_field(rows, key)
        if key == "path":
            keys = _normal_paths(keys)
        rows = rows.filter(pc.invert(pc.is_in(keys, value_set=newer.keys(kind))))
    kept = expiry.kept(kind, rows)
    if kept is not None:
        rows = rows.filter(kept)
    writer.write(kind, _as_ours(rows, kind))


def _as_ours(rows: pa.StructArray, kind: str) -> pa.StructArray:
    """Rows with the fields that we write; another writer's may lack some, or have more."""
    wanted = CHECKPOINT_SCHEMA.field(kind).type
    if kind in ("metaData", "protocol"):  # one row, with structs inside
        return pa.array(rows.to_pylist(), wanted)
    columns = []
    for index in range(wanted.num_fields):
        one = wanted.field(index)
        if rows.type.get_field_index(one.name) < 0:
            columns.append(pa.nulls(len(rows), one.type))
            continue
        column = pc.struct_field(rows, one.name)
        if one.name == "path":
            column = _normal_paths(column)
        columns.append(column if column.type == one.type else column.cast(one.type))
    return pa.StructArray.from_arrays(columns, fields=list(wanted))


def _normal(path: str) -> str:
    """A path as we write it, whatever another writer has escaped in it."""
    return quote(unquote(path), safe="/=") if "%" in path else path


def _normal_paths(paths: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring(paths, "%")).as_py():
        return paths
    return pa.array([_normal(path) for path in paths.to_pylist()], pa.string())

"""What a table has at one version, and whether a checkpoint of that version says the same."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mainstem.config import TopicConfig, interval_ms
from mainstem.delta_log.format import (
    Metadata,
    Protocol,
    Register,
    action_from_json,
    checkpoint_path,
    read_checkpoint,
    read_keys,
)
from mainstem.delta_log.store import NotFound, ObjectStore
from mainstem.delta_log.table import FileIndex, TableState, action_rows
from mainstem.errors import LogDamagedError

#: How far the clocks may be apart of those who decide that a register has expired.
_CLOCK_SKEW_MS: Final = 60_000

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class LiveTable:
    """The live files and registers of a version. Does not change with the state that it is of.

    Attributes:
        files: By path.
        registers: By name.
    """

    version: int
    protocol: Protocol
    metadata: Metadata
    files: FileIndex
    registers: Mapping[str, Register]

    @classmethod
    def of(cls, state: TableState) -> Self:
        """What the state has now: a copy that shares most of its files with it."""
        assert state.protocol is not None
        assert state.metadata is not None
        return cls(
            state.version,
            state.protocol,
            state.metadata,
            state.active_files(),
            dict(state.registers),
        )

    @property
    def log_retention_ms(self) -> int:
        """How long its log is kept."""
        return TopicConfig.from_properties(self.metadata.configuration).log_retention_ms


def check_checkpoint(store: ObjectStore, live: LiveTable) -> None:
    """Reads the checkpoint of `live.version`, and compares as `compare_checkpoint`.

    Raises:
        LogDamagedError: It is not there, is damaged, or says something else.
        StoreUnavailableError: The store failed.
    """
    path = f"{store.uri}/{checkpoint_path(live.version)}"
    try:
        data = store.read(checkpoint_path(live.version))
    except NotFound as error:
        raise LogDamagedError(f"the checkpoint {path} is missing", file=path) from error
    compare_checkpoint(data, path, live)


def compare_checkpoint(data: bytes, path: str, live: LiveTable) -> None:
    """Compares a checkpoint's content: files with their sizes, registers, protocol and metadata.
    Statistics are left to `mainstem cluster verify`.

    Some 0.1 s for 60,000 files, in the caller's thread.

    Raises:
        LogDamagedError: It is damaged, or says something else.
    """
    with read_checkpoint(data, path) as parquet:
        if not _has_same_files(parquet, live):
            _check_files(path, parquet, live)
        rows = action_rows(parquet, ("protocol", "metaData", "txn"))
        _check_registers(path, rows["txn"], live)
        _check_table(path, rows, live)


def _has_same_files(parquet: pq.ParquetFile, live: LiveTable) -> bool:
    """Whether both have the same files, as arrays. False: also where one has an unusual path."""
    found, wanted = read_keys(parquet), live.files.keys_and_sizes()
    if found is None or wanted is None or len(found) != len(wanted):
        return False
    return _in_order(found).tobytes() == _in_order(wanted).tobytes()


def _in_order(keys: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    names = np.ascontiguousarray(keys["name"]).view("<u8").reshape(-1, 2)
    return keys[np.lexsort((names[:, 0], names[:, 1], keys["base_offset"], keys["partition"]))]


def _check_files(path: str, parquet: pq.ParquetFile, live: LiveTable) -> None:
    """File by file, to say which one differs."""
    known: set[str] = set()
    count = 0
    unknown: list[str] = []
    for batch in parquet.iter_batches(columns=["add.path", "add.size"], use_threads=False):
        rows = batch.column("add")
        # Not the fields themselves: they have values where the row has none.
        paths = pc.struct_field(rows, "path").to_pylist()
        sizes = pc.struct_field(rows, "size").to_pylist()
        for name, size in zip(paths, sizes, strict=True):
            if name is None:
                continue
            count += 1
            known.add(unquote(name))
            if size is None or live.files.size_bytes(unquote(name)) != size:
                unknown.append(unquote(name))
    if unknown or not len(known) == count == len(live.files):
        shown = f", for example {', '.join(unknown[:_SHOWN])}" if unknown else ""
        raise _differs(path, f"{count} files where {len(live.files)} are live{shown}")


def _check_registers(path: str, rows: list[dict[str, Any]], live: LiveTable) -> None:
    found = {
        action.name: action.value
        for row in rows
        if isinstance(action := action_from_json({"txn": row}), Register)
    }
    kept = live.metadata.configuration.get("delta.setTransactionRetentionDuration")
    kept_ms = None if kept is None else interval_ms(kept)
    now_ms = time.time_ns() // 1_000_000
    for name, register in live.registers.items():
        value = found.pop(name, None)
        if value == register.value:
            continue
        expired = (
            value is None
            and kept_ms is not None
            and register.updated_ms is not None
            and register.updated_ms + kept_ms <= now_ms + _CLOCK_SKEW_MS
        )
        if not expired:
            raise _differs(path, f"the register {name} as {value} instead of {register.value}")
    # What the state has forgotten as expired may still be there.
    extra = [name for name in found if name.startswith(("mainstem/leo/", "mainstem/lso/"))]
    if extra:
        raise _differs(path, f"the register {extra[0]}, which was never set")


def _check_table(path: str, rows: dict[str, list[dict[str, Any]]], live: LiveTable) -> None:
    for column, wanted in (("protocol", live.protocol), ("metaData", live.metadata)):
        found = [action_from_json({column: row}) for row in rows[column]]
        if [_comparable(one) for one in found] != [_comparable(wanted)]:
            raise _differs(path, f"another {column}")


def _comparable(action: object) -> object:
    """Without the order of features, which has no meaning."""
    if isinstance(action, Protocol):
        return (
            action.min_reader_version,
            action.min_writer_version,
            sorted(action.reader_features),
            sorted(action.writer_features),
        )
    return action


def _differs(path: str, what: str) -> LogDamagedError:
    return LogDamagedError(f"the checkpoint {path} has {what}", file=path)

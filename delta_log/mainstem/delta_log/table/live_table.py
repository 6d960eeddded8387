"""What a table has at one version, and whether a checkpoint of that version says the same."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mainstem.config import TopicConfig, interval_ms
from mainstem.delta_log.store import NotFound, Store
from mainstem.delta_log.table.actions import (
    DataFile,
    Metadata,
    Protocol,
    Register,
    action_from_json,
)
from mainstem.delta_log.table.parquet import parquet_file
from mainstem.delta_log.table.snapshot import action_rows, checkpoint_path
from mainstem.delta_log.table.state import TableState
from mainstem.errors import LogDamagedError

#: How far the clocks may be apart of whoever decides that a register has expired.
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
    files: Mapping[str, DataFile]
    registers: Mapping[str, Register]

    @classmethod
    def of(cls, state: TableState) -> Self:
        """What the state has now: a copy of two dictionaries, 1 ms for 60,000 files."""
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


def check_readable(store: Store, version: int) -> None:
    """Reads the whole checkpoint of `version`, and compares nothing but that it is of one table.

    Raises:
        LogDamagedError: It is not there, or cannot be read.
        StoreUnavailableError: The store failed.
    """
    path = checkpoint_path(version)
    try:
        with (
            store.open(path) as source,
            parquet_file(source) as parquet,
        ):
            found = dict.fromkeys(("protocol", "metaData"), 0)
            for batch in parquet.iter_batches(use_threads=False):
                for name in found:
                    rows = batch.column(name)
                    found[name] += len(rows) - rows.null_count
            if set(found.values()) != {1}:
                raise ValueError(f"it has {found} rows of its table")
    except (NotFound, pa.ArrowException, OSError, ValueError, LookupError, TypeError) as error:
        raise _unreadable(path, error) from error


def check_checkpoint(store: Store, live: LiveTable) -> None:
    """Reads the checkpoint of `live.version`, and compares: files with their sizes, registers,
    protocol and metadata. Statistics are left to `mainstem cluster verify`.

    A tenth of a second for 60,000 files.

    Raises:
        LogDamagedError: It cannot be read, or says something else.
    """
    path = checkpoint_path(live.version)
    try:
        with (
            store.open(path) as source,
            parquet_file(source) as parquet,
        ):
            _check_files(path, parquet, live)
            _check_registers(path, parquet, live)
            _check_table(path, parquet, live)
    except (NotFound, pa.ArrowException, OSError, ValueError, LookupError, TypeError) as error:
        raise _unreadable(path, error) from error


def _check_files(path: str, parquet: pq.ParquetFile, live: LiveTable) -> None:
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
            file = live.files.get(unquote(name))
            if file is None or file.size_bytes != size:
                unknown.append(unquote(name))
    if unknown or count != len(live.files):
        shown = f", for example {', '.join(unknown[:_SHOWN])}" if unknown else ""
        raise _differs(path, f"{count} files where {len(live.files)} are live{shown}")


def _check_registers(path: str, parquet: pq.ParquetFile, live: LiveTable) -> None:
    found = {
        action.name: action.value
        for row in action_rows(parquet, "txn")
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


def _check_table(path: str, parquet: pq.ParquetFile, live: LiveTable) -> None:
    for column, wanted in (("protocol", live.protocol), ("metaData", live.metadata)):
        found = [action_from_json({column: row}) for row in action_rows(parquet, column)]
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


def _unreadable(path: str, error: Exception) -> LogDamagedError:
    return LogDamagedError(f"the checkpoint {path} cannot be read: {error}", file=path)


def _differs(path: str, what: str) -> LogDamagedError:
    return LogDamagedError(
        f"the checkpoint {path} has {what}; it was taken back, and no log file was removed",
        file=path,
    )

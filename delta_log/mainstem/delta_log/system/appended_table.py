"""A system table that several processes append rows to, at the same time: a history.

It has the columns of a topic table and one partition. `key` says who or what a row is about,
`value` is JSON, `timestamp` is when it happened.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mainstem.delta_log.files import CREATE_TIME, encode_data_file, read_data_file
from mainstem.delta_log.format import Batch, Register, Remove, registers
from mainstem.delta_log.store import ObjectStore, wall_clock_ms
from mainstem.delta_log.system.gateway_beats import last_heartbeat_ms
from mainstem.delta_log.table import (
    OpenTopic,
    TableCommit,
    TableState,
    believed_ms,
    commit_beside_leader,
    file_time_ms,
    trim_step,
)
from mainstem.delta_log.topics import SYSTEM, Topics, altered_config
from mainstem.errors import MainstemError
from mainstem.records import records_to_wire_batch

_RETENTION: Final = "retention.ms"

#: Commits that one clean-up makes at most, of some thousands of files each.
_TRIMS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class AppendedRow:
    """A row.

    Attributes:
        key: Who or what it is about.
        value: What JSON can say.
        time_ms: When it happened.
    """

    key: str
    value: Mapping[str, Any]
    time_ms: int


class Appending:
    """Rows on their way into the table; see `AppendedTable.append`."""

    __slots__ = ("paths", "rows")

    def __init__(self, rows: Sequence[AppendedRow]) -> None:
        self.rows = rows
        #: Of each attempt's file.
        self.paths: list[str] = []


class AppendedTable:
    """The table, open; made if it is not there. Calls block; one caller at a time.

    Args:
        store: The warehouse.
        name: Below `system/`.
        retention_ms: For how long rows are kept.
        sleep: Waits for so many seconds.
    """

    def __init__(
        self,
        store: ObjectStore,
        name: str,
        *,
        retention_ms: int,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sleep = sleep
        self._warehouse = store
        self._retention_ms = retention_ms
        tables = Topics(store, folder=SYSTEM)
        self._opened = tables.open_or_create(name, 1, {_RETENTION: retention_ms})

    @staticmethod
    def exists(store: ObjectStore, name: str) -> bool:
        """Whether anybody has made the table."""
        return Topics(store, folder=SYSTEM).exists(name)

    @property
    def opened(self) -> OpenTopic:
        """For maintenance."""
        return self._opened

    def append(self, appending: Appending) -> None:
        """Adds rows, all in one table commit.

        After an error it may be called again with the same object: rows that got into the table
        although nobody could tell are not added twice, while their file is there.

        Raises:
            StoreUnavailableError, OutcomeUnknownError: As `commit_beside_leader`.
        """
        rows = appending.rows
        assert rows
        store = self._opened.store
        batch = records_to_wire_batch(
            [row.key.encode("utf-8", "replace") for row in rows],
            [json.dumps(row.value, separators=(",", ":")).encode() for row in rows],
            None,
            [row.time_ms for row in rows],
        )
        now_ms = wall_clock_ms()

        def build(state: TableState) -> TableCommit | None:
            if any(state.is_active(path) for path in appending.paths):
                return None  # an attempt landed whose outcome was not known
            # The offsets are in the file: a writer that was first moves them.
            base_offset = state.log_end_offset(0)
            file, data = encode_data_file(
                0,
                base_offset,
                [batch],
                timestamp_type=CREATE_TIME,
                compression_type="zstd",
                now_ms=now_ms,
            )
            appending.paths.append(file.path)
            store.put(file.path, data)
            return TableCommit.of(
                "APPEND",
                [file, Register(registers.leo(0), file.last_offset + 1)],
                timestamp_ms=now_ms,
                batches=[Batch(0, base_offset, len(rows))],
            )

        commit_beside_leader(self._opened, build, sleep=self._sleep)
        for path in appending.paths:
            if not self._opened.state.is_active(path):
                with contextlib.suppress(MainstemError):  # `vacuum-orphans` finds it
                    store.delete(path)

    def clean_up(self) -> None:
        """Has the table's retention.ms say for how long rows are kept, and removes files of which
        no row is younger. `vacuum` deletes them.

        Raises:
            StoreUnavailableError, OutcomeUnknownError: As `commit_beside_leader`.
        """
        self._set_retention()
        alive_ms = last_heartbeat_ms(self._warehouse)

        def build(state: TableState) -> TableCommit | None:
            now_ms = wall_clock_ms()
            kept_ms = self._retention_ms
            oldest_ms = believed_ms(state, now_ms, alive_ms, kept_ms) - kept_ms
            start = state.log_start_offset(0)
            for file in state.files(0).sorted():
                if file_time_ms(file) >= oldest_ms:
                    break
                start = file.last_offset + 1
            actions = trim_step(state, {0: start}, now_ms)
            if not any(isinstance(action, Remove) for action in actions):
                return None
            return TableCommit.of("RETENTION", actions, timestamp_ms=now_ms)

        for _ in range(_TRIMS_MAX):
            if commit_beside_leader(self._opened, build, sleep=self._sleep) is None:
                return

    def newest_first(self, since_ms: int = 0) -> Iterator[AppendedRow]:
        """All rows, but for those of files that have none since then."""
        for file in reversed(self._opened.state.files(0).sorted()):
            if file.timestamp_ms_max < since_ms:
                continue
            batches = list(
                read_data_file(
                    self._opened.store,
                    file,
                    file.base_offset,
                    file.last_offset + 1,
                    ["key", "value", "timestamp"],
                )
            )
            for batch in reversed(batches):
                keys = batch.column("key").to_pylist()
                values = batch.column("value").to_pylist()
                times = batch.column("timestamp").cast("int64").to_pylist()
                for row in reversed(list(zip(keys, values, times, strict=True))):
                    yield AppendedRow(row[0].decode(), json.loads(row[1]), row[2] // 1000)

    def _set_retention(self) -> None:
        def build(state: TableState) -> TableCommit | None:
            if int(state.config.get(_RETENTION)) == self._retention_ms:
                return None
            metadata = altered_config(state, {_RETENTION: self._retention_ms}, ())
            return TableCommit.of("ALTER CONFIG", [metadata], timestamp_ms=wall_clock_ms())

        commit_beside_leader(self._opened, build, sleep=self._sleep)

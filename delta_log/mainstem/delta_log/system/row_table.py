"""A small system table with one live row a key, changed by the writer that commits first.

It has the columns of a topic table: `key` is the row's key and `value` the row as JSON. Each live
row is a data file of its own, which goes in the commit that brings the next one; so a commit
decides between two that want to change the same rows. For tables of some dozens of rows, in which
the platform keeps leases and marks.
"""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Generic, TypeVar

from mainstem.delta_log.files import (
    CREATE_TIME,
    DataFileMissing,
    encode_data_file,
    read_data_file,
)
from mainstem.delta_log.format import DataFile, Register, registers
from mainstem.delta_log.store import ObjectStore, time_elapsed_ms, wall_clock_ms
from mainstem.delta_log.table import (
    OpenTopic,
    TableCommit,
    TableState,
    commit_beside_leader,
    replace_files,
)
from mainstem.delta_log.topics import SYSTEM, Topics
from mainstem.errors import StoreUnavailableError
from mainstem.records import records_to_wire_batch

R = TypeVar("R")

#: Files that were replaced stay for readers of the version before, however many commits follow: as
#: long as a slow reader may take to read some dozens of rows.
_REPLACED_KEPT_MS: Final = 600_000

#: How many files wait for that: ten minutes of ten commits a second. What is more is left to the
#: job `vacuum`, which looks for what the log removed.
_REPLACED_MAX: Final = 6_000

#: More rows than these are read in threads, which wait for a store that is far away together.
_READ_ALONE_MAX: Final = 4
_READ_THREADS: Final = 32

#: Attempts to read the rows while they are replaced. A reader that slept for longer than a file is
#: kept needs a second one.
_READ_ATTEMPTS_MAX: Final = 5


class RowTable(Generic[R]):
    """The table, open; made if it is not there. Calls block; one caller at a time.

    Args:
        name: Below `system/`.
        operation: What the commits are called in the table's history.
        encode: A row to what JSON can say.
        decode: The way back.
        elapsed_ms: A clock that goes on while the machine is suspended.
    """

    def __init__(
        self,
        store: ObjectStore,
        name: str,
        *,
        operation: str,
        encode: Callable[[R], Mapping[str, Any]],
        decode: Callable[[Mapping[str, Any]], R],
        elapsed_ms: Callable[[], int] = time_elapsed_ms,
    ) -> None:
        self._name = name
        self._operation = operation
        self._encode = encode
        self._decode = decode
        self._elapsed_ms = elapsed_ms
        self._opened = Topics(store, folder=SYSTEM).open_or_create(name, 1)
        #: By path: key, row and file.
        self._rows: dict[str, tuple[str, R, DataFile]] = {}
        #: Files that we replaced, and when.
        self._replaced: deque[tuple[str, int]] = deque(maxlen=_REPLACED_MAX)

    @property
    def opened(self) -> OpenTopic:
        """For maintenance."""
        return self._opened

    def read(self) -> dict[str, R]:
        """The newest row of each key.

        Raises:
            StoreUnavailableError: The store failed.
            LogDamagedError: A file of the table is lost.
        """
        for _ in range(_READ_ATTEMPTS_MAX - 1):
            # A file that is gone is not lost yet: its row may have been replaced since.
            with contextlib.suppress(DataFileMissing):
                return self._take(self._opened.refresh())
        return self._take(self._opened.refresh())

    def update(self, change: Callable[[dict[str, R]], Mapping[str, R | None]]) -> None:
        """Replaces rows by what `change` makes of those that are there, in one commit.

        Args:
            change: Gets all rows, gives those to replace; None takes a row away. Called again when
                another writer was first; raises to write nothing.

        Raises:
            StoreUnavailableError: The store failed, or other writers were always first.
            OutcomeUnknownError: Nobody can tell whether the rows were written; read them.
            MainstemError: What `change` raised.
        """
        old: list[DataFile] = []
        new: list[DataFile] = []

        def build(state: TableState) -> TableCommit | None:
            self._delete(new)  # of an attempt that was lost
            rows = change(self._take(state))
            now_ms = wall_clock_ms()
            old[:] = [file for key, _, file in self._rows.values() if key in rows]
            offset = state.log_end_offset(0)
            for key, row in rows.items():
                if row is not None:
                    new.append(self._write_row(key, row, offset + len(new), now_ms))
            actions = replace_files(state, old, new, now_ms=now_ms, data_change=True)
            if new:
                actions.append(Register(registers.leo(0), offset + len(new)))
            if not actions:
                return None
            return TableCommit.of(self._operation, actions, timestamp_ms=now_ms)

        landed = commit_beside_leader(self._opened, build)
        if landed is not None:
            self._forget(old)

    def _take(self, state: TableState) -> dict[str, R]:
        known = {path: row for path, row in self._rows.items() if state.is_active(path)}
        unknown = [file for file in state if file.path not in known]
        if len(unknown) <= _READ_ALONE_MAX:
            found = [self._read_row(file) for file in unknown]
        else:
            with ThreadPoolExecutor(_READ_THREADS) as threads:
                found = list(threads.map(self._read_row, unknown))
        for file, (key, row) in zip(unknown, found, strict=True):
            known[file.path] = (key, row, file)
        self._rows = known
        newest = sorted(known.values(), key=lambda one: one[2].base_offset)
        return {key: row for key, row, _ in newest}

    def _write_row(self, key: str, row: R, offset: int, now_ms: int) -> DataFile:
        value = json.dumps(self._encode(row), separators=(",", ":")).encode()
        batch = records_to_wire_batch([key.encode()], [value], None, [now_ms])
        file, data = encode_data_file(
            0,
            offset,
            [batch],
            timestamp_type=CREATE_TIME,
            compression_type="none",
            now_ms=now_ms,
        )
        self._opened.store.put(file.path, data)
        return file

    def _read_row(self, file: DataFile) -> tuple[str, R]:
        batches = read_data_file(
            self._opened.store, file, file.base_offset, file.last_offset + 1, ["key", "value"]
        )
        batch = next(iter(batches))
        key: bytes = batch.column("key")[0].as_py()
        return key.decode(), self._decode(json.loads(batch.column("value")[0].as_py()))

    def _forget(self, files: list[DataFile]) -> None:
        """Deletes files that we replaced some time ago: a reader may be a version behind."""
        now_ms = self._elapsed_ms()
        while self._replaced and now_ms - self._replaced[0][1] >= _REPLACED_KEPT_MS:
            path, _ = self._replaced.popleft()
            with contextlib.suppress(StoreUnavailableError):  # `vacuum` finds it
                self._opened.store.delete(path)
        self._replaced.extend((file.path, now_ms) for file in files)

    def _delete(self, files: list[DataFile]) -> None:
        while files:
            self._opened.store.delete(files.pop().path)

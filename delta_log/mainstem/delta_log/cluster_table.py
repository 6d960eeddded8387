"""The table `system/cluster`: a row for each gateway, with the topics whose lease it holds.

It has the columns of a topic table: `key` is the gateway's id and `value` its row as JSON. Each
gateway has one live file with one row, which it replaces in the commit that brings the new one; so
a commit decides between two that want the same lease. Leases keep gateways from fighting; what
keeps them from both writing is the epoch in the topic's own log.
"""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from mainstem.delta_log import registers
from mainstem.delta_log.actions import Action, DataFile, Register, Remove
from mainstem.delta_log.committer import (
    Committed,
    Committer,
    TableCommit,
    wall_clock_ms,
)
from mainstem.delta_log.data_file import CREATE_TIME, encode_data_file, read_data_file
from mainstem.delta_log.snapshot import refresh_table
from mainstem.delta_log.store import Store
from mainstem.delta_log.topics import SYSTEM, OpenTopic, Topics
from mainstem.errors import StoreUnavailableError, TopicExistsError, UnknownTopicError
from mainstem.records import records_to_wire_batch

NAME: Final = "cluster"

#: Attempts to write a row; each loss means that another gateway wrote its own.
_ATTEMPTS_MAX: Final = 50

#: Files that were replaced stay for readers of the version before, this many of them.
_REPLACED_KEPT: Final = 30


@dataclass(frozen=True, slots=True)
class GatewayRow:
    """What a gateway says of itself.

    Attributes:
        incarnation: A new one each time the gateway starts.
        heartbeat_ms: When it wrote the row, by its own clock.
        topics: Whose lease it holds, sorted.
    """

    gateway_id: str
    incarnation: str
    address: str
    rack: str
    heartbeat_ms: int
    topics: tuple[str, ...] = ()


class ClusterTable:
    """The table, open; made if it is not there. Calls block; one caller at a time."""

    def __init__(self, store: Store) -> None:
        tables = Topics(store, folder=SYSTEM)
        try:
            self._opened = tables.open(NAME)
        except UnknownTopicError:
            with contextlib.suppress(TopicExistsError):
                tables.create(NAME, 1)
            self._opened = tables.open(NAME)
        self._committer = Committer(self._opened.store)
        self._rows: dict[str, tuple[GatewayRow, DataFile]] = {}
        self._replaced: deque[str] = deque()

    @property
    def opened(self) -> OpenTopic:
        """For maintenance."""
        return self._opened

    def read(self) -> dict[str, GatewayRow]:
        """The newest row of each gateway, by its id."""
        state = refresh_table(self._opened.store, self._opened.state)
        if state is not self._opened.state:
            self._opened = OpenTopic(NAME, self._opened.store, state)
        known = {path: row for path, row in self._rows.items() if state.is_active(path)}
        for file in state:
            if file.path not in known:
                known[file.path] = (self._read_row(file), file)
        self._rows = known
        newest = sorted(known.values(), key=lambda one: one[1].base_offset)
        return {row.gateway_id: row for row, _ in newest}

    def write(
        self, gateway_id: str, make: Callable[[dict[str, GatewayRow]], GatewayRow | None]
    ) -> None:
        """Replaces the gateway's row by what `make` makes of the rows that are there.

        Args:
            make: Called again when another gateway was first; raises to write nothing. None takes
                the row away: its leases are free at once.

        Raises:
            StoreUnavailableError: The store failed, or other gateways were always first.
            MainstemError: What `make` raised.
        """
        for _ in range(_ATTEMPTS_MAX):
            row = make(self.read())
            state = self._opened.state
            now_ms = wall_clock_ms()
            old = [file for one, file in self._rows.values() if one.gateway_id == gateway_id]
            actions: list[Action] = [
                Remove(file.path, file.partition, file.size_bytes, now_ms, data_change=True)
                for file in old
            ]
            if row is not None:
                file = self._write_row(row, state.log_end_offset(0), now_ms)
                actions += [file, Register(registers.leo(0), file.last_offset + 1)]
            if not actions:
                return
            commit = TableCommit.of("HEARTBEAT", actions, timestamp_ms=now_ms)
            outcome = self._committer.commit(state.version + 1, commit)
            if isinstance(outcome, Committed):
                state.apply(outcome.version, commit.actions)
                self._forget(old)
                return
            # After an unknown outcome the next read finds our row, or not, and we replace it.
        raise StoreUnavailableError(
            f"the row of gateway {gateway_id} could not be written: others were always first"
        )

    def close(self) -> None:
        self._opened.store.close()

    def _write_row(self, row: GatewayRow, offset: int, now_ms: int) -> DataFile:
        value = json.dumps(asdict(row), separators=(",", ":")).encode()
        batch = records_to_wire_batch([row.gateway_id.encode()], [value], None, [now_ms])
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

    def _read_row(self, file: DataFile) -> GatewayRow:
        batches = read_data_file(
            self._opened.store, file, file.base_offset, file.last_offset + 1, ["value"]
        )
        body = json.loads(next(iter(batches)).column("value")[0].as_py())
        return GatewayRow(
            body["gateway_id"],
            body["incarnation"],
            body["address"],
            body["rack"],
            body["heartbeat_ms"],
            tuple(body["topics"]),
        )

    def _forget(self, files: list[DataFile]) -> None:
        """Deletes our replaced files some heartbeats later: a reader may be a version behind."""
        self._replaced.extend(file.path for file in files)
        while len(self._replaced) > _REPLACED_KEPT:
            self._opened.store.delete(self._replaced.popleft())

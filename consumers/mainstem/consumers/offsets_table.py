"""The table `system/consumer_offsets`: what groups have committed, the latest row of a key winning.

It has the columns of a topic table, one partition, and is written by an `Appender` like a topic:
group commit, retries, and a leader epoch that stops whoever led it before. A row's `key` and
`value` are JSON:

| key | value |
|---|---|
| `group`, `topic_id`, `partition` | `group`, `topic`, `topic_id`, `partition`, `offset`, `leader_epoch`, `metadata`, `commit_timestamp_ms` |
| `group` | `group`, `epoch_floor`, `empty_since_ms`, `heartbeat_ms` |

A null value takes the key away. When enough rows are superseded, the live ones are appended once
more and a table commit removes the files before them, so that opening the table stays cheap.
"""  # noqa: E501 (a table)

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, TypeVar

import structlog

from mainstem.delta_log.append import Appended, Appender, ByteBudget
from mainstem.delta_log.files import Slice, read_data_file
from mainstem.delta_log.metrics import AppenderMetrics
from mainstem.delta_log.store import Store
from mainstem.delta_log.table import (
    SYSTEM,
    DataFile,
    LogClock,
    OpenTopic,
    TableCommit,
    TableState,
    Topics,
    commit_beside_leader,
    load_table,
    replace_files,
    time_elapsed_s,
    wall_clock_ms,
)
from mainstem.errors import MainstemError, TopicExistsError, UnknownTopicError
from mainstem.limits import MIB
from mainstem.records import records_to_wire_batch

log = structlog.get_logger()

T = TypeVar("T")

NAME: Final = "consumer_offsets"

#: An offset commit should be answered in some 20 ms; what comes meanwhile shares a table commit.
_SETTINGS: Final = {"commit.interval.ms": "10"}

#: Bytes of commits that may wait: some seconds of a store that hangs.
QUEUE_BYTES: Final = 16 * MIB

#: Data files since the last rewriting: what opening the table reads beside the live rows.
REWRITE_FILES_MIN: Final = 200
REWRITE_FILES_MAX: Final = 2_000

#: Rows of one request of a rewriting.
_REWRITE_ROWS_MAX: Final = 20_000

#: For how long offsets of a group without members are kept. Kafka: offsets.retention.minutes.
KEPT_MS: Final = 604_800_000

#: Readers that are a version behind may still want a file that was removed this long ago.
_REMOVED_KEPT_S: Final = 600.0

#: What a row costs in memory beside its bytes.
_ROW_OVERHEAD_BYTES: Final = 64


class OffsetKey(NamedTuple):
    """Whose offset it is, in one group."""

    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """What a group has committed of one partition.

    Attributes:
        offset: The next one to read.
        leader_epoch: As the consumer gave it; -1: it did not.
    """

    topic: str
    topic_id: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class GroupRow:
    """What must survive of a group beside its offsets.

    Attributes:
        epoch_floor: No epoch above it was ever answered.
        empty_since_ms: When its last member went, by the wall clock; None: it has members.
        heartbeat_ms: No member was told to be silent for longer.
    """

    epoch_floor: int = 0
    empty_since_ms: int | None = None
    heartbeat_ms: int = 0


#: A change: an offset, a group's row, or a key that goes.
@dataclass(frozen=True, slots=True)
class Row:
    """One row to write.

    Attributes:
        key: None: the group's own row.
        value: None: the key goes.
    """

    group: str
    key: OffsetKey | None
    value: StoredOffset | GroupRow | None

    def encode(self) -> tuple[bytes, bytes | None]:
        key: dict[str, object] = {"group": self.group}
        if self.key is not None:
            key |= {"topic_id": self.key.topic_id, "partition": self.key.partition}
        value = None
        if self.value is not None:
            value = _json({"group": self.group, **asdict(self.value)})
        return _json(key), value

    @classmethod
    def decode(cls, key: bytes, value: bytes | None) -> Row:
        body: dict[str, Any] = json.loads(key)
        group = body["group"]
        where = OffsetKey(body["topic_id"], body["partition"]) if "partition" in body else None
        if value is None:
            return cls(group, where, None)
        facts: dict[str, Any] = json.loads(value)
        facts.pop("group")
        return cls(group, where, GroupRow(**facts) if where is None else StoredOffset(**facts))


class OffsetsTable:
    """The table, led by this gateway. Make one with `lead`; close it when done. On one event loop.

    What readers of this object see is durable: a commit shows when its future is done, not before.
    """

    def __init__(
        self, appender: Appender, opened: OpenTopic, pool: Executor, clock: LogClock
    ) -> None:
        self._clock = clock
        self._appender = appender
        self._opened = opened
        self._pool = pool
        self._offsets: dict[str, dict[OffsetKey, StoredOffset]] = {}
        self._groups: dict[str, GroupRow] = {}
        #: Everything accepted, durable or not, as it is written.
        self._rows: dict[bytes, bytes] = {}
        #: The newest write of each group that is not durable yet.
        self._pending: dict[str, asyncio.Future[None]] = {}
        self._row_count = 0
        self._rewriting: asyncio.Task[None] | None = None
        self._removed: deque[tuple[float, str]] = deque()

    @classmethod
    async def lead(
        cls,
        store: Store,
        pool: Executor,
        *,
        budget: ByteBudget,
        kept_ms: int = KEPT_MS,
        metrics: AppenderMetrics | None = None,
        on_commit: Callable[[OpenTopic], None] = lambda _: None,
        on_failure: Callable[[MainstemError], None] = lambda _: None,
    ) -> OffsetsTable:
        """Takes the table over, made if it is not there, and reads it.

        Args:
            kept_ms: For how long the offsets of a group without members are kept.

        Raises:
            StoreUnavailableError: The store failed.
            LogDamagedError: A file is missing or torn.
        """
        loop = asyncio.get_running_loop()
        opened = await loop.run_in_executor(pool, _open, store)
        try:
            appender = await Appender.lead(
                opened,
                pool,
                queue_bytes=QUEUE_BYTES,
                budget=budget,
                metrics=metrics,
                on_commit=on_commit,
                on_failure=on_failure,
            )
        except BaseException:
            opened.store.close()
            raise
        newest_ms = max((file.timestamp_ms_max for file in opened.state), default=0)
        table = cls(appender, opened, pool, LogClock(newest_ms, kept_ms))
        try:
            # Nobody else writes it now: what was committed before the epoch is all there is.
            for key, value in await loop.run_in_executor(pool, _read, opened):
                table._row_count += 1
                table._take(key, value)
                table._apply(Row.decode(key, value))
        except BaseException:
            await appender.close(0.0)
            raise
        table._consider_rewriting()
        return table

    @property
    def failure(self) -> MainstemError | None:
        """Why nothing more is taken, or None."""
        return self._appender.failure

    def now_ms(self) -> int:
        """The time by which rows are dated, and how old they are is told."""
        return self._clock.now_ms()

    @property
    def groups(self) -> set[str]:
        """Every group with an offset or a row of its own."""
        return {*self._groups, *self._offsets}

    def group(self, name: str) -> GroupRow | None:
        return self._groups.get(name)

    def offsets(self, group: str) -> Mapping[OffsetKey, StoredOffset]:
        """The durable offsets of a group. The caller does not change them."""
        return self._offsets.get(group, {})

    async def flushed(self, group: str) -> None:
        """Waits until what was accepted of the group before this call is durable.

        Raises:
            MainstemError: It did not get into the table.
        """
        pending = self._pending.get(group)
        if pending is not None:
            await asyncio.shield(pending)

    def write(self, rows: Sequence[Row]) -> asyncio.Future[None]:
        """Accepts rows, all in one table commit, in the order of calls. Done when durable.

        Raises:
            BackPressureError: Too much waits; nothing was taken.
            MainstemError: The table is lost; see `failure`.
        """
        assert rows
        encoded = [row.encode() for row in rows]
        appended = self._submit(encoded)
        for key, value in encoded:
            self._take(key, value)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(_retrieve)
        groups = {row.group for row in rows}
        for group in groups:
            self._pending[group] = done

        def finish(future: asyncio.Future[Appended]) -> None:
            for group in groups:
                if self._pending.get(group) is done:
                    del self._pending[group]
            failure = None if future.cancelled() else future.exception()
            if failure is not None:
                done.set_exception(failure)
            elif future.cancelled():
                done.cancel()
            else:
                self._row_count += len(rows)
                for row in rows:
                    self._apply(row)
                done.set_result(None)
                self._consider_rewriting()

        appended.add_done_callback(finish)
        return done

    async def rewrite(self) -> None:
        """Appends the live rows once more and removes every file before them.

        A crash in between leaves both, which say the same.

        Raises:
            MainstemError: The table is lost, or too much waits.
        """
        rows = list(self._rows.items())  # accepted ones too: they are before the copies
        base_offset = self._appender.log_end_offset(0)
        copies = [
            self._submit(rows[start : start + _REWRITE_ROWS_MAX])
            for start in range(0, len(rows), _REWRITE_ROWS_MAX)
        ]
        for copy in copies:
            await asyncio.shield(copy)
        state = self._appender.state
        if not copies and state.log_end_offset(0) < base_offset:
            return  # what takes the last keys away is on its way: another time
        removed = await self._run(self._remove, base_offset, self._appender.epoch)
        if not removed:
            return
        self._row_count = len(rows)
        now = time_elapsed_s()
        while self._removed and self._removed[0][0] < now - _REMOVED_KEPT_S:
            await self._run(self._opened.store.delete, self._removed.popleft()[1])
        self._removed.extend((now, file.path) for file in removed)

    async def close(self, timeout_s: float) -> None:
        """Commits what was accepted within `timeout_s`, then stops."""
        if self._rewriting is not None:
            self._rewriting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._rewriting
        await self._appender.close(timeout_s)

    def _submit(self, encoded: Sequence[tuple[bytes, bytes | None]]) -> asyncio.Future[Appended]:
        keys = [key for key, _ in encoded]
        values = [value for _, value in encoded]
        batch = records_to_wire_batch(keys, values, None, [self.now_ms()] * len(keys))
        size_bytes = batch.nbytes + _ROW_OVERHEAD_BYTES * len(keys)
        future = self._appender.submit([Slice(0, batch)], size_bytes)
        future.add_done_callback(_retrieve)
        return future

    def _take(self, key: bytes, value: bytes | None) -> None:
        # Moved to the end: the order of the rows is that of their offsets.
        self._rows.pop(key, None)
        if value is not None:
            self._rows[key] = value

    def _apply(self, row: Row) -> None:
        if row.key is None:
            if isinstance(row.value, GroupRow):
                self._groups[row.group] = row.value
            else:
                self._groups.pop(row.group, None)
        elif isinstance(row.value, StoredOffset):
            self._offsets.setdefault(row.group, {})[row.key] = row.value
        elif row.group in self._offsets:
            self._offsets[row.group].pop(row.key, None)
            if not self._offsets[row.group]:
                del self._offsets[row.group]

    def _consider_rewriting(self) -> None:
        if self._rewriting is not None:
            return
        files = self._appender.state.file_count
        # A rewriting costs what lives; it has to be worth that.
        if files >= REWRITE_FILES_MAX or (
            files >= REWRITE_FILES_MIN and self._row_count >= 2 * len(self._rows)
        ):
            self._rewriting = asyncio.get_running_loop().create_task(self._rewrite_quietly())

    async def _rewrite_quietly(self) -> None:
        try:
            await self.rewrite()
        except MainstemError as error:
            log.warning("the offsets table was not rewritten", error=error.message)
        except Exception:
            log.exception("the offsets table was not rewritten")
        finally:
            self._rewriting = None

    def _remove(self, base_offset: int, epoch: int) -> list[DataFile]:
        """Removes the files before an offset, whoever wrote them: keyed compaction may have put
        others in the place of those that the appender knows of.

        Commits beside the appender, which merges it as it does a compaction. Blocks, in a thread:
        it looks at nothing that the loop changes.

        Returns:
            Those files; none where another gateway leads the table: it does its own rewriting.
        """
        store = self._opened.store
        now_ms = wall_clock_ms()

        removed: list[DataFile] = []

        def removal(state: TableState) -> TableCommit | None:
            removed.clear()
            if state.epoch == epoch:
                removed.extend(file for file in state if file.last_offset < base_offset)
            if not removed:
                return None
            actions = replace_files(state, removed, now_ms=now_ms, data_change=True)
            return TableCommit.of("REWRITE OFFSETS", actions, timestamp_ms=now_ms)

        commit_beside_leader(OpenTopic(NAME, store, load_table(store)), removal)
        return removed

    async def _run(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)


def offset_row(group: str, offset: StoredOffset) -> Row:
    """The row of an offset."""
    return Row(group, OffsetKey(offset.topic_id, offset.partition), offset)


def _open(store: Store) -> OpenTopic:
    tables = Topics(store, folder=SYSTEM)
    try:
        return tables.open(NAME)
    except UnknownTopicError:
        with contextlib.suppress(TopicExistsError):
            tables.create(NAME, 1, _SETTINGS)
        return tables.open(NAME)


def _read(opened: OpenTopic) -> list[tuple[bytes, bytes | None]]:
    """All rows, in the order of their offsets."""
    found: list[tuple[bytes, bytes | None]] = []
    for file in list(opened.state.files(0).sorted()):
        batches = read_data_file(
            opened.store, file, file.base_offset, file.last_offset + 1, ["key", "value"]
        )
        for batch in batches:
            found += zip(
                batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True
            )
    return found


def _json(body: Mapping[str, object]) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def _retrieve(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


def expired(
    group_row: GroupRow | None,
    offsets: Iterable[StoredOffset],
    *,
    has_members: bool,
    now_ms: int,
    retention_ms: int,
) -> list[StoredOffset]:
    """The offsets of a group whose time is over: it counts from when the group became empty, or
    from the commit if that came later. A group with members keeps all. Kafka: KIP-211."""
    if has_members:
        return []
    empty_since = 0  # a group that never had members
    if group_row is not None:
        if group_row.empty_since_ms is None:
            return []  # it had members a moment ago: its time begins when the row says so
        empty_since = group_row.empty_since_ms
    return [
        one for one in offsets if max(empty_since, one.commit_timestamp_ms) + retention_ms <= now_ms
    ]

"""The table `system/consumer_offsets`: what groups have committed, the latest row of a key winning.

It has the columns of a topic table, one partition, and is written by an `Appender` like a topic:
group commit, roll-up of small files, retries, and a leader epoch that stops its former leader.
`offset_rows` says what a row has, `offsets_rewriting` what becomes of those that are superseded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final

from mainstem.consumers.live_rows import LiveRows, Placed
from mainstem.consumers.offset_rows import GroupRow, OffsetKey, Row, StoredOffset
from mainstem.consumers.offsets_rewriting import OffsetsRewriter, append_rows
from mainstem.delta_log.append import Appended, Appender, ByteBudget, hand_over
from mainstem.delta_log.files import RollUpMemory, read_data_file
from mainstem.delta_log.metrics import AppenderMetrics
from mainstem.delta_log.store import LogClock, ObjectStore
from mainstem.delta_log.table import OpenTopic, TableState
from mainstem.delta_log.topics import OFFSETS_TABLE, SYSTEM, Topics
from mainstem.errors import MainstemError, TopicExistsError, UnknownTopicError
from mainstem.limits import KIB, MIB

NAME: Final = OFFSETS_TABLE

#: An offset commit should be answered in some 20 ms; what comes meanwhile shares a table commit.
#: Some hundreds of rows are a file that is worth rolling up; what a rewriting copies is more.
_SETTINGS: Final = {"commit.interval.ms": "10", "rollup.max.bytes": str(16 * KIB)}

#: Bytes of commits that may wait: some seconds of a store that hangs.
QUEUE_BYTES: Final = 16 * MIB

#: For how long offsets of a group without members are kept. Kafka: offsets.retention.minutes.
KEPT_MS: Final = 604_800_000

#: Of the table's own, so that no topic's files push its own out: they are a hundred a second.
_ROLL_UP_BYTES: Final = 4 * MIB


class OffsetsTable:
    """The table, led by this gateway. Make one with `lead`; close it when done. On one event loop.

    What readers of this object see is durable: a commit shows when its future is done, not before.
    """

    def __init__(
        self,
        appender: Appender,
        opened: OpenTopic,
        live: LiveRows,
        pool: Executor,
        clock: LogClock,
    ) -> None:
        self._appender = appender
        self._opened = opened
        self._pool = pool
        self._live = live
        self._clock = clock
        self._rewriter = OffsetsRewriter(appender, opened.store, live, pool, clock.now_ms)
        #: The newest write of each group that is not durable yet.
        self._pending: dict[str, asyncio.Future[None]] = {}

    @classmethod
    async def lead(
        cls,
        store: ObjectStore,
        pool: Executor,
        *,
        budget: ByteBudget,
        kept_ms: int = KEPT_MS,
        metrics: AppenderMetrics | None = None,
        on_commit: Callable[[OpenTopic], None] = lambda _: None,
        on_failure: Callable[[MainstemError], None] = lambda _: None,
        leader: int = 0,
        may_claim: Callable[[TableState], None] = lambda _: None,
    ) -> OffsetsTable:
        """Takes the table over, made if it is not there, and reads it.

        Args:
            kept_ms: For how long the offsets of a group without members are kept.
            leader, may_claim: See `claim_epoch`.

        Raises:
            StoreUnavailableError: The store failed.
            LogDamagedError: A file is missing or torn.
        """
        loop = asyncio.get_running_loop()
        opened = await loop.run_in_executor(pool, _open, store)
        appender = await Appender.lead(
            opened,
            pool,
            queue_bytes=QUEUE_BYTES,
            budget=budget,
            metrics=metrics,
            on_commit=on_commit,
            on_failure=on_failure,
            roll_up_memory=RollUpMemory(_ROLL_UP_BYTES),
            leader=leader,
            may_claim=may_claim,
        )
        newest_ms = max((file.timestamp_ms_max for file in opened.state), default=0)
        try:
            # Nobody else writes it now: what was committed before the epoch is all there is.
            live = await loop.run_in_executor(pool, _read, opened)
        except BaseException:
            await appender.close(0.0)
            raise
        table = cls(appender, opened, live, pool, LogClock(newest_ms, kept_ms))
        table._rewriter.consider()
        return table

    @property
    def failure(self) -> MainstemError | None:
        """Why nothing more is taken, or None."""
        return self._appender.failure

    async def catch_up(self) -> None:
        """Finds out whether the table is still led here.

        Raises:
            MainstemError: It is not, or the store failed.
        """
        await self._appender.catch_up()

    async def hand_over(self, timeout_s: float, leader: int) -> bool:
        """Closes, and lets go of the table for another gateway.

        Args:
            leader: The incarnation of the one that is to lead it; 0: any.

        Returns:
            Whether that is what the table's log says.
        """
        await self.close(timeout_s)
        call = partial(hand_over, self._opened, self._appender.epoch, leader)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def now_ms(self) -> int:
        """The time by which rows are dated, and how old they are is told."""
        return self._clock.now_ms()

    @property
    def groups(self) -> set[str]:
        """Every group with an offset or a row of its own."""
        return self._live.groups

    def group(self, name: str) -> GroupRow | None:
        return self._live.group(name)

    def offsets(self, group: str) -> Mapping[OffsetKey, StoredOffset]:
        """The durable offsets of a group. The caller does not change them."""
        return self._live.offsets(group)

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

        The future is the caller's alone: to cancel it takes nothing back, and nobody else waits for
        it.

        Raises:
            BackPressureError: Too much waits; nothing was taken.
            MainstemError: The table is lost; see `failure`.
        """
        assert rows
        base_offset = self._appender.log_end_offset(0)
        encoded = [row.encode() for row in rows]
        appended = append_rows(self._appender, encoded, self.now_ms())
        self._live.accept(rows, base_offset)
        end_offset = base_offset + len(rows)
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
                self._live.show(rows, end_offset)
                done.set_result(None)
                self._rewriter.consider()

        appended.add_done_callback(finish)
        answer = asyncio.shield(done)
        answer.add_done_callback(_retrieve)
        return answer

    async def rewrite(self) -> None:
        """Appends the live rows once more and removes every file before them; see
        `OffsetsRewriter.rewrite`."""
        await self._rewriter.rewrite()

    async def close(self, timeout_s: float) -> None:
        """Commits what was accepted within `timeout_s`, then stops."""
        await self._rewriter.close()
        await self._appender.close(timeout_s)


def _open(store: ObjectStore) -> OpenTopic:
    tables = Topics(store, folder=SYSTEM)
    try:
        return tables.open(NAME)
    except UnknownTopicError:
        with contextlib.suppress(TopicExistsError):
            tables.create(NAME, 1, _SETTINGS)
        return tables.open(NAME)


def _read(opened: OpenTopic) -> LiveRows:
    """What counts of the table. Blocks, for some 10 us a live row and 1 us for any other."""
    return LiveRows.of(_newest_first(opened), opened.state.log_end_offset(0))


def _newest_first(opened: OpenTopic) -> Iterator[Placed]:
    """The latest row of each key, unless that takes the key away. What is superseded is never
    decoded, and of what is read only the keys are kept."""
    seen: set[bytes] = set()
    for file in reversed(opened.state.files(0).sorted()):
        batches = read_data_file(
            opened.store, file, file.base_offset, file.last_offset + 1, ["key", "value"]
        )
        for batch in reversed(list(batches)):
            columns = [batch.column(name).to_pylist() for name in ("offset", "key", "value")]
            for log_offset, key, value in zip(*map(reversed, columns), strict=True):
                if key in seen:
                    continue
                seen.add(key)
                if value is not None:
                    yield Placed(log_offset, Row.decode(key, value))


def _retrieve(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()

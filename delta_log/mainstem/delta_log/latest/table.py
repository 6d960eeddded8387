"""A system table in which the latest row of a key counts, led by this gateway.

It has the columns of a topic table, one partition, and is written by an `Appender` like a topic:
group commit, roll-up of small files, retries, and a leader epoch that stops its former leader.
`rewriting` says what becomes of rows that are superseded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic

from mainstem.delta_log.append import (
    Appended,
    Appender,
    ByteBudget,
    TransactionMark,
    hand_over,
    retrieve,
)
from mainstem.delta_log.files import RollUpMemory, read_data_file
from mainstem.delta_log.latest.rewriting import Rewriter, append_rows
from mainstem.delta_log.latest.rows import LatestRows, Placed, Row, View
from mainstem.delta_log.metrics import AppenderMetrics
from mainstem.delta_log.store import LogClock, ObjectStore
from mainstem.delta_log.table import OpenTopic, TableState
from mainstem.delta_log.topics import SYSTEM, Topics
from mainstem.errors import (
    MainstemError,
    StoreUnavailableError,
)
from mainstem.limits import MIB

#: Of a table's own, so that no topic's files push its own out: they are a hundred a second.
_ROLL_UP_BYTES: Final = 4 * MIB


@dataclass(frozen=True, slots=True)
class TableKind(Generic[Row]):
    """What one such table is.

    Attributes:
        name: Below `system/`.
        settings: With which it is made, as a topic's.
        decode: The row of a key and a value, as `LatestRow.encode` gave them.
        queue_bytes: Of rows that may wait: some seconds of a store that hangs.
    """

    name: str
    settings: Mapping[str, str]
    decode: Callable[[bytes, bytes | None], Row]
    queue_bytes: int


class LatestTable(Generic[Row]):
    """The table, led by this gateway. Make one with `lead`; close it when done. On one event loop.

    What its view shows is durable: a row shows when its future is done, not before.
    """

    def __init__(
        self,
        appender: Appender,
        opened: OpenTopic,
        latest: LatestRows[Row],
        pool: Executor,
        clock: LogClock,
    ) -> None:
        self._appender = appender
        self._opened = opened
        self._pool = pool
        self._latest = latest
        self._clock = clock
        self._rewriter = Rewriter(appender, opened.store, latest, pool, clock.now_ms)

    @classmethod
    async def lead(
        cls,
        store: ObjectStore,
        pool: Executor,
        kind: TableKind[Row],
        view: View[Row],
        *,
        budget: ByteBudget,
        kept_ms: int,
        metrics: AppenderMetrics | None = None,
        on_commit: Callable[[OpenTopic], None] = lambda _: None,
        on_failure: Callable[[MainstemError], None] = lambda _: None,
        leader: int = 0,
        may_claim: Callable[[TableState], None] = lambda _: None,
    ) -> LatestTable[Row]:
        """Takes the table over, made if it is not there, and reads it.

        Args:
            store: Of the warehouse.
            view: Empty; gets each row that counts, now and later.
            kept_ms: For how long rows are kept by their age; see `LogClock`.
            leader, may_claim: See `claim_epoch`.

        Raises:
            StoreUnavailableError: The store failed.
            LogDamagedError: A file is missing or torn.
        """
        loop = asyncio.get_running_loop()
        opened = await loop.run_in_executor(pool, _open, store, kind.name, kind.settings)
        appender = await Appender.lead(
            opened,
            pool,
            queue_bytes=kind.queue_bytes,
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
            latest = await loop.run_in_executor(pool, _read, opened, kind.decode, view)
        except BaseException:
            await appender.close(0.0)
            raise
        table = cls(appender, opened, latest, pool, LogClock(newest_ms, kept_ms))
        table._rewriter.consider()
        return table

    @property
    def epoch(self) -> int:
        """The leader epoch under which it is led: higher than that of any leader before."""
        return self._appender.epoch

    @property
    def failure(self) -> MainstemError | None:
        """Why nothing more is taken, or None."""
        return self._appender.failure

    @property
    def trouble(self) -> StoreUnavailableError | None:
        """Why the store does not take what waits; None: it does, as far as is known."""
        return self._appender.trouble

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

    def write(
        self, rows: Sequence[Row], mark: TransactionMark | None = None
    ) -> asyncio.Future[None]:
        """Accepts rows, all in one table commit, in the order of calls. Done when durable.

        The future is the caller's alone: to cancel it takes nothing back, and nobody else waits for
        it.

        Args:
            mark: Of the transaction that the rows are a part of: the commit has its register, and
                rows of a transaction that the table has, or is about to have, are not written
                again.

        Raises:
            BackPressureError: Too much waits; nothing was taken. Not of a transaction.
            TransactionAbortedError: The transaction may not get into the table.
            MainstemError: The table is lost; see `failure`.
        """
        assert rows
        base_offset = self._appender.log_end_offset(0)
        encoded = [row.encode() for row in rows]
        appended = append_rows(self._appender, encoded, self.now_ms(), mark)
        end_offset = self._appender.log_end_offset(0)
        accepted = rows if end_offset > base_offset else ()
        self._latest.accept(accepted, base_offset)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(retrieve)

        def finish(future: asyncio.Future[Appended]) -> None:
            failure = None if future.cancelled() else future.exception()
            if failure is not None:
                done.set_exception(failure)
            elif future.cancelled():
                done.cancel()
            else:
                self._latest.show(accepted, end_offset if accepted else 0)
                done.set_result(None)
                self._rewriter.consider()

        appended.add_done_callback(finish)
        answer = asyncio.shield(done)
        answer.add_done_callback(retrieve)
        return answer

    async def rewrite(self) -> None:
        """Appends the live rows once more and removes every file before them; see
        `Rewriter.rewrite`."""
        await self._rewriter.rewrite()

    async def close(self, timeout_s: float) -> None:
        """Commits what was accepted within `timeout_s`, then stops."""
        await self._rewriter.close()
        await self._appender.close(timeout_s)


def _open(store: ObjectStore, name: str, settings: Mapping[str, str]) -> OpenTopic:
    return Topics(store, folder=SYSTEM).open_or_create(name, 1, settings)


def _read(
    opened: OpenTopic, decode: Callable[[bytes, bytes | None], Row], view: View[Row]
) -> LatestRows[Row]:
    """What counts of the table. Blocks, for some 10 us a live row and 1 us for any other."""
    return LatestRows.of(view, _newest_first(opened, decode), opened.state.log_end_offset(0))


def _newest_first(
    opened: OpenTopic, decode: Callable[[bytes, bytes | None], Row]
) -> Iterator[Placed[Row]]:
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
                    yield Placed(log_offset, decode(key, value))

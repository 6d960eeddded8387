"""The table `system/consumer_offsets`: what groups have committed, the latest row of a key winning.

`offset_rows` says what a row has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Final

from mainstem.consumers.offset_rows import GroupRow, OffsetKey, Row, StoredOffset
from mainstem.consumers.offsets_view import OffsetsView
from mainstem.delta_log.append import ByteBudget, TransactionMark, retrieve
from mainstem.delta_log.latest import LatestTable, TableKind
from mainstem.delta_log.metrics import AppenderMetrics
from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.table import OpenTopic, TableState
from mainstem.delta_log.topics import OFFSETS_TABLE
from mainstem.errors import MainstemError, ShuttingDownError
from mainstem.limits import KIB, MIB

NAME: Final = OFFSETS_TABLE

#: Bytes of commits that may wait: some seconds of a store that hangs.
QUEUE_BYTES: Final = 16 * MIB

#: An offset commit should be answered in some 20 ms; what comes meanwhile shares a table commit.
#: Some hundreds of rows are a file that is worth rolling up; what a rewriting copies is more.
_KIND: Final = TableKind(
    NAME,
    {"commit.interval.ms": "10", "rollup.max.bytes": str(16 * KIB)},
    Row.decode,
    QUEUE_BYTES,
)

#: A store that fails for less than this delays an answer; one that goes on failing is told.
_TROUBLE_S: Final = 1.0

#: For how long offsets of a group without members are kept. Kafka: offsets.retention.minutes.
KEPT_MS: Final = 604_800_000


class OffsetsTable:
    """The table, led by this gateway. Make one with `lead`; close it when done. On one event loop.

    What readers of this object see is durable: a commit shows when its future is done, not before.
    """

    def __init__(self, table: LatestTable[Row], view: OffsetsView) -> None:
        self._table = table
        self._view = view
        #: The newest write of each group that is not durable yet, and the newest with an offset.
        self._pending: dict[str, asyncio.Future[None]] = {}
        self._pending_offsets: dict[str, asyncio.Future[None]] = {}
        #: Who holds back the readers of each group; done when it is released.
        self._holds: dict[str, set[asyncio.Future[None]]] = {}

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
        led: OffsetsTable | None = None

        def failed(error: MainstemError) -> None:
            if led is not None:
                led._fail_holds(error)
            on_failure(error)

        view = OffsetsView()
        table = await LatestTable.lead(
            store,
            pool,
            _KIND,
            view,
            budget=budget,
            kept_ms=kept_ms,
            metrics=metrics,
            on_commit=on_commit,
            on_failure=failed,
            leader=leader,
            may_claim=may_claim,
        )
        led = cls(table, view)
        return led

    @property
    def failure(self) -> MainstemError | None:
        """Why nothing more is taken, or None."""
        return self._table.failure

    async def catch_up(self) -> None:
        """Finds out whether the table is still led here.

        Raises:
            MainstemError: It is not, or the store failed.
        """
        await self._table.catch_up()

    async def hand_over(self, timeout_s: float, leader: int) -> bool:
        """Closes, and lets go of the table for another gateway; see `LatestTable.hand_over`."""
        self._fail_holds(_closed())
        return await self._table.hand_over(timeout_s, leader)

    def now_ms(self) -> int:
        """The time by which rows are dated, and how old they are is told."""
        return self._table.now_ms()

    @property
    def groups(self) -> set[str]:
        """Every group with an offset or a row of its own."""
        return self._view.groups

    def group(self, name: str) -> GroupRow | None:
        return self._view.group(name)

    def offsets(self, group: str) -> Mapping[OffsetKey, StoredOffset]:
        """The durable offsets of a group. The caller does not change them."""
        return self._view.offsets(group)

    def hold(self, group: str) -> Callable[[], None]:
        """Holds back whoever waits for `flushed` of the group: offsets of it are decided that are
        not in the table yet, and nobody may read the older ones meanwhile.

        Returns:
            What ends the hold; to be called once they are durable. A second call does nothing.

        Raises:
            MainstemError: The table is lost; see `failure`.
        """
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        held.add_done_callback(retrieve)
        self._holds.setdefault(group, set()).add(held)

        def release() -> None:
            holds = self._holds.get(group, set())
            holds.discard(held)
            if not holds:
                self._holds.pop(group, None)
            if not held.done():
                held.set_result(None)

        return release

    async def flushed(self, group: str, *, offsets_only: bool = False) -> None:
        """Waits until what was accepted of the group before this call is durable, and until nobody
        of those who held it back then does.

        Args:
            offsets_only: Do not wait for the group's own row, which says nothing of offsets.

        Raises:
            StoreUnavailableError: The store does not take it now. It is tried on: ask again.
            MainstemError: It did not get into the table; or the table was lost, or closed, before
                they let go of the group.
        """
        for held in list(self._holds.get(group, ())):
            await asyncio.shield(held)
        pending = (self._pending_offsets if offsets_only else self._pending).get(group)
        if pending is None:
            return
        while not pending.done():
            await asyncio.wait({pending}, timeout=_TROUBLE_S)
            trouble = self._table.trouble
            if trouble is not None and not pending.done():
                raise trouble.with_traceback(None)
        await asyncio.shield(pending)

    def write(
        self, rows: Sequence[Row], mark: TransactionMark | None = None
    ) -> asyncio.Future[None]:
        """Accepts rows, all in one table commit, in the order of calls. Done when durable; see
        `LatestTable.write`."""
        written = self._table.write(rows, mark)
        waiting = (
            (self._pending, {row.group for row in rows}),
            (self._pending_offsets, {row.group for row in rows if row.key is not None}),
        )
        for pending, groups in waiting:
            pending.update(dict.fromkeys(groups, written))

        def finish(_: asyncio.Future[None]) -> None:
            for pending, groups in waiting:
                for group in groups:
                    if pending.get(group) is written:
                        del pending[group]

        written.add_done_callback(finish)
        answer = asyncio.shield(written)
        answer.add_done_callback(retrieve)
        return answer

    async def rewrite(self) -> None:
        """Appends the live rows once more and removes every file before them; see
        `LatestTable.rewrite`."""
        await self._table.rewrite()

    async def close(self, timeout_s: float) -> None:
        """Commits what was accepted within `timeout_s`, then stops."""
        self._fail_holds(_closed())
        await self._table.close(timeout_s)

    def _fail_holds(self, error: MainstemError) -> None:
        """Whoever waits is told: nobody may come back to let go."""
        for holds in self._holds.values():
            for held in holds:
                if not held.done():
                    held.set_exception(error)


def _closed() -> MainstemError:
    return ShuttingDownError(
        f"the table {NAME} is being closed here; ask again", retry_delay_ms=100
    )

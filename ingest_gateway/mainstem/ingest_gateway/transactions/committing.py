"""How a transaction ends: what decides it, and how it gets into every table.

A transaction of one topic that is led here is decided by the topic's commit. Any other is decided
by a row of `system/transactions`, after everything that it has is durable; from then on it is
brought into each topic and into the table of offsets, however often that takes, by whoever
coordinates. Each of those commits carries the transaction's mark, so that it counts once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import structlog

from mainstem.consumers.offset_rows import OffsetKey, Row, StoredOffset
from mainstem.delta_log import Slice
from mainstem.errors import (
    BackPressureError,
    MainstemError,
    NotLeaderError,
    TransactionAbortedError,
)
from mainstem.ingest_gateway.groups import Running
from mainstem.ingest_gateway.transactions.entry import Ended, Entry, Results, aborted
from mainstem.ingest_gateway.transactions.ids import TransactionRef
from mainstem.ingest_gateway.transactions.look import Look
from mainstem.ingest_gateway.transactions.opened import OpenTransaction
from mainstem.ingest_gateway.transactions.rows import (
    COMMITTED,
    COMMITTING,
    IdRow,
    LookRow,
    OffsetPart,
    TransactionRow,
    TransactionsTable,
)
from mainstem.ingest_gateway.transactions.staging import Staging
from mainstem.ingest_gateway.transactions.topic_appends import TopicAppends, results, unplaced

log = structlog.get_logger()

T = TypeVar("T")

#: Topics of a transactional id that may be committed to without a row. The rest is decided by rows.
_DIRECT_MAX: Final = 50

#: How long decisions are held back at most for a moment in which none is on its way.
_BARRIER_S: Final = 0.2


class Committing:
    """Ends the transactions of one term. On the event loop.

    Args:
        running: The coordination of groups, which leads the table of their offsets.
        pins: What was published last; see `Look`.
        now_s: By a clock that nobody sets, and that goes on while the machine is suspended.
    """

    def __init__(
        self,
        table: TransactionsTable,
        running: Running,
        appends: TopicAppends,
        staging: Staging,
        pins: Mapping[str, int],
        now_s: Callable[[], float],
    ) -> None:
        self._table = table
        self._running = running
        self._appends = appends
        self._staging = staging
        self._now_s = now_s
        self._look = Look(pins, now_s())
        self._may_decide = asyncio.Event()
        self._may_decide.set()
        self._none_in_flight = asyncio.Event()
        self._none_in_flight.set()
        self._barrier: asyncio.Task[Any] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    # -- the term ----------------------------------------------------------------------------------

    def refuse(self) -> None:
        """Nothing is decided any more."""
        self._closed = True

    def close(self) -> None:
        """Nothing is ended any more; what is decided is ended by the next term."""
        self._closed = True
        for task in self._tasks:
            task.cancel()

    def check_open(self) -> None:
        """Raises NotLeaderError when the term is over."""
        if self._closed or self._table.failure is not None:
            raise moved()

    def now_ms(self) -> int:
        """By which rows are dated."""
        return self._table.now_ms()

    async def write(self, entry: Entry, row: IdRow, more: Iterable[TransactionRow] = ()) -> None:
        """Writes a row; done when it is durable.

        Args:
            more: Rows that are written with it, all or none.
        """
        # What is written next, and what is deleted then, waits for the same future.
        await asyncio.shield(self._written(entry, row, more))

    def _written(
        self, entry: Entry, row: IdRow, more: Iterable[TransactionRow] = ()
    ) -> asyncio.Future[None]:
        self.check_open()
        written = self._table.write([TransactionRow(row.transactional_id, row), *more])
        entry.row, entry.written = row, written
        return written

    def forget(self, names: Iterable[str]) -> None:
        """Takes rows of transactional ids away."""
        self.in_background(self._table.write([TransactionRow(name, None) for name in names]))

    def in_background(self, work: Awaitable[T]) -> asyncio.Task[T]:
        """Something that the term ends with."""

        async def run() -> T:
            return await work

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._background_ended)
        return task

    def _background_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        failure = None if task.cancelled() else task.exception()
        if failure is not None and not isinstance(failure, MainstemError):
            log.error("the end of a transaction failed", exc_info=failure)

    # -- one transaction ---------------------------------------------------------------------------

    async def commit(self, entry: Entry, opened: OpenTransaction) -> Ended:
        """Commits what its producer has sent.

        Returns:
            That it is committed, or why it is aborted.

        Raises:
            MainstemError: Nothing is decided yet: it is open as before.
        """
        ref = opened.ref
        try:
            self._check_offsets(opened)
            if opened.is_empty:
                found: Results = []
            elif self._is_direct(entry, opened):
                found = await self._commit_directly(entry, opened)
            else:
                found = await self._commit_by_row(entry, opened)
        except TransactionAbortedError as error:
            return Ended(ref, False, error)
        except BaseException:
            if opened.decided:
                self._closed = True  # a table is lost: the next term knows whether it is decided
            else:
                opened.sealed = False
            raise
        return Ended(ref, True, results=found)

    def _is_direct(self, entry: Entry, opened: OpenTransaction) -> bool:
        """Whether the commit of one topic, which is led here, is all there is to do."""
        if len(opened.topics) != 1 or opened.offsets or opened.is_staged or entry.row.single_use:
            return False
        (sent,) = opened.topics.values()
        known = (sent.topic, sent.topic_id) in entry.row.direct
        return (known or len(entry.row.direct) < _DIRECT_MAX) and self._appends.is_led_here(
            sent.topic, sent.topic_id
        )

    async def _commit_directly(self, entry: Entry, opened: OpenTransaction) -> Results:
        """The topic's commit decides."""
        (sent,) = opened.topics.values()
        mark = opened.ref.mark
        place = sent.topic, sent.topic_id
        if place not in entry.row.direct:
            # First: whoever coordinates next has to know where to look.
            await self.write(entry, replace(entry.row, direct=(*entry.row.direct, place)))
        appender = await self._appends.leader_here(*place)
        self.check_open()
        future = appender.append_transaction(mark, sent.slices)
        try:
            return results(sent.topic, await asyncio.shield(future))
        except MainstemError as error:
            # The lead was lost: whether the commit has landed its next leader knows.
            if not await self._appends.settle(mark, *place):
                raise aborted(opened.ref, f"the commit failed: {error.message}") from error
            return unplaced(sent.part())

    async def _commit_by_row(self, entry: Entry, opened: OpenTransaction) -> Results:
        """A row decides."""
        ref = opened.ref
        slices: dict[str, list[Slice]] = {}
        if not opened.is_staged:
            slices = {name: list(sent.slices) for name, sent in opened.topics.items()}
        await self._staging.write(opened)
        await self._may_decide.wait()
        self.check_open()
        self._check_offsets(opened)  # again: a member may have lost its partitions meanwhile
        row = replace(
            entry.row,
            state=COMMITTING,
            transaction_epoch=ref.producer_epoch,
            number=ref.number,
            ordinal=ref.mark.ordinal,
            topics=tuple(sent.part() for sent in opened.topics.values()),
            offsets=tuple(opened.offsets.values()),
            updated_ms=self.now_ms(),
        )

        def decided() -> None:
            opened.decided = True

        return (await self.decide(entry, row, slices, on_written=decided)).results

    async def decide(
        self,
        entry: Entry,
        row: IdRow,
        slices: Mapping[str, Sequence[Slice]],
        more: Sequence[TransactionRow] = (),
        on_written: Callable[[], None] = lambda: None,
    ) -> Ended:
        """Writes the row that decides a transaction, and brings it into every table.

        Args:
            slices: By topic, the records of those that are in memory.
            more: Rows that are written with it.
            on_written: Called when the row may be durable any moment.

        Raises:
            MainstemError: It is not decided; or a table is lost, and nobody here can tell.
        """
        await self._may_decide.wait()
        topics = [part.topic for part in row.topics]
        with self._holding(row) as holds:
            look_rows = self._decided(topics)
            try:
                written = self._written(entry, row, [*more, *look_rows])
            except BaseException:
                self._ended()
                raise
            on_written()
            await written
            return await self.completed(entry, row, slices, holds.close)

    async def completed(
        self,
        entry: Entry,
        row: IdRow,
        slices: Mapping[str, Sequence[Slice]],
        on_offsets: Callable[[], None] = lambda: None,
    ) -> Ended:
        """Brings a decided transaction into every table, and notes that it is there.

        Args:
            on_offsets: Called when its offsets are in their table, which a topic whose leader is
                gone does not hold up.
        """
        places: list[Results] = []

        async def append(index: int) -> None:
            part = row.topics[index]
            places[index], version = await self._appends.append(
                row.mark, part, slices.get(part.topic)
            )
            self._look.landed(part.topic, version)

        async def commit_offsets() -> None:
            await self.commit_offsets(row)
            on_offsets()

        places = [[] for _ in row.topics]
        await asyncio.gather(*(append(index) for index in range(len(row.topics))), commit_offsets())
        self._ended()
        self.in_background(self._note_completed(entry, row))
        return Ended(row.ref, True, results=[one for some in places for one in some])

    def recovered(self, row: IdRow) -> None:
        """A transaction of an earlier term is on its way."""
        self._decided([part.topic for part in row.topics])

    async def _note_completed(self, entry: Entry, row: IdRow) -> None:
        rows: list[TransactionRow] = []
        if entry.row is row:
            entry.row = row.over(COMMITTED, self.now_ms())
            value = None if row.single_use else entry.row
            rows.append(TransactionRow(row.transactional_id, value))
        rows += self._published()
        if rows:
            await self._table.write(rows)
        if entry.written is not None:
            # Or a row that still wants the objects would be the newest after a crash.
            await asyncio.shield(entry.written)
        await self._staging.delete(row.staged)

    # -- one look at all topics --------------------------------------------------------------------

    def _decided(self, topics: Iterable[str]) -> list[TransactionRow]:
        is_new = self._look.decided(topics, self._now_s())
        self._none_in_flight.clear()
        return [TransactionRow("", LookRow(self._look.pins))] if is_new else []

    def _ended(self) -> None:
        self._look.ended()
        if not self._look.in_flight:
            self._none_in_flight.set()

    def _published(self) -> list[TransactionRow]:
        now_s = self._now_s()
        if not self._look.is_due(now_s):
            return []
        return [TransactionRow("", LookRow(self._look.publish(self._appends.version_here, now_s)))]

    def tick(self) -> None:
        """Publishes what is due, and makes a moment for it where there is none."""
        if rows := self._published():
            self.in_background(self._table.write(rows))
        if self._look.wants_barrier(self._now_s()) and self._barrier is None:
            self._barrier = self.in_background(self._hold_back())

    async def _hold_back(self) -> None:
        self._may_decide.clear()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BARRIER_S):
                    await self._none_in_flight.wait()
            if rows := self._published():
                await self._table.write(rows)
        finally:
            self._may_decide.set()
            self._barrier = None

    # -- offsets of groups -------------------------------------------------------------------------

    @contextlib.contextmanager
    def _holding(self, row: IdRow) -> Iterator[contextlib.ExitStack]:
        """Nobody reads the offsets of its groups before they are those of the transaction; until
        what this gives is closed, at the latest at the end of the block."""
        with contextlib.ExitStack() as holds:
            for group in {one.group for one in row.offsets}:
                holds.callback(self._running.table.hold(group))
            yield holds

    async def commit_offsets(self, row: IdRow) -> None:
        """Brings the offsets of a decided transaction into their table; again, that is once."""
        rows = [_offset_row(one, row.updated_ms) for one in row.offsets]
        while rows:
            try:
                await self._running.table.write(rows, row.mark)
            except BackPressureError as error:
                await asyncio.sleep(error.retry_delay_ms / 1000)
            else:
                return

    def _check_offsets(self, opened: OpenTransaction) -> None:
        """Raises TransactionAbortedError where a member has lost what it committed."""
        try:
            for group, (member_id, member_epoch) in opened.checks.items():
                self._running.coordinator.check_commit(group, member_id, member_epoch, 0)
            for one in opened.offsets.values():
                member_id, _ = opened.checks[one.group]
                if member_id:
                    self._running.coordinator.committable(
                        one.group, member_id, one.topic, one.topic_id, one.partition
                    )
        except MainstemError as error:
            raise offsets_refused(opened.ref, error) from error


def moved() -> NotLeaderError:
    """Ask again: another gateway coordinates, or this one once more."""
    return NotLeaderError(
        "this gateway does not coordinate transactions any more; ask again",
        leader="",
        topic="",
    )


def offset_part(row: Row) -> OffsetPart:
    """An offset that was checked, as a transaction keeps it."""
    stored = row.value
    assert isinstance(stored, StoredOffset)
    return OffsetPart(
        row.group,
        stored.topic,
        stored.topic_id,
        stored.partition,
        stored.offset,
        stored.leader_epoch,
        stored.metadata,
    )


def _offset_row(one: OffsetPart, now_ms: int) -> Row:
    stored = StoredOffset(
        one.topic, one.topic_id, one.partition, one.offset, one.leader_epoch, one.metadata, now_ms
    )
    return Row(one.group, OffsetKey(one.topic_id, one.partition), stored)


def offsets_refused(ref: TransactionRef, refusal: MainstemError) -> TransactionAbortedError:
    """A transaction is lost with its offsets."""
    failure = aborted(ref, f"its offsets are refused: {refusal.message}")
    failure.facts["cause"] = refusal.code
    return failure

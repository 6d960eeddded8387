"""A term of the coordinator of transactions: from taking `system/transactions` to losing it.

It knows every transactional id by its `Entry`, says what each may do, and has `Committing` end what
is to be ended. On the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Final, TypeVar

import structlog

from mainstem.consumers.offset_rows import Row
from mainstem.delta_log import Slice
from mainstem.delta_log.format import Batch
from mainstem.errors import (
    InternalError,
    InvalidTxnStateError,
    MainstemError,
    PolicyViolationError,
    TransactionAbortedError,
    TransactionTimedOutError,
    UnknownProducerIdError,
)
from mainstem.ingest_gateway.transactions.committing import (
    Committing,
    moved,
    offset_part,
    offsets_refused,
)
from mainstem.ingest_gateway.transactions.entry import (
    Ended,
    Ending,
    Entry,
    Results,
    aborted,
    being_completed,
)
from mainstem.ingest_gateway.transactions.ids import EPOCH_MAX, TransactionRef, fence, ordinal
from mainstem.ingest_gateway.transactions.opened import OpenTransaction
from mainstem.ingest_gateway.transactions.rows import (
    ABORTED,
    COMMITTED,
    COMMITTING,
    EMPTY,
    PREPARED,
    Completed,
    IdRow,
)
from mainstem.ingest_gateway.transactions.staging import Staging
from mainstem.ingest_gateway.transactions.topic_appends import TopicAppends

log = structlog.get_logger()

T = TypeVar("T")

#: A producer that begins waits so long for what the one before it has decided; then it is told to
#: try again.
_SOON_S: Final = 5.0

#: Ids that one tick looks at, in some milliseconds: with 100,000 of them it takes 5 s until all
#: were looked at, and a transaction ends so much later than its timeout at most.
TICK_LOOKS_MAX: Final = 5_000

#: An id that is for one transaction is remembered for so long after it, for answers that got lost.
_SINGLE_USE_KEPT_S: Final = 120.0

#: A prepared transaction has so much left of its time at least when another gateway coordinates.
_DEADLINE_LEFT_MS_MIN: Final = 10_000
_PREPARED_MS_MAX: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class TransactionRules:
    """Bounds and defaults; see the gateway's settings `transaction.*`."""

    timeout_ms_max: int = 900_000
    ids_max: int = 100_000
    expiration_ms: int = 604_800_000
    default_timeout_ms: int = 60_000


class Term:
    """What there is while this gateway coordinates.

    Attributes:
        committing: Ends transactions.

    Args:
        rows: What the table has.
        next_producer_id: Gives a new one.
        on_ended: Told of each transaction that is over: committed, or aborted.
        now_s: By a clock that nobody sets, and that goes on while the machine is suspended.
    """

    def __init__(
        self,
        rows: Iterable[IdRow],
        committing: Committing,
        appends: TopicAppends,
        staging: Staging,
        rules: TransactionRules,
        next_producer_id: Callable[[], Awaitable[int]],
        on_ended: Callable[[str], None],
        now_s: Callable[[], float],
    ) -> None:
        self.committing = committing
        self._appends = appends
        self._staging = staging
        self._rules = rules
        self._next_producer_id = next_producer_id
        self._on_ended = on_ended
        self._now_s = now_s
        self._began_ms = committing.now_ms()
        self._entries = {
            row.transactional_id: Entry(row, row.producer_epoch, settled=not row.direct)
            for row in rows
        }
        #: Ids that are to be looked at before all others are again.
        self._not_looked_at: list[str] = []

    # -- begin and end -----------------------------------------------------------------------------

    async def recover(self) -> None:
        """Ends what an earlier term has decided: the offsets before this returns, so that no member
        reads older ones; the topics after it."""
        needed: set[str] = set()
        for entry in list(self._entries.values()):
            row = entry.row
            needed |= row.staged
            if row.state == COMMITTING:
                self.committing.recovered(row)
                await self.committing.commit_offsets(row)
                self.begin_ending(entry, row.ref, self.committing.completed(entry, row, {}))
        await self._staging.sweep(needed)

    async def finish(self, timeout_s: float) -> None:
        """Decides nothing more, and waits for what is being ended, for so long at most."""
        self.committing.refuse()
        ending = [one.ending.task for one in self._entries.values() if one.ending is not None]
        if ending and timeout_s > 0:
            await asyncio.wait(ending, timeout=timeout_s)

    def close(self) -> None:
        """Nothing is taken any more."""
        self.committing.close()
        for entry in self._entries.values():
            if entry.opened is not None:
                self._staging.end(entry.opened)

    def tick(self) -> None:
        """Aborts what is open or prepared for too long, and forgets ids that nobody has used for
        long, of the next `TICK_LOOKS_MAX` ids."""
        now_s, now_ms = self.now()
        names = self._to_look_at()
        for entry in [self._entries[name] for name in names]:
            opened, row = entry.opened, entry.row
            if opened is not None and not opened.sealed:
                if (now_s - opened.opened_s) * 1000 >= row.timeout_ms:
                    self.abort(entry, opened, _timed_out(opened.ref, row.timeout_ms))
            elif row.state == PREPARED and row.deadline_ms and not entry.lock.locked():
                ends_ms = row.deadline_ms
                if row.updated_ms < self._began_ms:  # prepared in another term
                    ends_ms = max(ends_ms, self._began_ms + _DEADLINE_LEFT_MS_MIN)
                if now_ms >= ends_ms:
                    self.committing.in_background(self.complete(row.ref, commit=False))
        self._forget_unused(names, now_s, now_ms)
        self.committing.tick()

    def _to_look_at(self) -> list[str]:
        if not self._not_looked_at:
            self._not_looked_at = list(self._entries)
        names = self._not_looked_at[-TICK_LOOKS_MAX:]
        del self._not_looked_at[-TICK_LOOKS_MAX:]
        return [name for name in names if name in self._entries]

    def _forget_unused(self, names: Iterable[str], now_s: float, now_ms: int) -> None:
        before_ms = now_ms - self._rules.expiration_ms
        unused: list[str] = []
        for name in names:
            entry = self._entries[name]
            row = entry.row
            if not entry.is_idle or (row.is_epochs and not row.one_off):
                continue
            if row.single_use:
                if now_s - entry.used_s >= _SINGLE_USE_KEPT_S:
                    unused.append(name)
            elif row.updated_ms < before_ms:
                unused.append(name)
        written = [name for name in unused if not self._entries[name].row.single_use]
        for name in unused:
            del self._entries[name]
        if written:
            self.committing.forget(written)
            log.info("transactional ids forgotten", count=len(written))

    # -- what is known -----------------------------------------------------------------------------

    def sorted_entries(self) -> list[Entry]:
        """By transactional id. From any thread."""
        entries = list(self._entries.items())  # at once: others may come meanwhile
        return [entry for _, entry in sorted(entries, key=itemgetter(0))]

    @property
    def open_count(self) -> int:
        """Transactions that are open."""
        return sum(entry.opened is not None for entry in self._entries.values())

    @property
    def memory_bytes(self) -> int:
        """What open transactions have in memory."""
        return self._staging.used_bytes

    def find(self, name: str) -> Entry | None:
        """What is known of a transactional id, if anything is."""
        return self._entries.get(name)

    def is_open(self, name: str) -> bool:
        """Whether a transaction of the transactional id is open, prepared or on its way."""
        entry = self._entries.get(name)
        return entry is not None and entry.state != EMPTY

    def known(self, name: str) -> Entry:
        """What is known of a transactional id.

        Raises:
            UnknownProducerIdError: There is none.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise UnknownProducerIdError(
                f"transactional.id {name!r} is not known: no producer has begun with it, or nobody "
                "has used it for transactional.id.expiration.ms; call init_transactions()",
                transactional_id=name,
            )
        return entry

    def now(self) -> tuple[float, int]:
        """By the clock of open transactions, in seconds, and by that of rows, in ms."""
        return self._now_s(), self.committing.now_ms()

    # -- what producers ask for --------------------------------------------------------------------

    async def init(
        self,
        name: str,
        timeout_ms: int,
        client_id: str,
        *,
        single_use: bool = False,
        owner: str = "",
        check_owner: Callable[[IdRow], None] = lambda _: None,
    ) -> IdRow:
        """A producer begins with a transactional id, and fences whoever had it.

        Args:
            single_use: The id is for one transaction, and nobody has had it.
            owner: Whose it is from now on, if it is nobody's yet.
            check_owner: Raises unless the producer may use what is known of the id.

        Returns:
            Its row, with the prepared transaction if there is one.

        Raises:
            ConcurrentTransactionsError: What was decided before is not in every table yet.
            PolicyViolationError: There are too many transactional ids, or the timeout is too long.
        """
        timeout_ms = timeout_ms or self._rules.default_timeout_ms
        if not 1 <= timeout_ms <= self._rules.timeout_ms_max:
            raise PolicyViolationError(
                f"transaction.timeout.ms is {timeout_ms}; the gateway allows 1 to "
                f"{self._rules.timeout_ms_max} ms (transaction.max.timeout.ms)",
                transaction_timeout_ms=timeout_ms,
                limit_ms=self._rules.timeout_ms_max,
            )
        entry = self._entries.get(name)
        if entry is None:
            producer_id = await self._next_producer_id()
            row = IdRow(name, producer_id, -1, timeout_ms, single_use=single_use, owner=owner)
            entry = self.new_entry(row)
        async with entry.lock:
            self.committing.check_open()
            check_owner(entry.row)
            if entry.row.is_epochs or entry.row.single_use != single_use:
                raise InvalidTxnStateError(
                    f"transactional.id {name!r} is used otherwise already; take another one",
                    transactional_id=name,
                )
            await self.ended_soon(entry)
            if entry.opened is not None:
                self.abort(entry, entry.opened, None)
            if entry.epoch >= EPOCH_MAX:
                raise InternalError(f"all epochs of transactional.id {name!r} are used")
            entry.epoch += 1  # from here on the producer before is refused
            if not entry.settled:
                mark = fence(entry.epoch, name)
                await asyncio.gather(
                    *(self._appends.settle(mark, *topic) for topic in entry.row.direct)
                )
            row = replace(
                entry.row,
                producer_epoch=entry.epoch,
                timeout_ms=timeout_ms,
                direct=(),
                updated_ms=self.committing.now_ms(),
                client_id=client_id,
                owner=entry.row.owner or owner,
            )
            if row.state != PREPARED:
                row = replace(row, state=EMPTY, number=0, topics=(), offsets=())
            if single_use:
                entry.row = row
            else:
                await self.committing.write(entry, row)
            entry.settled, entry.ended, entry.used_s = True, None, self._now_s()
            return row

    async def begin(self, ref: TransactionRef, client_id: str) -> None:
        """Opens a transaction, which may be open already."""
        entry = self.known(ref.transactional_id)
        async with entry.lock:
            self.committing.check_open()
            entry.check_producer(ref)
            await self.ended_soon(entry)
            if entry.opened is not None and entry.opened.ref == ref:
                return
            entry.check_begin(ref)
            if entry.opened is not None:  # its producer has given it up
                self.abort(entry, entry.opened, None)
            opened = OpenTransaction(ref, self._now_s(), client_id)
            self._staging.begin(opened)
            entry.opened, entry.used_s = opened, opened.opened_s

    async def add(
        self,
        ref: TransactionRef,
        topic: str,
        topic_id: str,
        slices: Sequence[Slice],
        size_bytes: int,
    ) -> tuple[Batch, ...]:
        """Takes records of an open transaction; see `Staging.add`."""
        self.check_open(ref)
        opened = self.known(ref.transactional_id).open_one(ref)
        return await self._staging.add(opened, topic, topic_id, slices, size_bytes)

    def check_open(self, ref: TransactionRef) -> None:
        """Raises unless the transaction is open, and its producer's."""
        self.committing.check_open()
        self.known(ref.transactional_id).open_one(ref)

    def add_offsets(
        self,
        ref: TransactionRef,
        group: str,
        member_id: str,
        member_epoch: int,
        rows: Iterable[Row],
    ) -> None:
        """Takes offsets of a group, which were checked."""
        opened = self.known(ref.transactional_id).open_one(ref)
        opened.add_offsets(group, member_id, member_epoch, map(offset_part, rows))

    def refuse_offsets(self, ref: TransactionRef, refusal: MainstemError) -> None:
        """Aborts a transaction whose offsets were refused: without them it would be another one.

        Raises:
            TransactionAbortedError: Always.
        """
        entry = self.known(ref.transactional_id)
        failure = offsets_refused(ref, refusal)
        self.abort(entry, entry.open_one(ref), failure)
        raise failure from refusal

    async def end(
        self, ref: TransactionRef, *, commit: bool, record_count: int | None = None
    ) -> Results:
        """Commits or aborts a transaction. Whoever goes away while this waits stops nothing.

        Args:
            record_count: How many records its producer has sent; None: it does not say.

        Raises:
            TransactionAbortedError: It is aborted; or was not, and some of its records are missing.
            InvalidTxnStateError: It ended otherwise before, or is prepared.
            MainstemError: Nothing is decided yet; try again.
        """
        entry = self.known(ref.transactional_id)
        async with entry.lock:
            self.committing.check_open()
            entry.check_producer(ref)
            ending, opened = entry.ending, entry.opened
            if ending is None or ending.ref != ref:
                if opened is not None and opened.ref == ref:
                    if not commit:
                        self.abort(entry, opened, None)
                        return []
                    self._check_complete(entry, opened, record_count)
                    opened.sealed = True
                    ending = self.begin_ending(entry, ref, self._commit(entry, opened))
                elif entry.ended is not None and entry.ended.ref == ref:
                    return entry.ended.answer(commit=commit)
                else:
                    return (await self._find_out(entry, ref)).answer(commit=commit)
        return (await self.outcome(ending)).answer(commit=commit)

    async def prepare(
        self, ref: TransactionRef, timeout_ms: int = 0, record_count: int | None = None
    ) -> str:
        """The first phase; returns the token of the second. To cancel this stops nothing.

        Args:
            timeout_ms: How long it may stay so; 0: for any time.
            record_count: As of `end`.

        Raises:
            TransactionAbortedError: It is aborted: some of its records are missing.
            InvalidTxnStateError: It is not open, or has offsets.
            MainstemError: It is open as before; try again.
        """
        if not 0 <= timeout_ms <= _PREPARED_MS_MAX:
            raise PolicyViolationError(
                f"a transaction is to stay prepared for {timeout_ms} ms; it may for up to "
                f"{_PREPARED_MS_MAX}, or with 0 for any time",
                limit_ms=_PREPARED_MS_MAX,
            )
        await self.to_its_end(self._prepare(ref, timeout_ms, record_count))
        return ref.token

    async def _prepare(
        self, ref: TransactionRef, timeout_ms: int, record_count: int | None
    ) -> None:
        entry = self.known(ref.transactional_id)
        async with entry.lock:
            self.committing.check_open()
            entry.check_producer(ref)
            if entry.row.state == PREPARED and entry.row.ref == ref:
                return
            opened = entry.open_one(ref)
            self._check_complete(entry, opened, record_count)
            if opened.offsets:
                raise InvalidTxnStateError(
                    f"transaction {ref.number} of {ref.transactional_id!r} has offsets of a group, "
                    "and cannot be prepared: whether its member still has the partitions nobody "
                    "can tell when it is completed. Keep them with the other system, or commit "
                    "without preparing",
                    transactional_id=ref.transactional_id,
                )
            opened.sealed = True
            try:
                await self._staging.write(opened)
                now_ms = self.committing.now_ms()
                row = replace(
                    entry.row,
                    state=PREPARED,
                    transaction_epoch=ref.producer_epoch,
                    number=ref.number,
                    topics=tuple(sent.part() for sent in opened.topics.values()),
                    offsets=(),
                    updated_ms=now_ms,
                    deadline_ms=now_ms + timeout_ms if timeout_ms else 0,
                )
                await self.committing.write(entry, row)
            except BaseException:
                opened.sealed = False
                raise
            self._staging.end(opened)
            entry.opened = None

    def _check_complete(
        self, entry: Entry, opened: OpenTransaction, record_count: int | None
    ) -> None:
        """Aborts a transaction of which a record was lost on its way.

        Raises:
            TransactionAbortedError: That was so.
        """
        if record_count is None or record_count == opened.record_count or opened.sealed:
            return
        failure = aborted(
            opened.ref,
            f"its producer has sent {record_count} records, and {opened.record_count} have come",
        )
        self.abort(entry, opened, failure)
        raise failure

    # -- what is prepared --------------------------------------------------------------------------

    async def complete(self, ref: TransactionRef, *, commit: bool) -> Results:
        """The second phase, by whoever has the token; again, it is answered as before. To cancel
        this stops nothing.

        Raises:
            InvalidTxnStateError: It is not prepared, or ended otherwise.
        """
        return await self.to_its_end(self._complete(ref, commit=commit))

    async def _complete(self, ref: TransactionRef, *, commit: bool) -> Results:
        entry = self._entries.get(ref.transactional_id)
        if entry is None:
            raise _not_prepared(ref)
        async with entry.lock:
            self.committing.check_open()
            row, ending = entry.row, entry.ending
            over = row.completed
            if row.state == PREPARED and row.ref == ref:
                if not commit:
                    await self._abort_prepared(entry)
                    return []
                decided = replace(
                    row,
                    state=COMMITTING,
                    ordinal=prepared_ordinal(entry),
                    completed=Completed(row.transaction_epoch, row.number, True),
                    updated_ms=self.committing.now_ms(),
                )
                ending = self.begin_ending(entry, ref, self.committing.decide(entry, decided, {}))
            elif ending is not None and ending.ref == ref:
                pass
            elif over is not None and (over.producer_epoch, over.number) == (
                ref.producer_epoch,
                ref.number,
            ):
                return Ended(ref, over.committed).answer(commit=commit)
            else:
                raise _not_prepared(ref)
        return (await self.outcome(ending)).answer(commit=commit)

    async def _abort_prepared(self, entry: Entry) -> None:
        row = entry.row
        await self.committing.write(entry, row.over(ABORTED, self.committing.now_ms()))
        self._note_ended(entry, Ended(row.ref, False))
        self.committing.in_background(self._staging.delete(row.staged))
        if row.single_use:
            self.committing.forget([row.transactional_id])

    async def complete_id(self, name: str, *, commit: bool) -> Results:
        """The same by an operator, who may also abort what is open."""
        entry = self.known(name)
        if entry.row.state == PREPARED:
            return await self.complete(entry.row.ref, commit=commit)
        async with entry.lock:
            opened = entry.opened
            if opened is None or opened.sealed:
                raise InvalidTxnStateError(
                    f"no transaction of {name!r} is open or prepared", transactional_id=name
                )
            if commit:
                raise InvalidTxnStateError(
                    f"transaction {opened.ref.number} of {name!r} is open: only its producer can "
                    "commit it",
                    transactional_id=name,
                )
            self.abort(entry, opened, aborted(opened.ref, "an operator has ended it"))
        return []

    # -- helpers -----------------------------------------------------------------------------------

    def new_entry(self, row: IdRow) -> Entry:
        """The id's entry, which another call may have made meanwhile.

        Raises:
            PolicyViolationError: There are too many ids.
        """
        if len(self._entries) >= self._rules.ids_max:
            raise PolicyViolationError(
                f"the warehouse has {len(self._entries)} transactional ids, as many as it may have "
                "(transactional.id.max.count); use fewer, or wait for those that nobody uses to "
                "be forgotten after transactional.id.expiration.ms",
                limit=self._rules.ids_max,
            )
        return self._entries.setdefault(
            row.transactional_id, Entry(row, row.producer_epoch, settled=True)
        )

    def begin_ending(
        self, entry: Entry, ref: TransactionRef, work: Coroutine[Any, Any, Ended]
    ) -> Ending:
        """Begins to end a transaction; whoever asks for that waits for it with `outcome`."""

        async def run() -> Ended:
            try:
                ended = await work
            finally:
                entry.ending = None
            self._note_ended(entry, ended)
            return ended

        entry.ending = Ending(ref, self.committing.in_background(run()))
        return entry.ending

    def _note_ended(self, entry: Entry, ended: Ended) -> None:
        entry.ended, entry.used_s = ended, self._now_s()
        self._on_ended("committed" if ended.committed else "aborted")

    async def outcome(self, ending: Ending) -> Ended:
        """What became of it. To cancel this stops nothing."""
        return await _shielded(ending.task)

    async def to_its_end(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives, which goes on when the caller goes away: between a row that is written
        and what follows from it nobody else may come to the transaction."""
        return await _shielded(self.committing.in_background(work))

    async def ended_soon(self, entry: Entry) -> None:
        """Waits a little for what is being completed.

        Raises:
            ConcurrentTransactionsError: It takes longer.
        """
        if entry.ending is not None:
            await asyncio.wait({entry.ending.task}, timeout=_SOON_S)
        if entry.ending is not None:
            raise being_completed(entry.row.transactional_id)

    async def _commit(self, entry: Entry, opened: OpenTransaction) -> Ended:
        ended = await self.committing.commit(entry, opened)
        if not ended.committed:
            assert isinstance(ended.failure, TransactionAbortedError)
            self._give_up(entry, opened, ended.failure)
            return ended
        self._staging.end(opened)
        if entry.opened is opened:
            entry.opened = None
        return ended

    def abort(
        self, entry: Entry, opened: OpenTransaction, failure: TransactionAbortedError | None
    ) -> None:
        """Gives an open transaction up: nothing of it was in the log."""
        self._note_ended(entry, Ended(opened.ref, False, failure))
        self._give_up(entry, opened, failure)

    def _give_up(
        self, entry: Entry, opened: OpenTransaction, failure: TransactionAbortedError | None
    ) -> None:
        opened.sealed = True
        if entry.opened is opened:
            entry.opened = None
        left = self._staging.give_up(opened)
        if left:
            self.committing.in_background(self._staging.delete(left))
        if failure is not None:
            log.info(
                "transaction aborted",
                transactional_id=opened.ref.transactional_id,
                number=opened.ref.number,
                client_id=opened.client_id,
                reason=failure.message,
            )

    async def _find_out(self, entry: Entry, ref: TransactionRef) -> Ended:
        """What became of a transaction of a term before this one."""
        row = entry.row
        if ref.number < entry.last_number:
            raise InvalidTxnStateError(
                f"transaction {ref.number} of {ref.transactional_id!r} is over: "
                f"{entry.last_number} is the last one",
                transactional_id=ref.transactional_id,
            )
        if row.ref == ref and row.state == PREPARED:
            raise InvalidTxnStateError(
                f"transaction {ref.number} of {ref.transactional_id!r} is prepared; complete it",
                transactional_id=ref.transactional_id,
            )
        committed = row.ref == ref and row.state == COMMITTED
        if not committed and not entry.settled:
            found = await asyncio.gather(
                *(self._appends.settle(ref.mark, *topic) for topic in row.direct)
            )
            committed = any(found)
        failure = None
        if not committed:
            failure = aborted(ref, "the coordination of transactions has moved since it began")
        entry.ended = Ended(ref, committed, failure)
        return entry.ended


async def _shielded(task: asyncio.Task[T]) -> T:
    """What the task gives. To cancel this stops nothing.

    Raises:
        NotLeaderError: The term has ended, and the task with it.
    """
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
        raise moved() from None


def prepared_ordinal(entry: Entry) -> int:
    """The place of a prepared transaction that is committed now: its own, or, where another
    producer has begun since, before whatever comes of that one."""
    if entry.row.transaction_epoch == entry.epoch:
        return ordinal(entry.epoch, entry.row.number)
    return ordinal(entry.epoch, 0)


def _timed_out(ref: TransactionRef, timeout_ms: int) -> TransactionTimedOutError:
    return TransactionTimedOutError(
        f"transaction {ref.number} of {ref.transactional_id!r} was open for longer than "
        f"transaction.timeout.ms ({timeout_ms} ms) and is aborted: nothing of it is in the log. "
        "Abort it, and begin the next",
        transactional_id=ref.transactional_id,
        transaction_timeout_ms=timeout_ms,
    )


def _not_prepared(ref: TransactionRef) -> InvalidTxnStateError:
    return InvalidTxnStateError(
        f"transaction {ref.number} of {ref.transactional_id!r} (epoch {ref.producer_epoch}) is "
        "not prepared, or was completed before another one was",
        transactional_id=ref.transactional_id,
    )

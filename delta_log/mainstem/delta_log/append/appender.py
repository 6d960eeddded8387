"""The appender: leads one topic, and turns queued batches into table commits (group commit).

Offsets are given in arrival order when a batch is accepted. One commit at a time is in flight; it
takes all partitions at once. Under load the data files of the next one are written meanwhile, so
that the disk and the processor are busy at the same time. An accepted batch is retried until its
commit lands or the topic is lost to another leader: it is never re-sequenced and never dropped.

Runs on one event loop; encoding and the store's calls run in `pool`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from mainstem.delta_log.append.actions import forgotten_registers
from mainstem.delta_log.append.append import PortionAppend, TopicCommits
from mainstem.delta_log.append.leadership import take_lead
from mainstem.delta_log.append.pace import LARGE_COMMIT_BYTES
from mainstem.delta_log.append.producer_ids import ProducerIds
from mainstem.delta_log.append.producer_memory import FORGET_STEP_MAX, ProducerMemory
from mainstem.delta_log.append.producers import ProducerStates
from mainstem.delta_log.append.queue import AppendQueue, ByteBudget, Pending, Portion
from mainstem.delta_log.append.staged_append import StagedAppend
from mainstem.delta_log.append.topic_wal import TopicWal
from mainstem.delta_log.append.transactions import StagedRecords, TransactionMark, Transactions
from mainstem.delta_log.append.turns import CommitTurns, Turn
from mainstem.delta_log.append.waiter import (
    Appended,
    AppendWaiter,
    after_repeats,
    first_durable,
    retrieve,
)
from mainstem.delta_log.append.wal_recovery import (
    Recovered,
    gateways_before,
    recover_topic,
)
from mainstem.delta_log.files import Roller, RollUpMemory, Slice
from mainstem.delta_log.format import Action, Metadata, Register
from mainstem.delta_log.metrics import AppenderMetrics, NoMetrics
from mainstem.delta_log.store import time_elapsed_s, wall_clock_ms
from mainstem.delta_log.table import (
    CHANGE,
    AsyncCommits,
    LogOvertakenError,
    OpenTopic,
    TableCommit,
    TableState,
)
from mainstem.delta_log.wal import Wal
from mainstem.errors import (
    FencedError,
    InternalError,
    LogDamagedError,
    MainstemError,
    OutcomeUnknownError,
    ShuttingDownError,
    StoreUnavailableError,
    UnknownPartitionError,
    UnknownTopicError,
)
from mainstem.limits import (
    COMMIT_BYTES_MAX,
    MIB,
    PRODUCER_EXPIRATION_MS_MAX,
    TRANSACTIONAL_ID_EXPIRATION_MS,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

#: How often a leader without traffic looks at what others have committed, and how often at least in
#: the time that a log is kept: jobs commit, write checkpoints and clean the log while nobody
#: produces, and a leader that the clean-up has overtaken has to open the topic again.
IDLE_CATCH_UP_INTERVAL_S = 300.0
_CATCH_UPS_PER_LOG = 4

#: The same for a topic that is compacted by keys: a consumer that reads it from its beginning is to
#: see soon that keyed compaction has taken records away.
COMPACTED_CATCH_UP_INTERVAL_S = 10.0

#: An administrator waits for no longer: behind appends that the store does not take, for example.
CHANGE_TIMEOUT_S = 15.0

#: The next portion is written ahead once so many bytes of it wait.
_WRITE_AHEAD_BYTES = 4 * MIB

#: What ends a lead, of all that a commit can meet.
LEAD_LOST = (FencedError, UnknownTopicError, LogDamagedError, LogOvertakenError)


@dataclass(frozen=True, slots=True)
class CommittedRecords:
    """What one commit of an appender added; or what it will add, as is certain by now.

    Attributes:
        table_version: -1: no table has them yet, but the write-ahead log.
        partitions: The base offset and the slices of each partition; their offsets have no gap.
            None of a large transaction, whose records are not in memory.
    """

    topic: str
    topic_id: str
    table_version: int
    partitions: Mapping[int, tuple[int, Sequence[Slice]]]


@dataclass(slots=True)
class _Underway:
    """A portion that was taken out of the queue, and is not committed.

    Attributes:
        files: The writing of its data files; None: it is not written ahead.
    """

    portion: Portion[AppendWaiter]
    taken_at: float
    files: asyncio.Task[PortionAppend | StagedAppend] | None = None


class Appender:
    """Leads `topic`. Make one with `lead`; close it when done.

    Args:
        opened: The topic; the appender owns its store and state from now on.
        epoch: The leader epoch that was committed for this appender.
        pool: Runs encoding and store calls; at least two threads.
        queue_bytes: What may wait or be in commit, in bytes.
        budget: Shared by all topics of a gateway.
        on_commit: Called on the loop after each commit of ours, for maintenance.
        on_records: Called on the loop with the records of each commit, in the same step in which
            `state` gets them.
        on_failure: Called on the loop once, when the appender stops for another reason than
            `close`.
        on_durable: Called on the loop with records that the write-ahead log has and the table has
            not: they will be there at these offsets, whoever leads the topic then. None: it is not
            certain that who takes the topic over can read this log.
        wal: The gateway's write-ahead log; None: acks=1 waits for the table commit.
        may_acknowledge: Whether the lead is certain enough for an answer from the write-ahead log.
            A leader that may have been replaced waits for its commit, which finds out.
        wal_generation: Of that log, before the epoch was claimed.
        settles: What other gateways have left of the topic is in `recovered`.
        transactional_id_expiration_ms: It is forgotten which transaction of an id was the last one
            when none came for this long.
        producers: What idempotent producers have sent before.
        roll_up_memory: Shared by all topics of a gateway; None: small files stay as they are.
        turns: Shared by all topics of a gateway, which share its commits; None: nobody else
            commits.
    """

    def __init__(
        self,
        opened: OpenTopic,
        epoch: int,
        pool: Executor,
        *,
        queue_bytes: int,
        budget: ByteBudget,
        metrics: AppenderMetrics | None = None,
        on_commit: Callable[[OpenTopic], None] = lambda _: None,
        on_records: Callable[[CommittedRecords], None] | None = None,
        on_failure: Callable[[MainstemError], None] = lambda _: None,
        clock_ms: Callable[[], int] = wall_clock_ms,
        monotonic: Callable[[], float] = time_elapsed_s,
        wal: Wal | None = None,
        wal_generation: int | None = None,
        settles: bool = False,
        transactional_id_expiration_ms: int = TRANSACTIONAL_ID_EXPIRATION_MS,
        on_durable: Callable[[CommittedRecords], None] | None = None,
        producers: ProducerStates[AppendWaiter] | None = None,
        recovered: Recovered | None = None,
        may_acknowledge: Callable[[], bool] = lambda: True,
        roll_up_memory: RollUpMemory | None = None,
        turns: CommitTurns | None = None,
    ) -> None:
        self.topic = opened.topic
        self.epoch = epoch
        self._opened = opened
        self._metrics = metrics or NoMetrics()
        self._on_commit = on_commit
        self._on_records = on_records
        self._on_failure = on_failure
        self._clock_ms = clock_ms
        self._monotonic = monotonic
        self._queue: AppendQueue[AppendWaiter] = AppendQueue(
            queue_bytes,
            budget,
            opened.state.log_end_offset,
            ProducerStates(PRODUCER_EXPIRATION_MS_MAX) if producers is None else producers,
            opened.topic,
            epoch,
        )
        self._queue.producers.begin(self._now_ms())
        self._transactions: Transactions[AppendWaiter] = Transactions(
            opened.topic,
            opened.state.register_value,
            transactional_id_expiration_ms,
            opened.state.registers,
            self._now_ms(),
        )
        self._budget = budget
        self._may_acknowledge = may_acknowledge
        self._on_durable = on_durable
        self._wal: TopicWal[AppendWaiter] | None = None
        if wal is not None:
            self._wal = TopicWal(
                wal,
                opened.topic,
                opened.state.topic_id,
                epoch if settles else 0,
                wal_generation,
                None if on_durable is None else self._durable,
                may_acknowledge,
            )
            self._recover(self._wal, recovered)
        self._turns = turns or CommitTurns(0, 1, 0)
        #: While the topic wants to commit.
        self._asked: Turn | None = None
        #: Whether somebody waits for the next commit, and not only for the write-ahead log.
        self._is_awaited = True
        self._failure: MainstemError | None = None
        #: What was taken out of the queue: the portion whose turn it is, and the next one where its
        #: files are written ahead.
        self._underway: deque[_Underway] = deque()
        self._closing = False
        self._wake = asyncio.Event()
        self._began_at = -1e9
        self._commit_lock = asyncio.Lock()
        self._log = AsyncCommits(opened, epoch, pool, self._metrics, monotonic)
        self._roller = Roller(
            opened,
            pool,
            roll_up_memory or RollUpMemory(0),
            self._metrics,
            clock_ms,
            monotonic,
            on_ready=self._wake.set,
        )
        self._commits = TopicCommits(
            opened.store,
            self._log,
            self._roller,
            self._metrics,
            clock_ms,
            monotonic,
            self._turns.staged_chunks,
        )
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"appender {self.topic}"
        )

    @classmethod
    async def lead(
        cls,
        opened: OpenTopic,
        pool: Executor,
        *,
        wal: Wal | None = None,
        other_logs: Callable[[Sequence[str]], Awaitable[Sequence[Wal]]] | None = None,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS_MAX,
        producer_memory: ProducerMemory | None = None,
        producer_ids: ProducerIds | None = None,
        clock_ms: Callable[[], int] = wall_clock_ms,
        monotonic: Callable[[], float] = time_elapsed_s,
        leader: int = 0,
        may_claim: Callable[[TableState], None] = lambda _: None,
        **options: Any,
    ) -> Appender:
        """Takes the topic over: commits the next leader epoch, which stops its former leader.

        What the write-ahead logs still have of the topic is appended first, at its offsets.

        Args:
            other_logs: Seals the write-ahead logs of other gateways, by their ids; see `OtherLogs`.
                None: only this gateway's is looked at.
            producer_expiration_ms: A producer that sent nothing for this long is forgotten.
            producer_memory: Shared by all topics of a gateway; None: there is no bound.
            producer_ids: Which producer ids were given out; None: all of them.
            leader, may_claim: See `claim_epoch`.

        Raises:
            StoreUnavailableError: The store, or the write-ahead log, failed.
            UnknownTopicError: The topic was deleted meanwhile.
            LogDamagedError: The write-ahead log is damaged.
        """
        producers: ProducerStates[AppendWaiter] = ProducerStates(
            producer_expiration_ms, producer_memory, producer_ids
        )
        loop = asyncio.get_running_loop()
        now_ms = int(monotonic() * 1000)
        wal_generation = None if wal is None else wal.generation
        epoch = await loop.run_in_executor(
            pool,
            take_lead,
            opened,
            producers,
            clock_ms,
            now_ms,
            leader,
            may_claim,
            "" if wal is None else wal.gateway_id,
        )
        recovered = None
        if wal is not None:
            others: Sequence[Wal] = ()
            if other_logs is not None:
                # Now that nobody else can append: what they acknowledged is there.
                others = await other_logs(gateways_before(opened.state))
            recovered = await recover_topic(
                wal, opened.topic, opened.state, is_led=True, others=others
            )
            if recovered.orphan_count:
                log.error(
                    "topic %s: %d records were acknowledged with acks=1 and are not in the table, "
                    "which another gateway has led since: they are kept in %s",
                    opened.topic,
                    recovered.orphan_count,
                    recovered.orphans_path,
                )
        # Not before all that can fail: without them nobody could lead with this state.
        await loop.run_in_executor(pool, opened.state.give_up_producers)
        appender = cls(
            opened,
            epoch,
            pool,
            wal=wal,
            wal_generation=wal_generation,
            settles=other_logs is not None,
            producers=producers,
            recovered=recovered,
            clock_ms=clock_ms,
            monotonic=monotonic,
            **options,
        )
        if recovered is not None:
            appender._metrics.orphaned(recovered.orphan_count)
        return appender

    @property
    def state(self) -> TableState:
        """The table as of our last commit. The caller does not change it."""
        return self._opened.state

    @property
    def _enough_bytes(self) -> int:
        """What waits does not wait for its time, or its turn, where it has so many bytes."""
        return min(self.state.config.commit_bytes, LARGE_COMMIT_BYTES)

    @property
    def failure(self) -> MainstemError | None:
        """Why this appender takes nothing more, or None."""
        return self._failure

    @property
    def is_settled(self) -> bool:
        """Whether no write-ahead log has anything that the table lacks. Stays so once this is
        closed."""
        return self._wal is not None and self._wal.is_settled

    @property
    def _committing(self) -> AppendWaiter | None:
        """Who waits for the oldest request of the portion whose turn it is."""
        try:
            first = self._underway[0].portion
        except IndexError:
            return None
        # A large transaction takes as long to be written as it is large.
        return None if first.staged is not None else first.requests[0].token

    @property
    def queued_bytes(self) -> int:
        return self._queue.used_bytes

    @property
    def oldest_waiting_s(self) -> float:
        """For how many seconds the oldest request has waited that is to be committed now; 0: there
        is none, or nobody waits for it yet. From any thread."""
        committing, first = self._committing, self._queue.first
        if committing is not None:
            since = max(committing.accepted_at, self._began_at)
        elif first is not None and self._is_awaited:
            since = first.accepted_at
        else:
            return 0.0
        return max(self._monotonic() - since, 0.0)

    def log_end_offset(self, partition: int) -> int:
        """One past the last accepted offset."""
        return self._queue.log_end_offset(partition)

    def submit(
        self, slices: Sequence[Slice], size_bytes: int, *, write_ahead: bool = False
    ) -> asyncio.Future[Appended]:
        """Accepts a request: its records have their offsets from now on.

        The future tells when they are durable in the table. A batch of an idempotent producer that
        was accepted before is not accepted again: the future tells of the first.

        Args:
            slices: Each of one or more records. Where a partition has several, they follow each
                other.
            write_ahead: Durable in the write-ahead log is enough (acks=1).

        Returns:
            A future that is not the caller's alone: who sends the batch again may get the same.
            Shield it where the caller may be cancelled.

        Raises:
            BackPressureError: A queue is full; nothing was taken.
            OutOfOrderSequenceError, UnknownProducerIdError, ProducerFencedError: An idempotent
                producer's batch does not follow its last one; nothing was taken.
            MainstemError: The appender has failed or is closed; see `failure`.
        """
        self._check_takes()
        waiter = AppendWaiter(asyncio.get_running_loop().create_future(), self._monotonic())
        accepted = self._queue.accept(self._timed(slices), size_bytes, waiter, self._now_ms())
        if self._budget.is_short:
            self._turns.hurry_all()
        if accepted.repeated:
            self._metrics.duplicates(len(accepted.repeated))
        if accepted.pending is not None:
            if len(self._queue) == 1 or self._queue.waiting_bytes >= self._enough_bytes:
                self._wake.set()  # more that waits with others changes nothing
            if self._wal is not None:
                self._wal.accepted(accepted.pending)
                if (write_ahead or self.state.config.wal_records_all) and self._may_acknowledge():
                    written = self._wal.write()
                    waiter.written = written if write_ahead else None
            self._write_ahead()
        if accepted.pending is not None and not accepted.repeated:
            if waiter.written is None:
                self._await_commit()
                return waiter.future
            waiter.written.add_done_callback(self._written)
            return first_durable(waiter, accepted.pending.runs, self._may_acknowledge)
        self._await_commit()
        return after_repeats(
            accepted.pending, accepted.repeated, self._may_acknowledge, write_ahead=write_ahead
        )

    def append_transaction(
        self, mark: TransactionMark, records: Sequence[Slice] | StagedRecords
    ) -> asyncio.Future[Appended]:
        """Accepts the records of a transaction, all of them, once, whatever the limits of the queue
        are: their offsets are theirs from now on, and one commit, which does not wait for its
        interval, has them and the register of the transactional id.

        What is accepted behind them enters no write-ahead log before that commit, and waits for it.

        Args:
            records: Slices as of `submit`; who numbered them does not count. Or staged records, of
                which some chunks are in memory at a time: check these first, since to find them
                damaged here ends the lead.

        Returns:
            A future that is the caller's alone. Done when the records are in the table; at once,
            and with no batches, where they have been there before. It fails like one of `submit`:
            then nobody knows whether they are there, and `settle_transaction`, or the same call,
            of who leads the topic next finds out.

        Raises:
            TransactionAbortedError: The transaction is not in the table, and may not get there any
                more: it was fenced, or a later one of the id is there.
            UnknownPartitionError: The topic does not have a partition. Nothing was taken.
            MainstemError: The appender has failed or is closed; see `failure`.
        """
        self._check_takes()
        loop = asyncio.get_running_loop()
        waiter = self._transactions.find(mark)
        if waiter is None and self._transactions.is_committed(mark):
            done: asyncio.Future[Appended] = loop.create_future()
            done.set_result(Appended(-1, ()))
            return done
        if waiter is None:
            waiter = AppendWaiter(loop.create_future(), self._monotonic())
            waiter.future.add_done_callback(retrieve)
            pending = self._queue_transaction(mark, records, waiter)
            self._transactions.accept(mark, waiter)
            if self._wal is not None:
                self._wal.keep_out(pending)
            self._write_ahead()
            self._wake.set()
            self._await_commit()
        return waiter.answer()

    def _queue_transaction(
        self, mark: TransactionMark, records: Sequence[Slice] | StagedRecords, waiter: AppendWaiter
    ) -> Pending[AppendWaiter]:
        if not isinstance(records, Sequence):
            assert records.counts
            self._check_partitions(records.counts)
            size_bytes = min(records.size_bytes, COMMIT_BYTES_MAX)
            return self._queue.accept_staged(records, size_bytes, waiter, mark)
        assert records
        self._check_partitions(slice_.partition for slice_ in records)
        unnumbered = [replace(slice_, producer=None) for slice_ in self._timed(records)]
        size_bytes = sum(slice_.size_bytes for slice_ in records)
        return self._queue.accept_transaction(unnumbered, size_bytes, waiter, self._now_ms(), mark)

    async def settle_transaction(self, mark: TransactionMark) -> bool:
        """Finds out what became of a transaction in this topic, and makes it final.

        From this call on `append_transaction` refuses the transaction, and those of its id before
        it, where it has not accepted them; what it has accepted is waited for.

        Returns:
            True: its records are in the table. False: they are not, and never will be, as the
            table's register says.

        Raises:
            MainstemError: Nothing was found out: the topic was lost, or the store did not take the
                fence in time. Ask again, or ask who leads the topic next.
        """
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        self._transactions.fence(mark)
        for waiter in self._transactions.waiting(mark.transactional_id):
            await asyncio.shield(waiter.future)

        def build(state: TableState) -> list[Action]:
            if state.register_value(mark.register) >= mark.ordinal:
                return []
            return [Register(mark.register, mark.fence, updated_ms=self._clock_ms())]

        if build(self.state):
            await self.change("FENCE TRANSACTION", build)
            self._transactions.note_set(mark.register, self._now_ms())
        self._transactions.settled(mark)
        return self._transactions.is_committed(mark)

    def _check_takes(self) -> None:
        if self._failure is not None:
            # Each raise of one exception object adds to its traceback, and this one may be raised
            # for ever.
            raise self._failure.with_traceback(None)
        if self._closing:
            raise ShuttingDownError(
                f"topic {self.topic!r} is being closed here; send the batch again",
                retry_delay_ms=100,
            )

    def _check_partitions(self, partitions: Iterable[int]) -> None:
        count = self.state.partition_count
        for partition in partitions:
            if not 0 <= partition < count:
                raise UnknownPartitionError(
                    f"topic {self.topic!r} has no partition {partition}, only 0 to {count - 1}",
                    topic=self.topic,
                    partition=partition,
                )

    def _timed(self, slices: Sequence[Slice]) -> Sequence[Slice]:
        """The slices, with the kind of their timestamps: that of this moment, not of the commit's,
        as they were set under the setting of this one."""
        if not self.state.config.log_append_time:
            return slices
        return [
            replace(slice_, log_append_time=True) if slice_.log_append_time is None else slice_
            for slice_ in slices
        ]

    def _await_commit(self) -> None:
        """Somebody waits for the next commit."""
        self._is_awaited = True
        if self._asked is not None:
            self._asked.hurry()

    def _written(self, written: asyncio.Future[None]) -> None:
        """A request is in the write-ahead log; or not, or that is no answer any more: then its
        sender waits for the commit."""
        if written.cancelled() or written.exception() is not None or not self._may_acknowledge():
            self._await_commit()

    async def change_metadata(
        self, operation: str, change: Callable[[TableState], Metadata]
    ) -> int:
        """Commits a change of settings or partitions between two appends; see `change`."""
        return await self.change(operation, lambda state: [change(state)])

    async def change(
        self,
        operation: str,
        build: Callable[[TableState], Sequence[Action]],
        *,
        frees_space: bool = False,
    ) -> int:
        """Commits something else than records between two appends.

        Args:
            build: The actions, from the newest state; none: there is nothing to do.
            frees_space: See `TableCommit`.

        Returns:
            The table version that has it; today's if there was nothing to do.

        Raises:
            MainstemError: `build` refused, or the topic is lost.
        """
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        try:
            async with asyncio.timeout(CHANGE_TIMEOUT_S):
                return await self._log.until_ended(self._change(operation, build, frees_space))
        except TimeoutError:
            trouble = self._log.trouble
            raise OutcomeUnknownError(
                f"{operation} of topic {self.topic!r} did not end within {CHANGE_TIMEOUT_S:g} s"
                f"{'' if trouble is None else f', since {trouble.message}'}; "
                "look before you try again",
                topic=self.topic,
            ) from trouble

    async def _change(
        self, operation: str, build: Callable[[TableState], Sequence[Action]], frees_space: bool
    ) -> int:
        def make(state: TableState) -> TableCommit | None:
            # Again after each conflict: what the winner changed must not be changed back.
            actions = build(state)
            if not actions:
                return None
            return TableCommit.of(
                operation, actions, timestamp_ms=self._clock_ms(), frees_space=frees_space
            )

        async with self._commit_lock:
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            with self._failing_when_lost():
                landed = await self._log.commit(make, CHANGE)
            return self.state.version if landed is None else landed.version

    @property
    def trouble(self) -> StoreUnavailableError | None:
        """Why the store does not take what waits here; None: it does, as far as is known."""
        return self._log.trouble

    @property
    def state_age_s(self) -> float:
        """Seconds since `state` was last known to be the newest."""
        return self._monotonic() - self._log.caught_up_at

    async def catch_up(self) -> None:
        """Takes into `state` what others have committed. A leader that appends nothing learns of a
        retention or a compaction in no other way.

        Does nothing while an append waits for a store that fails: each of its attempts looks, and
        readers are better served with what is known than not at all.

        Raises:
            MainstemError: The topic is lost, as by a commit; or the store failed, and `state` is as
                before.
        """
        if self._commit_lock.locked() and self._log.trouble is not None:
            return
        async with self._commit_lock:
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            if not self._closing:
                with self._failing_when_lost():
                    await self._log.catch_up()

    async def stopped(self) -> None:
        """Waits until an appender that has failed is not at work any more."""
        await asyncio.wait({self._task})

    async def close(self, timeout_s: float) -> None:
        """Commits what was accepted within `timeout_s`, then stops. The rest fails as unknown."""
        self._closing = True
        self._wake.set()
        await asyncio.wait({self._task}, timeout=timeout_s)
        self._fail(self._stopped())
        self._task.cancel()
        await asyncio.wait({self._task})

    @contextlib.contextmanager
    def _failing_when_lost(self) -> Iterator[None]:
        """Stops the appender where a commit, or a look at those of others, ends its lead."""
        try:
            yield
        except LEAD_LOST as error:
            self._fail(error)
            raise

    # -- the loop --------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while self._failure is None:
                if not self._underway and not len(self._queue):
                    if self._closing:
                        await self._roller.finish()
                    if self._swap_in_s() <= 0:
                        async with self._commit_lock:
                            if self._failure is None:
                                await self._commits.swap()
                    elif self._closing:
                        return
                    else:
                        await self._wait_and_look(self._swap_in_s())
                    continue
                async with self._turn():
                    await self._append()
                # Who waited for this commit is answered before the next one is encoded.
                await asyncio.sleep(0)
            self._give_up(self._failure)
        except asyncio.CancelledError:  # `close` has waited long enough
            self._give_up(self._failure or self._stopped())
            raise
        except MainstemError as error:
            self._give_up(error)
        # Whatever it is, who waits is told. A panic in a native library is no Exception.
        except BaseException as error:
            log.exception("the appender of topic %s failed", self.topic)
            self._give_up(
                InternalError(
                    f"the appender of topic {self.topic!r} failed: {error!r}", topic=self.topic
                ),
            )

    def _swap_in_s(self) -> float:
        """When a roll-up is to be committed alone, should no records come."""
        due_in_s = self._roller.due_in_s
        if due_in_s is None:
            return math.inf
        return 0.0 if self._closing else due_in_s

    async def _wait_and_look(self, wait_s: float = math.inf) -> None:
        """Waits until something wakes the loop, for so long at most; from time to time has a look
        at what others have committed."""
        self._wake.clear()
        config = self.state.config
        catch_up_in_s = min(
            IDLE_CATCH_UP_INTERVAL_S, config.log_retention_ms / 1000 / _CATCH_UPS_PER_LOG
        )
        if config.compacts:
            catch_up_in_s = min(catch_up_in_s, COMPACTED_CATCH_UP_INTERVAL_S)
        try:
            # Not `wait_for`: it loses a cancellation that comes together with the wake-up.
            async with asyncio.timeout(min(wait_s, catch_up_in_s)):
                await self._wake.wait()
        except TimeoutError:
            if wait_s > catch_up_in_s:
                with contextlib.suppress(StoreUnavailableError):
                    await self.catch_up()

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """The topic's turn to commit: when the commit interval has passed or enough bytes wait, and
        then when it comes, unless much waits that has to be written anyway."""
        await self._interval_passes()
        turn = self._turns.ask(
            self.state.config.commit_interval_ms, self._wake.set, is_awaited=self._is_awaited
        )
        self._asked = turn
        try:
            while not (
                turn.has_come
                or self._closing
                or self._failure is not None
                or self._underway
                or self._queue.waiting_bytes >= LARGE_COMMIT_BYTES
            ):
                await self._wait_and_look()
            turn.begin()
            yield
        finally:
            self._asked = None
            turn.end()

    async def _interval_passes(self) -> None:
        config = self.state.config
        while not self._closing:
            left = self._began_at + config.commit_interval_ms / 1000 - self._monotonic()
            enough = self._underway or self._queue.waiting_bytes >= config.commit_bytes
            if left <= 0 or enough or self._transactions.is_waiting:
                return
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()

    def _take(self) -> _Underway:
        """The portion whose turn it is: the one that is written ahead, or what waits."""
        if not self._underway:
            self._underway.append(_Underway(self._queue.take(COMMIT_BYTES_MAX), self._monotonic()))
        self._is_awaited = len(self._queue) > 0
        self._began_at = self._underway[0].taken_at
        return self._underway[0]

    def _write_ahead(self) -> None:
        """Has the files of the next portion written while one is under way, where much waits: it
        gets to the disk anyway, and the larger the portions are the fewer files are there."""
        if len(self._underway) != 1 or self._queue.waiting_bytes < _WRITE_AHEAD_BYTES:
            return
        ahead = _Underway(self._queue.take(COMMIT_BYTES_MAX), self._monotonic())
        ahead.files = asyncio.get_running_loop().create_task(
            self._commits.write(ahead.portion), name=f"files of {self.topic}"
        )
        ahead.files.add_done_callback(retrieve)
        self._underway.append(ahead)

    async def _append(self) -> None:
        """Commits the portion whose turn it is."""
        this = self._take()
        self._write_ahead()
        for request in this.portion.requests:
            self._metrics.append_seconds("queue", this.taken_at - request.token.accepted_at)
        append = await (this.files or self._commits.write(this.portion))
        async with self._commit_lock:
            if self._failure is not None:
                return
            version = await self._commits.commit(append, self._registers(this.portion))
            self._committed(this.portion, version)
            self._underway.popleft()
            self._tell("on_commit", self._on_commit, self._opened)

    def _registers(self, portion: Portion[AppendWaiter]) -> list[Register]:
        """What a portion's commit says beside its records."""
        forgotten = self._queue.producers.take_forgotten(FORGET_STEP_MAX)
        found = forgotten_registers(forgotten)
        found += self._transactions.registers(portion.marks(), self._clock_ms())
        found += self._transactions.forgotten(self._now_ms())
        if self._wal is not None:
            found += self._wal.registers(portion)
        return found

    def _committed(self, portion: Portion[AppendWaiter], version: int) -> None:
        """Frees what a portion held, and answers who waits for it."""
        if self._on_records is not None:
            records = CommittedRecords(
                self.topic, self.state.topic_id, version, portion.by_partition()
            )
            self._tell("on_records", self._on_records, records)
        self._queue.done(portion)
        if self._wal is not None:
            self._wal.committed(portion)
        self._transactions.committed(portion.marks(), self._now_ms())
        for request in portion.requests:
            self._queue.producers.committed(request.runs, version)
            request.token.committed(Appended(version, request.runs))
        self._queue.producers.expire(self._now_ms())

    def _recover(self, wal: TopicWal[AppendWaiter], recovered: Recovered | None) -> None:
        """Queues what the write-ahead log has, before anything else can be accepted."""
        loop = asyncio.get_running_loop()
        for one in recovered.requests if recovered is not None else ():
            request = one.request
            waiter = AppendWaiter(loop.create_future(), self._monotonic())
            waiter.future.add_done_callback(retrieve)
            pending = self._queue.recover(
                request.slices, request.size_bytes, waiter, self._now_ms(), request.epoch
            )
            assert pending.batches == request.batches, "recovered records moved"
            if wal.recovered(one, pending):
                waiter.written = loop.create_future()
                waiter.written.set_result(None)

    def _durable(self, requests: Sequence[Pending[AppendWaiter]]) -> None:
        if self._on_durable is None or self._failure is not None:
            return
        for request in requests:  # one by one: a commit takes whole ones
            partitions = Portion([request]).by_partition()
            records = CommittedRecords(self.topic, self.state.topic_id, -1, partitions)
            self._tell("on_durable", self._on_durable, records)

    def _give_up(self, error: MainstemError) -> None:
        """Fails all that was accepted and is not committed."""
        while self._underway:
            taken = self._underway.popleft()
            if taken.files is not None:
                taken.files.cancel()
            self._refuse(taken.portion, error)
        self._fail(error)

    def _fail(self, error: MainstemError) -> None:
        """Takes nothing more, and fails what waits."""
        if self._failure is None:
            self._failure = error
            if not self._closing:
                self._tell("on_failure", self._on_failure, error)
        self._log.end(self._failure)
        if self._wal is not None:
            self._wal.end()
        self._roller.close()
        while len(self._queue):
            self._refuse(self._queue.take(COMMIT_BYTES_MAX), self._failure)
        self._queue.producers.end()
        self._wake.set()

    def _refuse(self, portion: Portion[AppendWaiter], error: MainstemError) -> None:
        for request in portion.requests:
            request.token.failed(error)
        self._queue.done(portion)

    def _now_ms(self) -> int:
        """For how long somebody was silent: by a clock that nobody sets."""
        return int(self._monotonic() * 1000)

    def _stopped(self) -> MainstemError:
        return OutcomeUnknownError(
            f"the gateway stopped before topic {self.topic!r} had committed this batch; "
            "send it again",
            topic=self.topic,
        )

    def _tell(self, what: str, listener: Callable[[T], None], about: T) -> None:
        """Calls a listener, whose faults are not the log's."""
        try:
            listener(about)
        except BaseException:  # see `_run`
            log.exception("topic %s: %s failed", self.topic, what)

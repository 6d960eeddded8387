"""The appender: leads one topic, and turns queued batches into table commits (group commit).

Offsets are given in arrival order when a batch is accepted. One commit at a time is in flight; it
takes all partitions at once. An accepted batch is retried until its commit lands or the topic is
lost to another leader: it is never re-sequenced and never dropped.

Runs on one event loop; encoding and the store's calls run in `pool`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from mainstem.delta_log import registers
from mainstem.delta_log.actions import Action, Batch, DataFile, Metadata, Register, same_table
from mainstem.delta_log.append_queue import AppendQueue, ByteBudget, Group, Slice
from mainstem.delta_log.committer import (
    Committed,
    Committer,
    Conflict,
    TableCommit,
    wall_clock_ms,
)
from mainstem.delta_log.data_file import CREATE_TIME, LOG_APPEND_TIME, encode_data_file
from mainstem.delta_log.store import StoreGone
from mainstem.delta_log.table_state import TableState
from mainstem.delta_log.topics import OpenTopic
from mainstem.errors import (
    FencedError,
    InternalError,
    LogDamagedError,
    MainstemError,
    OutcomeUnknownError,
    ShuttingDownError,
    StoreUnavailableError,
    UnknownTopicError,
    UnsupportedTableError,
)
from mainstem.limits import COMMIT_BYTES_MAX

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Waits between attempts while the store fails: short at first, then as long as operators wait.
_BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

#: Attempts to commit a leader epoch; each loss means that another writer got on.
_LEAD_ATTEMPTS_MAX = 20


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a request's records are: in table version `table_version`, one batch for each slice."""

    table_version: int
    batches: tuple[Batch, ...]


class AppenderMetrics(Protocol):
    """What an appender reports.

    `stage` is queue, encode or commit; `outcome` is committed, conflict or unknown.
    """

    def append_seconds(self, stage: str, seconds: float) -> None: ...
    def table_commit(self, outcome: str) -> None: ...


class _NoMetrics:
    def append_seconds(self, stage: str, seconds: float) -> None:
        pass

    def table_commit(self, outcome: str) -> None:
        pass


@dataclass(frozen=True, slots=True)
class _Waiter:
    """A request's future and the monotonic time at which it was accepted."""

    future: asyncio.Future[Appended]
    accepted_at: float


class Appender:
    """Leads `topic`. Make one with `lead`; close it when done.

    Args:
        opened: The topic; the appender owns its store and state from now on.
        epoch: The leader epoch that was committed for this appender.
        pool: Runs encoding and store calls; at least two threads.
        queue_bytes: What may wait or be in commit, in bytes.
        budget: Shared by all topics of a gateway.
        on_commit: Called on the loop after each commit of ours, for maintenance.
        on_failure: Called on the loop once, when the appender stops for another reason than
            `close`.
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
        on_failure: Callable[[MainstemError], None] = lambda _: None,
        clock_ms: Callable[[], int] = wall_clock_ms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.topic = opened.topic
        self.epoch = epoch
        self._opened = opened
        self._committer = Committer(opened.store)
        self._pool = pool
        self._metrics = metrics or _NoMetrics()
        self._on_commit = on_commit
        self._on_failure = on_failure
        self._clock_ms = clock_ms
        self._monotonic = monotonic
        self._queue: AppendQueue[_Waiter] = AppendQueue(
            queue_bytes, budget, opened.state.log_end_offset
        )
        self._failure: MainstemError | None = None
        self._closing = False
        self._wake = asyncio.Event()
        self._began_at = -1e9
        self._commit_lock = asyncio.Lock()
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"appender {self.topic}"
        )

    @classmethod
    async def lead(cls, opened: OpenTopic, pool: Executor, **options: Any) -> Appender:
        """Takes the topic over: commits the next leader epoch, which stops whoever led it before.

        Raises:
            StoreUnavailableError: The store failed.
            UnknownTopicError: The topic was deleted meanwhile.
        """
        state = opened.state
        loop = asyncio.get_running_loop()
        committer = Committer(opened.store)
        claim: TableCommit | None = None
        unknown = 0
        for _ in range(_LEAD_ATTEMPTS_MAX):
            epoch = state.epoch + 1
            if claim is None:
                claim = TableCommit.of(
                    "LEADER EPOCH", [Register(registers.EPOCH, epoch)], timestamp_ms=wall_clock_ms()
                )
            try:
                outcome = await loop.run_in_executor(
                    pool, committer.commit, state.version + 1, claim
                )
            except StoreGone as error:
                raise _deleted(opened.topic) from error
            if isinstance(outcome, Committed):
                state.apply(outcome.version, claim.actions)
                return cls(opened, epoch, pool, **options)
            if isinstance(outcome, Conflict):
                state.apply(outcome.version, outcome.actions)
                if state.deleted:
                    raise _deleted(opened.topic)
                claim = None
            else:
                await asyncio.sleep(_backoff_s(unknown))
                unknown += 1
        raise StoreUnavailableError(
            f"could not take the lead of topic {opened.topic!r}: "
            "the store fails, or too many others write",
            topic=opened.topic,
        )

    @property
    def state(self) -> TableState:
        """The table as of our last commit. The caller does not change it."""
        return self._opened.state

    @property
    def failure(self) -> MainstemError | None:
        """Why this appender takes nothing more, or None."""
        return self._failure

    @property
    def queued_bytes(self) -> int:
        return self._queue.used_bytes

    def log_end_offset(self, partition: int) -> int:
        """One past the last accepted offset."""
        return self._queue.log_end_offset(partition)

    def submit(self, slices: Sequence[Slice], size_bytes: int) -> asyncio.Future[Appended]:
        """Accepts a request: its records have their offsets from now on.

        The future tells when they are durable.

        Args:
            slices: Each of one or more records. Where a partition has several, they follow each
                other.

        Raises:
            BackPressureError: A queue is full; nothing was taken.
            MainstemError: The appender has failed or is closed; see `failure`.
        """
        if self._failure is not None:
            # Each raise of one exception object adds to its traceback, and this one may be raised
            # for ever.
            raise self._failure.with_traceback(None)
        if self._closing:
            raise ShuttingDownError(
                f"topic {self.topic!r} is being closed here; send the batch again",
                retry_delay_ms=100,
            )
        waiter = _Waiter(asyncio.get_running_loop().create_future(), self._monotonic())
        self._queue.accept(slices, size_bytes, waiter)
        self._wake.set()
        return waiter.future

    async def change_metadata(
        self, operation: str, change: Callable[[TableState], Metadata]
    ) -> int:
        """Commits a change of settings or partitions between two appends.

        Returns:
            The table version that has it.

        Raises:
            MainstemError: `change` refused, or the topic is lost.
        """
        async with self._commit_lock:
            while True:
                if self._failure is not None:
                    raise self._failure.with_traceback(None)
                # Again after each conflict: what the winner changed must not be changed back.
                commit = TableCommit.of(
                    operation, [change(self.state)], timestamp_ms=self._clock_ms()
                )
                try:
                    version = await self._attempt(commit)
                except MainstemError as error:
                    self._fail(error)
                    raise
                if version is not None:
                    return version

    async def close(self, timeout_s: float) -> None:
        """Commits what was accepted within `timeout_s`, then stops. The rest fails as unknown."""
        self._closing = True
        self._wake.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._task), timeout_s)
        self._fail(self._stopped())
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._opened.store.close()

    # -- the loop --------------------------------------------------------------------------------

    async def _run(self) -> None:
        group: Group[_Waiter] = Group()
        try:
            while self._failure is None:
                if not len(self._queue):
                    if self._closing:
                        return
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                await self._pace()
                async with self._commit_lock:
                    if self._failure is not None:
                        return
                    self._began_at = self._monotonic()
                    group = self._queue.take(COMMIT_BYTES_MAX)
                    appended = await self._append(group)
                    self._queue.done(group)
                    for request in group.requests:
                        if not request.token.future.done():
                            request.token.future.set_result(Appended(appended, request.batches))
                    group = Group()
                    self._tell("on_commit", self._on_commit, self._opened)
        except asyncio.CancelledError:  # `close` has waited long enough
            self._give_up(group, self._failure or self._stopped())
            raise
        except MainstemError as error:
            self._give_up(group, error)
        except Exception as error:
            log.exception("the appender of topic %s failed", self.topic)
            self._give_up(
                group,
                InternalError(
                    f"the appender of topic {self.topic!r} failed: {error!r}", topic=self.topic
                ),
            )

    async def _pace(self) -> None:
        """Waits until the commit interval has passed or enough bytes wait."""
        config = self.state.config
        while not self._closing:
            left = self._began_at + config.commit_interval_ms / 1000 - self._monotonic()
            if left <= 0 or self._queue.waiting_bytes >= config.commit_bytes:
                return
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), left)

    async def _append(self, group: Group[_Waiter]) -> int:
        """Writes a group's data files and commits them; returns the table version."""
        started = self._monotonic()
        for request in group.requests:
            self._metrics.append_seconds("queue", started - request.token.accepted_at)
        config = self.state.config
        now_ms = self._clock_ms()
        timestamp_type = LOG_APPEND_TIME if config.log_append_time else CREATE_TIME

        def write(partition: int, base_offset: int, batches: list[pa.RecordBatch]) -> DataFile:
            file, data = encode_data_file(
                partition,
                base_offset,
                batches,
                timestamp_type=timestamp_type,
                compression_type=config.compression_type,
                now_ms=now_ms,
            )
            self._opened.store.put(file.path, data)
            return file

        writes = [
            asyncio.ensure_future(self._until_stored(write, partition, base_offset, batches))
            for partition, (base_offset, batches) in sorted(group.by_partition().items())
        ]
        try:
            files = await asyncio.gather(*writes)
        except BaseException:
            for one in writes:  # or they would go on trying while the store fails
                one.cancel()
            raise
        encoded = self._monotonic()
        self._metrics.append_seconds("encode", encoded - started)
        actions: list[Action] = [*files]
        actions += [Register(registers.leo(file.partition), file.last_offset + 1) for file in files]
        commit = TableCommit.of("APPEND", actions, timestamp_ms=now_ms, batches=group.batches())
        version = await self._commit(commit)
        self._metrics.append_seconds("commit", self._monotonic() - encoded)
        return version

    async def _commit(self, commit: TableCommit) -> int:
        """Commits at the next free version, merging what others committed before it."""
        while True:
            version = await self._attempt(commit)
            if version is not None:
                return version

    async def _attempt(self, commit: TableCommit) -> int | None:
        """Commits at the next version.

        Returns:
            The version; None: another writer has it, and its commit is part of our state now.
        """
        version = self.state.version + 1
        unknown = 0
        while True:
            outcome = await self._until_stored(self._committer.commit, version, commit)
            if isinstance(outcome, Committed):
                self._metrics.table_commit("committed")
                self.state.apply(version, commit.actions)
                return version
            if isinstance(outcome, Conflict):
                self._metrics.table_commit("conflict")
                self._merge(outcome)
                return None
            self._metrics.table_commit("unknown")
            log.warning("topic %s: unknown whether version %d is ours", self.topic, version)
            await asyncio.sleep(_backoff_s(unknown))
            unknown += 1

    async def _until_stored(self, call: Callable[..., T], *arguments: object) -> T:
        """Runs `call` in the pool until the store does it: what was accepted is not given up."""
        attempt = 0
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await loop.run_in_executor(self._pool, call, *arguments)
            except StoreGone as error:
                raise _deleted(self.topic) from error
            except StoreUnavailableError as error:
                log.warning("topic %s: %s; trying again", self.topic, error)
            await asyncio.sleep(_backoff_s(attempt))
            attempt += 1

    def _merge(self, winner: Conflict) -> None:
        """Takes another writer's commit into our state, or raises because we must stop."""
        state = self.state
        before = state.metadata
        ends = {
            partition: state.log_end_offset(partition) for partition in range(state.partition_count)
        }
        state.apply(winner.version, winner.actions)
        if state.deleted:
            raise _deleted(self.topic)
        if state.epoch > self.epoch:
            raise FencedError(
                f"another gateway leads topic {self.topic!r} with epoch {state.epoch}; "
                f"ours was {self.epoch}",
                topic=self.topic,
                epoch=state.epoch,
            )
        assert before is not None
        assert state.metadata is not None
        if not same_table(before, state.metadata):
            raise UnsupportedTableError(
                f"version {winner.version} of topic {self.topic!r} changed its id, schema or "
                "partitioning; the gateway has stopped writing to it",
                topic=self.topic,
                table_version=winner.version,
            )
        for partition, end in ends.items():
            if state.log_end_offset(partition) != end:
                raise LogDamagedError(
                    f"version {winner.version} of topic {self.topic!r} moved the end of partition "
                    f"{partition} from {end} to {state.log_end_offset(partition)} without a new "
                    "leader epoch; "
                    "the gateway has stopped writing to it",
                    topic=self.topic,
                    table_version=winner.version,
                )

    def _give_up(self, group: Group[_Waiter], error: MainstemError) -> None:
        for request in group.requests:
            if not request.token.future.done():
                request.token.future.set_exception(error)
        self._queue.done(group)
        self._fail(error)

    def _fail(self, error: MainstemError) -> None:
        """Takes nothing more, and fails what waits."""
        if self._failure is None:
            self._failure = error
            if not self._closing:
                self._tell("on_failure", self._on_failure, error)
        while len(self._queue):
            group = self._queue.take(COMMIT_BYTES_MAX)
            for request in group.requests:
                if not request.token.future.done():
                    request.token.future.set_exception(self._failure)
            self._queue.done(group)
        self._wake.set()

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
        except Exception:
            log.exception("topic %s: %s failed", self.topic, what)


def _backoff_s(attempt: int) -> float:
    return _BACKOFF_S[min(attempt, len(_BACKOFF_S) - 1)]


def _deleted(topic: str) -> UnknownTopicError:
    return UnknownTopicError(f"topic {topic!r} was deleted", topic=topic)

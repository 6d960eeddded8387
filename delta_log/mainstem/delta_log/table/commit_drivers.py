"""Run commit loops on a store: blocking, or on an event loop with the store's calls in a pool."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mainstem.delta_log.format import Action, DataFile, Remove, registers
from mainstem.delta_log.metrics import AppenderMetrics
from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.table.commit_loop import (
    BESIDE_LEADER,
    CLAIM,
    LEADER,
    Attempt,
    Build,
    Landed,
    Loop,
    Read,
    Reload,
    RetryPolicy,
    Step,
    StoreFailed,
    Told,
    Wait,
    beside_leader_loop,
    catch_up_loop,
    commit_loop,
    topic_deleted_error,
)
from mainstem.delta_log.table.committer import (
    Committed,
    Committer,
    Conflict,
    NotThere,
    OutcomeUnknown,
    Run,
)
from mainstem.delta_log.table.snapshot import load_table
from mainstem.delta_log.table.state import TableState
from mainstem.errors import MainstemError, StoreUnavailableError, UnknownTopicError

if TYPE_CHECKING:
    from mainstem.delta_log.table.followed import OpenTopic

log = logging.getLogger(__name__)

T = TypeVar("T")

#: How far the clocks may be apart of who wrote a file and of who deletes what was left behind.
_CLOCKS_APART_MS: Final = 600_000

#: Calls of one topic that are in the pool at a time: a store that holds up one topic must not take
#: the threads of all.
TOPIC_CALLS_MAX: Final = 4


class FileSuperseded(Exception):
    """A file that was to be removed is in the table no more, since another writer removed it first;
    or one that was to be added has waited for its commit until vacuum took it.

    Attributes:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is in the table no more")
        self.path = path


def commit_beside_leader(
    opened: OpenTopic,
    build: Build,
    *,
    attempts_max: int | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Landed | None:
    """Commits what `build` makes of the table's newest state, which a gateway may be appending to
    at the same time. Blocks.

    `opened.state` is brought up to date, so it must not be one that an appender uses.

    Args:
        build: See `commit_loop`.
        attempts_max: Attempts before giving up; None: as `BESIDE_LEADER` has it.

    Returns:
        None: `build` had nothing to commit.

    Raises: As `commit_loop`.
    """
    policy = BESIDE_LEADER
    if attempts_max is not None:
        policy = replace(policy, losses_max=attempts_max)
    loop = beside_leader_loop(opened.state, build, topic=opened.topic, policy=policy)
    landed = run_blocking(loop, opened.store, opened.topic, sleep)
    if landed is not None:
        opened.state = landed.state
    return landed


def claim_lead(
    opened: OpenTopic, build: Build, sleep: Callable[[float], None] = time.sleep
) -> Landed:
    """Commits a claim of the lead. Blocks. Raises: As `commit_loop`."""
    loop = commit_loop(opened.state, build, topic=opened.topic, policy=CLAIM)
    landed = run_blocking(loop, opened.store, opened.topic, sleep)
    assert landed is not None
    return landed


def run_blocking(
    loop: Loop[T],
    store: ObjectStore,
    topic: str,
    sleep: Callable[[float], None] = time.sleep,
    committer: Committer | None = None,
) -> T:
    """Runs a loop to its end on a topic's store, in this thread.

    Args:
        committer: One that has seen the table before; None: a new one.
    """
    committer = committer or Committer(store)
    told: Told = None
    while True:
        try:
            step = loop.send(told)
        except StopIteration as ended:
            result: T = ended.value
            return result
        if isinstance(step, Wait):
            sleep(step.seconds)
            told = None
        else:
            told = _take_step(store, topic, committer, step)


def _take_step(
    store: ObjectStore, topic: str, committer: Committer, step: Attempt | Read | Reload
) -> Told:
    """Does what a loop asks for. Blocks."""
    try:
        match step:
            case Attempt():
                try:
                    return committer.commit(step.version, step.commit, step.after_id)
                except StoreUnavailableError as error:
                    return StoreFailed(error)
            case Read(count=1):
                return committer.read(step.version, step.after_id)
            case Read():
                return committer.read_run(step.version, step.after_id, step.count)
            case Reload():
                try:
                    return load_table(store)
                except StoreUnavailableError as error:
                    return StoreFailed(error)
    except UnknownTopicError as error:
        raise topic_deleted_error(topic) from error


class AsyncCommits:
    """Runs one led table's loops on an event loop, one at a time: the caller sees to that. The
    store's calls run in `pool`.

    Args:
        opened: The table; its state changes with each commit, ours or another's.
        epoch: The leader epoch that was committed for us.
    """

    def __init__(
        self,
        opened: OpenTopic,
        epoch: int,
        pool: Executor,
        metrics: AppenderMetrics,
        monotonic: Callable[[], float],
    ) -> None:
        self._opened = opened
        self._epoch = epoch
        self._pool = pool
        self._metrics = metrics
        self._monotonic = monotonic
        self._committer = Committer(opened.store, monotonic)
        self._calls = asyncio.Semaphore(TOPIC_CALLS_MAX)
        self._ended: asyncio.Future[MainstemError] = asyncio.get_running_loop().create_future()
        #: When `state` was last known to be the newest, by the monotonic clock.
        self.caught_up_at = -1e9
        #: What the store said last, while it fails; None: it works.
        self.trouble: StoreUnavailableError | None = None

    @property
    def state(self) -> TableState:
        """The table as of the last commit that is known."""
        return self._opened.state

    def end(self, error: MainstemError) -> None:
        """From now on nothing is tried again, and a caller that waits for a commit gets `error`."""
        if not self._ended.done():
            self._ended.set_result(error)

    async def commit(self, build: Build, policy: RetryPolicy = LEADER) -> Landed | None:
        """Commits at the next free version. Returns and raises: As `commit_loop`."""
        loop = commit_loop(
            self.state, build, topic=self._opened.topic, policy=policy, epoch=self._epoch
        )
        return await self._run(loop)

    async def catch_up(self) -> None:
        """Takes what others have committed into the state.

        A file that log clean-up has removed is not found either. Then the next append finds out,
        see `Committer`: one that looks every few minutes is not that late.

        Raises: As `commit_loop`.
        """
        began_at = self._monotonic()
        await self._run(
            catch_up_loop(self.state, topic=self._opened.topic, policy=LEADER, epoch=self._epoch)
        )
        self.caught_up_at = max(self.caught_up_at, began_at)

    async def until_ended(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives, unless `end` comes first: then its error."""
        task = asyncio.get_running_loop().create_task(work)
        either: set[asyncio.Future[Any]] = {task, self._ended}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self._check_not_ended()
            return await task
        finally:
            task.cancel()

    async def until_stored(self, call: Callable[..., T], *arguments: object) -> T:
        """Runs a call of the store in the pool until the store does it: what was accepted is not
        given up.

        Raises:
            MainstemError: `end` was called.
        """
        failures = 0
        while True:
            try:
                return await self._in_pool(call, *arguments)
            except StoreUnavailableError as error:
                self._note_failure(error)
            self._check_not_ended()
            await self._pause(LEADER.pause_s(failures))
            failures += 1

    async def _run(self, loop: Loop[T]) -> T:
        told: Told = None
        while True:
            try:
                step = loop.send(told)
            except StopIteration as ended:
                result: T = ended.value
                return result
            if isinstance(step, Wait):
                self._check_not_ended()
                await self._pause(step.seconds)
                told = None
                continue
            told = await self._in_pool(
                _take_step, self._opened.store, self._opened.topic, self._committer, step
            )
            self._note(step, told)

    def _note(self, step: Step, told: Told) -> None:
        """Counts an outcome, and says what an operator wants to know."""
        match told:
            case Committed():
                self._metrics.table_commit("committed")
                self.caught_up_at = self._monotonic()
                self.trouble = None
            case NotThere() | Run():
                self.trouble = None
            case Conflict():
                self.trouble = None
                if isinstance(step, Attempt):
                    self._metrics.table_commit("conflict")
            case OutcomeUnknown():
                self._metrics.table_commit("unknown")
                log.warning(
                    "topic %s: unknown whether version %d is ours", self._opened.topic, told.version
                )
            case StoreFailed():
                self._note_failure(told.error)

    def _note_failure(self, error: StoreUnavailableError) -> None:
        self.trouble = error
        log.warning("topic %s: %s; trying again", self._opened.topic, error)

    async def _in_pool(self, call: Callable[..., T], *arguments: object) -> T:
        await self._calls.acquire()
        try:
            future = asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)
        except BaseException:
            self._calls.release()
            raise
        # When the thread is free again: a caller that gives up does not free it.
        future.add_done_callback(self._call_done)
        return await asyncio.shield(future)

    def _call_done(self, future: asyncio.Future[Any]) -> None:
        self._calls.release()
        if not future.cancelled():
            future.exception()  # seen, though the caller may be gone

    async def _pause(self, seconds: float) -> None:
        """Sleeps, but for the end."""
        await asyncio.wait({self._ended}, timeout=seconds)
        self._check_not_ended()

    def _check_not_ended(self) -> None:
        if self._ended.done():
            raise self._ended.result().with_traceback(None)


def is_expired(state: TableState, file: DataFile) -> bool:
    """Whether vacuum may be deleting a file that no version knows yet: it waited for its commit for
    too long.

    Vacuum says in the log up to which time of writing it deletes, before it does. So a writer that
    tries a later version has it in its state, and one that tries an earlier version loses it: a
    writer that slept between its file and its commit cannot bring a file into the table that is
    gone.
    """
    limit_ms = state.register_value(registers.ORPHANED)
    return bool(limit_ms) and file.modified_ms <= limit_ms + _CLOCKS_APART_MS


def replace_files(
    state: TableState,
    removes: Iterable[DataFile],
    adds: Sequence[DataFile] = (),
    *,
    now_ms: int,
    data_change: bool,
) -> list[Action]:
    """The actions that swap active files for others, or just remove them.

    Args:
        now_ms: When the files were removed; their retention counts from then.
        data_change: False only where every record is kept as it was: streams over the table then
            pass over the commit.

    Raises:
        FileSuperseded: One of `removes` is not active in `state`.
    """
    actions: list[Action] = []
    for file in removes:
        if not state.is_active(file.path):
            raise FileSuperseded(file.path)
        actions.append(
            Remove(file.path, file.partition, file.size_bytes, now_ms, data_change=data_change)
        )
    actions += [replace(file, data_change=data_change) for file in adds]
    return actions

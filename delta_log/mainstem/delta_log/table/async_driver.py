"""Runs commit loops on an event loop, with the store's calls in a pool."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, Final, TypeVar

from mainstem.delta_log.metrics import AppenderMetrics
from mainstem.delta_log.table.blocking_driver import take_step
from mainstem.delta_log.table.commit_loop import (
    LEADER,
    Attempt,
    Build,
    Landed,
    Loop,
    RetryPolicy,
    Step,
    StoreFailed,
    Told,
    Wait,
    catch_up_loop,
    commit_loop,
)
from mainstem.delta_log.table.committer import (
    Committed,
    Committer,
    Conflict,
    NotThere,
    OutcomeUnknown,
    Run,
)
from mainstem.delta_log.table.followed import OpenTopic
from mainstem.delta_log.table.state import TableState
from mainstem.errors import MainstemError, StoreUnavailableError

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Data files of one topic that are written in the pool at a time, beside a commit: a store that
#: holds up one topic must not take the threads of all.
TOPIC_CALLS_MAX: Final = 4


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
        #: The calls of a commit do not wait for files of later ones.
        self._steps = asyncio.Semaphore(1)
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
            self._check_not_ended()
            try:
                return await self._in_pool(self._calls, call, *arguments)
            except StoreUnavailableError as error:
                self._note_failure(error)
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
                self._steps,
                take_step,
                self._opened.store,
                self._opened.topic,
                self._committer,
                step,
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
                topic = self._opened.topic
                log.warning(
                    "topic %s: unknown whether version %d is ours",
                    topic,
                    told.version,
                    extra={"topic": topic, "table_version": told.version},
                )
            case StoreFailed():
                self._note_failure(told.error)

    def _note_failure(self, error: StoreUnavailableError) -> None:
        self.trouble = error
        topic = self._opened.topic
        facts = {"topic": topic, "errno": error.facts.get("errno"), "path": error.facts.get("path")}
        log.warning("topic %s: %s; trying again", topic, error, extra=facts)

    async def _in_pool(
        self, places: asyncio.Semaphore, call: Callable[..., T], *arguments: object
    ) -> T:
        def done(future: asyncio.Future[Any]) -> None:
            places.release()
            if not future.cancelled():
                future.exception()  # seen, though the caller may be gone

        await places.acquire()
        try:
            future = asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)
        except BaseException:
            places.release()
            raise
        # When the thread is free again: a caller that gives up does not free it.
        future.add_done_callback(done)
        return await asyncio.shield(future)

    async def _pause(self, seconds: float) -> None:
        """Sleeps, but for the end."""
        await asyncio.wait({self._ended}, timeout=seconds)
        self._check_not_ended()

    def _check_not_ended(self) -> None:
        if self._ended.done():
            raise self._ended.result().with_traceback(None)

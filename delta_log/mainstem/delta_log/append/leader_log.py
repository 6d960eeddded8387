"""A led table's log, as its leader commits to it: for as long as it takes, beside other writers.

What was accepted is not given up while the store fails, and what others commit is taken into the
state, unless it ends the lead. Runs on one event loop; the store's calls run in `pool`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, TypeVar

from mainstem.delta_log.append.leadership import deleted
from mainstem.delta_log.append.merging import merge_winner
from mainstem.delta_log.metrics import AppenderMetrics
from mainstem.delta_log.store import NotFound, StoreGone
from mainstem.delta_log.table import (
    Committed,
    Committer,
    Conflict,
    OpenTopic,
    Outcome,
    TableCommit,
    TableState,
    read_commit,
)
from mainstem.errors import StoreUnavailableError

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Waits between attempts while the store fails: short at first, then as long as operators wait.
_BACKOFF_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

#: Calls of one topic that are in the pool at a time: a store that holds up one topic must not take
#: the threads of all.
TOPIC_CALLS_MAX: Final = 4


class LeaderLog:
    """Commits and looks, one at a time: the caller sees to that.

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
        self._committer = Committer(opened.store)
        self._calls = asyncio.Semaphore(TOPIC_CALLS_MAX)
        #: When `state` was last known to be the newest, by the monotonic clock.
        self.looked_at = -1e9

    @property
    def state(self) -> TableState:
        """The table as of the last commit that is known."""
        return self._opened.state

    async def commit(self, build: Callable[[], TableCommit | None]) -> int | None:
        """Commits at the next free version.

        Args:
            build: What to commit; called again after each conflict, when the winner's actions are
                in the state. None: there is nothing to commit any more.

        Returns:
            The version; None: `build` had nothing.

        Raises:
            MainstemError: The topic is lost, or what `build` raised.
        """
        while (commit := build()) is not None:
            version = await self.attempt(commit)
            if version is not None:
                return version
        return None

    async def attempt(self, commit: TableCommit) -> int | None:
        """Commits at the next version.

        Returns:
            The version; None: another writer has it, and its commit is part of our state now.

        Raises:
            MainstemError: The topic is lost.
        """
        return await self.attempt_prepared(lambda: commit)

    async def attempt_prepared(self, prepare: Callable[[], TableCommit]) -> int | None:
        """Commits at the next version what `prepare` makes, in the same call of the pool.

        Args:
            prepare: May write to the store. Called again when that failed, or when nobody could
                tell the outcome: what it has returned once, it returns again.

        Returns: As `attempt`.

        Raises: As `attempt`.
        """
        version = self.state.version + 1

        def call() -> tuple[TableCommit, Outcome]:
            commit = prepare()
            return commit, self._committer.commit(version, commit)

        unknown = 0
        while True:
            commit, outcome = await self.until_stored(call)
            if isinstance(outcome, Committed):
                self._metrics.table_commit("committed")
                self.state.apply(version, commit.actions)
                self.looked_at = self._monotonic()
                return version
            if isinstance(outcome, Conflict):
                self._metrics.table_commit("conflict")
                self._merge(outcome)
                return None
            self._metrics.table_commit("unknown")
            log.warning("topic %s: unknown whether version %d is ours", self._opened.topic, version)
            await asyncio.sleep(_backoff_s(unknown))
            unknown += 1

    async def look(self) -> bool:
        """Takes the next version into the state if another has committed it.

        A file that log clean-up has removed is not found either. Then the next append finds out,
        see `Committer`: one that looks every few minutes is not that late.

        Returns:
            False: there is none.

        Raises:
            StoreUnavailableError: The store failed.
            MainstemError: The topic is lost.
        """
        version, began_at = self.state.version + 1, self._monotonic()
        loop = asyncio.get_running_loop()
        try:
            async with self._calls:
                actions = await loop.run_in_executor(
                    self._pool, read_commit, self._opened.store, version
                )
        except NotFound:
            self.looked_at = began_at
            return False
        self._merge(Conflict(version, tuple(actions)))
        return True

    async def until_stored(self, call: Callable[..., T], *arguments: object) -> T:
        """Runs `call` in the pool until the store does it: what was accepted is not given up.

        Raises:
            UnknownTopicError: The topic was deleted.
        """
        attempt = 0
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with self._calls:
                    return await loop.run_in_executor(self._pool, call, *arguments)
            except StoreGone as error:
                raise deleted(self._opened.topic) from error
            except StoreUnavailableError as error:
                log.warning("topic %s: %s; trying again", self._opened.topic, error)
            await asyncio.sleep(_backoff_s(attempt))
            attempt += 1

    def _merge(self, winner: Conflict) -> None:
        merge_winner(self.state, self._opened.topic, self._epoch, winner)


def _backoff_s(attempt: int) -> float:
    return _BACKOFF_S[min(attempt, len(_BACKOFF_S) - 1)]

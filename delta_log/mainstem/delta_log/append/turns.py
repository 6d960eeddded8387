"""The turns of a gateway's topics to commit, on its event loop: see `pace` for whose turn it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from mainstem.delta_log.append.pace import CommitPace, wait_s_max
from mainstem.delta_log.store import time_elapsed_s

#: While topics wait, turns are given so often at most: a timer for each would cost more than it
#: brings. Seconds.
_TICK_S: Final = 0.01

#: A commit that takes longer than that waits for a store that hangs, and not for one that is busy:
#: it gives its place among those under way to another topic. Seconds.
SLOW_S: Final = 1.0

#: Chunks of large transactions that are in memory at a time, of all topics: each takes some 40 MiB
#: while it is encoded.
STAGED_CHUNKS_MAX: Final = 2


class Turn:
    """A topic's turn. End it, come or not.

    Attributes:
        has_come: It has.
        began_at: When it came.

    Args:
        commit_interval_ms: The topic's own.
        on_come: Called on the loop when it comes.
        pace: Where it waits.
    """

    def __init__(
        self,
        turns: CommitTurns,
        pace: CommitPace[Turn] | None,
        commit_interval_ms: int,
        on_come: Callable[[], None],
    ) -> None:
        self._turns = turns
        self.pace = pace
        self.commit_interval_ms = commit_interval_ms
        self.on_come = on_come
        self.has_come = pace is None
        self.began_at = 0.0

    def hurry(self) -> None:
        """Somebody waits for the commit from now on."""
        self._turns.hurry(self)

    def begin(self) -> None:
        """The topic commits now, though its turn may not have come."""
        if not self.has_come:
            self.has_come = True
            self._turns.started(self)

    def end(self) -> None:
        """The topic's commit is over, or it wants none any more."""
        self._turns.ended(self)


class CommitTurns:
    """Gives all topics of a gateway their turns. On one event loop.

    Args:
        rate: `commit.rate`; 0: every turn comes at once.
        running_max: `commit.concurrency`.
        interval_max_ms: `commit.interval.max.ms`.
        unawaited_rate: `commit.unawaited.rate`; 0: commits that nobody waits for are like others.
        unawaited_interval_max_ms: `commit.unawaited.interval.max.ms`.
    """

    def __init__(
        self,
        rate: int,
        running_max: int,
        interval_max_ms: int,
        *,
        unawaited_rate: int = 0,
        unawaited_interval_max_ms: int = 0,
        monotonic: Callable[[], float] = time_elapsed_s,
    ) -> None:
        #: To be held by whoever has a chunk of a large transaction in memory.
        self.staged_chunks = asyncio.Semaphore(STAGED_CHUNKS_MAX)
        self._monotonic = monotonic
        now = monotonic()
        self._interval_max_ms = interval_max_ms
        self._unawaited_interval_max_ms = unawaited_interval_max_ms
        self._pace = CommitPace[Turn](rate, running_max, now) if rate else None
        self._unawaited = (
            CommitPace[Turn](unawaited_rate, running_max, now) if unawaited_rate else None
        )
        self._paces = [pace for pace in (self._pace, self._unawaited) if pace is not None]
        #: Those whose commits are under way, the oldest first, but for those that take too long.
        self._running: dict[Turn, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    @property
    def waiting_count(self) -> int:
        """How many topics wait for their turn."""
        return sum(map(len, self._paces))

    def ask(
        self, commit_interval_ms: int, on_come: Callable[[], None], *, is_awaited: bool = True
    ) -> Turn:
        """The turn of a topic that wants to commit: it may have come already, and comes after
        `commit.interval.max.ms`, or `commit.unawaited.interval.max.ms`, at the latest.

        Args:
            commit_interval_ms: The topic's own.
            is_awaited: Whether somebody waits for an answer; `Turn.hurry` says so later.
        """
        pace = self._pace if is_awaited or self._unawaited is None else self._unawaited
        turn = Turn(self, pace, commit_interval_ms, on_come)
        self._queue(turn)
        return turn

    def hurry(self, turn: Turn) -> None:
        """See `Turn.hurry`."""
        if turn.has_come or turn.pace is not self._unawaited or self._unawaited is None:
            return
        self._unawaited.leave(turn)
        turn.pace = self._pace
        if self._pace is None:
            turn.has_come = True
            turn.on_come()
        else:
            self._queue(turn)

    def hurry_all(self) -> None:
        """What waits takes too much memory: nobody has longer than if an answer were awaited."""
        if self._unawaited is not None:
            for turn in self._unawaited.waiting():
                self.hurry(turn)

    def started(self, turn: Turn) -> None:
        """See `Turn.begin`."""
        if turn.pace is not None:
            turn.pace.leave(turn)
            now = self._monotonic()
            turn.pace.start(now)
            self._note_running(turn, now)

    def ended(self, turn: Turn) -> None:
        """See `Turn.end`."""
        if turn.pace is None:
            return
        if not turn.has_come:
            turn.pace.leave(turn)
        elif turn in self._running:  # else it has given its place up
            del self._running[turn]
            turn.pace.ended()
        self._give_soon(self._monotonic())

    def _queue(self, turn: Turn) -> None:
        if turn.pace is None:
            return
        now = self._monotonic()
        is_awaited = turn.pace is self._pace
        interval_max_ms = self._interval_max_ms if is_awaited else self._unawaited_interval_max_ms
        wait_s = wait_s_max(turn.commit_interval_ms, interval_max_ms, is_awaited=is_awaited)
        turn.pace.ask(turn, wait_s, now)
        self._give_soon(now)

    def _give_soon(self, now: float) -> None:
        """Gives turns now, unless the next one comes no earlier than they are given anyway."""
        if self._timer is None or max(self._next_at(), now + _TICK_S) < self._timer_at:
            self._give()

    def _give(self) -> None:
        """Gives the turns that have come, and comes back for the others."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._monotonic()
        self._lend_places(now)
        for pace in self._paces:
            for turn in pace.take(now):
                turn.has_come = True
                self._note_running(turn, now)
                turn.on_come()
        if self.waiting_count:
            next_at = self._next_at()
            for oldest in self._running:
                next_at = min(next_at, oldest.began_at + SLOW_S)
                break
            self._timer_at = max(next_at, now + _TICK_S)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._timer_at - now, self._give)

    def _next_at(self) -> float:
        return min(pace.next_at() for pace in self._paces)

    def _note_running(self, turn: Turn, now: float) -> None:
        turn.began_at = now
        self._running[turn] = None

    def _lend_places(self, now: float) -> None:
        """Commits that take too long count no more among those that are under way."""
        for turn in list(self._running):
            if now - turn.began_at < SLOW_S:
                break
            assert turn.pace is not None
            del self._running[turn]
            turn.pace.ended()

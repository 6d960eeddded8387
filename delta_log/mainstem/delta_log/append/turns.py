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


class Turn:
    """A topic's turn. End it, come or not.

    Args:
        on_come: Called on the loop when it comes.
    """

    def __init__(self, on_come: Callable[[], None], turns: CommitTurns) -> None:
        self.on_come = on_come
        self._turns = turns
        self.has_come = False
        self.began_at = 0.0

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
    """

    def __init__(
        self,
        rate: int,
        running_max: int,
        interval_max_ms: int,
        monotonic: Callable[[], float] = time_elapsed_s,
    ) -> None:
        self._monotonic = monotonic
        self._interval_max_ms = interval_max_ms
        self._pace = CommitPace[Turn](rate, running_max, monotonic()) if rate else None
        #: Those whose commits are under way, the oldest first, but for those that take too long.
        self._running: dict[Turn, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    @property
    def waiting_count(self) -> int:
        """How many topics wait for their turn."""
        return 0 if self._pace is None else len(self._pace)

    def ask(self, commit_interval_ms: int, on_come: Callable[[], None]) -> Turn:
        """The turn of a topic that wants to commit: it may have come already, and comes after
        `commit.interval.max.ms` at the latest.

        Args:
            commit_interval_ms: The topic's own.
        """
        turn = Turn(on_come, self)
        if self._pace is None:
            turn.has_come = True
            return turn
        now = self._monotonic()
        self._pace.ask(turn, wait_s_max(commit_interval_ms, self._interval_max_ms), now)
        if self._timer is None or max(self._pace.next_at(), now + _TICK_S) < self._timer_at:
            self._give()
        return turn

    def started(self, turn: Turn) -> None:
        """See `Turn.begin`."""
        if self._pace is not None:
            self._pace.leave(turn)
            now = self._monotonic()
            self._pace.start(now)
            self._note_running(turn, now)

    def ended(self, turn: Turn) -> None:
        """See `Turn.end`."""
        if self._pace is None:
            return
        if not turn.has_come:
            self._pace.leave(turn)
        elif turn in self._running:  # else it has given its place up
            del self._running[turn]
            self._pace.ended()
        now = self._monotonic()
        if max(self._pace.next_at(), now + _TICK_S) < self._timer_at:
            self._give()

    def _give(self) -> None:
        """Gives the turns that have come, and comes back for the others."""
        assert self._pace is not None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._monotonic()
        self._lend_places(now)
        for turn in self._pace.take(now):
            turn.has_come = True
            self._note_running(turn, now)
            turn.on_come()
        if len(self._pace):
            next_at = self._pace.next_at()
            for oldest in self._running:
                next_at = min(next_at, oldest.began_at + SLOW_S)
                break
            self._timer_at = max(next_at, now + _TICK_S)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._timer_at - now, self._give)

    def _note_running(self, turn: Turn, now: float) -> None:
        turn.began_at = now
        self._running[turn] = None

    def _lend_places(self, now: float) -> None:
        """Commits that take too long count no more among those that are under way."""
        assert self._pace is not None
        for turn in list(self._running):
            if now - turn.began_at < SLOW_S:
                break
            del self._running[turn]
            self._pace.ended()

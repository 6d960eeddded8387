"""When the topics of a gateway may commit, so that all of them together cost a bounded part of it.

A table commit costs about the same whether it has one record or thousands. So small commits have a
budget: so many a second of all topics together, and what was not used of it for a moment may be
used at once. And only so many are under way at a time: commits that take long, since the store or
the processor is busy, make the next ones wait. While neither is short, every topic commits when it
wants to. Else they stand in line, and what arrives meanwhile goes with them: a thousand topics that
trickle commit less often instead of keeping the gateway from everything else.

Nobody waits for longer than the topic allows. Then it goes whatever the budget is, and the others
go without that part of it.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Generic, TypeVar

from mainstem.limits import KIB

Topic = TypeVar("Topic", bound=Hashable)

#: A commit of so many bytes does not wait: what it costs is its records, and a topic that sends
#: much is not to be slowed by those beside it.
LARGE_COMMIT_BYTES: Final = 256 * KIB

#: How much of the budget may be saved up, and overdrawn by commits that do not wait for it: what
#: comes in so many seconds.
_BURST_S: Final = 0.25

#: A topic may wait for so many times its own `commit.interval.ms`: one that asks for early commits
#: is in front of the others, and with 0 it never waits.
_INTERVALS_MAX: Final = 25

#: And for so many where nobody waits for its commit.
_UNAWAITED_INTERVALS_MAX: Final = 1_200

#: Sums of fractions miss a whole number by less.
_TINY: Final = 1e-6


def wait_s_max(commit_interval_ms: int, interval_max_ms: int, *, is_awaited: bool = True) -> float:
    """For how long a topic may stand in line.

    Args:
        commit_interval_ms: The topic's `commit.interval.ms`.
        interval_max_ms: The gateway's `commit.interval.max.ms`, or
            `commit.unawaited.interval.max.ms`.
        is_awaited: Whether somebody waits for an answer.
    """
    intervals = _INTERVALS_MAX if is_awaited else _UNAWAITED_INTERVALS_MAX
    return min(interval_max_ms, intervals * commit_interval_ms) / 1000


@dataclass(order=True, slots=True)
class _Place(Generic[Topic]):
    """A place in the line: whose patience ends first is first, and who came first of several."""

    latest: float
    number: int
    topic: Topic = field(compare=False)


class CommitPace(Generic[Topic]):
    """Whose turn it is to commit. Times are seconds of one clock that never goes back.

    Args:
        rate: Commits a second, of all topics.
        running_max: Commits that are under way at a time.
        now: The budget is full.
    """

    def __init__(self, rate: float, running_max: int, now: float) -> None:
        assert rate > 0
        assert running_max > 0
        self._rate = rate
        self._running_max = running_max
        self._running_count = 0
        self._burst = max(1.0, rate * _BURST_S)
        self._budget = self._burst
        self._budget_at = now
        self._line: list[_Place[Topic]] = []
        #: The places that count; others of the line are passed over.
        self._places: dict[Topic, _Place[Topic]] = {}
        self._numbers = count()

    def __len__(self) -> int:
        """How many topics wait."""
        return len(self._places)

    def ask(self, topic: Topic, wait_s_max: float, now: float) -> None:
        """A topic that does not wait yet wants to commit, `wait_s_max` from now at the latest."""
        assert topic not in self._places
        place = _Place(now + wait_s_max, next(self._numbers), topic)
        self._places[topic] = place
        heapq.heappush(self._line, place)

    def waiting(self) -> list[Topic]:
        """The topics that wait, the first to come first."""
        return list(self._places)

    def leave(self, topic: Topic) -> None:
        """A topic does not wait any more, if it did."""
        self._places.pop(topic, None)
        if len(self._line) > 2 * len(self._places) + 16:
            self._line = list(self._places.values())
            heapq.heapify(self._line)

    def start(self, now: float) -> None:
        """A commit starts without a turn. It uses the budget nevertheless."""
        self._refill(now)
        self._begin()

    def ended(self) -> None:
        """A commit that was started, or whose turn had come, is over."""
        assert self._running_count > 0
        self._running_count -= 1

    def take(self, now: float) -> list[Topic]:
        """The topics whose turn has come, the most urgent first. They wait no more, and their
        commits are under way."""
        self._refill(now)
        taken: list[Topic] = []
        while (first := self._first()) is not None:
            if first.latest > now and (self._is_full or self._budget < 1 - _TINY):
                break
            self._begin()
            heapq.heappop(self._line)
            del self._places[first.topic]
            taken.append(first.topic)
        return taken

    def next_at(self) -> float:
        """When `take` has somebody, should no commit end before; infinite while nobody waits."""
        first = self._first()
        if first is None:
            return float("inf")
        if self._is_full:
            return first.latest
        return min(first.latest, self._budget_at + (1 - self._budget) / self._rate)

    @property
    def _is_full(self) -> bool:
        return self._running_count >= self._running_max

    def _begin(self) -> None:
        self._running_count += 1
        self._budget = max(self._budget - 1, -self._burst)

    def _first(self) -> _Place[Topic] | None:
        while self._line:
            first = self._line[0]
            if self._places.get(first.topic) is first:
                return first
            heapq.heappop(self._line)
        return None

    def _refill(self, now: float) -> None:
        self._budget = min(self._burst, self._budget + (now - self._budget_at) * self._rate)
        self._budget_at = now

"""When the next small request of a topic goes out, while others of it are in flight. Pure."""

from __future__ import annotations

from typing import Final

#: Between two small requests at most, however long answers take.
_SPREAD_S_MAX: Final = 0.05

#: What the answers of one commit count for in the time that an answer is thought to take.
_ANSWER_WEIGHT: Final = 0.2


class Lane:
    """The requests of one topic to its leader.

    Attributes:
        next_at: Monotonic seconds before which a small request waits while others are in flight.
    """

    __slots__ = ("_answer_s", "_version", "next_at")

    def __init__(self) -> None:
        self.next_at = 0.0
        self._answer_s = 0.0
        self._version = -1

    def sent(self, now: float, in_flight_max: int) -> None:
        """Notes a request, and when the next small one goes: those that may be in flight are spread
        over the time that an answer takes.

        An answer waits for a table commit, which takes all that came by then. If as many as may be
        in flight went out as fast as records come, those after them would miss the commit and wait
        for two.
        """
        self.next_at = now + min(self._answer_s / in_flight_max, _SPREAD_S_MAX)

    def answered(self, seconds: float, table_version: int) -> None:
        """Notes how long an answer took. Of those that a commit gives the first counts, which took
        longest: requests that go out shortly before a commit have short ones.

        Args:
            table_version: The commit; negative: the answer waited for none.
        """
        if table_version < 0 or table_version != self._version:
            self._answer_s += _ANSWER_WEIGHT * (seconds - self._answer_s)
        self._version = table_version

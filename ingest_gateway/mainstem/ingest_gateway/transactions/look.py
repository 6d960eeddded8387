"""Up to which versions of their tables all transactions are whole. Pure.

A transaction of several topics gets into each of them by a commit of its own, so whoever reads the
newest versions may see half of one. When none is on its way, every table's version of that moment
is one of a set that has whole transactions only. That set is published, as a row of
`system/transactions`; a reader takes the published version of each topic that the row has, and the
newest version of any other.

**Why that is right.** A topic that the row does not have is put into it, as being unknown, by the
very commit that decides a transaction which touches it. A reader who looks at the versions of its
topics first and at the row then finds there every topic that has more than whole transactions in
the versions that it saw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from mainstem.delta_log.system import PINNED_S, UNKNOWN_VERSION

#: While transactions overlap without end, no moment is without one: then the next are held back for
#: a moment, so often.
BARRIER_AFTER_S: Final = 0.5

#: A publication for each transaction would be as many rows.
PUBLISH_EVERY_S: Final = 0.1


class Look:
    """What is published, and what is on its way.

    Args:
        pins: By topic, as published last.
        now_s: The time.

    Attributes:
        in_flight: Transactions that are decided and not in every table.
    """

    def __init__(self, pins: Mapping[str, int], now_s: float) -> None:
        self.in_flight = 0
        self._pins = dict(pins)
        self._newest: dict[str, int] = {}
        self._touched_s = dict.fromkeys(pins, now_s)
        self._published_s = -float("inf")
        self._changed = False

    @property
    def pins(self) -> dict[str, int]:
        """By topic, the version to read."""
        return dict(self._pins)

    def decided(self, topics: Iterable[str], now_s: float) -> bool:
        """A transaction of these topics is about to be decided; returns whether the row has to be
        written with its decision."""
        self.in_flight += 1
        self._changed = True
        is_new = False
        for topic in topics:
            self._touched_s[topic] = now_s
            if topic not in self._pins:
                self._pins[topic] = UNKNOWN_VERSION
                is_new = True
        return is_new

    def landed(self, topic: str, version: int) -> None:
        """A version of the topic's table has what was to get there; -1: the topic is gone."""
        self._newest[topic] = max(version, self._newest.get(topic, UNKNOWN_VERSION))

    def ended(self) -> None:
        """A transaction is in every table, or was not decided after all."""
        self.in_flight -= 1

    def is_due(self, now_s: float) -> bool:
        """Whether to publish now."""
        return (
            self.in_flight == 0
            and now_s - self._published_s >= PUBLISH_EVERY_S
            and (self._changed or self._may_release(now_s))
        )

    def _may_release(self, now_s: float) -> bool:
        return any(now_s - at >= PINNED_S for at in self._touched_s.values())

    def wants_barrier(self, now_s: float) -> bool:
        """Whether there was no moment to publish for too long."""
        return self._changed and self.in_flight > 0 and now_s - self._published_s >= BARRIER_AFTER_S

    def publish(self, version_here: Callable[[str], int], now_s: float) -> dict[str, int]:
        """The row, at a moment when nothing is on its way.

        Args:
            version_here: The newest version of a topic that is led here; -1 of any other.
        """
        assert self.in_flight == 0, "transactions are on their way"
        for topic in list(self._pins):
            version = max(self._newest.get(topic, UNKNOWN_VERSION), version_here(topic))
            if now_s - self._touched_s[topic] >= PINNED_S or version == UNKNOWN_VERSION:
                del self._pins[topic], self._touched_s[topic]
                self._newest.pop(topic, None)
            else:
                self._pins[topic] = max(version, self._pins[topic])
        self._published_s = now_s
        self._changed = False
        return self.pins

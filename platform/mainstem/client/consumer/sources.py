"""From which gateway each topic is read: one of the consumer's own rack, or the leader. Pure.

Any gateway can serve a topic's records, as all of them have the same table. One that does not lead
the topic may know less of it than the leader, or be cut off: then the leader is asked, and the
other one again after a while. (Kafka: KIP-392, which has the leader choose; here the client does.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from mainstem.client.backoff import backoff_s
from mainstem.client.results import GatewayPlace

#: How long the leader is asked instead of a gateway that failed: longer each time in a row.
PAUSE_S: Final = 5.0
PAUSE_S_MAX: Final = 300.0


@dataclass(slots=True)
class _Doubt:
    """A gateway that failed as the source of one topic.

    Attributes:
        over_at: When it may be asked again, at the earliest.
        over: It is asked again.
        failures: How often it has failed in a row before.
    """

    address: str
    over_at: float
    pause_s: float
    failures: int
    over: bool = False


class Sources:
    """Of one consumer; times in monotonic seconds. The caller sees to it that one thread is in here
    at a time.

    Args:
        rack: client.rack; empty: everything is read from its leader.
    """

    def __init__(self, rack: str) -> None:
        self._rack = rack
        self._here: frozenset[str] = frozenset()
        self._candidates: tuple[str, ...] = ()
        #: By topic, which of the candidates it is.
        self._nearest: dict[str, str] = {}
        self._doubts: dict[str, _Doubt] = {}

    def learned(self, places: Sequence[GatewayPlace], now: float) -> None:
        """A gateway told which ones are alive, and where. Those whose pause is over are asked
        again: only then, as one that is dead is not named any more."""
        if not self._rack:
            return
        here = [place for place in places if place.rack == self._rack]
        candidates = tuple(sorted({one.address for one in here if not one.draining}))
        if candidates != self._candidates:
            self._candidates = candidates
            self._nearest = {}
        self._here = frozenset(one.address for one in here)
        for doubt in self._doubts.values():
            doubt.over = doubt.over or doubt.over_at <= now

    def of(self, topic: str, leader: str) -> str:
        """host:port of the gateway that the topic is read from now.

        The leader, if it is in the rack: nobody knows more. Else the topic's own one of those that
        are in the rack, by rendezvous hashing, so that its readers there share what that one has in
        memory, and topics spread over all.
        """
        if not self._candidates or leader in self._here:
            return leader
        nearest = self._nearest.get(topic)
        if nearest is None:
            nearest = max(self._candidates, key=lambda address: _weight(topic, address))
            self._nearest[topic] = nearest
        doubt = self._doubts.get(topic)
        if doubt is not None and doubt.address == nearest and not doubt.over:
            return leader
        return nearest

    def failed(self, topic: str, leader: str, address: str, now: float) -> float:
        """A gateway cannot serve the topic, or not as it should: the leader is asked instead.

        Returns:
            For how many seconds; 0: it was not the one to be asked, or is the leader.
        """
        if address == leader or self.of(topic, leader) != address:
            return 0.0
        before = self._doubts.get(topic)
        same = before is not None and before.address == address
        failures = before.failures + 1 if before is not None and same else 0
        pause_s = backoff_s(PAUSE_S, PAUSE_S_MAX, failures)
        self._doubts[topic] = _Doubt(address, now + pause_s, pause_s, failures)
        return pause_s

    def served(self, topic: str, address: str, now: float) -> None:
        """A gateway answered as it should. When it has done so for as long as it was not asked,
        what was before is forgotten."""
        doubt = self._doubts.get(topic)
        if (
            doubt is not None
            and doubt.over
            and doubt.address == address
            and now - doubt.over_at >= doubt.pause_s
        ):
            del self._doubts[topic]

    def due(self, topics: Iterable[str], now: float) -> set[str]:
        """The topics, of these, of which somebody may be asked again, if it is still there:
        `learned` has to tell. Forgets what there is of others."""
        if not self._doubts:
            return set()
        kept = set(topics)
        self._doubts = {topic: doubt for topic, doubt in self._doubts.items() if topic in kept}
        return {
            topic
            for topic, doubt in self._doubts.items()
            if not doubt.over and doubt.over_at <= now
        }


def _weight(topic: str, address: str) -> bytes:
    return blake2b(f"{address}\n{topic}".encode(), digest_size=8).digest()

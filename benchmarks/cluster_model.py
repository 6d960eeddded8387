"""How long do topics have no leader when gateways are lost in bulk, and what does it cost to watch?

A simulation with the gateway's own membership and placement on a clock and a store that are made
up: the store takes as long as S3 Standard is published to (put 100 ms at the median and 195 ms at
p99, get and list 60 ms), in a slow region five times that. All gateways run, each topic is led by
the gateway that it belongs to, and its producer sends all the time. Then a share of the gateways is
gone at one moment. A producer asks any gateway that it knows, goes where that one sends it, and
waits as the client does when nobody takes its topic. A gateway takes a topic with two reads and a
put, 256 at a time.

Prints, as JSON, the seconds until half of the topics, 99 % and all have a leader again, and what
heartbeats and looks cost: calls a second and dollars an hour, of S3 Standard's prices.

Usage: python benchmarks/cluster_model.py [--gateways 1000] [--topics 100000] [--lost 0.1]
       [--slow 0.0] [--interval-ms 2000] [--session-ms 6000] [--seed 1]
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from typing import Final

from mainstem.client.backoff import backoff_s
from mainstem.delta_log.system import BeatName, gateway_key
from mainstem.ingest_gateway.cluster import LOOKS_PER_INTERVAL, REREADS_MAX, Membership, Placement

#: Published times of S3 Standard, in seconds: median, and what 99 of 100 stay below.
PUT_S: Final = (0.100, 0.195)
GET_S: Final = 0.060
SLOW_FACTOR: Final = 5.0

#: Dollars an hour for one call a second, all the time.
PUT_DOLLARS: Final = 12.96 / 730
GET_DOLLARS: Final = 1.04 / 730

#: append.threads in an object storage service.
CLAIMS_MAX: Final = 256

#: retry.backoff.ms and retry.backoff.max.ms of a producer.
BACKOFF_S: Final = (0.1, 1.0)


@dataclass(frozen=True)
class Report:
    """What a run showed; the fields' names have the units."""

    gateways: int
    topics: int
    gateways_lost: int
    topics_lost: int
    leaders_half_s: float
    leaders_p99_s: float
    leaders_all_s: float
    puts_per_s: float
    lists_per_s: float
    gets_per_s: float
    dollars_per_hour: float
    dollars_per_gateway_month: float


@dataclass
class _Gateway:
    name: BeatName
    membership: Membership
    factor: float
    phase_s: float
    claims: int = 0
    alive: bool = True


class Model:
    """One run.

    Args:
        lost: Share of the gateways that are gone at once.
        slow: Share of the gateways whose store takes `SLOW_FACTOR` times as long.
    """

    def __init__(
        self,
        gateways: int,
        topics: int,
        lost: float,
        slow: float,
        interval_s: float,
        session_s: float,
        seed: int,
    ) -> None:
        self._dice = random.Random(seed)
        self._interval_s = interval_s
        self._session_s = session_s
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self.now_s = 0.0
        self._objects: dict[BeatName, tuple[int, int]] = {}
        self._gateways: dict[int, _Gateway] = {}
        for number in range(gateways):
            key = gateway_key(f"gateway-{number}")
            membership = Membership(number + 1, interval_s, session_s, 0.0)
            factor = SLOW_FACTOR if number < slow * gateways else 1.0
            phase_s = self._dice.random() * interval_s
            name = BeatName(key, number + 1)
            self._gateways[key] = _Gateway(name, membership, factor, phase_s)
        self._topics = topics
        self._lost = self._dice.sample(sorted(self._gateways), round(lost * gateways))
        self._led_at: list[float] = []
        self._placements: dict[frozenset[int], Placement] = {}
        self._waiting = 0

    def run(self) -> Report:
        """All of it: two intervals of calm, the loss, and until each topic has a leader."""
        for gateway in self._gateways.values():
            self._at(gateway.phase_s, partial(self._beat, gateway))
            self._at(gateway.phase_s, partial(self._look, gateway))
        placement = self._placement(frozenset(self._gateways))
        lost = set(self._lost)
        orphaned = [
            (f"topic-{number}", leader)
            for number in range(self._topics)
            if (leader := placement.target(f"topic-{number}")) in lost
        ]
        self._waiting = len(orphaned)
        lost_at_s = 2.5 * self._interval_s + 1.0
        self._at(lost_at_s, lambda: self._lose(orphaned))
        while self._events and (self._waiting or self.now_s <= lost_at_s):
            self.now_s, _, event = heapq.heappop(self._events)
            event()
        took = sorted(at - lost_at_s for at in self._led_at) or [0.0]
        alive = len(self._gateways) - len(lost)
        puts = alive / self._interval_s
        lists = LOOKS_PER_INTERVAL * puts
        # The figures of the others, a few in each look.
        gets = lists * min(REREADS_MAX, (alive - 1) / LOOKS_PER_INTERVAL)
        dollars = (puts + lists) * PUT_DOLLARS + gets * GET_DOLLARS
        return Report(
            len(self._gateways),
            self._topics,
            len(lost),
            len(orphaned),
            round(took[len(took) // 2], 2),
            round(took[int(len(took) * 0.99)], 2),
            round(took[-1], 2),
            round(puts, 1),
            round(lists, 1),
            round(gets, 1),
            round(dollars, 2),
            round(dollars * 730 / max(alive, 1), 2),
        )

    def _at(self, at_s: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._numbers), event))

    def _after(self, wait_s: float, event: Callable[[], None]) -> None:
        self._at(self.now_s + wait_s, event)

    def _put_s(self, gateway: _Gateway) -> float:
        slow = self._dice.random() ** 4  # few are slow
        return gateway.factor * (PUT_S[0] * 0.8 + (PUT_S[1] - PUT_S[0] * 0.8) * slow)

    def _beat(self, gateway: _Gateway) -> None:
        if not gateway.alive:
            return
        put_s = self._put_s(gateway)

        def landed() -> None:
            if gateway.alive:
                self._objects[gateway.name] = (round(self.now_s * 1000), 1)

        self._after(put_s, landed)
        self._after(self._interval_s + put_s, lambda: self._beat(gateway))

    def _look(self, gateway: _Gateway) -> None:
        if not gateway.alive:
            return
        list_s = GET_S * gateway.factor
        began_s = self.now_s

        def listed() -> None:
            gateway.membership.look(self._objects, began_s)
            self._after(self._interval_s / LOOKS_PER_INTERVAL, lambda: self._look(gateway))

        self._after(list_s, listed)

    def _lose(self, orphaned: list[tuple[str, int]]) -> None:
        for key in self._lost:
            self._gateways[key].alive = False
        for topic, leader in orphaned:
            incarnation = self._gateways[leader].name.incarnation
            self._after(
                self._dice.random() * BACKOFF_S[0],
                partial(self._send, topic, incarnation, 0),
            )

    def _send(self, topic: str, leader: int, failures: int) -> None:
        """A producer asks some gateway that it reaches, and sends to whom that one names."""
        asked = self._any_alive()
        target = asked
        if not asked.membership.is_alive(leader, self.now_s):
            named = self._target(asked, topic)
            target = self._gateways[named]
            if (
                target.alive
                and target.claims < CLAIMS_MAX
                and not target.membership.is_alive(leader, self.now_s)
            ):
                target.claims += 1
                claim_s = 2 * GET_S * target.factor + self._put_s(target)
                self._after(claim_s, lambda: self._led(target))
                return
        wait_s = backoff_s(*BACKOFF_S, failures, self._dice.random())
        self._after(wait_s, lambda: self._send(topic, leader, failures + 1))

    def _led(self, target: _Gateway) -> None:
        target.claims -= 1
        self._waiting -= 1
        self._led_at.append(self.now_s)

    def _target(self, asked: _Gateway, topic: str) -> int:
        keys = {name.key for name in asked.membership.others(self.now_s)}
        named = self._placement(frozenset((asked.name.key, *keys))).target(topic)
        assert named is not None
        return named

    def _placement(self, keys: frozenset[int]) -> Placement:
        found = self._placements.get(keys)
        if found is None:
            if len(self._placements) > 100:
                self._placements.clear()
            found = self._placements[keys] = Placement(keys)
        return found

    def _any_alive(self) -> _Gateway:
        everybody = list(self._gateways.values())
        while True:
            found = self._dice.choice(everybody)
            if found.alive:
                return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateways", type=int, default=1000)
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--lost", type=float, default=0.1)
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--interval-ms", type=int, default=2_000)
    parser.add_argument("--session-ms", type=int, default=6_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    model = Model(
        options.gateways,
        options.topics,
        options.lost,
        options.slow,
        options.interval_ms / 1000,
        options.session_ms / 1000,
        options.seed,
    )
    print(json.dumps(asdict(model.run())))


if __name__ == "__main__":
    main()

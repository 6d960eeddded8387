"""Moves what this gateway leads to the gateways that it belongs to: gently when gateways come and
go, at once when an operator asks, all of it when the gateway drains."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

import structlog

from mainstem.config import GatewayConfig
from mainstem.delta_log.system import GatewayBeat
from mainstem.errors import MainstemError
from mainstem.ingest_gateway.cluster import COORDINATION, Cluster, moves
from mainstem.ingest_gateway.groups import GroupCoordination
from mainstem.ingest_gateway.topics import CLOSE_TIMEOUT_S, GatewayTopics

log = structlog.get_logger()

#: Topics that are handed over at the same time.
_AT_ONCE: Final = 8

#: Moves of one request; a caller asks again until there are none left.
REQUEST_MOVES_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Move:
    """One topic, or the coordination of groups, and where it goes.

    Attributes:
        done: Whether it is there.
    """

    topic: str
    target: GatewayBeat
    done: bool = False


class Balancing:
    """On the event loop; `run` without end."""

    def __init__(
        self,
        topics: GatewayTopics,
        groups: GroupCoordination,
        cluster: Cluster,
        config: GatewayConfig,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._cluster = cluster
        self._enabled = config.flag("placement.enabled")
        self._delay_s = config.number("placement.delay.ms") / 1000
        self._moves_max = config.number("placement.moves.max")
        self._interval_s = config.number("gateway.heartbeat.interval.ms") / 1000

    async def run(self) -> None:
        """A few moves in each heartbeat interval, while no gateway has come or gone lately."""
        while True:
            await asyncio.sleep(self._interval_s)
            cluster = self._cluster
            if self._enabled and not cluster.draining and cluster.settled_s >= self._delay_s:
                await self.move(self._moves_max)

    def plan(self, moves_max: int) -> list[Move]:
        """What should move now, no more than `moves_max`: nothing where all is where it belongs."""
        places = self._cluster.places()
        found = moves(self._led(), self._cluster.key, places.placement.target, moves_max)
        if self._groups.is_busy and not self._cluster.draining:
            # Open transactions end with their coordinator: it moves when there are none.
            found = [one for one in found if one[0] != COORDINATION]
        return [Move(topic, places.others[key]) for topic, key in found]

    async def move(self, moves_max: int) -> list[Move]:
        """Does what `plan` says. A move that fails is logged; what is led by nobody then is led by
        whichever gateway is asked."""
        return await self._move(self.plan(moves_max), CLOSE_TIMEOUT_S)

    async def hand_all_over(self, timeout_s: float) -> None:
        """Leaves all that is led here to the others, as this gateway is about to end: it drains, by
        `Cluster.begin_draining`. Where there are no others it stays until the end."""
        ends_at = time.monotonic() + timeout_s
        planned = self.plan(len(self._led()))
        found = await self._move(planned, max(ends_at - time.monotonic(), 0.0))
        if found:
            log.info(
                "topics handed over", count=sum(one.done for one in found), of_count=len(found)
            )

    def _led(self) -> set[str]:
        led = {appender.topic for appender in self._topics.leaders()}
        if self._groups.now() is not None:
            led.add(COORDINATION)
        return led

    async def _move(self, planned: list[Move], timeout_s: float) -> list[Move]:
        room = asyncio.Semaphore(_AT_ONCE)

        async def one(move: Move) -> Move:
            async with room:
                done = False
                try:
                    if move.topic == COORDINATION:
                        done = await self._groups.hand_over(move.target, timeout_s)
                    else:
                        done = await self._topics.hand_over(move.topic, move.target, timeout_s)
                except MainstemError as error:
                    log.warning("not handed over", topic=move.topic, error=error.message)
            return Move(move.topic, move.target, done)

        return list(await asyncio.gather(*(one(move) for move in planned)))

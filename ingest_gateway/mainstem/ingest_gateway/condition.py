"""Whether a gateway is alive and ready, and if not, why: the one place that decides it.

**Alive**: its event loop turns. **Ready**: it has started, does not drain, its heartbeats reach the
store, and what is appended can be written. Both are asked in threads other than the loop's, and
asking whether there is space may hang with the store: who asks has a deadline.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

from mainstem.delta_log import Appender
from mainstem.delta_log.store import StoreFull, Warehouse
from mainstem.errors import MainstemError
from mainstem.ingest_gateway.cluster import Cluster

#: Less than this is a full disk: one commit with its data files does not fit.
FREE_BYTES_MIN: Final = 1024 * 1024

_PULSE_S: Final = 1.0
#: A loop that has not turned for so long does not come back.
STUCK_S: Final = 60.0


class GatewayCondition:
    """The condition of one gateway."""

    def __init__(
        self,
        store: Warehouse,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._monotonic = monotonic
        self._pulse_at = monotonic()
        self._cluster: Cluster | None = None
        self._leaders: Callable[[], Iterable[Appender]] = tuple
        self._state = "the gateway starts"

    def ready(self, cluster: Cluster, leaders: Callable[[], Iterable[Appender]]) -> None:
        """The gateway has started.

        Args:
            leaders: The appenders of the topics that are led.
        """
        self._cluster = cluster
        self._leaders = leaders
        self._state = ""

    def draining(self) -> None:
        """The gateway ends."""
        self._state = "the gateway drains: use another, or wait for its restart"

    async def pulse(self) -> None:
        """Turns with the event loop, until it is cancelled."""
        while True:
            self._pulse_at = self._monotonic()
            await asyncio.sleep(_PULSE_S)

    @property
    def not_alive(self) -> str:
        """Why the process is to be restarted; empty: it is not."""
        silent_s = self._monotonic() - self._pulse_at
        return f"the event loop has not turned for {silent_s:.0f} s" if silent_s > STUCK_S else ""

    @property
    def not_ready(self) -> str:
        """Why it should get no work; empty: it should. May block as long as the store does."""
        return self._state or self.store_trouble

    @property
    def store_trouble(self) -> str:
        """What is wrong with the store; empty: nothing is. May block as long as the store does."""
        if self._cluster is not None and self._cluster.failure is not None:
            return self._cluster.failure.message
        for appender in list(self._leaders()):
            if isinstance(appender.trouble, StoreFull):
                return appender.trouble.message
        try:
            free_bytes = self._store.free_bytes()
        except MainstemError as error:
            return error.message
        if free_bytes is not None and free_bytes < FREE_BYTES_MIN:
            return (
                f"the disk of {self._store.uri} is full: {free_bytes} bytes are free; delete or "
                "trim a topic, or make space"
            )
        return ""

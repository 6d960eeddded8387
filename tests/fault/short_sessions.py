"""Gateways of one warehouse that notice at once when one of them is gone, for loops that kill."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from mainstem.testing import GatewayProcess

SETTINGS: Final[Mapping[str, object]] = {
    "gateway.heartbeat.interval.ms": 100,
    "gateway.session.timeout.ms": 500,
    "checkpoint.interval.commits": 50,
}


class ShortSessions:
    """So many gateways, which run in a `with` block."""

    def __init__(self, warehouse: Path, count: int) -> None:
        self._warehouse = warehouse
        self._count = count
        self._gateways: list[GatewayProcess] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for number in range(self._count):
                settings = {**SETTINGS, "gateway.id": f"gateway-{number}"}
                gateway = GatewayProcess(self._warehouse, settings=settings)
                self._gateways.append(stack.enter_context(gateway))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def bootstrap(self) -> str:
        """Where clients find them."""
        return ",".join(one.address for one in self._gateways)

    def choose(self, dice: random.Random) -> GatewayProcess:
        """One of them."""
        return dice.choice(self._gateways)

    def kill_one(self, dice: random.Random) -> None:
        """`kill -9`, and a new one after a moment."""
        gateway = self.choose(dice)
        assert gateway.kill() == -9, f"the gateway ended by itself:\n{gateway.log}"
        time.sleep(dice.uniform(0.0, 0.8))
        gateway.start()

    def terminate(self) -> None:
        """Ends them all, as a service manager does."""
        for gateway in self._gateways:
            assert gateway.terminate() == 0, gateway.log

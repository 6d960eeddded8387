"""Waiting for what another thread does."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_S = 20.0


def wait_until(condition: Callable[[], object]) -> None:
    """Returns when the condition holds; fails if it does not in time."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)

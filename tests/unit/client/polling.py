"""Polling consumers until something is so."""

from __future__ import annotations

import time
from collections.abc import Callable

from mainstem.client import Consumer, ConsumerRecord

DEADLINE_S = 20.0


def poll_until(what: Callable[[], object], *consumers: Consumer) -> list[ConsumerRecord]:
    """Polls all in turn until something is so; returns the records."""
    deadline = time.monotonic() + DEADLINE_S
    found: list[ConsumerRecord] = []
    while not what():
        assert time.monotonic() < deadline
        for consumer in consumers:
            found += consumer.consume(1, 0.005)
    return found

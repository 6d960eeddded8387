"""What tests of transactions share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.unit.client.waiting import DEADLINE_S

from mainstem.client import Producer
from mainstem.errors import MainstemError
from mainstem.testing import FakeGateway, Fault

Verdict = MainstemError | Fault | None


def transactional(gateway: FakeGateway, name: str = "x", **settings: Any) -> Producer:
    """A producer with a transactional id, initialised."""
    config = {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer(
        {
            "bootstrap.servers": gateway.address,
            "retry.backoff.ms": 5,
            "transactional.id": name,
            **config,
        }
    )
    producer.init_transactions()
    return producer


def stored(gateway: FakeGateway, topic: str) -> list[bytes | None]:
    """The values of a topic, whatever their partitions, in order of these."""
    return [value for part in gateway.values(topic) for value in part]


def at(method: str, *verdicts: Verdict) -> Callable[[str, Any], Verdict]:
    """Answers the first calls of a method with these, one after the other."""
    left = list(verdicts)

    def decide(called: str, _: Any) -> Verdict:
        return left.pop(0) if called == method and left else None

    return decide


def held(event: threading.Event, method: str = "") -> Callable[..., None]:
    """A hook that waits for the event, in all calls or in those of a method."""

    def wait(called: object, *_: object) -> None:
        if not method or called == method:
            event.wait(DEADLINE_S)

    return wait


def count(gateway: FakeGateway, method: str) -> int:
    """How often a method was called."""
    return gateway.transactions.calls.count(method)

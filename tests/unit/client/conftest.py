"""A fake gateway over real gRPC for each test, and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from mainstem.client import Producer
from mainstem.testing import FakeGateway

MakeProducer = Callable[..., Producer]


@pytest.fixture
def gateway(no_leaks: None) -> Iterator[FakeGateway]:
    """A gateway with topic `t` of 3 partitions and topic `one` of 1; keeps an eye on the rules."""
    with FakeGateway({"t": 3, "one": 1}) as running:
        yield running
    assert running.violations == []


@pytest.fixture
def make_producer(gateway: FakeGateway) -> Iterator[MakeProducer]:
    """Makes producers of the gateway, given settings, and closes them at the end."""
    made: list[Producer] = []

    def make(**settings: object) -> Producer:
        config = {name.replace("_", "."): value for name, value in settings.items()}
        made.append(
            Producer({"bootstrap.servers": gateway.address, "retry.backoff.ms": 5, **config})
        )
        return made[-1]

    yield make
    for producer in made:
        producer.close(5.0)

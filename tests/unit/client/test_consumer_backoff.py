"""What fails again and again is tried again ever more rarely, and not by all at the same moment."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mainstem.client import Consumer, TopicPartition
from mainstem.client.consumer.settings import ConsumerSettings
from mainstem.errors import BackPressureError, MainstemError, StoreUnavailableError
from mainstem.testing._fake_fetch import FakeLogGateway

SERVERS = {"bootstrap.servers": "127.0.0.1:1"}

#: Doubling from 4 ms to 256 ms: a second of failures has about ten tries, where a flat wait of 4 ms
#: has a hundred or more.
CONFIG: dict[str, object] = {"retry.backoff.ms": 4, "retry.backoff.max.ms": 256, "group.id": "g"}
TRIES_MAX = 25


@pytest.fixture
def gateway(no_leaks: None) -> Iterator[FakeLogGateway]:
    with FakeLogGateway({"one": 1}) as running:
        yield running


def test_the_wait_doubles_up_to_its_limit_and_one_that_the_gateway_asks_for_wins() -> None:
    settings = ConsumerSettings.parse(SERVERS)
    waits = [settings.backoff_s(failures, jitter=0.5) for failures in range(6)]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert settings.backoff_s(0, jitter=0.0) == pytest.approx(0.08)
    assert 0.8 <= settings.backoff_s(99) <= 1.2
    asked = BackPressureError("full", retry_delay_ms=5_000)
    assert 5.0 <= settings.backoff_s(0, asked) <= 7.0
    flat = ConsumerSettings.parse({**SERVERS, "retry.backoff.max.ms": 10})
    assert flat.backoff_s(3, jitter=0.5) == 0.01


def test_every_kind_of_request_that_fails_is_made_ever_more_rarely(
    gateway: FakeLogGateway, caplog: pytest.LogCaptureFixture
) -> None:
    tries: dict[str, int] = {}

    def failing(what: str) -> Callable[[Any], MainstemError]:
        def fail(_: object) -> MainstemError:
            tries[what] = tries.get(what, 0) + 1
            return StoreUnavailableError("the store is away")

        return fail

    def refuse(_: object) -> None:
        raise failing("heartbeat")(None)

    config = {"bootstrap.servers": gateway.address, "auto.offset.reset": "earliest", **CONFIG}
    with (
        caplog.at_level(logging.CRITICAL),
        Consumer(config) as reader,
        Consumer({**config, "enable.auto.commit": False}) as member,
    ):
        member.subscribe(["one"])
        gateway.append("one", 0, [b"v"])
        assert member.poll(20.0) is not None
        gateway.groups.on_commit = failing("commit")
        member.commit()
        gateway.groups.before_heartbeat = refuse
        gateway.partition_error = failing("partition")
        reader.assign([TopicPartition("one", 0, 0)])
        time.sleep(0.5)
        gateway.partition_error, gateway.on_fetch = None, failing("fetch")
        time.sleep(0.5)
        gateway.on_fetch = gateway.groups.on_commit = None
        gateway.groups.before_heartbeat = lambda _: None
    assert tries.keys() == {"commit", "heartbeat", "partition", "fetch"}
    assert all(1 < count <= TRIES_MAX for count in tries.values()), tries

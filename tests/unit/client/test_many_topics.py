"""A producer with many topics works for those that have something to do, not for the others."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

from mainstem.client import Producer
from mainstem.client.producer.queue import TopicQueue
from mainstem.errors import DeliveryTimeoutError
from mainstem.testing import FakeGateway

TOPICS = {f"t{number}": 1 for number in range(50)}

LONG_S = 20.0


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the queue of each topic was asked when it has something to do."""
    counted: Counter[str] = Counter()
    for name in ("next_deadline", "next_send", "take"):
        method = getattr(TopicQueue, name)

        def counting(queue: Any, *args: Any, method: Any = method, **named: Any) -> Any:
            counted[queue.topic] += 1
            return method(queue, *args, **named)

        monkeypatch.setattr(TopicQueue, name, counting)
    return counted


def test_a_topic_without_records_takes_no_time_while_others_are_produced_to(
    asked: Counter[str], no_leaks: None
) -> None:
    with (
        FakeGateway(TOPICS) as gateway,
        Producer({"bootstrap.servers": gateway.address, "linger.ms": 1}) as producer,
    ):
        for topic in TOPICS:
            producer.send(topic, b"first").result(LONG_S)
        asked.clear()
        for _ in range(20):
            producer.send("t0", b"more").result(LONG_S)
        assert asked.pop("t0") >= 20
        assert not asked


def test_records_of_many_topics_expire_each_at_its_time(no_leaks: None) -> None:
    with FakeGateway(TOPICS) as gateway:
        config = {
            "bootstrap.servers": gateway.address,
            "delivery.timeout.ms": 2_000,
            "request.timeout.ms": 1_000,
        }
        with Producer(config) as producer:
            for topic in TOPICS:
                producer.send(topic, b"first").result(LONG_S)
            gateway.stop()
            waiting = []
            for topic in TOPICS:
                waiting.append((time.monotonic(), producer.send(topic, b"lost")))
                time.sleep(0.02)
            for sent_at, future in waiting:
                assert isinstance(future.exception(LONG_S), DeliveryTimeoutError)
                assert time.monotonic() - sent_at >= 2.0

"""What a client leaves behind must not keep the interpreter from ending.

gRPC's call objects take a lock when they are freed. At the end of the interpreter a thread of gRPC
that held it may be dead: whoever frees a call then, waits for ever.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator

import grpc
import pytest

from mainstem.client import Consumer, Producer, TopicPartition
from mainstem.testing import FakeGateway
from mainstem.testing._fake_fetch import FakeLogGateway

DEADLINE_S = 20.0


@pytest.fixture
def no_collector(no_leaks: None) -> Iterator[None]:
    """What is freed meanwhile is freed because nothing refers to it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def calls_left() -> list[str]:
    """The calls that somebody still refers to, or only the garbage collector could free."""
    return [repr(one) for one in gc.get_objects() if isinstance(one, grpc.Future)]


def wait_until(condition: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.01)


@pytest.mark.usefixtures("no_collector")
def test_a_closed_producer_leaves_no_call_to_the_garbage_collector_where_streams_broke() -> None:
    with FakeGateway({"t": 3}) as gateway:
        producer = Producer(
            {
                "bootstrap.servers": gateway.address,
                "retry.backoff.ms": 5,
                "linger.ms": 0,
            }
        )
        for number in range(3):
            producer.produce("t", b"%d" % number)
            producer.flush(DEADLINE_S)
            gateway.stop()
            gateway.start()
        producer.produce("t", b"last")
        producer.close(DEADLINE_S)
        wait_until(lambda: calls_left() == [])


@pytest.mark.usefixtures("no_collector")
def test_a_closed_consumer_leaves_no_call_to_the_garbage_collector_where_fetches_failed() -> None:
    with FakeLogGateway({"t": 3}) as gateway:
        consumer = Consumer(
            {
                "bootstrap.servers": gateway.address,
                "retry.backoff.ms": 5,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign([TopicPartition("t", 0)])
        consumer.poll(0.2)
        gateway.stop()
        consumer.poll(0.5)
        gateway.start()
        consumer.poll(0.2)
        consumer.close()
        wait_until(lambda: calls_left() == [])

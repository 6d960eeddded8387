"""What a client leaves behind must not keep the interpreter from ending.

gRPC's call objects take a lock when they are freed. At the end of the interpreter a thread of gRPC
that held it may be dead: a thread that frees a call then waits for ever.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import grpc
import pytest
from tests.unit.client.waiting import DEADLINE_S, wait_until

from mainstem.client import Consumer, Producer, TopicPartition
from mainstem.errors import ConsumerClosedError
from mainstem.testing import FakeGateway
from mainstem.testing._fake_fetch import FakeLogGateway


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


_UNCLOSED = """
import atexit, sys, threading
atexit.register(  # before the client's, so that it is called after it
    lambda: print([one.name for one in threading.enumerate() if "mainstem" in one.name])
)
from mainstem.client import Consumer, TopicPartition
consumer = Consumer(
    {"bootstrap.servers": sys.argv[1], "group.id": "g", "max.partition.fetch.bytes": 20_000}
)
consumer.assign([TopicPartition("t", number, 0) for number in range(3)])
for _ in range(int(sys.argv[2])):
    consumer.poll_batch(20)
    consumer.commit(asynchronous=True)
sys.exit(3)
"""


def test_a_program_that_does_not_close_its_consumer_ends_with_its_own_exit_code() -> None:
    """Its threads would be inside gRPC and Arrow at the interpreter's end, one time in 40 so that
    the process aborted."""
    with FakeLogGateway({"t": 3}) as gateway:
        for partition in range(3):
            gateway.append("t", partition, [b"x" * 100] * 5_000)
        for polls in (1, 7, 15):
            begins_at = time.monotonic()
            ended = subprocess.run(
                [sys.executable, "-c", _UNCLOSED, gateway.address, str(polls)],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert (ended.returncode, ended.stdout) == (3, "[]\n"), ended.stderr
            # A commit that did not come through may be told.
            assert "Traceback" not in ended.stderr
            assert time.monotonic() - begins_at < DEADLINE_S


def test_the_threads_of_a_consumer_end_with_the_program(no_leaks: None) -> None:
    with FakeLogGateway({"t": 3}) as gateway:
        consumer = Consumer({"bootstrap.servers": gateway.address, "group.id": "g"})
        consumer.subscribe(["t"])
        consumer.poll(0.5)
        assert [one for one in threading.enumerate() if one.name.startswith("mainstem-")]

        consumer._engine.at_exit()

        assert not [one for one in threading.enumerate() if one.name.startswith("mainstem-")]
        assert not gateway.groups.leaves
        with pytest.raises(ConsumerClosedError):
            consumer.poll(0)

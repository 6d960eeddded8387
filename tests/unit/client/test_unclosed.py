"""Clients that nobody closes: said in a warning, and nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable

import pytest

from mainstem.client import AdminClient, AsyncConsumer, AsyncProducer, Consumer, Producer
from mainstem.compat import confluent
from mainstem.testing import FakeGateway
from mainstem.testing._fake_fetch import FakeLogGateway

pytestmark = pytest.mark.usefixtures("no_leaks")

DEADLINE_S = 20.0


def warnings_of(forget: Callable[[], None]) -> list[str]:
    """The ResourceWarnings when what `forget` leaves is collected."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        forget()
        gc.collect()
    return [str(one.message) for one in caught if issubclass(one.category, ResourceWarning)]


def until_threads_end() -> None:
    ends_at = time.monotonic() + DEADLINE_S
    while left := [one.name for one in threading.enumerate() if one.name.startswith("mainstem-")]:
        assert time.monotonic() < ends_at, left
        # A thread that was still at work for a client has kept it from the collector until now.
        gc.collect()
        time.sleep(0.05)


def test_a_producer_that_is_forgotten_warns_sends_what_it_has_and_ends_its_threads() -> None:
    called: list[object] = []
    with FakeGateway({"one": 1}) as gateway:

        def forget() -> None:
            producer = Producer({"bootstrap.servers": gateway.address, "linger.ms": 60_000})
            producer.produce("one", b"x", on_delivery=lambda *args: called.append(args))

        (said,) = warnings_of(forget)
        assert said.startswith("unclosed Producer: call close()")
        until_threads_end()
        assert gateway.values("one") == [[b"x"]]
    assert not called, "callbacks are called by poll(), flush() and close() only"


def test_an_asyncio_producer_that_is_forgotten_warns_and_ends_its_threads() -> None:
    with FakeGateway({"one": 1}) as gateway:

        async def work() -> None:
            producer = AsyncProducer({"bootstrap.servers": gateway.address})
            await producer.send_and_wait("one", b"x")

        (said,) = warnings_of(lambda: asyncio.run(work()))
        assert said.startswith("unclosed AsyncProducer")
        until_threads_end()


@pytest.mark.parametrize("group", [{}, {"group.id": "g"}])
def test_consumers_that_are_forgotten_warn_once_and_end_their_threads(
    group: dict[str, str],
) -> None:
    with FakeLogGateway({"one": 1}) as gateway:
        config = {"bootstrap.servers": gateway.address, **group}

        def forget() -> None:
            consumer = Consumer(config)
            if group:
                consumer.subscribe(["one"])
            consumer.poll(0.1)

        async def work() -> None:
            consumer = AsyncConsumer(config)
            if group:
                await consumer.subscribe(["one"])
            await consumer.getmany(timeout_ms=100)

        (said,) = warnings_of(forget)
        assert said.startswith("unclosed Consumer")
        (said,) = warnings_of(lambda: asyncio.run(work()))
        assert said.startswith("unclosed AsyncConsumer")
        until_threads_end()


def test_an_administrator_that_is_forgotten_warns() -> None:
    with FakeGateway({"one": 1}) as gateway:

        def forget() -> None:
            AdminClient({"bootstrap.servers": gateway.address}).list_topics()

        (said,) = warnings_of(forget)
        assert said.startswith("unclosed AdminClient")


def test_clients_that_were_closed_or_never_made_warn_of_nothing() -> None:
    def forget() -> None:
        with FakeGateway({"one": 1}) as gateway:
            for kind in (Producer, AdminClient, Consumer):
                kind({"bootstrap.servers": gateway.address}).close()
                with pytest.raises(Exception, match="nonsense"):
                    kind({"bootstrap.servers": gateway.address, "nonsense": "1"})

            async def work() -> None:
                await AsyncProducer({"bootstrap.servers": gateway.address}).close()
                await AsyncConsumer({"bootstrap.servers": gateway.address}).close()

            asyncio.run(work())

    assert warnings_of(forget) == []


def test_programs_for_confluent_kafka_need_not_close_producers_and_administrators() -> None:
    with FakeGateway({"one": 1}) as gateway:

        def forget() -> None:
            config = {"bootstrap.servers": gateway.address}
            producer = confluent.Producer(config)
            producer.produce("one", b"x")
            confluent.AdminClient(config).list_topics(timeout=10)

        assert warnings_of(forget) == []
        until_threads_end()
        assert gateway.values("one") == [[b"x"]]


_UNCLOSED = """
import atexit, sys, threading
atexit.register(  # before the client's, so that it is called after it
    lambda: print([one.name for one in threading.enumerate() if "mainstem" in one.name])
)
from mainstem.client import Producer
producer = Producer({"bootstrap.servers": sys.argv[1]})
producer.send("one", b"x").result(20)
sys.exit(3)
"""


def test_a_program_that_ends_without_closing_its_producer_is_warned_and_ends() -> None:
    with FakeGateway({"one": 1}) as gateway:
        ended = subprocess.run(
            [sys.executable, "-W", "always::ResourceWarning", "-c", _UNCLOSED, gateway.address],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (ended.returncode, ended.stdout) == (3, "[]\n"), ended.stderr
    assert ended.stderr.count("ResourceWarning: unclosed Producer") == 1
    assert "Traceback" not in ended.stderr

"""A gateway that asks who calls, under those who do not say: connections that are silent or slow,
headers that are too large, passwords that are wrong. A producer who has signed in goes on.

`make test` has some hundred of each, `make test-fault` 9,000 connections.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from click.testing import CliRunner
from tests.certificates import write_certificates
from tests.fault.watched_gateway import WatchedGateway, watched_gateway
from tests.length import FULL

from mainstem.cli.root import cli
from mainstem.client import AdminClient, Producer
from mainstem.errors import AuthenticationError, MainstemError
from mainstem.protocol.v1 import log_pb2

pytestmark = [pytest.mark.fault, pytest.mark.slow]

PASSWORD = "correct horse-battery"
CONNECTIONS = 9_000 if FULL else 300
SIGN_INS = 2_000 if FULL else 100

#: How a TLS client begins.
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)

#: As the gateway sets it for gRPC, and as much again for a busy machine.
HANDSHAKE_S: Final = 10.0
#: Beside other tests the threads that agree on TLS take the processor from the loop's.
STALL_MS_MAX: Final = 200.0 if FULL else 1_000.0
MEMORY_BYTES_MAX: Final = 200 << 20


class Place:
    """What the gateway and its clients are configured with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_certificates(folder)
        made = CliRunner().invoke(
            cli,
            ["user", "create", "alice", "--warehouse", str(folder / "warehouse")],
            env={"MAINSTEM_USER_PASSWORD": PASSWORD},
        )
        assert made.exit_code == 0, made.output

    def gateway(self) -> dict[str, object]:
        return {
            "ssl.certificate.location": self.folder / "gateway.pem",
            "ssl.key.location": self.folder / "gateway.key",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "log.level": "error",
        }

    def client(self, address: str, password: str = PASSWORD) -> dict[str, object]:
        return {
            "bootstrap.servers": address,
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.folder / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": password,
        }


class Neighbour:
    """Produces without a pause, one record after the other."""

    def __init__(self, config: dict[str, object]) -> None:
        self.sent = 0
        self.failures: list[str] = []
        self._config = config
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with Producer(self._config) as producer:
            while not self._stop.is_set():
                try:
                    producer.send("t", b"%d" % self.sent).result(60)
                except MainstemError as error:
                    self.failures.append(str(error))
                    return
                self.sent += 1

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(90)
        assert not self._thread.is_alive()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("floods"))


@pytest.fixture(scope="module")
def gateway(place: Place) -> Iterator[WatchedGateway]:
    with watched_gateway(place.folder, place.gateway()) as running:
        with AdminClient(place.client(running.address)) as admin:
            admin.create_topic("t")
        yield running


def beside_a_producer(place: Place, gateway: WatchedGateway, flood: Callable[[], None]) -> None:
    """Runs the flood; the producer loses nothing, and the gateway is as it was."""
    neighbour = Neighbour(place.client(gateway.address))
    try:
        wait_until(lambda: neighbour.sent > 20 or bool(neighbour.failures))
        before = gateway.rss_bytes()
        gateway.take_stall_ms()
        at = neighbour.sent
        flood()
        assert neighbour.failures == []
        wait_until(lambda: neighbour.sent > at + 20 or bool(neighbour.failures))
        assert gateway.take_stall_ms() < STALL_MS_MAX
        assert gateway.rss_bytes() < before + MEMORY_BYTES_MAX
    finally:
        neighbour.stop()
    assert neighbour.failures == []


def wait_until(condition: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends_at, "in vain"
        time.sleep(0.01)


def connections(gateway: WatchedGateway, count: int) -> list[socket.socket]:
    host, _, port = gateway.address.rpartition(":")
    found = []
    for _ in range(count):
        one = socket.create_connection((host, int(port)), 30)
        one.setblocking(False)
        found.append(one)
    return found


def closed_by_the_gateway(held: list[socket.socket], feed: bytes, timeout_s: float) -> int:
    """How many of the connections it has ended; each gets a byte of `feed` now and then."""
    with selectors.DefaultSelector() as selector:
        for one in held:
            selector.register(one, selectors.EVENT_READ)
        ends_at, position = time.monotonic() + timeout_s, 0
        while selector.get_map() and time.monotonic() < ends_at:
            for key, _ in selector.select(0.5):
                ready: Any = key.fileobj
                try:
                    ended = ready.recv(4096) == b""
                except OSError:
                    ended = True
                if ended:
                    selector.unregister(ready)
            if feed:
                for key in list(selector.get_map().values()):
                    slow: Any = key.fileobj
                    with contextlib.suppress(OSError):
                        slow.send(feed[position % len(feed) : position % len(feed) + 1])
                position += 1
        return len(held) - len(selector.get_map())


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "feed", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)]
)
def test_connections_that_say_nothing_or_a_byte_at_a_time_are_ended(
    place: Place, gateway: WatchedGateway, feed: bytes
) -> None:
    def flood() -> None:
        held = connections(gateway, CONNECTIONS)
        try:
            assert closed_by_the_gateway(held, feed, 6 * HANDSHAKE_S) == len(held)
        finally:
            for one in held:
                one.close()

    beside_a_producer(place, gateway, flood)


@pytest.mark.timeout(120)
def test_headers_that_are_too_large_are_refused(place: Place, gateway: WatchedGateway) -> None:
    credentials = grpc.ssl_channel_credentials((place.folder / "ca.pem").read_bytes())

    def flood() -> None:
        with grpc.secure_channel(gateway.address, credentials) as channel:
            call: Any = channel.unary_unary("/mainstem.v1.Log/Metadata")
            data = log_pb2.MetadataRequest().SerializeToString()
            for size in (10_000, 60_000, 1_000_000):
                for name in ("authorization", "x-anything"):
                    with pytest.raises(grpc.RpcError) as caught:
                        call(data, metadata=((name, "x" * size),), timeout=20)
                    code = caught.value.code()
                    assert code is not grpc.StatusCode.OK
                    assert code is not grpc.StatusCode.DEADLINE_EXCEEDED

    beside_a_producer(place, gateway, flood)


@pytest.mark.timeout(300)
def test_a_flood_of_wrong_passwords_is_refused_and_slows_nobody_down_for_long(
    place: Place, gateway: WatchedGateway
) -> None:
    def guess(number: int) -> None:
        config = place.client(gateway.address, f"guess-{number}")
        with AdminClient(config) as admin, pytest.raises(AuthenticationError):
            admin.list_topics(timeout=60)

    def flood() -> None:
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(guess, range(SIGN_INS)))

    beside_a_producer(place, gateway, flood)

"""Tokens of an OpenID provider from end to end: a gateway with TLS, and clients that sign in."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import grpc
import pytest
from tests.certificates import write_certificates
from tests.oidc import DISCOVERY, TOKENS, OidcServer, SigningKey, oidc_server

from mainstem.client import AdminClient, Consumer, Producer, TopicPartition
from mainstem.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from mainstem.compat.aiokafka.abc import AbstractTokenProvider
from mainstem.compat.aiokafka.helpers import create_ssl_context
from mainstem.errors import AuthenticationError, GatewayUnavailableError, MainstemError
from mainstem.protocol.v1 import admin_pb2, admin_pb2_grpc
from mainstem.testing import GatewayProcess, GatewayProcessError

pytestmark = pytest.mark.end_to_end

LIFETIME_S = 3.0


@dataclass
class Place:
    """A warehouse, an issuer, and what gateways and clients are configured with."""

    directory: Path
    issuer: OidcServer

    @property
    def warehouse(self) -> Path:
        return self.directory / "warehouse"

    def gateway(self, **more: object) -> dict[str, object]:
        return {
            "ssl.certificate.location": self.directory / "gateway.pem",
            "ssl.key.location": self.directory / "gateway.key",
            "ssl.ca.location": self.directory / "ca.pem",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.expected.issuer": self.issuer.url,
            "sasl.oauthbearer.expected.audience": "mainstem",
            "sasl.oauthbearer.clock.skew.seconds": 0,
            "sasl.oauthbearer.jwks.endpoint.refresh.ms": 1000,
            **more,
        }

    def client(self, address: str, **more: object) -> dict[str, object]:
        return {
            "bootstrap.servers": address,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.directory / "ca.pem"),
            "sasl.mechanism": "OAUTHBEARER",
            **{name.replace("__", "."): value for name, value in more.items()},
        }

    def by_callback(self, address: str, lifetime_s: float = LIFETIME_S) -> dict[str, object]:
        def oauth_cb(config: str) -> tuple[str, float]:
            return self.issuer.token("alice", lifetime_s), time.time() + lifetime_s

        return self.client(address, oauth_cb=oauth_cb)

    def by_endpoint(self, address: str) -> dict[str, object]:
        self.issuer.lifetime_s = LIFETIME_S
        return self.client(address) | {
            "sasl.oauthbearer.method": "OIDC",
            "sasl.oauthbearer.token.endpoint.url": self.issuer.url + TOKENS,
            "sasl.oauthbearer.client.id": "alice",
            "sasl.oauthbearer.client.secret": "secret",
        }


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    write_certificates(tmp_path)
    with oidc_server() as issuer:
        yield Place(tmp_path, issuer)


@pytest.fixture
def gateway(place: Place) -> Iterator[GatewayProcess]:
    with GatewayProcess(place.warehouse, settings=place.gateway()) as process:
        yield process


def check_every_record_once_and_in_order(
    config: dict[str, object], seconds: float, in_the_middle: threading.Event | None = None
) -> int:
    """Produces and consumes for so long, and returns how many records it were."""
    with AdminClient(config) as admin:
        admin.create_topic("orders", 1)
    sent = 0
    done = threading.Event()
    failures: list[object] = []

    def note(error: object, record: object) -> None:
        if error is not None:
            failures.append(error)

    def produce() -> None:
        nonlocal sent
        with Producer(config | {"enable.idempotence": True}) as producer:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                for _ in range(50):
                    producer.produce("orders", b"%d" % sent, on_delivery=note)
                    sent += 1
                time.sleep(0.02)
                if in_the_middle is not None and time.monotonic() > end - seconds / 2:
                    in_the_middle.set()
            assert producer.flush(60.0) == 0
        done.set()

    thread = threading.Thread(target=produce)
    thread.start()
    found: list[int] = []
    try:
        group = {"group.id": "readers", "auto.offset.reset": "earliest"}
        with Consumer(config | group) as consumer:
            consumer.subscribe(["orders"])
            deadline = time.monotonic() + seconds + 60
            while not done.is_set() or len(found) < sent:
                assert time.monotonic() < deadline, (len(found), sent, failures[:3])
                found += [int(one.value or b"") for one in consumer.consume(500, timeout=0.5)]
            consumer.commit()
    finally:
        thread.join(60)
    assert not failures
    assert found == list(range(sent))
    return sent


@pytest.mark.parametrize("way", ["callback", "endpoint"])
def test_tokens_of_three_seconds_carry_a_producer_and_a_consumer_through_a_load(
    way: str, place: Place, gateway: GatewayProcess
) -> None:
    make = place.by_callback if way == "callback" else place.by_endpoint
    assert check_every_record_once_and_in_order(make(gateway.address), 8.0) > 1000


def test_clients_go_on_with_new_tokens_when_the_key_of_theirs_is_removed(
    place: Place, gateway: GatewayProcess
) -> None:
    rotate = threading.Event()

    def rotated() -> None:
        assert rotate.wait(60)
        place.issuer.rotate("second", keep=False)

    thread = threading.Thread(target=rotated)
    thread.start()
    try:
        config = place.by_callback(gateway.address, lifetime_s=3600)
        assert check_every_record_once_and_in_order(config, 6.0, rotate) > 500
    finally:
        rotate.set()
        thread.join()


def refusals(config: dict[str, object]) -> Iterator[MainstemError]:
    """What each kind of client is told."""
    with AdminClient(config) as admin:
        with pytest.raises(MainstemError) as caught:
            admin.list_topics(timeout=20.0)
        yield caught.value
    with Producer(config) as producer:
        with pytest.raises(MainstemError) as caught:
            producer.produce("orders", b"x")
        yield caught.value
    with Consumer(config) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        with pytest.raises(MainstemError) as caught:
            consumer.poll(20.0)
        yield caught.value


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"iss": "https://example.com"}, "iss is not"),
        ({"aud": "others"}, "aud has nothing"),
        ({"exp": 1}, "exp was"),
    ],
)
def test_a_wrong_token_is_refused_at_once(
    more: dict[str, object], words: str, place: Place, gateway: GatewayProcess
) -> None:
    token = place.issuer.token(**more)  # type: ignore[arg-type]
    began = time.monotonic()
    config = place.client(gateway.address, oauth_cb=lambda _: (token, time.time() + 60))
    for error in refusals(config):
        assert isinstance(error, AuthenticationError), repr(error)
        assert words in error.message
        assert token not in str(error)
    assert time.monotonic() - began < 15


def test_a_token_of_a_strange_key_no_token_and_a_callback_that_fails_are_refused(
    place: Place, gateway: GatewayProcess
) -> None:
    strange = SigningKey("strange").sign(place.issuer.claims())

    def fails(config: str) -> tuple[str, float]:
        raise ValueError("no idea")

    for config, words in (
        (
            place.client(gateway.address, oauth_cb=lambda _: (strange, time.time() + 60)),
            "does not list",
        ),
        (place.client(gateway.address, oauth_cb=fails), "oauth_cb raised ValueError"),
        (place.client(gateway.address, oauth_cb=lambda _: "nonsense"), "a str; it must return"),
    ):
        for error in refusals(config):
            assert isinstance(error, AuthenticationError), repr(error)
            assert words in error.message
    nobody = place.client(gateway.address) | {"security.protocol": "ssl"}
    del nobody["sasl.mechanism"]
    for error in refusals(nobody):
        assert isinstance(error, AuthenticationError), repr(error)
    place.issuer.clients.clear()
    for error in refusals(place.by_endpoint(gateway.address)):
        assert isinstance(error, AuthenticationError), repr(error)
        assert "invalid_client" in error.message


def test_a_callback_that_uses_its_own_client_does_not_hang_it(
    place: Place, gateway: GatewayProcess
) -> None:
    clients: list[AdminClient] = []

    def oauth_cb(config: str) -> tuple[str, float]:
        clients[0].list_topics(timeout=30.0)
        return "never", time.time() + 60

    with AdminClient(place.client(gateway.address, oauth_cb=oauth_cb)) as admin:
        clients.append(admin)
        began = time.monotonic()
        with pytest.raises(AuthenticationError):
            admin.list_topics(timeout=30.0)
        assert time.monotonic() - began < 25


def test_a_gateway_starts_without_its_issuer_and_takes_tokens_once_it_is_there(
    place: Place,
) -> None:
    place.issuer.answers[DISCOVERY] = (503, b"")
    with GatewayProcess(place.warehouse, settings=place.gateway()) as gateway:
        config = place.by_callback(gateway.address, lifetime_s=60)
        with AdminClient(config) as admin:
            with pytest.raises(GatewayUnavailableError, match="cannot be read at the moment"):
                admin.list_topics(timeout=3.0)
            del place.issuer.answers[DISCOVERY]
            assert not admin.list_topics(timeout=30.0)


def test_a_gateway_does_not_start_without_saying_whose_tokens_it_takes(place: Place) -> None:
    settings = place.gateway()
    del settings["sasl.oauthbearer.expected.audience"]
    with (
        pytest.raises(GatewayProcessError, match=r"expected\.audience is not set"),
        GatewayProcess(place.warehouse, settings=settings),
    ):
        pass
    assert not place.warehouse.exists(), "nothing was made"


def test_a_token_as_large_as_may_be_is_taken_with_each_call(
    place: Place, gateway: GatewayProcess
) -> None:
    token = place.issuer.token(filler="x" * 5850)
    assert 8000 < len(token) <= 8192
    authority = (place.directory / "ca.pem").read_bytes()
    with grpc.secure_channel(gateway.address, grpc.ssl_channel_credentials(authority)) as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        for _ in range(200):  # gRPC refuses some of those that are too large, by chance
            stub.ListTopics(
                admin_pb2.ListTopicsRequest(),
                timeout=20.0,
                metadata=(("authorization", f"Bearer {token}"),),
            )


def test_a_program_of_aiokafka_gets_its_tokens_in_its_own_event_loop(
    place: Place, gateway: GatewayProcess
) -> None:
    class Provider(AbstractTokenProvider):
        loops: ClassVar[set[object]] = set()

        async def token(self) -> str:
            self.loops.add(asyncio.get_running_loop())
            await asyncio.sleep(0.01)
            return place.issuer.token("alice", LIFETIME_S)

    async def main() -> list[bytes]:
        signs_in: dict[str, Any] = {
            "bootstrap_servers": gateway.address,
            "security_protocol": "SASL_SSL",
            "ssl_context": create_ssl_context(cafile=str(place.directory / "ca.pem")),
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": Provider(),
        }
        async with AIOKafkaProducer(**signs_in) as producer:
            end = time.monotonic() + LIFETIME_S + 2
            sent = 0
            while time.monotonic() < end:
                await producer.send_and_wait("orders", b"%d" % sent)
                sent += 1
                await asyncio.sleep(0.1)
        assert {asyncio.get_running_loop()} == Provider.loops
        found: list[bytes] = []
        async with AIOKafkaConsumer("orders", auto_offset_reset="earliest", **signs_in) as consumer:
            async with asyncio.timeout(60):
                while len(found) < sent:
                    found.append((await consumer.getone()).value or b"")
        assert found == [b"%d" % number for number in range(sent)]
        return found

    with AdminClient(place.by_callback(gateway.address)) as admin:
        admin.create_topic("orders", 1)
    assert len(asyncio.run(main())) > 10

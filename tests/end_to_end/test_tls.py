"""TLS from end to end: a gateway with a certificate, and clients with and without theirs."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from mainstem.cli.cert.development import Pair, new_authority, new_certificate, write_pair
from mainstem.cli.root import cli
from mainstem.client import AdminClient, Consumer, Producer, TopicPartition
from mainstem.errors import GatewayUnavailableError, MainstemError
from mainstem.testing import GatewayProcess, GatewayProcessError

pytestmark = pytest.mark.end_to_end


@dataclass
class Certificates:
    """A directory of them, all from one authority."""

    directory: Path
    authority: Pair

    def make(self, name: str, *hosts: str) -> None:
        pair = new_certificate(self.authority, name, hosts, days=1)
        write_pair(pair, self.directory / f"{name}.pem", self.directory / f"{name}.key")

    def gateway(self, **more: object) -> dict[str, object]:
        return {
            "ssl.certificate.location": self.directory / "gateway.pem",
            "ssl.key.location": self.directory / "gateway.key",
            "ssl.ca.location": self.directory / "ca.pem",
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def client(self, address: str, name: str = "") -> dict[str, object]:
        found: dict[str, object] = {
            "bootstrap.servers": address,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.directory / "ca.pem"),
        }
        if name:
            found["ssl.certificate.location"] = str(self.directory / f"{name}.pem")
            found["ssl.key.location"] = str(self.directory / f"{name}.key")
        return found


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    directory = tmp_path / "certificates"
    directory.mkdir()
    authority = new_authority(days=1)
    (directory / "ca.pem").write_bytes(authority.certificate_pem())
    found = Certificates(directory, authority)
    found.make("gateway", "127.0.0.1")
    found.make("client")
    return found


@pytest.fixture
def gateway(tmp_path: Path, certificates: Certificates) -> Iterator[GatewayProcess]:
    """One that wants a certificate of each client."""
    settings = certificates.gateway(ssl_client_auth="required", metrics_listeners="127.0.0.1:0")
    with GatewayProcess(tmp_path / "warehouse", settings=settings) as process:
        yield process


def test_records_go_through_encrypted_connections_and_come_back(
    gateway: GatewayProcess, certificates: Certificates
) -> None:
    config = certificates.client(gateway.address, "client")
    with AdminClient(config) as admin:
        admin.create_topic("orders", 2)
        assert [one.topic for one in admin.list_topics()] == ["orders"]
    with Producer(config) as producer:
        for number in range(100):
            producer.produce("orders", b"%d" % number, partition=number % 2)
    with Consumer(config | {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition("orders", number) for number in (0, 1)])
        found: list[bytes] = []
        deadline = time.monotonic() + 30
        while len(found) < 100:
            assert time.monotonic() < deadline
            found += [record.value or b"" for record in consumer.consume(100, timeout=1.0)]
    assert sorted(found) == sorted(b"%d" % number for number in range(100))


def refused(config: Mapping[str, object]) -> MainstemError:
    with AdminClient(config) as admin, pytest.raises(MainstemError) as caught:
        admin.list_topics(timeout=3.0)
    return caught.value


def test_who_has_no_certificate_or_another_authoritys_or_no_tls_cannot_connect(
    gateway: GatewayProcess, certificates: Certificates, tmp_path: Path
) -> None:
    strange = Certificates(tmp_path, new_authority(days=1))
    strange.make("stranger")
    for config in (
        {"bootstrap.servers": gateway.address},
        certificates.client(gateway.address),
        certificates.client(gateway.address)
        | {
            "ssl.certificate.location": str(tmp_path / "stranger.pem"),
            "ssl.key.location": str(tmp_path / "stranger.key"),
        },
    ):
        assert isinstance(refused(config), GatewayUnavailableError)
    with AdminClient(certificates.client(gateway.address, "client")) as admin:
        assert not admin.list_topics()


def test_a_gateway_of_another_host_or_authority_is_not_believed(
    tmp_path: Path, certificates: Certificates
) -> None:
    certificates.make("gateway", "somewhere.example.com")
    settings = certificates.gateway()
    with GatewayProcess(tmp_path / "warehouse", settings=settings) as gateway:
        assert isinstance(refused(certificates.client(gateway.address)), GatewayUnavailableError)
        certificates.make("gateway", "127.0.0.1")
        time.sleep(1.1)  # it looks at the files once a second
        with AdminClient(certificates.client(gateway.address)) as admin:
            assert not admin.list_topics()
        # The authorities of the operating system do not know it.
        unknown = {"bootstrap.servers": gateway.address, "security.protocol": "ssl"}
        assert isinstance(refused(unknown), GatewayUnavailableError)


def test_a_new_certificate_is_taken_by_new_connections_while_old_ones_go_on(
    gateway: GatewayProcess, certificates: Certificates
) -> None:
    config = certificates.client(gateway.address, "client")
    with AdminClient(config) as admin:
        admin.create_topic("orders", 1)
    with Producer(config) as producer:
        assert sent(producer, b"before") == 0
        before = served(gateway.address, certificates)
        certificates.make("gateway", "127.0.0.1")
        certificates.make("client")
        wait_for_another(gateway.address, certificates, before)
        assert sent(producer, b"after") == 1
    with AdminClient(config) as admin:
        assert [one.topic for one in admin.list_topics()] == ["orders"]


def sent(producer: Producer, value: bytes) -> int:
    """The offset of one record."""
    offsets: list[int] = []
    producer.produce(
        "orders", value, on_delivery=lambda error, record: offsets.append(record.offset)
    )
    assert producer.flush(30.0) == 0
    return offsets[0]


def served(address: str, certificates: Certificates, protocol: str = "h2") -> bytes:
    """The certificate that a new connection gets."""
    context = ssl.create_default_context(cafile=str(certificates.directory / "ca.pem"))
    context.set_alpn_protocols([protocol])
    context.load_cert_chain(
        certificates.directory / "client.pem", certificates.directory / "client.key"
    )
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        found = connection.getpeercert(binary_form=True)
        assert found is not None
        return found


def wait_for_another(address: str, certificates: Certificates, before: bytes) -> None:
    """Until new connections get another certificate."""
    deadline = time.monotonic() + 30
    while served(address, certificates) == before:
        assert time.monotonic() < deadline, "it goes on with the old certificate"
        time.sleep(0.2)


def test_metrics_and_health_are_encrypted_and_need_no_certificate(
    gateway: GatewayProcess, certificates: Certificates
) -> None:
    found = re.search(r"http=(127\.0\.0\.1):(\d+)", re.sub(r"\x1b\[[0-9;]*m", "", gateway.log))
    assert found is not None, gateway.log
    context = ssl.create_default_context(cafile=str(certificates.directory / "ca.pem"))
    connection = http.client.HTTPSConnection(found[1], int(found[2]), timeout=10, context=context)
    connection.request("GET", "/readyz")
    assert connection.getresponse().status == 200
    connection.close()
    plain = http.client.HTTPConnection(found[1], int(found[2]), timeout=10)
    plain.request("GET", "/readyz")
    with pytest.raises((http.client.HTTPException, OSError)):
        plain.getresponse()
    plain.close()
    # A new certificate is taken here as well; this connection names no host.
    address = f"{found[1]}:{found[2]}"
    before = served(address, certificates, "http/1.1")
    certificates.make("gateway", "127.0.0.1")
    wait_for_another(address, certificates, before)


@pytest.mark.parametrize("protocols", ["TLSv1.2,TLSv1.3", "TLSv1.3"])
def test_a_version_of_tls_that_is_not_enabled_is_not_spoken_by_any_listener(
    tmp_path: Path, certificates: Certificates, protocols: str
) -> None:
    settings = certificates.gateway(
        ssl_enabled_protocols=protocols, metrics_listeners="127.0.0.1:0"
    )
    with GatewayProcess(tmp_path / "warehouse", settings=settings) as gateway:
        with AdminClient(certificates.client(gateway.address)) as admin:
            assert not admin.list_topics()
        pages = re.search(r"http=([0-9.:]+)", re.sub(r"\x1b\[[0-9;]*m", "", gateway.log))
        assert pages is not None, gateway.log
        for address, protocol in ((gateway.address, "h2"), (pages[1], "http/1.1")):
            assert spoken(address, certificates, protocol) == sorted(protocols.split(","))


def spoken(address: str, certificates: Certificates, protocol: str) -> list[str]:
    """The versions of TLS in which somebody answers at an address, the oldest first."""
    host, _, port = address.rpartition(":")
    found: list[str] = []
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = ssl.create_default_context(cafile=str(certificates.directory / "ca.pem"))
        context.set_alpn_protocols([protocol])
        context.minimum_version = context.maximum_version = version
        with (
            socket.create_connection((host, int(port)), timeout=10) as plain,
            contextlib.suppress(OSError),
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            found.append(str(connection.version()))
    return found


def test_gateways_call_each_other_encrypted(tmp_path: Path, certificates: Certificates) -> None:
    settings = certificates.gateway(ssl_client_auth="required")
    place = tmp_path / "warehouse"
    with (
        GatewayProcess(place, settings=settings | {"gateway.id": "one"}) as first,
        GatewayProcess(place, settings=settings | {"gateway.id": "two"}) as second,
    ):
        config = certificates.client(f"{first.address},{second.address}", "client")
        names = [f"topic-{number}" for number in range(6)]
        with AdminClient(config) as admin:
            for name in names:
                admin.create_topic(name, 1)
        with Producer(config | {"transactional.id": "bank"}) as producer:
            producer.init_transactions()
            with producer.transaction():
                for name in names:
                    producer.produce(name, b"one of all")
        with AdminClient(config) as admin:
            marks = [admin.describe_topic(name).partitions[0].high_watermark for name in names]
        assert marks == [1] * len(names)


def test_the_command_line_connects_encrypted_and_makes_certificates(tmp_path: Path) -> None:
    made = CliRunner().invoke(cli, ["cert", "dev", str(tmp_path / "certs"), "--client", "me"])
    assert made.exit_code == 0, made.output
    certs = Certificates(tmp_path / "certs", new_authority(days=1))
    settings = certs.gateway(ssl_client_auth="required")
    with GatewayProcess(tmp_path / "warehouse", settings=settings) as gateway:
        flags = [
            f"-X{name}={value}"
            for name, value in certs.client(gateway.address, "me").items()
            if name != "bootstrap.servers"
        ]

        def run(*command: str, stdin: str = "", exit_code: int = 0) -> str:
            done = CliRunner().invoke(
                cli, [*flags, *command, "-b", gateway.address], input=stdin or None
            )
            assert done.exit_code == exit_code, done.output
            return done.output

        run("topic", "create", "orders")
        run("topic", "produce", "orders", stdin="hello\n")
        assert "hello" in run("topic", "consume", "orders", "-o", "start", "-n", "1")
        assert run("gateway", "status").rstrip().endswith("OK")
        assert gateway.address in run("cluster", "describe")
        assert "records/s" in run("bench", "produce", "--records", "1000", "--warm-up", "100")
        # Certificates that are made later are from the same authority.
        again = CliRunner().invoke(cli, ["cert", "dev", str(tmp_path / "certs"), "--client", "me"])
        assert again.exit_code == 0, again.output
        assert "orders" in run("topic", "list")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ssl.key.location": "x.key"}, "ssl.certificate.location is not"),
        ({"ssl.client.auth": "required"}, "ssl.certificate.location is not set"),
        ({"ssl.certificate.location": "no.pem", "ssl.key.location": "no.key"}, "cannot be read"),
        ({"ssl.enabled.protocols": "SSLv3"}, "must be one or more of TLSv1.2, TLSv1.3"),
        (
            {"ssl.certificate.location": "no.pem", "ssl.enabled.protocols": "TLSv1.2"},
            "TLS 1.3 cannot be left out",
        ),
    ],
)
def test_a_gateway_does_not_start_with_half_of_its_tls(
    tmp_path: Path, settings: dict[str, object], words: str
) -> None:
    with (
        pytest.raises(GatewayProcessError, match=words),
        GatewayProcess(tmp_path / "warehouse", settings=settings),
    ):
        pass
    assert not (tmp_path / "warehouse").exists(), "nothing was made"

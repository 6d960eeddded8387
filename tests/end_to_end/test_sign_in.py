"""Signing in with a password from end to end: real gateways, with TLS, and real clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.certificates import write_certificates

from mainstem.cli.root import cli
from mainstem.client import (
    AdminClient,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Producer,
    ScramCredentialInfo,
    TopicPartition,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from mainstem.compat import confluent
from mainstem.compat.aiokafka import AIOKafkaConsumer
from mainstem.compat.aiokafka.helpers import create_ssl_context
from mainstem.compat.confluent import admin as confluent_admin
from mainstem.errors import AuthenticationError, InvalidConfigError, MainstemError
from mainstem.testing import GatewayProcess, GatewayProcessError

pytestmark = pytest.mark.end_to_end

PASSWORD = "correct horse-battery"
SECRET = "0123456789abcdef" * 2


@dataclass
class Place:
    """A warehouse with the user alice, and what gateways and clients of it are configured with."""

    directory: Path

    @property
    def warehouse(self) -> Path:
        return self.directory / "warehouse"

    def gateway(self, **more: object) -> dict[str, object]:
        return {
            "ssl.certificate.location": self.directory / "gateway.pem",
            "ssl.key.location": self.directory / "gateway.key",
            "ssl.ca.location": self.directory / "ca.pem",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def client(
        self, address: str, password: str | None = PASSWORD, user: str = "alice"
    ) -> dict[str, object]:
        """None as the password: the one in the file `password_file`."""
        found: dict[str, object] = {
            "bootstrap.servers": address,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.directory / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
        }
        if password is None:
            return found | {"sasl.password.location": str(self.password_file)}
        return found | {"sasl.password": password}

    @property
    def password_file(self) -> Path:
        return self.directory / "password"

    def run(self, address: str, *arguments: str, **variables: str) -> Result:
        """A command of a client that signs in as alice."""
        options = [
            f"-X{name}={value}"
            for name, value in self.client(address).items()
            if name not in ("bootstrap.servers", "sasl.password")
        ]
        environment = {"MAINSTEM_SASL_PASSWORD": PASSWORD, **variables}
        return CliRunner().invoke(cli, [*options, *arguments, "-b", address], env=environment)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    write_certificates(tmp_path)
    found = Place(tmp_path)
    made = CliRunner().invoke(
        cli,
        ["user", "create", "alice", "--warehouse", str(found.warehouse)],
        env={"MAINSTEM_USER_PASSWORD": PASSWORD},
    )
    assert made.exit_code == 0, made.output
    return found


@pytest.fixture
def gateway(place: Place) -> Iterator[GatewayProcess]:
    with GatewayProcess(place.warehouse, settings=place.gateway()) as process:
        yield process


def change_password(place: Place, address: str, password: str) -> None:
    with AdminClient(place.client(address)) as admin:
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("alice", ScramCredentialInfo(), password)]
        )


def refusals(config: dict[str, object]) -> Iterator[MainstemError]:
    """What an administrator, a producer and a consumer, with and without a group, are told."""
    with AdminClient(config) as admin, pytest.raises(MainstemError) as caught:
        admin.list_topics(timeout=20.0)
    yield caught.value
    with Producer(config) as producer, pytest.raises(MainstemError) as caught:
        send(producer)
    yield caught.value
    for group in ({}, {"group.id": "readers"}):
        with Consumer({**config, **group}) as consumer:
            if group:
                consumer.subscribe(["orders"])
            else:
                consumer.assign([TopicPartition("orders", 0)])
            with pytest.raises(MainstemError) as caught:
                wait_for_record(consumer)
        yield caught.value


def send(producer: Producer) -> None:
    producer.produce("orders", b"x")
    producer.flush(20.0)


def wait_for_record(consumer: Consumer) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and consumer.poll(1.0) is None:
        pass


def test_who_has_no_password_or_a_wrong_one_is_told_at_once_and_an_unknown_user_the_same(
    gateway: GatewayProcess, place: Place
) -> None:
    with AdminClient(place.client(gateway.address)) as admin:
        admin.create_topic("orders", 1)
        (user,) = admin.describe_user_scram_credentials().values()
        assert (user.user, len(user.scram_credential_infos)) == ("alice", 1)
    with Producer(place.client(gateway.address)) as producer:
        producer.produce("orders", b"x")
    began_at = time.monotonic()
    wrong = list(refusals(place.client(gateway.address, "wrong")))
    unknown = list(refusals(place.client(gateway.address, "wrong", "nobody")))
    other = list(refusals(place.client(gateway.address) | {"sasl.mechanism": "SCRAM-SHA-256"}))
    assert {type(one) for one in wrong} == {AuthenticationError}
    assert [str(one) for one in wrong] == [str(one) for one in unknown]
    assert [str(one) for one in wrong] == [str(one) for one in other]
    nobody = {
        name: value
        for name, value in place.client(gateway.address).items()
        if not name.startswith("sasl.")
    } | {"security.protocol": "ssl"}
    for refused in refusals(nobody):
        assert isinstance(refused, AuthenticationError)
        assert "sasl_ssl" in str(refused)
    assert time.monotonic() - began_at < 15
    failed = [line for line in gateway.log.splitlines() if "a sign-in failed" in line]
    assert any("nobody" in line for line in failed)
    assert "ipv4:127.0.0.1" in failed[0]
    assert PASSWORD not in gateway.log


class Load:
    """Produces numbers from 0 on, and reads them in a group, until the block ends."""

    def __init__(self, config: dict[str, object]) -> None:
        self._config = config
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=[one]) for one in (self._write, self._read)
        ]
        self.sent_count = 0
        self.delivered: list[int] = []
        self.found: list[int] = []
        self.by_offset: dict[int, int] = {}
        self.errors: list[BaseException] = []

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:
            self.errors.append(error)

    def _write(self) -> None:
        with Producer(self._config) as producer:
            while not self._ended.is_set():
                for _ in range(5):
                    producer.produce("orders", b"%d" % self.sent_count, on_delivery=self._done)
                    self.sent_count += 1
                producer.poll(0)
                time.sleep(0.002)
            assert producer.flush(30.0) == 0

    def _done(self, error: object, message: object) -> None:
        if error is not None:
            assert isinstance(error, BaseException)
            self.errors.append(error)
        self.delivered.append(0)

    def _read(self) -> None:
        config = self._config | {
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
        }
        with Consumer(config) as consumer:
            consumer.subscribe(["orders"])
            deadline = None
            while True:
                for record in consumer.consume(500, timeout=0.2):
                    self.found.append(int(record.value or b""))
                    self.by_offset[record.offset] = self.found[-1]
                if self._ended.is_set():
                    deadline = deadline or time.monotonic() + 30
                    if not self._threads[0].is_alive() and (len(self.by_offset) >= self.sent_count):
                        consumer.commit()
                        return
                    assert time.monotonic() < deadline, (len(self.found), self.sent_count)

    @property
    def is_reading(self) -> bool:
        return self._threads[1].is_alive()

    def wait_for_more(self) -> None:
        """Until records that are sent from now on have come back."""
        wanted = self.sent_count + 100
        deadline = time.monotonic() + 30
        while len(self.found) < wanted:
            assert not self.errors, self.errors
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def check(self, *, read_again: bool = False) -> None:
        """Every record is in the log once, in order, and nobody was told of an error.

        Args:
            read_again: A gateway has forgotten the group, which then begins at its last commit.
        """
        assert not self.errors, self.errors
        assert [value for _, value in sorted(self.by_offset.items())] == list(
            range(self.sent_count)
        )
        assert read_again or self.found == list(range(self.sent_count))
        assert len(self.delivered) == self.sent_count


def make_topic(place: Place, address: str) -> None:
    with AdminClient(place.client(address)) as admin:
        admin.create_topic("orders", 1)


def test_sessions_of_one_second_are_renewed_under_load_and_no_record_is_lost_or_doubled(
    place: Place,
) -> None:
    settings = place.gateway(connections_max_reauth_ms=1000)
    with GatewayProcess(place.warehouse, settings=settings) as gateway:
        make_topic(place, gateway.address)
        with Load(place.client(gateway.address)) as load:
            time.sleep(6)
        load.check()
        assert load.sent_count > 1000


def test_transactions_asynchronous_clients_and_administrators_go_on_over_many_sessions(
    place: Place,
) -> None:
    settings = place.gateway(connections_max_reauth_ms=1000)
    with GatewayProcess(place.warehouse, settings=settings) as gateway:
        config = place.client(gateway.address)
        make_topic(place, gateway.address)
        ends_at = time.monotonic() + 4

        async def exchange() -> tuple[int, int]:
            sent = 0
            found: list[bytes | None] = []
            async with (
                AsyncProducer(config) as producer,
                AsyncConsumer(config | {"auto.offset.reset": "earliest"}) as consumer,
            ):
                await consumer.assign([TopicPartition("orders", 0)])
                while time.monotonic() < ends_at:
                    await producer.send_and_wait("orders", b"x")
                    sent += 1
                while len(found) < sent:
                    found += [one.value for one in await consumer.consume(100, timeout=1.0)]
            return sent, len(found)

        def transact_again_and_again() -> int:
            count = 0
            with Producer(config | {"transactional.id": "mover"}) as producer:
                producer.init_transactions(20.0)
                while time.monotonic() < ends_at:
                    producer.begin_transaction()
                    producer.produce("moved", b"x")
                    producer.commit_transaction(20.0)
                    count += 1
            return count

        def administer() -> int:
            count = 0
            with AdminClient(config) as admin:
                while time.monotonic() < ends_at:
                    admin.create_topic(f"t{count}", 1)
                    admin.list_topics()
                    admin.list_consumer_groups()
                    count += 1
            return count

        with AdminClient(config) as admin:
            admin.create_topic("moved", 1)
        with ThreadPoolExecutor(3) as threads:
            transacting, administering = (
                threads.submit(transact_again_and_again),
                threads.submit(administer),
            )
            sent, found = threads.submit(lambda: asyncio.run(exchange())).result(60)
            transactions = transacting.result(60)
            assert administering.result(60) > 3
        assert sent == found > 10
        with AdminClient(config) as admin:
            (partition,) = admin.describe_topic("moved").partitions
        assert partition.record_count == transactions > 3


def test_a_gateway_that_is_killed_and_started_again_knows_no_session_and_nobody_notices(
    place: Place,
) -> None:
    with GatewayProcess(place.warehouse, settings=place.gateway()) as gateway:
        make_topic(place, gateway.address)
        with Load(place.client(gateway.address)) as load:
            load.wait_for_more()
            gateway.kill()
            gateway.start()
            load.wait_for_more()
            gateway.restart()
            load.wait_for_more()
            with AdminClient(place.client(gateway.address)) as admin:
                assert admin.list_topics()
                gateway.restart()
                assert admin.create_topic("more", 1).topic == "more"
        load.check(read_again=True)


def wait_until_refused(admin: AdminClient) -> float:
    """Seconds until a session that was good is over."""
    began_at = time.monotonic()
    while time.monotonic() - began_at < 20:
        try:
            admin.list_topics()
        except AuthenticationError:
            return time.monotonic() - began_at
        time.sleep(0.02)
    raise AssertionError("the session of the old password goes on")


def test_with_another_password_old_sessions_end_within_a_second_and_who_has_the_new_one_goes_on(
    gateway: GatewayProcess, place: Place
) -> None:
    make_topic(place, gateway.address)
    place.password_file.write_text(f"{PASSWORD}\nnot this line\n")
    with Load(place.client(gateway.address, None)) as load:
        load.wait_for_more()
        with AdminClient(place.client(gateway.address)) as old:
            old.list_topics()
            place.password_file.write_text("another one\n")
            change_password(place, gateway.address, "another one")
            assert wait_until_refused(old) < 2
        load.wait_for_more()
    load.check()


def test_who_is_deleted_is_out_within_a_second(gateway: GatewayProcess, place: Place) -> None:
    make_topic(place, gateway.address)
    with AdminClient(place.client(gateway.address)) as admin:
        bob = UserScramCredentialUpsertion("bob", ScramCredentialInfo("SCRAM-SHA-256"), "bob's")
        admin.alter_user_scram_credentials([bob])
        config = place.client(gateway.address, "bob's", "bob") | {"sasl.mechanism": "scram-sha-256"}
        with Load(config) as load:
            load.wait_for_more()
            admin.alter_user_scram_credentials([UserScramCredentialDeletion("bob")])
            deadline = time.monotonic() + 20
            while load.is_reading or len(load.errors) < 2:  # a record, and the consumer
                assert time.monotonic() < deadline, load.errors
                time.sleep(0.05)
        assert {type(one) for one in load.errors} == {AuthenticationError}
        assert list(admin.describe_user_scram_credentials()) == ["alice"]
        with pytest.raises(InvalidConfigError, match="no such user"):
            admin.alter_user_scram_credentials([UserScramCredentialDeletion("bob")])


def transact(config: dict[str, object], topics: list[str]) -> None:
    with Producer(config | {"transactional.id": "mover"}) as producer:
        producer.init_transactions(20.0)
        producer.begin_transaction()
        for topic in topics:
            producer.produce(topic, b"x")
        producer.commit_transaction(20.0)


def test_a_transaction_over_two_gateways_with_the_same_secret_is_committed(place: Place) -> None:
    def settings(number: int) -> dict[str, object]:
        return place.gateway(gateway_id=f"gateway-{number}", gateway_secret=SECRET)

    with (
        GatewayProcess(place.warehouse, settings=settings(1)) as first,
        GatewayProcess(place.warehouse, settings=settings(2)) as second,
    ):
        names = [f"topic-{number}" for number in range(8)]
        with AdminClient(place.client(first.address)) as admin:
            for name in names:
                admin.create_topic(name, 1)
        both = place.client(f"{first.address},{second.address}")
        with AdminClient(both) as admin:
            wait_for_two_leaders(admin, names)
        lead(both, names, first, second)
        transact(both, names)
        with Consumer(both | {"auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([TopicPartition(name, 0) for name in names])
            found: list[str] = []
            deadline = time.monotonic() + 30
            while len(found) < 2 * len(names):  # one of each from before
                assert time.monotonic() < deadline, found
                found += [record.topic for record in consumer.consume(10, timeout=1.0)]
        assert sorted(found) == sorted(2 * names)


def unlike(place: Place, number: int) -> dict[str, object]:
    """Settings of a gateway that makes its own secret up."""
    return place.gateway(gateway_id=f"gateway-{number}", drain_timeout_ms=1000)


def test_without_the_same_secret_a_call_between_gateways_fails_and_the_log_names_it(
    place: Place,
) -> None:
    with (
        GatewayProcess(place.warehouse, settings=unlike(place, 1)) as first,
        GatewayProcess(place.warehouse, settings=unlike(place, 2)) as second,
    ):
        names = [f"topic-{number}" for number in range(8)]
        both = place.client(f"{first.address},{second.address}")
        with AdminClient(both) as admin:
            for name in names:
                admin.create_topic(name, 1)
            wait_for_two_leaders(admin, names)
        lead(both, names, first, second)
        with Producer(both | {"transactional.id": "mover"}) as producer:
            producer.init_transactions(20.0)
            producer.begin_transaction()
            for name in names:
                producer.produce(name, b"x")
            with contextlib.suppress(MainstemError):  # it is decided, and has to wait
                producer.commit_transaction(3.0)
        deadline = time.monotonic() + 20
        while "gateway.secret" not in first.log + second.log:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def lead(config: dict[str, object], names: list[str], *gateways: GatewayProcess) -> None:
    """Has each gateway lead what it is the place of."""
    with Producer(config) as producer:
        for name in names:
            producer.produce(name, b"before")
    assert all("topic led" in one.log for one in gateways)


def wait_for_two_leaders(admin: AdminClient, names: list[str]) -> None:
    leaders: set[str] = set()
    deadline = time.monotonic() + 40
    while len(leaders) < 2:
        assert time.monotonic() < deadline, leaders
        leaders = {admin.describe_topic(name).leader for name in names}
        time.sleep(0.2)


def test_a_gateway_that_would_ask_over_open_connections_does_not_start(place: Place) -> None:
    settings = {"sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    with pytest.raises(GatewayProcessError) as caught:
        GatewayProcess(place.warehouse, settings=settings).__enter__()
    assert "ssl.certificate.location is not set" in str(caught.value)
    with pytest.raises(GatewayProcessError) as caught:
        GatewayProcess(
            place.warehouse, settings=place.gateway(gateway_secret="short one")
        ).__enter__()
    assert "gateway.secret has 9 characters" in str(caught.value)
    assert "short one" not in str(caught.value)


def test_a_gateway_that_asks_nobody_says_so_to_who_would_sign_in(place: Place) -> None:
    settings = place.gateway()
    del settings["sasl.enabled.mechanisms"]
    with GatewayProcess(place.warehouse, settings=settings) as gateway:
        for error in refusals(place.client(gateway.address)):
            assert isinstance(error, AuthenticationError)
            assert "sasl.enabled.mechanisms" in str(error)


def test_users_are_made_listed_changed_and_deleted_from_the_command_line(
    gateway: GatewayProcess, place: Place
) -> None:
    address = gateway.address
    made = place.run(address, "user", "create", "bob", MAINSTEM_USER_PASSWORD="bobs")
    assert made.exit_code == 0, made.output
    again = place.run(address, "user", "create", "bob", MAINSTEM_USER_PASSWORD="bobs")
    assert again.exit_code == 1
    assert "passwd" in again.output
    listed = place.run(address, "user", "list", "--format", "json")
    assert [json.loads(line)["user"] for line in listed.stdout.splitlines()] == ["alice", "bob"]
    with AdminClient(place.client(address, "bobs", "bob")) as admin:
        assert not admin.list_topics()
    place.password_file.write_text("bobs other\n")
    changed = place.run(
        address, "user", "passwd", "bob", "--password-file", str(place.password_file)
    )
    assert changed.exit_code == 0, changed.output
    with AdminClient(place.client(address, None, "bob")) as admin:
        assert not admin.list_topics()
    assert place.run(address, "gateway", "status").exit_code == 0
    for words in (("gateway", "status"), ("topic", "list")):
        wrong = place.run(address, *words, MAINSTEM_SASL_PASSWORD="wrong")
        assert (wrong.exit_code, "AUTHENTICATION_FAILED" in wrong.output) == (1, True)
    empty = place.run(address, "user", "passwd", "bob", MAINSTEM_USER_PASSWORD="")
    assert (empty.exit_code, "empty" in empty.output) == (1, True)
    deleted = place.run(address, "user", "delete", "bob", "-y", "--format", "json")
    assert json.loads(deleted.stdout)["status"] == "OK"
    missing = place.run(address, "user", "delete", "bob", "-y")
    assert missing.exit_code == 1
    with (
        AdminClient(place.client(address, None, "bob")) as admin,
        pytest.raises(AuthenticationError),
    ):
        admin.list_topics()


def test_a_password_is_in_no_listing_no_log_and_no_list_of_processes(
    gateway: GatewayProcess, place: Place
) -> None:
    shown = CliRunner().invoke(
        cli,
        [
            *(f"-X{n}={v}" for n, v in place.client(gateway.address).items() if "boot" not in n),
            "config",
            "show",
            "producer",
        ],
    )
    assert shown.exit_code == 0, shown.output
    assert "sasl.username" in shown.output
    assert PASSWORD not in shown.output
    place.password_file.write_text(PASSWORD)
    options = [f"-X{n}={v}" for n, v in place.client(gateway.address, None).items()]
    command = [sys.executable, "-m", "mainstem.cli", *options[1:], "-v", "topic", "list"]
    run = subprocess.run(
        [*command, "-b", gateway.address], capture_output=True, text=True, timeout=60, check=True
    )
    assert PASSWORD not in run.stdout + run.stderr
    assert PASSWORD not in gateway.log
    with Producer(place.client(gateway.address)) as producer:
        assert PASSWORD not in repr(producer)
    for file in (place.warehouse / "system" / "users").rglob("*"):
        if file.is_file():
            assert PASSWORD.encode() not in file.read_bytes()


def test_programs_of_confluent_kafka_and_aiokafka_sign_in(
    gateway: GatewayProcess, place: Place
) -> None:
    make_topic(place, gateway.address)
    admin = confluent_admin.AdminClient(place.client(gateway.address))
    mechanism = confluent_admin.ScramMechanism.SCRAM_SHA_256
    info = confluent_admin.ScramCredentialInfo(mechanism, 4096)
    upsertion = confluent_admin.UserScramCredentialUpsertion("bob", info, b"bobs")
    admin.alter_user_scram_credentials([upsertion])["bob"].result(20)
    everybody = admin.describe_user_scram_credentials().result(20)
    assert sorted(everybody) == ["alice", "bob"]
    futures = admin.describe_user_scram_credentials(["bob", "eve"])
    (found,) = futures["bob"].result(20).scram_credential_infos
    assert (found.mechanism, found.iterations) == (mechanism, 4096)
    with pytest.raises(confluent.KafkaException) as missing:
        futures["eve"].result(20)
    assert missing.value.args[0].name() == "RESOURCE_NOT_FOUND"

    producer = confluent.Producer(place.client(gateway.address))
    producer.produce("orders", b"x")
    assert producer.flush(20) == 0

    async def read() -> bytes | None:
        consumer = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=gateway.address,
            auto_offset_reset="earliest",
            security_protocol="SASL_SSL",
            ssl_context=create_ssl_context(cafile=str(place.directory / "ca.pem")),
            sasl_mechanism="SCRAM-SHA-256",
            sasl_plain_username="bob",
            sasl_plain_password="bobs",
        )
        async with consumer:
            return (await asyncio.wait_for(consumer.getone(), 20)).value

    assert asyncio.run(read()) == b"x"
    deletion = confluent_admin.UserScramCredentialDeletion("bob", mechanism)
    admin.alter_user_scram_credentials([deletion])["bob"].result(20)
    assert sorted(admin.describe_user_scram_credentials().result(20)) == ["alice"]
    refused = confluent.Producer(place.client(gateway.address, "wrong"))
    errors: list[object] = []
    with contextlib.suppress(confluent.KafkaException):
        refused.produce("orders", b"x", on_delivery=lambda error, _: errors.append(error))
    refused.flush(20)
    assert not errors or "another password" in str(errors[0])


def test_a_program_that_ends_without_closing_its_clients_ends(
    gateway: GatewayProcess, place: Place
) -> None:
    make_topic(place, gateway.address)
    program = """
import json, sys
from mainstem.client import Consumer, Producer
config = json.loads(sys.argv[1])
producer = Producer(config)
producer.produce("orders", b"x")
producer.flush(20)
consumer = Consumer(config | {"group.id": "readers", "auto.offset.reset": "earliest"})
consumer.subscribe(["orders"])
while consumer.poll(1.0) is None:
    pass
print("read")
"""
    config = json.dumps(place.client(gateway.address))
    run = subprocess.run(
        [sys.executable, "-c", program, config],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "read\n"), run.stderr

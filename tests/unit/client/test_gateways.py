"""Whom a client asks: gateways are found from one, and none that is slow is waited for."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner
from tests.certificates import write_certificates
from tests.unit.client.muting_proxy import MutingProxy
from tests.unit.client.scripted_gateway import Answer, ScriptedGateway

from mainstem.cli.root import cli
from mainstem.client import AdminClient, Producer
from mainstem.client.channels import Channels
from mainstem.client.coordinator_calls import CoordinatorCalls
from mainstem.client.gateways import Gateways
from mainstem.client.metadata import MetadataClient
from mainstem.errors import (
    DeliveryTimeoutError,
    GatewayUnavailableError,
    MainstemError,
    NotLeaderError,
    UnknownMemberError,
)
from mainstem.limits import GATEWAYS_MAX, MIB
from mainstem.protocol import error_to_status
from mainstem.protocol.v1 import groups_pb2, log_pb2, log_pb2_grpc
from mainstem.testing import FakeGateway

pytestmark = pytest.mark.usefixtures("no_leaks")

#: Nothing waits for it, unless the test fails.
LONG_S = 20.0


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def channels() -> Iterator[Channels]:
    made = Channels(MIB)
    yield made
    made.close()


# -------------------------------------------------------------------------------- what is known


def test_the_gateways_that_answers_name_are_asked_after_the_bootstrap_servers(
    channels: Channels,
) -> None:
    gateways = Gateways(["a:1", "b:1"], channels, Clock())
    gateways.learn(["c:1", "b:1", "", "d:1"])
    assert gateways.order() == ["a:1", "b:1", "c:1", "d:1"]


def test_the_one_that_answered_comes_first_and_those_that_failed_last(channels: Channels) -> None:
    clock = Clock()
    gateways = Gateways(["a:1", "b:1"], channels, clock)
    gateways.learn(["c:1"])
    gateways.answered("c:1")
    assert gateways.order() == ["c:1", "a:1", "b:1"]
    gateways.doubt("c:1")
    clock.now += 1
    gateways.doubt("a:1")
    assert gateways.order() == ["b:1", "c:1", "a:1"]
    clock.now += 3600
    assert gateways.order() == ["c:1", "a:1", "b:1"]


def test_a_gateway_that_is_not_named_any_more_is_forgotten_after_a_while_and_a_server_never(
    channels: Channels,
) -> None:
    clock = Clock()
    gateways = Gateways(["a:1"], channels, clock)
    gateways.learn(["b:1", "c:1"])
    clock.now += 100
    gateways.learn(["b:1"])
    assert gateways.order() == ["a:1", "b:1", "c:1"], "it may be restarting"
    clock.now += 550
    assert gateways.order() == ["a:1", "b:1", "c:1"], "nothing was asked"
    gateways.learn(["b:1"])
    assert gateways.order() == ["a:1", "b:1"]


def test_no_more_gateways_are_remembered_than_may_be_and_the_latest_are(
    channels: Channels,
) -> None:
    gateways = Gateways(["a:1"], channels, Clock())
    for number in range(3 * GATEWAYS_MAX):
        gateways.learn([f"g:{number + 1}"])
    known = gateways.order()
    assert len(known) == 1 + GATEWAYS_MAX
    assert known[0] == "a:1"
    assert known[-1] == f"g:{3 * GATEWAYS_MAX}"


# -------------------------------------------------------------------------------------- to ask


def metadata_of(*named: str, leader: str = "") -> Answer:
    def answer(request: log_pb2.MetadataRequest, _: Any) -> log_pb2.MetadataResponse:
        topics = [
            log_pb2.TopicMetadata(topic=name, topic_id="i", partition_count=1, leader=leader)
            for name in request.topics
        ]
        return log_pb2.MetadataResponse(gateways=named, topics=topics)

    return answer


def test_a_gateway_that_is_silent_is_not_waited_for(channels: Channels) -> None:
    ends = threading.Event()

    def silent(*_: object) -> Any:
        ends.wait(LONG_S)
        return log_pb2.MetadataResponse()

    with (
        ScriptedGateway({"Metadata": silent}) as first,
        ScriptedGateway({"Metadata": metadata_of()}) as second,
    ):
        gateways = Gateways([first.address, second.address], channels, time.monotonic)
        begun_at = time.monotonic()
        assert list(
            MetadataClient(gateways, time.monotonic, may_create=True).fetch(["t"], LONG_S)
        ) == ["t"]
        assert time.monotonic() - begun_at < LONG_S / 2
        assert gateways.order() == [second.address, first.address]
        ends.set()


def test_when_the_bootstrap_server_dies_the_gateways_that_it_named_are_asked(
    channels: Channels,
) -> None:
    with ScriptedGateway({"Metadata": metadata_of()}) as other:
        with ScriptedGateway({"Metadata": metadata_of(other.address)}) as first:
            gateways = Gateways([first.address], channels, time.monotonic)
            client = MetadataClient(gateways, time.monotonic, may_create=True)
            client.fetch(["t"], LONG_S)
        found = client.fetch(["t"], LONG_S)
        assert list(found) == ["t"]


def test_the_gateways_of_a_described_cluster_are_asked_by_later_calls() -> None:
    with (
        FakeGateway({"t": 1}) as first,
        FakeGateway({"u": 1}) as second,
        AdminClient({"bootstrap.servers": first.address}) as admin,
    ):
        admin.describe_cluster()
        assert first.address in admin._gateways.order()
        admin._gateways.learn([second.address])
        first.stop()
        assert [one.topic for one in admin.list_topics()] == ["u"]


def test_a_call_without_an_answer_in_time_makes_the_next_one_use_a_new_connection(
    channels: Channels,
) -> None:
    ends = threading.Event()

    def silent_once(request: Any, context: Any) -> Any:
        if len(gateway.peers) == 1:
            ends.wait(LONG_S)
        return metadata_of()(request, context)

    with ScriptedGateway({"Metadata": silent_once}) as gateway:
        gateways = Gateways([gateway.address], channels, time.monotonic)
        client = MetadataClient(gateways, time.monotonic, may_create=True)
        with pytest.raises(GatewayUnavailableError, match="did not answer within 1000 ms"):
            client.fetch(["t"], 1.0)
        client.fetch(["t"], LONG_S)
        client.fetch(["t"], LONG_S)
        ends.set()
    before, after, again = gateway.peers
    assert before != after == again


@pytest.mark.parametrize("broken_count", [1, 2])
def test_a_question_whose_connection_broke_while_it_waited_is_asked_once_more(
    channels: Channels, monkeypatch: pytest.MonkeyPatch, broken_count: int
) -> None:
    monkeypatch.setattr("mainstem.client.gateways._WAITED_S", 0.0)
    asked, ends = threading.Semaphore(0), threading.Event()

    def silent(request: Any, context: Any) -> Any:
        asked.release()
        if len(gateway.peers) <= broken_count:
            ends.wait(LONG_S)
        return metadata_of()(request, context)

    def cut() -> None:
        for _ in range(broken_count):
            assert asked.acquire(timeout=LONG_S)
            proxy.cut()

    with ScriptedGateway({"Metadata": silent}) as gateway, MutingProxy(gateway.address) as proxy:
        cutting = threading.Thread(target=cut)
        cutting.start()
        gateways = Gateways([proxy.address], channels, time.monotonic)
        client = MetadataClient(gateways, time.monotonic, may_create=True)
        if broken_count == 1:
            assert list(client.fetch(["t"], LONG_S)) == ["t"]
        else:
            with pytest.raises(GatewayUnavailableError):
                client.fetch(["t"], LONG_S)
        ends.set()
        cutting.join()


def test_a_connection_that_was_replaced_is_not_replaced_again_by_a_later_call_over_it(
    channels: Channels,
) -> None:
    first = channels.get("127.0.0.1:1")
    channels.renew("127.0.0.1:1", first, LONG_S)
    second = channels.get("127.0.0.1:1")
    channels.renew("127.0.0.1:1", first, LONG_S)
    assert channels.get("127.0.0.1:1") is second is not first


CODES = ["ABORTED", "INTERNAL", "UNKNOWN", "RESOURCE_EXHAUSTED", "UNAVAILABLE"]


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("method", ["Metadata", "InitProducer"])
def test_what_a_proxy_refuses_for_a_moment_is_tried_again(code: str, method: str) -> None:
    refused: list[str] = []

    def twice(name: str, answer: Answer) -> Answer:
        def refuse(request: Any, context: Any) -> Any:
            if name == method and len(refused) < 2:
                refused.append(name)
                context.abort(grpc.StatusCode[code], "odd")
            return answer(request, context)

        return refuse

    def identity(*_: object) -> Any:
        return log_pb2.InitProducerResponse(producer_id=7)

    with (
        FakeGateway({"t": 1}) as leader,
        ScriptedGateway(
            {
                "Metadata": twice("Metadata", metadata_of(leader=leader.address)),
                "InitProducer": twice("InitProducer", identity),
            }
        ) as gateway,
        Producer({"bootstrap.servers": gateway.address, "retry.backoff.ms": 5}) as producer,
    ):
        assert producer.send("t", b"x").result(LONG_S).offset == 0
    assert refused


@pytest.mark.parametrize("code", CODES[:-1])
def test_a_question_of_an_administrator_is_asked_again_where_a_proxy_refused_it(
    channels: Channels, code: str
) -> None:
    def refuse_twice(request: Any, context: Any) -> Any:
        if len(gateway.peers) <= 2:
            context.abort(grpc.StatusCode[code], "odd")
        return metadata_of()(request, context)

    with ScriptedGateway({"Metadata": refuse_twice}) as gateway:
        gateways = Gateways([gateway.address], channels, time.monotonic)
        request = log_pb2.MetadataRequest(topics=["t"])
        answer = gateways.ask_again(
            lambda channel: log_pb2_grpc.LogStub(channel).Metadata, request, LONG_S
        )
    assert [one.topic for one in answer.topics] == ["t"]
    assert len(gateway.peers) == 3


def test_the_coordinator_is_found_among_the_gateways_that_were_named(channels: Channels) -> None:
    def beat(*_: object) -> Any:
        return groups_pb2.HeartbeatResponse(member_id="m")

    with ScriptedGateway({"Heartbeat": beat}) as other:
        gateways = Gateways(["127.0.0.1:1"], channels, time.monotonic)
        gateways.learn([other.address])
        calls = CoordinatorCalls(gateways, repeats=True)
        answer = calls.call("Heartbeat", groups_pb2.HeartbeatRequest(), LONG_S)
    assert answer.member_id == "m"


def test_an_error_of_the_coordinator_is_not_asked_of_another(channels: Channels) -> None:
    error: MainstemError = UnknownMemberError("who are you", group="g")

    def refuse(_: object, context: Any) -> Any:
        context.abort_with_status(error_to_status(error))

    with (
        ScriptedGateway({"Heartbeat": refuse}) as first,
        ScriptedGateway({"Heartbeat": refuse}) as second,
    ):
        gateways = Gateways([first.address, second.address], channels, time.monotonic)
        calls = CoordinatorCalls(gateways, repeats=True)
        with pytest.raises(UnknownMemberError):
            calls.call("Heartbeat", groups_pb2.HeartbeatRequest(), LONG_S)
    assert len(first.peers) == 1
    assert not second.peers


# ---------------------------------------------------------------------------- what is in the way


@pytest.mark.parametrize("name", ["http_proxy", "https_proxy", "grpc_proxy"])
def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    with (
        FakeGateway({"t": 1}) as gateway,
        AdminClient({"bootstrap.servers": f"PLAINTEXT://{gateway.address}"}) as admin,
    ):
        assert [one.topic for one in admin.list_topics()] == ["t"]


def test_a_leader_that_cannot_be_reached_is_told_with_the_setting_that_names_it() -> None:
    unreachable = "127.0.0.1:1"
    with ScriptedGateway({"Metadata": metadata_of(unreachable, leader=unreachable)}) as gateway:
        producer = Producer(
            {
                "bootstrap.servers": gateway.address,
                "delivery.timeout.ms": 2_000,
                "request.timeout.ms": 1_000,
                "retry.backoff.ms": 20,
                "enable.idempotence": False,
            }
        )
        with pytest.raises(DeliveryTimeoutError) as caught:
            producer.send("t", b"x").result(LONG_S)
        producer.close(0)
    assert f"{unreachable} is what a gateway says of itself" in caught.value.message
    assert "advertised.listeners" in caught.value.message
    assert "check bootstrap.servers" not in caught.value.message
    assert "it was never sent" in caught.value.message
    assert caught.value.facts["sent"] == "False"


@contextlib.contextmanager
def web_server() -> Iterator[str]:
    """Speaks HTTP/2, and has no page that anybody asks for."""
    settings = bytes.fromhex("000000 04 00 00000000")
    headers_begin = bytes.fromhex("01 04 00000001")
    headers_404 = bytes.fromhex("000001 01 05 00000001 8d")

    def serve() -> None:
        while True:
            try:
                one, _ = listener.accept()
            except OSError:
                return
            with one, contextlib.suppress(OSError):
                one.sendall(settings)
                while (received := one.recv(65536)) and headers_begin not in received:
                    pass
                one.sendall(headers_404)
                time.sleep(0.02)  # the client takes the answer before it sees the end

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_another_server_at_an_advertised_address_is_told_as_such(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        web_server() as address,
        ScriptedGateway({"Metadata": metadata_of(address, leader=address)}) as gateway,
    ):
        producer = Producer({"bootstrap.servers": gateway.address, "enable.idempotence": False})
        producer.send("t", b"x")
        ends_at = time.monotonic() + LONG_S
        while "another server than a gateway answers at this address" not in caplog.text:
            assert time.monotonic() < ends_at
            time.sleep(0.01)
        producer.close(0)
    assert "advertised.listeners" in caplog.text


def test_a_client_without_tls_hears_that_a_gateway_may_want_it(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    pair = (tmp_path / "gateway.key").read_bytes(), (tmp_path / "gateway.pem").read_bytes()
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    server.start()
    address = f"127.0.0.1:{port}"
    with AdminClient({"bootstrap.servers": address}) as admin:
        with pytest.raises(GatewayUnavailableError, match=r"security\.protocol") as read:
            admin.list_topics()
        with pytest.raises(GatewayUnavailableError, match=r"security\.protocol"):
            admin.create_topic("t")
    status = CliRunner().invoke(cli, ["gateway", "status", "-b", address, "--format", "json"])
    server.stop(None).wait()
    assert "as a gateway with TLS does" in read.value.message
    assert "check bootstrap.servers" in read.value.message
    assert "as a gateway with TLS does" in status.output


def test_a_client_with_tls_hears_that_a_gateway_has_none(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    tls = {"security.protocol": "ssl", "ssl.ca.location": str(tmp_path / "ca.pem")}
    with (
        FakeGateway({"t": 1}) as gateway,
        AdminClient({"bootstrap.servers": gateway.address, **tls}) as admin,
        pytest.raises(GatewayUnavailableError, match=r"speaks no TLS: check security\.protocol"),
    ):
        admin.list_topics()


def test_a_record_for_an_address_where_nobody_speaks_was_never_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        with ScriptedGateway({"Metadata": metadata_of(address, leader=address)}) as gateway:
            producer = Producer(
                {
                    "bootstrap.servers": gateway.address,
                    "delivery.timeout.ms": 700,
                    "request.timeout.ms": 600,
                    "enable.idempotence": False,
                }
            )
            with pytest.raises(DeliveryTimeoutError) as caught:
                producer.send("t", b"x").result(LONG_S)
            producer.close(0)
    assert "it was never sent" in caught.value.message
    assert caught.value.facts["sent"] == "False"


def test_a_record_for_a_leader_that_went_mute_may_be_in_the_log() -> None:
    with contextlib.ExitStack() as stack:
        leader = stack.enter_context(FakeGateway({"t": 1}))
        proxy = stack.enter_context(MutingProxy(leader.address))
        answers = {"Metadata": metadata_of(leader=proxy.address)}
        gateway = stack.enter_context(ScriptedGateway(answers))
        producer = Producer(
            {
                "bootstrap.servers": gateway.address,
                "delivery.timeout.ms": 700,
                "request.timeout.ms": 600,
                "enable.idempotence": False,
            }
        )
        producer.send("t", b"x").result(LONG_S)
        proxy.mute()
        with pytest.raises(DeliveryTimeoutError, match="may still be in the log") as caught:
            producer.send("t", b"y").result(LONG_S)
        producer.close(0)
    assert caught.value.facts["sent"] == "True"


def test_a_record_whose_connection_died_without_a_word_goes_over_a_new_one_and_is_stored_once() -> (
    None
):
    with FakeGateway({"t": 1}) as leader, MutingProxy(leader.address) as proxy:
        leader.topics["t"].leader = proxy.address
        config = {"bootstrap.servers": proxy.address, "request.timeout.ms": 1_100}
        with Producer(config) as producer:
            producer.send("t", b"x").result(LONG_S)
            proxy.mute()
            began = time.monotonic()
            assert producer.send("t", b"y").result(LONG_S).offset == 1
            assert time.monotonic() - began < 5, "a connection is not waited for that is dead"
        assert leader.values("t") == [[b"x", b"y"]]


# ---------------------------------------------------------------------------- what is left behind


def sockets_of_this_process() -> int:
    return sum(os.readlink(f"/proc/self/fd/{one}").startswith("socket:") for one in descriptors())


def descriptors() -> list[str]:
    return [one for one in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{one}")]


def streams_of_producers() -> list[str]:
    names = [one.name for one in threading.enumerate()]
    return [name for name in names if name.startswith("mainstem-producer 127.0.0.1")]


def test_a_producer_keeps_no_thread_and_no_connection_to_a_leader_of_the_past() -> None:
    leader = ""

    def metadata(request: Any, context: Any) -> Any:
        return metadata_of(leader=leader)(request, context)

    with contextlib.ExitStack() as stack:
        leaders = [stack.enter_context(FakeGateway({"t": 1})) for _ in range(6)]

        def refuse_unless_leader(gateway: FakeGateway) -> Callable[[Any], MainstemError | None]:
            return lambda _: None if gateway.address == leader else NotLeaderError("elsewhere")

        for one in leaders:
            one.on_produce = refuse_unless_leader(one)
        known = stack.enter_context(ScriptedGateway({"Metadata": metadata}))
        producer = stack.enter_context(
            Producer(
                {
                    "bootstrap.servers": known.address,
                    "retry.backoff.ms": 5,
                    "enable.idempotence": False,
                }
            )
        )
        leader = leaders[0].address
        producer.send("t", b"x").result(LONG_S)
        sockets = sockets_of_this_process()
        for one in [*leaders[1:], *leaders]:
            leader = one.address
            producer.send("t", b"x").result(LONG_S)
        ends_at = time.monotonic() + LONG_S
        while len(streams_of_producers()) > 1 or sockets_of_this_process() > sockets:
            assert time.monotonic() < ends_at, (streams_of_producers(), sockets)
            time.sleep(0.02)


def test_a_question_can_be_asked_again_when_its_connection_was_given_up(channels: Channels) -> None:
    asked, ends = threading.Event(), threading.Event()

    def silent(*_: object) -> Any:
        asked.set()
        ends.wait(LONG_S)

    with (
        ScriptedGateway({"Metadata": silent}) as first,
        ScriptedGateway({"Metadata": metadata_of()}) as second,
    ):
        gateways = Gateways([first.address], channels, time.monotonic)

        def give_up() -> None:
            asked.wait(LONG_S)
            gateways.learn([second.address])
            channels.drop(first.address)

        giving_up = threading.Thread(target=give_up)
        giving_up.start()
        client = MetadataClient(gateways, time.monotonic, may_create=True)
        with pytest.raises(MainstemError) as caught:
            client.fetch(["t"], LONG_S)
        assert caught.value.retriable
        assert list(client.fetch(["t"], LONG_S)) == ["t"]
        giving_up.join()
        ends.set()

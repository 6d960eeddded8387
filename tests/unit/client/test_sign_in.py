"""Signing in once for all calls of a channel, and again before it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest

from mainstem.client import Producer
from mainstem.client.connection_security import (
    ConnectionSettings,
    Security,
    connection_of,
    connection_settings,
)
from mainstem.client.producer import PRODUCER_KEYS
from mainstem.client.settings import read_settings
from mainstem.client.sign_in import Authorization, ChannelSignIn
from mainstem.errors import (
    AuthenticationError,
    ConfigError,
    GatewayUnavailableError,
    MainstemError,
    SessionExpiredError,
)
from mainstem.protocol import error_from_rpc, never_left, sign_in_failure
from mainstem.tls import TlsFiles


class Source:
    """Credentials that are numbered; answers what it is told to."""

    def __init__(self) -> None:
        self.count = 0
        self.lifetime_s = 100.0
        self.error: Exception | None = None
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.now = 0.0

    def authorization(self, channel: grpc.Channel) -> Authorization:
        self.count += 1
        number = self.count
        assert self.may_answer.wait(10)
        if self.error is not None:
            raise self.error
        return Authorization(
            f"Session {number}",
            renew_at=self.now + 0.8 * self.lifetime_s,
            ends_at=self.now + self.lifetime_s,
        )


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def sign_in(source: Source) -> Iterator[ChannelSignIn]:
    channel = grpc.insecure_channel("127.0.0.1:1")
    made = ChannelSignIn(source, clock=lambda: source.now)
    made.use(channel)
    yield made
    channel.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_many_calls_at_once_are_one_sign_in(source: Source, sign_in: ChannelSignIn) -> None:
    source.may_answer.clear()
    with futures.ThreadPoolExecutor(20) as threads:
        waiting = [threads.submit(sign_in.value) for _ in range(20)]
        until(lambda: source.count == 1)
        source.may_answer.set()
        assert {one.result(10) for one in waiting} == {"Session 1"}
    assert source.count == 1


def test_a_session_is_renewed_in_the_background_after_four_fifths_of_its_time(
    source: Source, sign_in: ChannelSignIn
) -> None:
    assert sign_in.value() == "Session 1"
    source.now = 79.0
    assert sign_in.value() == "Session 1"
    assert source.count == 1
    source.may_answer.clear()
    source.now = 81.0
    assert sign_in.value() == "Session 1", "nobody waits for the new one"
    until(lambda: source.count == 2)
    source.may_answer.set()
    until(lambda: sign_in.value() == "Session 2")
    assert source.count == 2


def test_a_session_that_cannot_be_renewed_is_used_until_it_ends(
    source: Source, sign_in: ChannelSignIn
) -> None:
    sign_in.value()
    source.error = GatewayUnavailableError("not now")
    source.now = 90.0
    assert sign_in.value() == "Session 1"
    until(lambda: source.count == 2 and not sign_in._asking)
    assert sign_in.value() == "Session 1"
    source.now = 100.0
    with pytest.raises(GatewayUnavailableError):
        sign_in.value()


def test_after_a_gateway_has_ended_the_session_the_next_call_signs_in(
    source: Source, sign_in: ChannelSignIn
) -> None:
    sign_in.value()
    sign_in.expired()
    assert sign_in.value() == "Session 2"
    sign_in.expired(begun_at=-1.0)  # of a call that was made with the first one
    assert sign_in.value() == "Session 2"


def test_a_refusal_is_told_to_all_and_asked_for_again_after_a_second(
    source: Source, sign_in: ChannelSignIn
) -> None:
    source.error = AuthenticationError("wrong")
    for _ in range(50):
        with pytest.raises(AuthenticationError, match="wrong"):
            sign_in.value()
    assert source.count == 1
    source.now = 1.0
    source.error = None
    assert sign_in.value() == "Session 2"


def test_who_is_told_that_the_user_has_just_changed_signs_in_once_more(
    source: Source, sign_in: ChannelSignIn
) -> None:
    source.error = SessionExpiredError("changed just now")
    with pytest.raises(SessionExpiredError):
        sign_in.value()
    assert source.count == 2


def test_a_source_that_fails_in_an_unexpected_way_fails_the_call_without_what_it_said(
    source: Source, sign_in: ChannelSignIn
) -> None:
    source.error = RuntimeError("the password is hunter2")
    with pytest.raises(MainstemError, match="RuntimeError") as caught:
        sign_in.value()
    assert "hunter2" not in str(caught.value)


def test_a_call_after_the_channel_is_gone_is_unavailable(source: Source) -> None:
    made = ChannelSignIn(source)
    with pytest.raises(GatewayUnavailableError):
        made.value()


class Failed(grpc.RpcError, grpc.Call):
    """A call that failed with a text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return self._text

    def initial_metadata(self) -> Any:
        return ()

    def trailing_metadata(self) -> Any:
        return ()

    def is_active(self) -> bool:
        return False

    def time_remaining(self) -> Any:
        return None

    def cancel(self) -> Any:
        return False

    def add_callback(self, callback: Any) -> bool:
        return False


PLUGIN = "Getting metadata from plugin failed with error: "


def test_an_error_of_signing_in_comes_through_grpc_as_it_was() -> None:
    for error in (
        AuthenticationError("wrong: é\n", user="x"),
        SessionExpiredError("again", retry_delay_ms=5),
        GatewayUnavailableError("x" * 10_000),
    ):
        found = error_from_rpc(Failed(PLUGIN + sign_in_failure(error)))
        assert type(found) is type(error)
        assert found.retriable == error.retriable
        assert found.message == error.message[: len(found.message) - 3] + "..." or (
            found.message == error.message
        )
        assert never_left(found)
    for text in ("boom", "[]", "{}", '{"code": 1}'):
        found = error_from_rpc(Failed(PLUGIN + text))
        assert isinstance(found, GatewayUnavailableError)


# ------------------------------------------------------------------------------------- the settings


def settings(config: Mapping[str, object]) -> ConnectionSettings:
    reading = read_settings("producer", PRODUCER_KEYS, {"bootstrap.servers": "a:1", **config})
    found = connection_settings(reading.values, reading.faults)
    reading.faults.tell()
    return found


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAINSTEM_SASL_PASSWORD", raising=False)


GOOD: dict[str, object] = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanisms": "scram-sha-512",
    "sasl.username": "alice",
    "sasl.password": "hunter2",
}


def test_a_password_comes_from_a_setting_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings(GOOD).credentials is not None
    file = tmp_path / "password"
    without = {name: value for name, value in GOOD.items() if name != "sasl.password"}
    with pytest.raises(ConfigError, match="MAINSTEM_SASL_PASSWORD"):
        settings(without)
    with pytest.raises(ConfigError, match="cannot be read"):
        settings(without | {"sasl.password.location": str(file)})
    file.write_bytes(b"\nsecond line")
    with pytest.raises(ConfigError, match="empty first line"):
        settings(without | {"sasl.password.location": str(file)})
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        settings(without | {"sasl.password.location": str(file)})
    file.write_bytes(b"from the file\r\n")
    assert settings(without | {"sasl.password.location": str(file)}).credentials is not None
    with pytest.raises(ConfigError, match="keep one") as caught:
        settings(GOOD | {"sasl.password.location": str(file)})
    assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("MAINSTEM_SASL_PASSWORD", "from the environment")
    assert settings(without).credentials is not None


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"security.protocol": "sasl_plaintext"}, "encrypted"),
        ({"security.protocol": "sasl_ssl"}, "sasl.mechanism is not set"),
        (GOOD | {"sasl.mechanisms": "PLAIN"}, "password itself would travel"),
        (GOOD | {"sasl.mechanisms": "GSSAPI"}, "Kerberos"),
        (GOOD | {"sasl.mechanisms": "x"}, "one of SCRAM"),
        (GOOD | {"sasl.username": ""}, "sasl.username is not set"),
        (GOOD | {"sasl.username": "a\x00b"}, "character"),
        (GOOD | {"security.protocol": "ssl"}, "sasl_ssl"),
        ({"sasl.username": "alice"}, "sasl_ssl"),
        (GOOD | {"sasl.jaas.config": "x"}, "sasl.jaas.config is not supported"),
    ],
)
def test_what_does_not_go_together_is_refused_without_the_password(
    config: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        settings(config)
    assert "hunter2" not in str(caught.value) + repr(caught.value.facts)


def test_another_client_for_the_same_gateways_signs_in_as_the_first() -> None:
    config = GOOD | {"bootstrap.servers": "a:1", "linger.ms": 5}
    assert connection_of(config) == GOOD | {"bootstrap.servers": "a:1"}


def test_a_password_is_in_no_repr() -> None:
    found = settings(GOOD)
    assert "hunter2" not in repr(found) + repr(found.credentials)
    with Producer(GOOD | {"bootstrap.servers": "127.0.0.1:1"}) as producer:
        assert "hunter2" not in repr(producer) + repr(vars(producer))


def call(channel: Any) -> None:
    channel.unary_unary("/mainstem.v1.Log/Metadata")(b"", timeout=2)


def test_nothing_is_signed_in_to_over_a_connection_without_encryption(source: Source) -> None:
    channel = Security(ConnectionSettings(None, source)).open("127.0.0.1:1", [])
    with pytest.raises(grpc.RpcError):
        call(channel)
    channel.close()
    assert source.count == 0


def test_a_connection_that_cannot_be_made_asks_for_no_credentials(source: Source) -> None:
    channel = Security(ConnectionSettings(TlsFiles(), source)).open("127.0.0.1:1", [])
    with pytest.raises(grpc.RpcError):
        call(channel)
    channel.close()
    assert source.count == 0

"""Tokens that prove who a client is, made by a function of the application, which may do what it
likes."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from mainstem.client import AdminClient, Consumer, Producer
from mainstem.client.bearer_tokens import BearerTokens, Token, tokens_of_callback
from mainstem.client.sign_in import Authorization, ChannelSignIn
from mainstem.errors import AuthenticationError, ConfigError, GatewayUnavailableError

pytestmark = pytest.mark.usefixtures("no_leaks")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def channels() -> Iterator[list[grpc.Channel]]:
    with contextlib.ExitStack() as closing:
        yield [closing.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}")) for port in (1, 2)]


def numbered(lifetime_s: float = 100.0) -> tuple[Callable[[], Token], list[str]]:
    """Makes another token each time, and the list of those that were made."""
    made: list[str] = []

    def make() -> Token:
        made.append(f"token-{len(made)}")
        return Token(made[-1], lifetime_s)

    return make, made


def test_a_token_is_made_once_for_all_channels_and_again_for_one_that_asks_again(
    channels: list[grpc.Channel],
) -> None:
    first, second = channels
    make, made = numbered()
    clock = Clock()
    tokens = BearerTokens(make, clock=clock)
    assert tokens.authorization(first) == Authorization("Bearer token-0", 180.0, 200.0)
    assert tokens.authorization(second).value == "Bearer token-0"
    # It asks again: the session is over, or nearly.
    assert tokens.authorization(first).value == "Bearer token-1"
    assert tokens.authorization(second).value == "Bearer token-1"
    clock.now += 90  # nobody gets one that is to be renewed
    with grpc.insecure_channel("127.0.0.1:3") as third:
        assert tokens.authorization(third).value == "Bearer token-2"
    assert len(made) == 3


def test_threads_that_need_a_token_at_once_wait_for_one(channels: list[grpc.Channel]) -> None:
    gate = threading.Event()
    made: list[int] = []

    def make() -> Token:
        made.append(1)
        assert gate.wait(30)
        return Token("one", 60.0)

    tokens = BearerTokens(make)
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda one=one: found.append(tokens.authorization(one).value))
        for one in channels
    ]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(30)
    assert found == ["Bearer one"] * 2
    assert len(made) == 1


def test_while_none_can_be_made_another_channel_gets_the_last_one_until_it_ends(
    channels: list[grpc.Channel],
) -> None:
    first, second = channels
    fails = False
    clock = Clock()

    def make() -> Token:
        if fails:
            raise GatewayUnavailableError("the provider is down")
        return Token("one", 100.0)

    tokens = BearerTokens(make, clock=clock)
    tokens.authorization(first)
    fails = True
    clock.now += 90
    with pytest.raises(GatewayUnavailableError, match="the provider is down"):
        tokens.authorization(first)
    found = tokens.authorization(second)
    assert (found.value, found.renew_at, found.ends_at) == ("Bearer one", 191.0, 200.0)
    clock.now += 10
    with grpc.insecure_channel("127.0.0.1:3") as third, pytest.raises(GatewayUnavailableError):
        tokens.authorization(third)


@pytest.mark.parametrize(
    "failure", [ValueError("secret-token"), SystemExit(1), KeyboardInterrupt(), RecursionError()]
)
def test_a_callback_that_raises_is_told_without_what_it_says(
    failure: BaseException, channels: list[grpc.Channel]
) -> None:
    def callback(config: str) -> object:
        raise failure

    tokens = BearerTokens(tokens_of_callback(callback, ""))
    for _ in range(2):
        with pytest.raises(AuthenticationError) as caught:
            tokens.authorization(channels[0])
        assert f"oauth_cb raised {type(failure).__name__}" in caught.value.message
        assert "secret-token" not in str(caught.value)
        assert caught.value.__cause__ is failure


def test_an_error_of_ours_that_a_callback_raises_says_whether_it_is_worth_another_try(
    channels: list[grpc.Channel],
) -> None:
    def callback(config: str) -> object:
        raise GatewayUnavailableError("the provider is down")

    with pytest.raises(GatewayUnavailableError, match="provider is down"):
        BearerTokens(tokens_of_callback(callback, "")).authorization(channels[0])


#: Far enough for the longest run of all tests.
LATER = time.time() + 10**6


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (None, "a NoneType; it must return"),
        ("token", "a str; it must return"),
        (("token",), "a tuple; it must return"),
        (("token", None), "a NoneType as the token's end"),
        (("token", "2030-01-01"), "a str as the token's end"),
        (("token", True), "a bool as the token's end"),
        (("token", math.nan), "a float as the token's end"),
        (("token", math.inf), "a float as the token's end"),
        (("token", time.time() * 1000), "not milliseconds"),
        (("token", LATER - 10**7), "a token that ended .* s ago"),
        (("token", 0), "a token that ended"),
        ((None, LATER), "a NoneType in the place of a token"),
        ((b"token", LATER), "a bytes in the place of a token"),
        (("", LATER), "what is no token"),
        (("to ken", LATER), "what is no token"),
        (("token\r\nother: header", LATER), "what is no token"),
        (("tok\x00en", LATER), "what is no token"),
        (("tökén", LATER), "what is no token"),
        (("token\n", LATER), "what is no token"),
        (("x" * 9000, LATER), "a token of 9000 characters"),
    ],
)
def test_nonsense_of_a_callback_is_told(
    found: object, words: str, channels: list[grpc.Channel]
) -> None:
    tokens = BearerTokens(tokens_of_callback(lambda config: found, ""))
    with pytest.raises(AuthenticationError, match=words):
        tokens.authorization(channels[0])


def test_a_coroutine_of_a_callback_is_told_and_closed(channels: list[grpc.Channel]) -> None:
    async def fetch() -> tuple[str, float]:
        return "token", time.time() + 60

    tokens = BearerTokens(tokens_of_callback(lambda config: fetch(), ""))
    with pytest.raises(AuthenticationError, match="coroutine"):
        tokens.authorization(channels[0])


def test_a_callback_gets_its_configuration_and_what_it_returns_besides_is_not_used(
    channels: list[grpc.Channel],
) -> None:
    asked: list[str] = []

    def callback(config: str) -> object:
        asked.append(config)
        return "a.b-c_d~e+f/g==", time.time() + 60, "alice", {"extension": "x"}

    tokens = BearerTokens(tokens_of_callback(callback, "scope=all"))
    found = tokens.authorization(channels[0])
    assert found.value == "Bearer a.b-c_d~e+f/g=="
    assert 40 < found.renew_at - time.monotonic() < 48.1
    assert asked == ["scope=all"]


def test_a_callback_that_hangs_is_given_up_and_not_called_a_second_time(
    channels: list[grpc.Channel],
) -> None:
    gate = threading.Event()
    called: list[int] = []

    def callback(config: str) -> object:
        called.append(1)
        gate.wait(60)
        return "late", time.time() + 60

    tokens = BearerTokens(tokens_of_callback(callback, ""), wait_s=0.2)
    try:
        for _ in range(3):
            began = time.monotonic()
            with pytest.raises(AuthenticationError, match="oauth_cb has not come back within"):
                tokens.authorization(channels[0])
            assert time.monotonic() - began < 5
        assert len(called) == 1
    finally:
        gate.set()
    # What comes late is good for the next one.
    deadline = time.monotonic() + 30
    while True:
        try:
            assert tokens.authorization(channels[0]).value == "Bearer late"
            break
        except AuthenticationError:
            assert time.monotonic() < deadline
    assert len(called) == 1


def test_a_callback_that_needs_the_token_itself_is_given_up(channels: list[grpc.Channel]) -> None:
    tokens: BearerTokens

    def callback(config: str) -> object:
        return tokens.authorization(channels[1]).value, time.time() + 60

    tokens = BearerTokens(tokens_of_callback(callback, ""), wait_s=0.2)
    with pytest.raises(AuthenticationError, match="it waits for itself"):
        tokens.authorization(channels[0])


def test_a_session_that_is_over_gets_another_token(channels: list[grpc.Channel]) -> None:
    make, _ = numbered()
    tokens = BearerTokens(make)
    sign_in = ChannelSignIn(tokens)
    sign_in.use(channels[0])
    assert [sign_in.value() for _ in range(3)] == ["Bearer token-0"] * 3
    sign_in.expired()
    assert [sign_in.value() for _ in range(3)] == ["Bearer token-1"] * 3


def test_a_token_is_shown_nowhere(channels: list[grpc.Channel]) -> None:
    token = Token("secret-token", 60.0)
    tokens = BearerTokens(lambda: token)
    found = tokens.authorization(channels[0])
    assert "secret-token" not in f"{token!r} {found!r} {vars(tokens)['_make']!r}"


def config(**more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "OAUTHBEARER",
        **more,
    }


OIDC = {
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "https://example.com/token",
    "sasl.oauthbearer.client.id": "alice",
    "sasl.oauthbearer.client.secret": "hidden-secret",
}


async def awaited(config: str) -> tuple[str, float]:
    return "token", 0.0


@pytest.mark.parametrize("client", [Producer, Consumer, AdminClient])
@pytest.mark.parametrize(
    ("more", "name", "words"),
    [
        ({}, "oauth_cb", "nothing says where tokens are from"),
        ({"oauth_cb": "name"}, "oauth_cb", "it must be a function"),
        ({"oauth_cb": awaited}, "oauth_cb", "coroutine function"),
        ({"oauth_cb": print, **OIDC}, "oauth_cb", "keep one"),
        (
            {**OIDC, "sasl.oauthbearer.method": "default"},
            "sasl.oauthbearer.token.endpoint.url",
            "set sasl.oauthbearer.method=oidc",
        ),
        (
            {**OIDC, "sasl.oauthbearer.token.endpoint.url": "http://example.com/"},
            "sasl.oauthbearer.token.endpoint.url",
            "of https",
        ),
        ({**OIDC, "sasl.oauthbearer.client.id": None}, "sasl.oauthbearer.client.id", "not set"),
        ({**OIDC, "sasl.oauthbearer.client.id": "a:b"}, "sasl.oauthbearer.client.id", "no colon"),
        (
            {**OIDC, "sasl.oauthbearer.client.secret": None},
            "sasl.oauthbearer.client.secret",
            "not set",
        ),
        (
            {**OIDC, "sasl.oauthbearer.client.secret.location": "/x"},
            "sasl.oauthbearer.client.secret",
            "keep one",
        ),
        (
            {
                **OIDC,
                "sasl.oauthbearer.client.secret": None,
                "sasl.oauthbearer.client.secret.location": "/nowhere/secret",
            },
            "sasl.oauthbearer.client.secret.location",
            "cannot be read",
        ),
        ({**OIDC, "https.ca.location": "/nowhere.pem"}, "https.ca.location", "cannot be read"),
        (
            {"security.protocol": "ssl", "sasl.mechanism": None, "oauth_cb": print},
            "oauth_cb",
            "security.protocol=sasl_ssl",
        ),
        (
            {**OIDC, "sasl.mechanism": "SCRAM-SHA-512"},
            "sasl.oauthbearer.method",
            "set sasl.mechanism=OAUTHBEARER",
        ),
        (
            {**OIDC, "sasl.oauthbearer.grant.type": "urn:x"},
            "sasl.oauthbearer.grant.type",
            "client_credentials",
        ),
    ],
)
def test_settings_of_tokens_that_do_not_fit_are_refused_by_name(
    client: Callable[[dict[str, Any]], Any], more: dict[str, Any], name: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        client(config(**more))
    assert words in caught.value.message
    assert name in caught.value.facts["names"].split(",")
    assert "hidden-secret" not in f"{caught.value} {caught.value.facts}"

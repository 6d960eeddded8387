"""Tokens from an OpenID provider's token endpoint, which fails, hangs and answers nonsense."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.oidc import TOKENS, OidcServer, oidc_server

from mainstem.client import token_endpoint as module
from mainstem.client.token_endpoint import TokenEndpoint
from mainstem.client.token_settings import TOKEN_KEYS, token_source
from mainstem.errors import AuthenticationError, GatewayUnavailableError

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def server() -> Iterator[OidcServer]:
    with oidc_server() as found:
        yield found


def endpoint(server: OidcServer, secret: str = "secret", **more: Any) -> TokenEndpoint:
    return TokenEndpoint(server.url + TOKENS, "alice", lambda: secret, **more)


def test_a_client_gets_a_token_for_its_secret_and_scope(server: OidcServer) -> None:
    server.lifetime_s = 120.0
    token = endpoint(server, scope="read write")()
    assert token.value.count(".") == 2
    assert token.lifetime_s == 120.0
    assert server.forms == [{"grant_type": ["client_credentials"], "scope": ["read write"]}]


def test_a_wrong_secret_is_told_at_once_and_not_shown(server: OidcServer) -> None:
    body = {"error": "invalid_client", "error_description": "what is hidden-secret\n?"}
    server.answers[TOKENS] = (401, json.dumps(body).encode())
    with pytest.raises(AuthenticationError) as caught:
        endpoint(server, "hidden-secret")()
    assert "status 401 invalid_client what is ******** ?" in caught.value.message
    assert server.requests[TOKENS] == 1


def test_an_endpoint_that_fails_is_asked_again(server: OidcServer) -> None:
    server.answers[TOKENS] = (503, b"")

    def sleep(seconds: float) -> None:
        assert 0 < seconds < 2
        if server.requests[TOKENS] == 3:
            server.answers.clear()

    assert endpoint(server, sleep=sleep)().lifetime_s == 60.0
    assert server.requests[TOKENS] == 4


@pytest.mark.parametrize("way", ["503", "429", "down", "hangs", "drips"])
def test_an_endpoint_that_does_not_come_back_is_worth_another_try_later(
    server: OidcServer, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ALL_S", 0.6)
    monkeypatch.setattr(module, "_REQUEST_S", 0.3)
    find = endpoint(server)
    if way == "down":
        find = TokenEndpoint("http://127.0.0.1:1/token", "alice", lambda: "secret")
    elif way in ("hangs", "drips"):
        getattr(server, way).add(TOKENS)
    else:
        server.answers[TOKENS] = (int(way), b"")
    began = time.monotonic()
    with pytest.raises(GatewayUnavailableError, match="gave no token"):
        find()
    assert time.monotonic() - began < 5
    server.closing.set()


@pytest.mark.parametrize(
    ("status", "answer", "words"),
    [
        (200, b"<html>", "NoneType in the place of a token"),
        (200, b"[" * 10_000, "NoneType in the place of a token"),
        (200, b"[]", "NoneType in the place of a token"),
        (200, b'{"access_token": 7}', "int in the place of a token"),
        (200, b'{"access_token": "a b", "expires_in": 60}', "what is no token"),
        (200, b'{"access_token": "abc"}', "not with when it ends"),
        (200, b'{"access_token": "a.b.c"}', "not with when it ends"),
        (200, b'{"access_token": "a.eyJ9.c"}', "not with when it ends"),
        (200, b'{"access_token": "abc", "expires_in": "soon"}', "not with when it ends"),
        (200, b'{"access_token": "abc", "expires_in": NaN}', "not with when it ends"),
        (200, b'{"access_token": "abc", "expires_in": 0}', "has ended already"),
        (200, b'{"access_token": "abc", "expires_in": 9, "token_type": "mac"}', "no bearer token"),
        (400, b"\xff", "status 400; check"),
        (404, b'{"error": {"a": 1}}', "status 404; check"),
        (302, b"", "status 302"),
    ],
)
def test_an_answer_without_a_token_is_told(
    server: OidcServer, status: int, answer: bytes, words: str
) -> None:
    server.answers[TOKENS] = (status, answer)
    with pytest.raises(AuthenticationError, match=words):
        endpoint(server)()


def test_a_token_that_comes_without_its_lifetime_says_itself_when_it_ends(
    server: OidcServer,
) -> None:
    answer = {"access_token": server.token(lifetime_s=100.0), "token_type": "bearer"}
    server.answers[TOKENS] = (200, json.dumps(answer).encode())
    assert 90 < endpoint(server)().lifetime_s <= 100
    server.answers[TOKENS] = (200, json.dumps(answer | {"expires_in": "50"}).encode())
    assert endpoint(server)().lifetime_s == 50


def test_a_secret_in_a_file_is_read_for_each_token(server: OidcServer, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("secret\n")
    values = {key.name: key.default for key in TOKEN_KEYS} | {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": server.url + TOKENS,
        "sasl.oauthbearer.client.id": "alice",
        "sasl.oauthbearer.client.secret.location": str(file),
    }
    make = token_source(values, {})._make
    make()
    file.write_text("other\n")
    server.clients["alice"] = "other"
    make()
    file.write_text("\n")
    with pytest.raises(AuthenticationError, match="empty first line"):
        make()

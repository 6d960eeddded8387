"""Tokens of an OpenID provider, as a gateway takes them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import structlog
from cryptography.hazmat.primitives import serialization
from tests.oidc import DISCOVERY, JWKS, OidcServer, SigningKey, oidc_server
from tests.unit.ingest_gateway.harness import run, soon, until

from mainstem.config import load_gateway_config
from mainstem.delta_log.store import time_elapsed_s
from mainstem.errors import AuthenticationError, GatewayUnavailableError, InvalidConfigError
from mainstem.ingest_gateway.security import issuer as issuer_module
from mainstem.ingest_gateway.security import oidc as oidc_module
from mainstem.ingest_gateway.security.claims import ExpectedClaims, check_claims
from mainstem.ingest_gateway.security.issuer import Issuer, reader_of
from mainstem.ingest_gateway.security.oidc import BearerProof, bearer_proof_of
from mainstem.security import USER, Principal

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def server() -> Iterator[OidcServer]:
    with oidc_server() as found:
        yield found


def expected(server: OidcServer) -> ExpectedClaims:
    return ExpectedClaims(server.url, frozenset(("mainstem", "other")), 1.0, "sub", "groups")


@asynccontextmanager
async def proving(
    server: OidcServer,
    refresh_s: float = 60.0,
    fetch_every_s: float = 0.02,
    read: Callable[[], bytes] | None = None,
    wall_clock_s: Callable[[], float] = time.time,
) -> AsyncIterator[BearerProof]:
    """What finds out whose tokens are, while the block lasts."""
    issuer = Issuer(read or reader_of(server.url, ""), refresh_s, fetch_every_s)
    prove = BearerProof(issuer, expected(server), wall_clock_s)
    prove.start()
    try:
        yield prove
    finally:
        server.closing.set()  # what hangs ends
        await soon(prove.close())


async def refused(prove: BearerProof, token: str, words: str) -> None:
    with pytest.raises(AuthenticationError, match=words) as caught:
        await soon(prove(token))
    for part in token.split("."):
        assert len(part) < 8 or part not in caught.value.message, "the token is told"


def test_a_token_says_who_somebody_is_with_their_groups_until_it_ends(server: OidcServer) -> None:
    async def test() -> None:
        async with proving(server) as prove:
            token = server.token("alice", 60.0, groups=["traders", "Ops & more"])
            found = await soon(prove(token))
            assert found.principal == Principal(USER, "alice", frozenset(("traders", "Ops & more")))
            assert 55 < found.ends_at - time_elapsed_s() < 61.5
            assert await soon(prove(token)) is found  # it is known
            assert (await soon(prove(server.token("bob")))).principal == Principal(USER, "bob")

    run(test())


@pytest.mark.parametrize(
    "algorithm", ["RS256", "RS512", "PS384", "ES256", "ES384", "ES512", "EdDSA"]
)
def test_signatures_of_public_keys_are_good(server: OidcServer, algorithm: str) -> None:
    async def test() -> None:
        server.rotate("second", algorithm)
        async with proving(server) as prove:
            assert (await soon(prove(server.token()))).principal.name == "alice"

    run(test())


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def unsigned(header: dict[str, Any], claims: dict[str, Any]) -> str:
    return ".".join(encoded(json.dumps(one).encode()) for one in (header, claims)) + "."


def with_secret(secret: bytes, kid: str, claims: dict[str, Any]) -> str:
    signed = unsigned({"alg": "HS256", "kid": kid}, claims)[:-1]
    return f"{signed}.{encoded(hmac.digest(secret, signed.encode(), hashlib.sha256))}"


def test_tokens_with_no_signature_or_that_of_a_shared_secret_are_refused(
    server: OidcServer,
) -> None:
    async def test() -> None:
        key = server.rotate("rsa", "RS256")
        public = key.private.public_key()
        pem = public.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        claims = server.claims()
        async with proving(server) as prove:
            for algorithm in ("none", "None", "NONE", "", "HS256", "RS1", "ES256K", None, 7):
                await refused(prove, unsigned({"alg": algorithm, "kid": "rsa"}, claims), "alg")
            await refused(prove, unsigned({"kid": "rsa"}, claims), "alg")
            for secret in (pem, json.dumps(key.jwk).encode(), key.jwk["n"].encode()):
                await refused(prove, with_secret(secret, "rsa", claims), "alg is none of")
            # The signature of another token, none, and one of another key of the same name.
            other, own = server.token("bob"), server.token("alice")
            mixed = f"{own.rpartition('.')[0]}.{other.rpartition('.')[2]}"
            await refused(prove, mixed, "signature is not that")
            await refused(prove, own.rpartition(".")[0] + ".", "signature")
            await refused(prove, SigningKey("first").sign(claims), "signature is not that")
            # A key is not used with an algorithm that is not its own.
            await refused(prove, unsigned({"alg": "ES256", "kid": "rsa"}, claims), "algorithm")
            await refused(prove, key.sign(claims, crit=["x"], x=1), "no signed JSON web token")

    run(test())


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"exp": time.time() - 10**6}, "exp was 100.... s ago"),
        ({"exp": None}, "exp is missing"),
        ({"exp": "tomorrow"}, "exp is no time"),
        ({"exp": True}, "exp is no time"),
        ({"exp": 10**400}, "exp is no time"),
        ({"exp": [1]}, "exp is no time"),
        ({"nbf": time.time() + 10**6}, "nbf is in .* not good yet"),
        ({"nbf": "x"}, "nbf is no time"),
        ({"iat": time.time() + 10**6}, "iat is in .* from the future"),
        ({"iss": "https://example.com"}, "iss is not"),
        ({"iss": None}, "iss is not"),
        ({"iss": ["a"]}, "iss is not"),
        ({"aud": "mainstem2"}, "aud has nothing"),
        ({"aud": ["a", "b"]}, "aud has nothing"),
        ({"aud": None}, "aud has nothing"),
        ({"aud": {"mainstem": 1}}, "aud has nothing"),
        ({"aud": [["mainstem"], 7]}, "aud has nothing"),
        ({"sub": None}, "sub is missing"),
        ({"sub": 7}, "sub is missing or no text"),
        ({"sub": ""}, "sub is empty"),
        ({"sub": "  "}, "sub is empty"),
        ({"sub": "x" * 250}, "sub has 250 characters"),
        ({"sub": "a\nb"}, "sub has a control character"),
        ({"sub": "a\ud800"}, "sub has a control character"),
        ({"groups": 7}, "groups is neither"),
        ({"groups": {"a": 1}}, "groups is neither"),
        ({"groups": ["a", 7]}, "groups is neither"),
        ({"groups": ["a", ""]}, "groups is empty"),
        ({"groups": ["a" * 250]}, "groups has 250 characters"),
        ({"groups": [str(number) for number in range(1001)]}, "groups has 1001 names"),
    ],
)
def test_a_token_that_does_not_say_what_it_must_is_refused(
    server: OidcServer, claims: dict[str, Any], words: str
) -> None:
    payload = json.dumps(server.claims(**claims)).encode()
    with pytest.raises(AuthenticationError, match=words):
        check_claims(payload, expected(server), time.time())


@pytest.mark.parametrize(
    ("groups", "names"),
    [
        ("a b", {"a", "b"}),
        ("a,b, c", {"a", "b", "c"}),
        (" a,,b ", {"a", "b"}),
        ("", set()),
        (" , ", set()),
        ([], set()),
        (None, set()),
        (["a b", "c,d", "e:f"], {"a b", "c,d", "e:f"}),
    ],
)
def test_groups_are_a_list_or_a_text(server: OidcServer, groups: Any, names: set[str]) -> None:
    payload = json.dumps(server.claims(groups=groups, aud=["x", "other"])).encode()
    principal, _ = check_claims(payload, expected(server), time.time())
    assert principal.groups == names


@pytest.mark.parametrize("payload", [b"", b"7", b"[]", b"\xff", b"[" * 5000, b'"text"'])
def test_a_token_without_claims_is_refused(server: OidcServer, payload: bytes) -> None:
    with pytest.raises(AuthenticationError, match="no claims"):
        check_claims(payload, expected(server), time.time())


def test_clocks_may_differ_by_the_skew(server: OidcServer) -> None:
    now = time.time()
    payload = json.dumps(server.claims(exp=now, nbf=now, iat=now)).encode()
    for clock, good in ((-1.5, False), (-0.5, True), (0.9, True), (1.5, False)):
        if good:
            check_claims(payload, expected(server), now + clock)
        else:
            with pytest.raises(AuthenticationError):
                check_claims(payload, expected(server), now + clock)


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "....",
        "a.b.c",
        "\x00" * 50,
        "Zoë.🦊.x",
        "\ud800",
        encoded(b"[" * 4000) + ".e30.x",
        encoded(b'{"alg":"ES256","kid":' + b"9" * 5000 + b"}") + ".e30.x",
        encoded(b'{"alg":"ES256","kid":["a"]}') + ".e30.eA",
        encoded(b'{"alg":"ES256","kid":"first","b64":false,"crit":["b64"]}') + "..eA",
        encoded(b"null") + ".e30.eA",
    ],
)
def test_garbage_is_refused(server: OidcServer, token: str) -> None:
    async def test() -> None:
        async with proving(server) as prove:
            await refused(prove, token, "the token")

    run(test())


def test_a_token_that_is_too_large_is_refused_unread(server: OidcServer) -> None:
    async def test() -> None:
        async with proving(server) as prove:
            token = server.token(filler="x" * 8192)
            with pytest.raises(AuthenticationError, match="a gateway takes 8192"):
                await soon(prove(token))

    run(test())


def test_a_new_key_is_fetched_when_a_token_names_it(server: OidcServer) -> None:
    async def test() -> None:
        async with proving(server) as prove:
            first = await soon(prove(server.token()))
            server.rotate("second")
            await soon(prove(server.token("bob")))
            assert not first.is_over

    run(test())


def test_a_key_that_is_removed_ends_its_tokens_at_the_next_refresh(server: OidcServer) -> None:
    async def test() -> None:
        async with proving(server, refresh_s=0.05) as prove:
            token = server.token()
            found = await soon(prove(token))
            assert not found.is_over
            server.rotate("second", keep=False)
            await until(lambda: found.is_over)
            await refused(prove, token, "does not list")
            # Another key of the same name is not the one that is gone.
            server.keys = [SigningKey("first")]
            await refused(prove, token, "signature is not that")

    run(test())


def test_a_flood_of_invented_keys_fetches_once_in_a_while(server: OidcServer) -> None:
    read = reader_of(server.url, "")
    began: list[float] = []

    def noted() -> bytes:
        began.append(time.monotonic())
        return read()

    invented = SigningKey("invented")
    floods = [
        [invented.sign(server.claims(), kid=f"no-{flood}-{number}") for number in range(20)]
        for flood in range(2)
    ]

    async def test() -> None:
        async with proving(server, fetch_every_s=0.7, read=noted) as prove:
            await soon(prove(server.token()))
            for tokens in floods:
                found = await soon(
                    asyncio.gather(*(prove(token) for token in tokens), return_exceptions=True)
                )
                assert all(isinstance(one, AuthenticationError) for one in found)
        assert 2 <= len(began) <= 3
        assert all(later - earlier > 0.6 for earlier, later in pairwise(began))

    run(test())


def test_what_another_issuer_says_of_itself_is_not_taken(server: OidcServer) -> None:
    async def test() -> None:
        document = {"issuer": f"{server.url}/other", "jwks_uri": server.url + JWKS}
        server.answers[DISCOVERY] = (200, json.dumps(document).encode())
        async with proving(server) as prove:
            with pytest.raises(GatewayUnavailableError):
                await soon(prove(server.token()))

    run(test())


def test_more_tokens_than_may_wait_for_a_key_are_to_be_sent_again(
    server: OidcServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        monkeypatch.setattr(issuer_module, "WAITING_MAX", 2)
        monkeypatch.setattr(issuer_module, "FIND_S", 0.3)
        server.hangs.add(DISCOVERY)
        async with proving(server) as prove:
            token = server.token()
            found = await soon(
                asyncio.gather(*(prove(token) for _ in range(4)), return_exceptions=True)
            )
            assert all(isinstance(one, GatewayUnavailableError) for one in found)
            assert sum("2 tokens wait" in str(one) for one in found) == 2

    run(test())


def test_an_issuer_that_is_down_at_the_start_is_asked_until_it_is_there(
    server: OidcServer,
) -> None:
    async def test() -> None:
        server.answers[DISCOVERY] = (503, b"")
        async with proving(server) as prove:
            with pytest.raises(GatewayUnavailableError, match="cannot be read at the moment"):
                await soon(prove(server.token()))
            del server.answers[DISCOVERY]
            assert (await soon(prove(server.token()))).principal.name == "alice"

    run(test())


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        (DISCOVERY, (503, b"")),
        (DISCOVERY, (200, b"<html>")),
        (DISCOVERY, (200, b"[]")),
        (DISCOVERY, (200, b'{"issuer": "https://other.example.com"}')),
        (JWKS, (200, b'{"keys": []}')),
        (JWKS, (200, b"\x00\xff" * 100)),
        (JWKS, (200, b"x" * 2_000_000)),
        (JWKS, (404, b"")),
    ],
)
def test_keys_that_were_read_stay_good_while_the_issuer_fails_which_is_logged_once(
    server: OidcServer, path: str, answer: tuple[int, bytes]
) -> None:
    async def test() -> None:
        with structlog.testing.capture_logs() as logs:
            async with proving(server, refresh_s=0.02) as prove:
                found = await soon(prove(server.token()))
                server.answers[path] = answer
                before = server.requests[DISCOVERY]
                await until(lambda: server.requests[DISCOVERY] > before + 2)
                assert not found.is_over
                await soon(prove(server.token("bob")))
                with pytest.raises(GatewayUnavailableError):
                    await soon(prove(SigningKey("unknown").sign(server.claims())))
                del server.answers[path]
                server.rotate("second")
                await soon(prove(server.token("carol")))
        warnings = [one["event"] for one in logs if one["log_level"] == "warning"]
        assert len(warnings) == 1, logs

    run(test())


@pytest.mark.parametrize(
    "jwks", ["http://example.com/keys", "file:///etc/passwd", "ftp://x/", 7, None, ["a"]]
)
def test_keys_are_not_fetched_from_just_anywhere(server: OidcServer, jwks: Any) -> None:
    async def test() -> None:
        document = {"issuer": server.url, "jwks_uri": jwks}
        server.answers[DISCOVERY] = (200, json.dumps(document).encode())
        with structlog.testing.capture_logs() as logs:
            async with proving(server) as prove:
                with pytest.raises(GatewayUnavailableError):
                    await soon(prove(server.token()))
        assert "jwks_uri" in next(one["error"] for one in logs if "error" in one)

    run(test())


def test_an_issuer_that_hangs_holds_up_no_loop_and_has_one_request_at_a_time(
    server: OidcServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        monkeypatch.setattr(issuer_module, "FETCH_S_MAX", 0.1)
        gate = threading.Event()
        started: list[float] = []

        def read() -> bytes:
            started.append(time.monotonic())
            gate.wait(30)
            return b""

        try:
            async with proving(server, refresh_s=0.05, read=read) as prove:
                for _ in range(3):
                    with pytest.raises(GatewayUnavailableError):
                        await soon(prove(server.token()))
            assert len(started) == 1
        finally:
            gate.set()

    run(test())


def test_a_token_ends_when_its_time_is_over_and_a_clock_that_was_set_back_does_not_prolong_it(
    server: OidcServer,
) -> None:
    async def test() -> None:
        now = [time.time()]
        async with proving(server, wall_clock_s=lambda: now[0]) as prove:
            found = await soon(prove(server.token(lifetime_s=-0.7)))  # within the skew
            now[0] -= 3600
            await until(lambda: found.is_over)

    run(test())


def test_as_many_tokens_are_remembered_as_there_is_room_for(
    server: OidcServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        monkeypatch.setattr(oidc_module, "REMEMBERED_MAX", 3)
        async with proving(server) as prove:
            for number in range(6):
                await soon(prove(server.token(f"user-{number}")))
            assert len(prove._known) == 3
            with pytest.raises(AuthenticationError):
                await soon(prove("x"))
            assert len(prove._known) == 3

    run(test())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "expected.issuer is not set"),
        ({"expected.issuer": "https://example.com"}, "expected.audience is not set"),
        ({"expected.issuer": "https://example.com", "expected.audience": " , "}, "audience"),
        ({"expected.issuer": "example", "expected.audience": "a"}, "'example', from where"),
        ({"expected.issuer": "http://example.com", "expected.audience": "a"}, "https"),
        (
            {
                "expected.issuer": "example",
                "expected.audience": "a",
                "jwks.endpoint.url": "file:///keys",
            },
            "jwks.endpoint.url is 'file",
        ),
        (
            {
                "expected.issuer": "https://example.com",
                "expected.audience": "a",
                "sub.claim.name": "",
            },
            "sub.claim.name is empty",
        ),
    ],
)
def test_settings_that_would_take_others_tokens_are_refused(
    settings: dict[str, str], words: str
) -> None:
    flags = {f"sasl.oauthbearer.{name}": value for name, value in settings.items()}
    with pytest.raises(InvalidConfigError, match=words):
        bearer_proof_of(load_gateway_config(environment={}, flags=flags))


def test_keys_are_read_from_where_the_settings_say(server: OidcServer) -> None:
    async def test() -> None:
        flags = {
            "sasl.oauthbearer.expected.issuer": server.url,
            "sasl.oauthbearer.expected.audience": "a, mainstem",
            "sasl.oauthbearer.jwks.endpoint.url": server.url + JWKS,
            "sasl.oauthbearer.sub.claim.name": "email",
            "sasl.oauthbearer.groups.claim.name": "roles",
        }
        prove = bearer_proof_of(load_gateway_config(environment={}, flags=flags))
        prove.start()
        try:
            found = await soon(prove(server.token(email="a@example.com", roles="one two")))
        finally:
            await soon(prove.close())
        assert found.principal == Principal(USER, "a@example.com", frozenset(("one", "two")))
        assert not server.requests[DISCOVERY]

    run(test())

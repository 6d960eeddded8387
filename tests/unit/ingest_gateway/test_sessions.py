"""Tokens that gateways sign, and the exchange by which somebody gets one."""

from __future__ import annotations

import asyncio

import pytest
import scramp

from mainstem.errors import AuthenticationError, InvalidConfigError, SessionExpiredError
from mainstem.ingest_gateway.security import GatewayCalls, ScramExchange, Secret, Sessions
from mainstem.security import SCRAM_MECHANISMS, ScramCredential, new_credential

TEXT = "0123456789abcdef" * 2


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


def sessions(clock: Clock, text: str = TEXT) -> Sessions:
    return Sessions(Secret(text), 60_000, clock)


def test_a_session_is_known_to_every_gateway_with_the_secret_until_it_ends() -> None:
    clock = Clock()
    token = sessions(clock).token("Zoë, =:x" * 30, "SCRAM-SHA-512", "print")
    found = sessions(clock).read(token)
    assert (str(found.principal), found.fingerprint) == ("User:" + "Zoë, =:x" * 30, "print")
    assert len(token) < 4096
    assert token.isascii()
    clock.now_ms += 59_999
    assert not sessions(clock).identity(sessions(clock).read(token), lambda: False).is_over
    clock.now_ms += 1
    with pytest.raises(SessionExpiredError):
        sessions(clock).read(token)


def test_a_clock_that_was_put_back_makes_no_session_longer() -> None:
    clock = Clock()
    token = sessions(clock).token("a", "SCRAM-SHA-512", "print")
    clock.now_ms -= 3_600_000
    with pytest.raises(SessionExpiredError):
        sessions(clock).read(token)


def test_another_secret_knows_no_session_and_the_client_is_to_sign_in_again() -> None:
    clock = Clock()
    token = sessions(clock).token("a", "SCRAM-SHA-512", "print")
    for text in ("x" * 32, ""):
        with pytest.raises(SessionExpiredError, match="does not know"):
            sessions(clock, text).read(token)
    call = GatewayCalls(Secret(TEXT), clock).authorization("gateway-1").split()[1]
    with pytest.raises(SessionExpiredError):
        sessions(clock).read(call)


def test_every_changed_character_spoils_a_token() -> None:
    clock = Clock()
    token = sessions(clock).token("alice", "SCRAM-SHA-512", "print")
    for index in range(len(token) - 1):
        changed = token[:index] + ("A" if token[index] != "A" else "B") + token[index + 1 :]
        with pytest.raises(AuthenticationError):
            sessions(clock).read(changed)


@pytest.mark.parametrize(
    "token",
    ["", ".", "a", "a.b", "é.é", "x" * 100_000, "!!.!!", "e30.e30", "e30." + "A" * 43 + "."],
)
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(AuthenticationError):
        sessions(Clock()).read(token)


def test_a_secret_that_is_too_short_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidConfigError, match="31 characters") as caught:
        Secret("s" * 31)
    assert "sss" not in str(caught.value)
    assert Secret("s" * 32).key("a") != Secret("s" * 32).key("b")
    assert Secret("").key("a") != Secret("").key("a")


def test_a_call_of_another_gateway_is_believed_for_about_a_minute_by_clocks_that_differ() -> None:
    clock, theirs = Clock(), Clock()
    calls = GatewayCalls(Secret(TEXT), clock)

    def prove(skew_ms: int, text: str = TEXT) -> str:
        theirs.now_ms = clock.now_ms + skew_ms
        scheme, token = GatewayCalls(Secret(text), theirs).authorization("gateway-1").split(" ")
        assert scheme == "gateway"
        return str(asyncio.run(calls.prove(token)).principal)

    for skew_ms in (0, -119_000, 59_000):
        assert prove(skew_ms) == "Gateway:gateway-1"
    for skew_ms in (-121_000, 61_000):
        with pytest.raises(AuthenticationError, match=r"clock is \d+ ms"):
            prove(skew_ms)
    for text in ("", "x" * 40):
        with pytest.raises(AuthenticationError, match=r"gateway\.secret"):
            prove(0, text)


KNOWN = {mechanism: new_credential("secret", mechanism, 8192) for mechanism in SCRAM_MECHANISMS}


def exchange(mechanism: str) -> ScramExchange:
    def find(name: str) -> ScramCredential | None:
        return KNOWN[mechanism] if name == "alice" else None

    return ScramExchange(mechanism, find, b"decoy")


def signs_in(mechanism: str, name: str, password: str) -> tuple[str, str]:
    """The server's first message, and what comes of it."""
    ours = exchange(mechanism)
    client = scramp.ScramClient([mechanism], name, password, c_nonce="nonce")
    first = ours.first(client.get_client_first().encode()).decode()
    client.set_server_first(first)
    try:
        client.set_server_final(ours.last(client.get_client_final().encode()).decode())
    except AuthenticationError as error:
        return first, str(error)
    return first, ""


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_who_has_the_password_gets_in(mechanism: str) -> None:
    assert signs_in(mechanism, "alice", "secret")[1] == ""


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_an_unknown_user_looks_like_one_with_another_password(mechanism: str) -> None:
    known, wrong = signs_in(mechanism, "alice", "wrong")
    unknown, refused = signs_in(mechanism, "nobody", "wrong")
    assert wrong == refused != ""
    parts = [dict(one.split("=", 1) for one in text.split(",")) for text in (known, unknown)]
    assert [len(one["s"]) for one in parts] == [len(parts[0]["s"])] * 2
    assert parts[0]["i"] == parts[1]["i"] == "8192"
    assert len(parts[0]["r"]) == len(parts[1]["r"])
    again, _ = signs_in(mechanism, "nobody", "wrong")
    assert again.split(",")[1] == unknown.split(",")[1], "the same salt each time"
    other, _ = signs_in(mechanism, "somebody", "wrong")
    assert other.split(",")[1] != unknown.split(",")[1]


def test_the_keys_of_the_table_sign_nobody_in() -> None:
    ours = exchange("SCRAM-SHA-256")
    client = scramp.ScramClient(["SCRAM-SHA-256"], "alice", KNOWN["SCRAM-SHA-256"].stored_key.hex())
    client.set_server_first(ours.first(client.get_client_first().encode()).decode())
    with pytest.raises(AuthenticationError):
        ours.last(client.get_client_final().encode())


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        b"n,,",
        b"n,,n=alice",
        b"n,,n=,r=x",
        b"y,,m=1,n=alice,r=x",
        b"n,a=bob,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,,n=alice,r=" + b"," * 1000,
        b"n,,n=a=lice,r=x",
    ],
)
def test_a_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationError):
        exchange("SCRAM-SHA-256").first(message)


@pytest.mark.parametrize(
    "message", [b"", b"\xff", b"c=biws", b"c=biws,r=x,p=", b"c=biws,r=nonce,p=QQ=="]
)
def test_a_last_message_that_is_none_is_refused(message: bytes) -> None:
    ours = exchange("SCRAM-SHA-256")
    ours.first(b"n,,n=alice,r=nonce")
    with pytest.raises(AuthenticationError):
        ours.last(message)

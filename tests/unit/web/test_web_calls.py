"""Calls to web services that fail, hang, redirect and send too much."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.certificates import write_certificates
from tests.oidc import JWKS, TOKENS, OidcServer, oidc_server

from mainstem.web import Answer, WebError, call_web, check_address

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def server() -> Iterator[OidcServer]:
    with oidc_server() as found:
        yield found


def test_an_answer_is_read_as_a_whole_whatever_its_status(server: OidcServer) -> None:
    server.answers[JWKS] = (200, b"x" * 300_000)
    assert call_web(server.url + JWKS, 10.0).body == b"x" * 300_000
    server.answers[JWKS] = (503, b"later")
    answer = call_web(server.url + JWKS, 10.0)
    assert (answer.status, answer.body) == (503, b"later")


def test_an_answer_that_is_too_large_is_not_read_to_its_end(server: OidcServer) -> None:
    server.answers[JWKS] = (200, b"x" * 3_000_000)
    with pytest.raises(WebError, match="more than 1048576 bytes"):
        call_web(server.url + JWKS, 10.0)


@pytest.mark.parametrize("way", ["hangs", "drips"])
def test_who_hangs_or_sends_a_byte_now_and_then_is_given_up(server: OidcServer, way: str) -> None:
    getattr(server, way).add(JWKS)
    began = time.monotonic()
    with pytest.raises(WebError, match="did not answer in time"):
        call_web(server.url + JWKS, 0.4)
    assert time.monotonic() - began < 5.0
    server.closing.set()


def test_nobody_there_and_no_http_are_told(server: OidcServer) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(WebError, match="refused"):
            call_web(f"http://127.0.0.1:{free.getsockname()[1]}/keys?secret=x", 5.0)
    with pytest.raises(WebError) as caught:  # TLS to a server that has none
        call_web(server.url.replace("http:", "https:") + "/keys?secret=x", 5.0)
    assert "secret" not in str(caught.value)


def test_a_redirect_is_followed_on_this_machine_and_a_few_times(server: OidcServer) -> None:
    server.redirects["/old"] = server.url + JWKS
    assert b"first" in call_web(server.url + "/old", 10.0).body
    server.redirects["/round"] = server.url + "/round"
    assert call_web(server.url + "/round", 10.0).status == 302
    assert server.requests["/round"] <= 5


@pytest.mark.parametrize("place", ["ftp://127.0.0.1/x", "http://example.com/", "https://a@b/"])
def test_a_redirect_to_another_kind_of_place_is_refused(server: OidcServer, place: str) -> None:
    server.redirects["/old"] = place
    with pytest.raises(WebError, match="it redirects to an address that is not called"):
        call_web(server.url + "/old", 10.0)


@pytest.mark.parametrize("place", ["file:///etc/passwd", "data:,x", "unix:/x"])
def test_a_redirect_to_no_web_service_is_not_followed(server: OidcServer, place: str) -> None:
    server.redirects["/old"] = place
    assert call_web(server.url + "/old", 10.0) == Answer(302, b"")


def test_a_form_with_secrets_is_sent_to_no_other_place(server: OidcServer) -> None:
    server.redirects["/old"] = server.url + TOKENS
    assert call_web(server.url + "/old", 10.0, form=b"a=b").status == 302
    assert not server.requests[TOKENS]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://example.com/", "of https"),
        ("http://127.0.0.1.example.com/", "of https"),
        ("http://10.0.0.1/", "of https"),
        ("file:///etc/passwd", "as https://"),
        ("https://", "as https://"),
        ("example.com", "as https://"),
        ("https://user:secret@example.com/", "no user"),
        ("https://example.com:port/", "no address"),
        ("https://[::1/", "no address"),
        ("https://example.com/a b", "ASCII"),
        ("https://exämple.com/", "ASCII"),
        ("", "as https://"),
    ],
)
def test_an_address_that_is_not_called_is_refused_with_the_reason(address: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_address(address)


@pytest.mark.parametrize(
    "address",
    ["https://example.com", "http://localhost:80/x", "http://127.0.0.1:1", "http://[::1]:8080/"],
)
def test_an_address_of_https_or_of_this_machine_is_called(address: str) -> None:
    assert check_address(address) == address


def test_authorities_that_cannot_be_read_are_told() -> None:
    with pytest.raises(WebError, match="authorities in /nowhere"):
        call_web("https://127.0.0.1:1/", 1.0, authorities="/nowhere")


def test_https_is_believed_by_its_authority_and_is_given_up_as_well(tmp_path: Path) -> None:
    write_certificates(tmp_path, "issuer")
    with oidc_server(tmp_path / "issuer.pem", tmp_path / "issuer.key") as server:
        address, ca = server.url + JWKS, str(tmp_path / "ca.pem")
        assert b"first" in call_web(address, 10.0, authorities=ca).body
        with pytest.raises(WebError, match="CERTIFICATE_VERIFY_FAILED"):
            call_web(address, 10.0)
        with pytest.raises(WebError, match="CERTIFICATE_VERIFY_FAILED"):  # of another host
            call_web(address.replace("127.0.0.1", "localhost"), 10.0, authorities=ca)
        server.redirects["/old"] = address.replace("https:", "http:")
        with pytest.raises(WebError, match="not called: it is of http"):
            call_web(server.url + "/old", 10.0, authorities=ca)
        for ways in (server.hangs, server.drips):
            ways.add(JWKS)
            began = time.monotonic()
            with pytest.raises(WebError, match="did not answer in time"):
                call_web(address, 0.4, authorities=ca)
            assert time.monotonic() - began < 5.0
            ways.clear()


def test_a_server_that_never_shakes_hands_is_given_up() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        began = time.monotonic()
        with pytest.raises(WebError, match="did not answer in time"):
            call_web(f"https://127.0.0.1:{silent.getsockname()[1]}/", 0.4)
        assert time.monotonic() - began < 5.0

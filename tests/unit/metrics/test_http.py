"""The HTTP endpoint: paths, methods, deadlines, and who keeps others away."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from prometheus_client import Counter

from mainstem.errors import InvalidConfigError
from mainstem.metrics import Answer, HttpServer, Page, metrics_page, process_registry
from mainstem.metrics._http import CONNECTIONS_MAX


@contextlib.contextmanager
def serving(pages: Mapping[str, Page], **options: Any) -> Iterator[HttpServer]:
    server = HttpServer("metrics.listeners", "127.0.0.1:0", pages, **options)
    try:
        yield server
    finally:
        server.close()


def ask(
    server: HttpServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, bytes, Mapping[str, str]]:
    connection = http.client.HTTPConnection(server.address, timeout=20)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        response = connection.getresponse()
        return response.status, response.read(), dict(response.getheaders())
    finally:
        connection.close()


def raw(server: HttpServer, data: bytes) -> bytes:
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(data)
        found = b""
        while chunk := connection.recv(65_536):
            found += chunk
    return found


HELLO = {"/hello": lambda _: Answer(b"hello " * 1_000)}


def test_a_page_is_served_and_every_other_path_is_404_and_says_what_there_is() -> None:
    with serving(HELLO) as server:
        assert ask(server, "/hello")[:2] == (200, b"hello " * 1_000)
        assert ask(server, "/hello?x=1")[0] == 200
        for path in ("/", "/hello/", "/hell", "/../hello", "//hello"):
            status, body, _ = ask(server, path)
            assert status == 404, path
            assert b"/hello" in body


def test_head_has_the_length_and_no_body_and_other_methods_are_refused() -> None:
    with serving(HELLO) as server:
        status, body, headers = ask(server, "/hello", "HEAD")
        assert (status, body, headers["Content-Length"]) == (200, b"", "6000")
        status, _, headers = ask(server, "/hello", "POST")
        assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_a_page_is_compressed_for_those_who_take_it() -> None:
    with serving(HELLO) as server:
        _, body, headers = ask(server, "/hello", Accept_Encoding="gzip")
        assert headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(body) == b"hello " * 1_000


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
        (b"GET http://[ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /hello HTTP/1.1\r\nX: " + b"x" * 40_000 + b"\r\n\r\n", b"431"),
    ],
)
def test_what_is_not_a_request_is_refused_with_its_status(data: bytes, status: bytes) -> None:
    with serving(HELLO) as server:
        assert raw(server, data).startswith(b"HTTP/1.1 " + status)
        assert ask(server, "/hello")[0] == 200


def test_a_request_that_does_not_come_is_given_up() -> None:
    with serving(HELLO, head_timeout_s=0.1) as server:
        assert raw(server, b"GET /hello HTT") == b""


def test_connections_that_send_nothing_do_not_keep_others_away() -> None:
    with serving(HELLO) as server, contextlib.ExitStack() as idle:
        host, port = server.address.split(":")
        for _ in range(CONNECTIONS_MAX + 20):
            idle.enter_context(socket.create_connection((host, int(port)), timeout=20))
        assert ask(server, "/hello")[0] == 200


def test_a_page_that_hangs_answers_503_holds_up_no_other_and_has_one_thread() -> None:
    release, calls = threading.Event(), []

    def hangs(_: Mapping[str, str]) -> Answer:
        calls.append(threading.current_thread())
        release.wait(20)
        return Answer(b"late")

    with serving({**HELLO, "/hangs": hangs}, page_timeout_s=0.2) as server:
        for _ in range(3):
            assert ask(server, "/hangs")[0] == 503
        assert len(calls) == 1
        assert ask(server, "/hello")[0] == 200
        release.set()
        calls[0].join(20)
        assert ask(server, "/hangs")[:2] == (200, b"late")


def test_a_page_that_fails_is_500_and_the_next_request_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(_: Mapping[str, str]) -> Answer:
        raise ValueError("secret")

    with serving({**HELLO, "/fails": fails}) as server:
        status, body, _ = ask(server, "/fails")
        assert (status, b"secret" in body) == (500, False)
        assert ask(server, "/hello")[0] == 200
    assert "could not be made" in caplog.text


def test_closing_ends_open_connections_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with serving(HELLO) as server:
        host, port = server.address.split(":")
        idle = socket.create_connection((host, int(port)), timeout=20)
        assert ask(server, "/hello")[0] == 200
    with idle, contextlib.suppress(ConnectionError):
        assert idle.recv(1) == b""
    deadline = time.monotonic() + 10
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize(
    "listener", ["9491", ":9491", "127.0.0.1:", "127.0.0.1:99999", "no.such.host.invalid:1"]
)
def test_an_address_that_cannot_be_bound_is_named_with_what_it_must_be(listener: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"must be host:port") as caught:
        HttpServer("metrics.listeners", listener, HELLO)
    assert caught.value.facts["name"] == "metrics.listeners"


def test_an_address_in_use_is_refused() -> None:
    with serving(HELLO) as server, pytest.raises(InvalidConfigError, match="another process"):
        HttpServer("metrics.listeners", server.address, HELLO)


def test_ipv6_in_brackets_is_listened_on() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6")
    try:
        server = HttpServer("metrics.listeners", "[::1]:0", HELLO)
    except InvalidConfigError:
        pytest.skip("no IPv6 address")
    try:
        assert ask(server, "/hello")[0] == 200
    finally:
        server.close()


def test_metrics_have_those_of_the_process_and_no_created_twins() -> None:
    registry = process_registry()
    Counter("mainstem_things", "Things.", ["kind"], registry=registry).labels("a").inc()
    with serving({"/metrics": metrics_page(registry)}) as server:
        _, body, headers = ask(server, "/metrics")
        assert headers["Content-Type"].startswith("text/plain")
        assert b'mainstem_things_total{kind="a"} 1.0' in body
        assert b"process_resident_memory_bytes" in body
        assert b"process_open_fds" in body
        assert b"_created" not in body
        _, body, headers = ask(
            server, "/metrics", Accept="application/openmetrics-text; version=1.0.0"
        )
        assert headers["Content-Type"].startswith("application/openmetrics-text")
        assert body.endswith(b"# EOF\n")

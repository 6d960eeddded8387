"""One request to a web service and its whole answer, by the standard library."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import os
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Final
from urllib.parse import urlsplit

#: Of an answer. The keys of a large issuer have a tenth of it.
BODY_BYTES_MAX: Final = 1024 * 1024

_REDIRECTS_MAX: Final = 3

_CHUNK_BYTES: Final = 64 * 1024


class WebError(Exception):
    """There was no answer, or none that can be used. Its text has the address and the reason."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a web service has answered.

    Attributes:
        status: 200 and so on.
    """

    status: int
    body: bytes


def check_address(address: str) -> str:
    """An address that may be called: of https, or of http on this machine.

    Raises:
        ValueError: It is none; the text says why.
    """
    try:
        parts = urlsplit(address)
        host = parts.hostname
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"it is no address: {error}") from None
    if parts.scheme not in ("https", "http") or not host:
        raise ValueError("it must be an address as https://example.com/path")
    if not address.isascii() or not address.isprintable() or " " in address:
        raise ValueError("it must be ASCII without spaces; write others as %XX")
    if parts.username is not None or parts.password is not None:
        raise ValueError("it must have no user and no password")
    if parts.scheme == "http" and not _is_this_machine(host):
        raise ValueError(
            "it must be of https: what comes by http could be replaced on its way; http is for "
            "this machine, as 127.0.0.1"
        )
    return address


def check_authorities(path: str) -> None:
    """Refuses what `call_web` cannot take as authorities.

    Raises:
        ValueError: It cannot be read, or has no certificate; the text says why.
    """
    try:
        _context(path)
    except WebError as error:
        raise ValueError(str(error)) from None


def call_web(
    address: str,
    timeout_s: float,
    form: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    authorities: str = "",
) -> Answer:
    """Makes a GET, or a POST of a form, and reads the answer.

    A GET follows redirects to what `check_address` lets through, but not from https to http. A
    POST follows none: it has secrets. The environment's proxies count (`https_proxy`).

    Blocks. Once there is a connection nothing takes longer than `timeout_s`; finding the host, and
    trying its addresses, may. So call it in a thread that nobody waits for without a deadline.

    Args:
        form: What is sent.
        authorities: A PEM file, or a directory of them, for https; empty: those that the operating
            system trusts.

    Raises:
        WebError: There is no answer in time, or it is too large. Any status is an answer.
    """
    deadline = _Deadline(timeout_s)
    request = urllib.request.Request(address, data=form, headers=dict(headers or {}))
    try:
        opener = urllib.request.build_opener(
            _Http(deadline), _Https(deadline, _context(authorities)), _Redirects(form is not None)
        )
        with deadline, contextlib.closing(_open(opener, request, timeout_s)) as answer:
            body = _body(answer)
            if deadline.is_over:  # what was cut off looks like an end
                raise WebError("cut off")
            return Answer(answer.status, body)
    except (OSError, http.client.HTTPException, ValueError, WebError) as error:
        why = "it did not answer in time" if deadline.is_over else _why(error)
        raise WebError(f"{_shown(address)}: {why}") from None


def _open(
    opener: urllib.request.OpenerDirector, request: urllib.request.Request, timeout_s: float
) -> Any:
    try:
        return opener.open(request, timeout=timeout_s)
    except urllib.error.HTTPError as answer:
        return answer


def _body(answer: IO[bytes]) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while chunk := answer.read(_CHUNK_BYTES):
        chunks.append(chunk)
        size += len(chunk)
        if size > BODY_BYTES_MAX:
            raise WebError(f"its answer has more than {BODY_BYTES_MAX} bytes")
    return b"".join(chunks)


class _Deadline:
    """Ends connections when the time is over: a timeout of a socket is one of each of its calls,
    and a service that sends a byte now and then would never meet it."""

    def __init__(self, timeout_s: float) -> None:
        self._ends_at = time.monotonic() + timeout_s
        self._timer = threading.Timer(timeout_s, self._end)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._ended = False

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._ends_at

    def watch(self, connection: socket.socket) -> None:
        with self._lock:
            self._sockets.append(connection)
            ended = self._ended
        if ended:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._ended = True
            sockets = list(self._sockets)
        for one in sockets:
            with contextlib.suppress(OSError):
                # Of the plain socket: that of TLS would wait for the thread that reads.
                socket.socket.shutdown(one, socket.SHUT_RDWR)

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()


class _Connection(http.client.HTTPConnection):
    deadline: _Deadline

    def connect(self) -> None:
        super().connect()
        self.deadline.watch(self.sock)


class _TlsConnection(http.client.HTTPSConnection):
    deadline: _Deadline

    def connect(self) -> None:
        # The handshake has the socket's timeout for each of its few steps.
        super().connect()
        self.deadline.watch(self.sock)


def _connection(
    kind: type[_Connection] | type[_TlsConnection],
    deadline: _Deadline,
    host: str,
    **arguments: Any,
) -> http.client.HTTPConnection:
    made = kind(host, **arguments)
    made.deadline = deadline
    return made


class _Http(urllib.request.HTTPHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_connection, _Connection, self._deadline), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, deadline: _Deadline, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._deadline = deadline
        self._tls = context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        connect = partial(_connection, _TlsConnection, self._deadline)
        return self.do_open(connect, req, context=self._tls)


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = _REDIRECTS_MAX

    def __init__(self, refuses: bool) -> None:
        self._refuses = refuses

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if self._refuses:
            return None  # the answer is the redirect itself
        why = "it is of http" if req.type == "https" and newurl.startswith("http:") else ""
        try:
            check_address(newurl)
        except ValueError as error:
            why = str(error)
        if why:
            fp.close()
            raise WebError(f"it redirects to an address that is not called: {why}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _context(authorities: str) -> ssl.SSLContext:
    if not authorities:
        return ssl.create_default_context()
    try:
        if os.path.isdir(authorities):
            return ssl.create_default_context(capath=authorities)
        return ssl.create_default_context(cafile=authorities)
    except (OSError, ssl.SSLError) as error:
        raise WebError(f"the authorities in {authorities} cannot be read: {error}") from None


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _shown(address: str) -> str:
    """Without what is behind the path, which may be secret."""
    return address.partition("?")[0].partition("#")[0]


def _why(error: Exception) -> str:
    if isinstance(error, urllib.error.URLError):
        error = error.reason if isinstance(error.reason, Exception) else error
    if isinstance(error, (OSError, WebError)):
        return str(error) or type(error).__name__
    return f"its answer is no HTTP: {type(error).__name__}"

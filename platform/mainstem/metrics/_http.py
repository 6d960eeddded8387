"""The HTTP server for people and machines that watch a process: a few pages, GET and HEAD.

**It serves nobody but itself.** It has a thread and an event loop of its own, so a busy gateway
still answers, and many connections cost the gateway nothing. Each page is made by one daemon thread
at a time; requests for it meanwhile wait for their turn. So a page that hangs, because the store
does, holds up no other page and not the end of the process.

Every wait has a deadline, connections are counted, and when there are too many the oldest that has
not asked for anything yet goes: whoever opens connections and sends nothing keeps no probe away.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gzip
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from mainstem.errors import InvalidConfigError

logger = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 64
HEAD_BYTES_MAX: Final = 16_384

_GZIP_BYTES_MIN: Final = 1_024

#: A request's head takes no longer to come, a page to be made, an answer to be read.
HEAD_TIMEOUT_S: Final = 5.0
#: Prometheus itself gives up after 10 s, unless told otherwise.
PAGE_TIMEOUT_S: Final = 9.0
_WRITE_TIMEOUT_S: Final = 10.0
_START_TIMEOUT_S: Final = 10.0

#: Nothing is fetched or run by a page, and none is kept.
_HEADERS: Final = (
    "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n"
)

TEXT: Final = "text/plain; charset=utf-8"
HTML: Final = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page says."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = TEXT
    encoding: str = ""


#: Makes a page, from the request's headers with names in lower case. In a thread of its own.
Page = Callable[[Mapping[str, str]], Answer]


@dataclass(slots=True)
class _Route:
    """A page, and its rendering that is under way."""

    page: Page
    running: asyncio.Future[None] | None = None


@dataclass(eq=False, slots=True)
class _Connection:
    """One that is open; `asked`: its request is complete."""

    writer: asyncio.StreamWriter
    asked: bool = field(default=False)


class HttpServer:
    """Serves pages until it is closed.

    Args:
        setting: The name of the setting that `listener` is from, for errors.
        listener: host:port; port 0 takes a free one, an IPv6 address is in brackets.
        pages: By path, such as `/metrics`. Other paths are 404.
        tls: Of a server with a certificate; None: HTTP.

    Raises:
        InvalidConfigError: The address is malformed or cannot be bound.
    """

    def __init__(
        self,
        setting: str,
        listener: str,
        pages: Mapping[str, Page],
        *,
        head_timeout_s: float = HEAD_TIMEOUT_S,
        page_timeout_s: float = PAGE_TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._routes = {path: _Route(page) for path, page in pages.items()}
        self._head_timeout_s = head_timeout_s
        self._page_timeout_s = page_timeout_s
        self._tls = tls
        self._connections: dict[_Connection, None] = {}
        host, _, port = listener.rpartition(":")
        try:
            bound = _bind(host, int(port))
        except (OSError, ValueError, OverflowError) as error:
            why = f"{error}; it must be host:port of this machine, for example 127.0.0.1:9491"
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                why = "another process has that port; give another one, or port 0 for a free one"
            raise InvalidConfigError(
                f"cannot serve metrics on {listener!r}: {why}",
                name=setting,
                value=listener,
            ) from error
        #: host:port.
        self.address = f"{host}:{bound.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="http", daemon=True)
        self._thread.start()
        starting = asyncio.run_coroutine_threadsafe(self._start(bound), self._loop)
        self._server = starting.result(_START_TIMEOUT_S)

    def close(self) -> None:
        """Stops at once; who waits for a page gets none."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(_START_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_TIMEOUT_S)
        self._loop.close()

    async def _start(self, bound: socket.socket) -> asyncio.Server:
        timeout_s = None if self._tls is None else self._head_timeout_s
        return await asyncio.start_server(
            self._serve,
            sock=bound,
            limit=HEAD_BYTES_MAX,
            ssl=self._tls,
            ssl_handshake_timeout=timeout_s,
            ssl_shutdown_timeout=timeout_s,
        )

    async def _stop(self) -> None:
        self._server.close()
        for connection in self._connections:
            connection.writer.transport.abort()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            idle = next((one for one in self._connections if not one.asked), None)
            if idle is None:
                writer.transport.abort()
                return
            del self._connections[idle]
            idle.writer.transport.abort()
        connection = _Connection(writer)
        self._connections[connection] = None
        try:
            async with asyncio.timeout(
                self._head_timeout_s + self._page_timeout_s + _WRITE_TIMEOUT_S
            ):
                await self._answer(reader, connection)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # it is gone, or too slow
        except Exception:
            logger.exception("a request to the HTTP endpoint failed")
        finally:
            self._connections.pop(connection, None)
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()
            else:
                writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), 1.0)

    async def _answer(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        sends_body = True
        try:
            async with asyncio.timeout(self._head_timeout_s):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            answer = _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        else:
            connection.asked = True
            method, path, headers = _parse(head)
            sends_body = method != "HEAD"
            answer = await self._page(method, path, headers)
        await _write(connection.writer, answer, sends_body=sends_body)

    async def _page(self, method: str, path: str, headers: Mapping[str, str]) -> Answer:
        if not method:
            return _plain(HTTPStatus.BAD_REQUEST)
        route = self._routes.get(path)
        if route is None:
            found = " ".join(sorted(self._routes))
            return _plain(HTTPStatus.NOT_FOUND, f"not found; there are: {found}")
        if method not in ("GET", "HEAD"):
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            async with asyncio.timeout(self._page_timeout_s):
                while route.running is not None:
                    await asyncio.wait([route.running])
                answer: asyncio.Future[Answer] = self._loop.create_future()
                self._render(route, headers, answer)
                return await answer
        except TimeoutError:
            return _plain(
                HTTPStatus.SERVICE_UNAVAILABLE, f"not made within {self._page_timeout_s:g} s"
            )

    def _render(
        self, route: _Route, headers: Mapping[str, str], answer: asyncio.Future[Answer]
    ) -> None:
        """Makes the page in a thread, which nobody waits for when the process ends."""
        ended = route.running = self._loop.create_future()

        def finish(made: Answer) -> None:
            route.running = None
            ended.set_result(None)
            if not answer.done():
                answer.set_result(made)

        def work() -> None:
            try:
                made = _compressed(route.page(headers), headers)
            except Exception:
                logger.exception("a page of the HTTP endpoint could not be made")
                made = _plain(HTTPStatus.INTERNAL_SERVER_ERROR)
            with contextlib.suppress(RuntimeError):  # the server is closed
                self._loop.call_soon_threadsafe(finish, made)

        threading.Thread(target=work, name="http-page", daemon=True).start()


def _bind(host: str, port: int) -> socket.socket:
    """A listening socket at the first address of `host`, as a port 0 has one number only."""
    if not host:
        raise ValueError("it has no host")
    if not 0 <= port <= 65_535:
        raise ValueError(f"there is no port {port}")
    family, _, _, _, address = socket.getaddrinfo(
        host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return socket.create_server(address[:2], family=family, backlog=128)


def _parse(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Method, path and headers; an empty method if that is not a request."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return "", "", {}
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    try:
        path = urlsplit(words[1]).path
    except ValueError:
        return "", "", {}
    return words[0], path or "/", headers


def _plain(status: HTTPStatus, text: str = "") -> Answer:
    return Answer(f"{text or status.phrase}\n".encode(), status)


def _compressed(answer: Answer, headers: Mapping[str, str]) -> Answer:
    if "gzip" not in headers.get("accept-encoding", "") or len(answer.body) <= _GZIP_BYTES_MIN:
        return answer
    return replace(answer, body=gzip.compress(answer.body, 1), encoding="gzip")


async def _write(writer: asyncio.StreamWriter, answer: Answer, *, sends_body: bool) -> None:
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\nContent-Length: {len(answer.body)}\r\n{_HEADERS}"
    )
    if answer.encoding:
        head += f"Content-Encoding: {answer.encoding}\r\n"
    if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
        head += "Allow: GET, HEAD\r\n"
    writer.write(f"{head}\r\n".encode("latin-1") + (answer.body if sends_body else b""))
    writer.transport.set_write_buffer_limits(0)
    async with asyncio.timeout(_WRITE_TIMEOUT_S):
        await writer.drain()

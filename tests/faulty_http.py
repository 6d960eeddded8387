"""A proxy before an HTTP server that is slow, loses answers, gives errors and lies, for tests."""

from __future__ import annotations

import contextlib
import http.client
import math
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

_ERROR_BODY: Final = b"<Error><Code>%s</Code><Message>on purpose</Message></Error>"


class Faults:
    """What goes wrong, at random.

    Attributes:
        rate: Of the requests, 0 to 1.
        happened: How often each kind did.
        requests: How often each method came.
        most_at_once: Of the requests, since it was set to nothing.
        listings: How often each prefix was listed.
        dropped_headers: What is not forwarded, in lower case.
        refusals: The status with which requests of a method are refused, `PUT` for example, or
            those that have a header, in lower case: `if-none-match`.
        latency_s: How long a request of a method takes at least.
        latency_spread: How much that varies: the standard deviation of its logarithm.
        cut_off: Nothing gets through, and no answer comes back: connections just end.
    """

    def __init__(self, rate: float = 0.0, rng: random.Random | None = None) -> None:
        self.rate = rate
        self.happened: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.most_at_once = 0
        self.listings: Counter[str] = Counter()
        self.dropped_headers: set[str] = set()
        self.refusals: dict[str, int] = {}
        self.latency_s: dict[str, float] = {}
        self.latency_spread = 0.0
        self.cut_off = False
        self._rng = rng or random.Random(0)
        self._at_once = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """A request, while it is answered."""
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            yield
        finally:
            with self._lock:
                self._at_once -= 1

    def refusal(self, method: str, headers: Iterable[str]) -> int:
        """The status that a request is refused with, or 0."""
        named = (method, *(name.lower() for name in headers))
        return next((self.refusals[name] for name in named if name in self.refusals), 0)

    def delay_s(self, method: str) -> float:
        """How long a request takes at least."""
        with self._lock:
            spread = math.exp(self._rng.gauss(0, self.latency_spread))
        return self.latency_s.get(method, 0.0) * spread

    def next(self, method: str) -> str:
        """The fault of a request, or nothing."""
        with self._lock:
            self.requests[method] += 1
            if self._rng.random() >= self.rate:
                return ""
            kind = self._rng.choice(("answer lost", "500 after", "500 before", "503 before"))
            self.happened[f"{method} {kind}"] += 1
            return kind


@contextlib.contextmanager
def faulty_proxy(target: str, faults: Faults) -> Iterator[str]:
    """Forwards to `target`; gives its own address."""
    where = urlsplit(target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        timeout = 60

        def _forward(self) -> None:
            with faults.under_way():
                self._answer_one()

        def _answer_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            query = parse_qs(urlsplit(self.path).query)
            if "list-type" in query:
                faults.listings[query.get("prefix", [""])[0]] += 1
            fault = faults.next(self.command)
            time.sleep(faults.delay_s(self.command))
            if faults.cut_off:
                self.close_connection = True
                return
            if refusal := faults.refusal(self.command, self.headers):
                self._answer(refusal, _ERROR_BODY % b"Refused")
                return
            if fault.endswith("before"):
                self._answer(int(fault[:3]), _ERROR_BODY % b"SlowDown")
                return
            there = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
            with contextlib.closing(there):
                headers = {
                    name: value
                    for name, value in self.headers.items()
                    if name.lower() not in faults.dropped_headers
                }
                there.request(self.command, self.path, body, headers)
                answer = there.getresponse()
                data = answer.read()
            if fault == "answer lost" or faults.cut_off:
                self.close_connection = True
                return
            if fault:
                self._answer(500, _ERROR_BODY % b"InternalError")
                return
            self.send_response(answer.status, answer.reason)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                    self.send_header(name, value)
            if "Content-Length" not in answer.headers:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _answer(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _forward  # as it calls them

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            if not isinstance(sys.exception(), ConnectionError):  # a client that was killed
                super().handle_error(request, client_address)

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

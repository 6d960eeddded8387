"""A server that speaks the language of Amazon S3, for tests: moto, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Final

_START_TIMEOUT_S: Final = 60.0

# moto looks whether a name is free, and puts then: of two that put it if it is not there both could
# be told that they did.
_PROGRAM: Final = """
import threading
from moto.s3.responses import S3Response
from moto.server import main

put, one_at_a_time = S3Response.put_object, threading.Lock()

def put_object(self):
    with one_at_a_time:
        return put(self)

S3Response.put_object = put_object
main()
"""


class S3Server:
    """A server on this machine.

    Attributes:
        url: Where it listens.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    @property
    def options(self) -> dict[str, str]:
        """What a client needs to reach it, by the names of the environment variables."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def make_bucket(self) -> str:
        """A new empty bucket; returns its name."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        request = urllib.request.Request(f"{self.url}/{name}", method="PUT")
        with _opener().open(request, timeout=10):
            return name


@contextlib.contextmanager
def running_s3_server() -> Iterator[S3Server]:
    """Starts a server, and ends it."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, "-H", "127.0.0.1", "-p", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    try:
        wait_for(process, port)
        yield S3Server(port)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    """Returns when the process listens on the port of this machine.

    Raises:
        RuntimeError: It has ended, or does not listen within a minute.
    """
    ends_at = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > ends_at:
                raise RuntimeError(f"the S3 server did not start: {process.returncode}") from error
            time.sleep(0.05)


def _opener() -> urllib.request.OpenerDirector:
    """One that goes to the server itself, whatever proxy the environment names."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))

"""The gRPC server of a fake gateway: it listens on the same port again after each start."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc

_BIND_TIMEOUT_S: Final = 10.0


def start_server(
    port: int, thread_count: int, name: str, register: Callable[[Any], None]
) -> tuple[Any, ThreadPoolExecutor, int]:
    """A server that runs, its threads, and the port that it has.

    Args:
        port: 0 takes a free one. One that is not free yet is tried for a while.
        register: Adds the services to the server.
    """
    deadline = time.monotonic() + _BIND_TIMEOUT_S
    while True:
        threads = ThreadPoolExecutor(thread_count, name)
        server = grpc.server(
            threads,
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
            ],
        )
        register(server)
        try:
            bound = server.add_insecure_port(f"127.0.0.1:{port}")
            break
        except RuntimeError:
            threads.shutdown()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    server.start()
    return server, threads, bound

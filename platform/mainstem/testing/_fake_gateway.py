"""An in-memory gateway with a hook per request: a real gRPC server, whose records tests can judge.

    with FakeGateway({"flights": 6}) as gateway:
        producer = Producer({"bootstrap.servers": gateway.address})

It keeps the rules of the real one: answers in order within a topic, HELD after a retriable refusal
until `resume`, offsets without a gap, and one copy of what an idempotent producer sends twice.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Self

from mainstem.protocol.v1 import admin_pb2_grpc, log_pb2_grpc, transactions_pb2_grpc
from mainstem.testing._fake_admin import AdminService
from mainstem.testing._fake_log import FakeLog, OnProduce
from mainstem.testing._fake_produce import ProduceService
from mainstem.testing._fake_server import start_server

#: Each open stream holds one; a handful of producers in one test at most.
_THREADS: Final = 32


class FakeGateway(FakeLog):
    """A gateway without a disk. Start and stop it at will: records and port are kept.

    Its arguments, attributes and hooks are those of FakeLog.
    """

    def __init__(
        self, topics: Mapping[str, int] | None = None, on_produce: OnProduce | None = None
    ) -> None:
        super().__init__(topics, on_produce)
        self._port = 0
        self._server: Any = None
        self._threads: ThreadPoolExecutor | None = None

    @property
    def address(self) -> str:
        """host:port; the same after each start."""
        assert self._port, "start the gateway first"
        return f"127.0.0.1:{self._port}"

    def start(self) -> Self:
        """Listens, at the first time on a free port, then on that one again."""
        assert self._server is None
        self.stopping = threading.Event()

        def register(server: Any) -> None:
            log_pb2_grpc.add_LogServicer_to_server(
                ProduceService(self, lambda: self.address), server
            )
            admin_pb2_grpc.add_AdminServicer_to_server(
                AdminService(self.topics, lambda: self.address), server
            )
            transactions_pb2_grpc.add_TransactionsServicer_to_server(self.transactions, server)

        self._server, self._threads, self._port = start_server(
            self._port, _THREADS, "fake-gateway", register
        )
        return self

    def stop(self) -> None:
        """Ends every stream at once, without an answer to what is under way."""
        server, self._server = self._server, None
        if server is not None:
            self.stopping.set()
            server.stop(grace=0).wait()
            assert self._threads is not None
            # Not waiting: a hook of the test may hold one.
            self._threads.shutdown(wait=False)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

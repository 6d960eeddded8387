"""A gRPC server whose answers a test writes itself, call by call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from mainstem.protocol.v1 import groups_pb2_grpc, log_pb2_grpc
from mainstem.testing._fake_server import start_server

#: Given the request and the context, the answer.
Answer = Callable[[Any, Any], Any]


class ScriptedGateway:
    """Listens on a free port while the block lasts.

    Args:
        answers: By method; methods that are not there are unimplemented.

    Attributes:
        peers: Who called, in order.
        address: host:port.
    """

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = dict(answers)
        self.peers: list[str] = []
        self.address = ""
        self._server: Any = None
        self._threads: ThreadPoolExecutor | None = None

    def _register(self, server: Any) -> None:
        log = type("Log", (log_pb2_grpc.LogServicer,), self._methods())
        groups = type("Groups", (groups_pb2_grpc.GroupsServicer,), self._methods())
        log_pb2_grpc.add_LogServicer_to_server(log(), server)
        groups_pb2_grpc.add_GroupsServicer_to_server(groups(), server)

    def _methods(self) -> dict[str, Any]:
        def of(name: str) -> Any:
            def method(_: object, request: Any, context: Any) -> Any:
                self.peers.append(context.peer())
                return self.answers[name](request, context)

            return method

        return {name: of(name) for name in self.answers}

    def __enter__(self) -> Self:
        self._server, self._threads, port = start_server(0, 8, "scripted", self._register)
        self.address = f"127.0.0.1:{port}"
        return self

    def stop(self) -> None:
        """Refuses connections from now on."""
        if self._server is not None:
            self._server.stop(grace=0).wait()
            assert self._threads is not None
            self._threads.shutdown(wait=False)
        self._server = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

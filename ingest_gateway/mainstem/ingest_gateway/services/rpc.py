"""The handlers of the gateway's calls: the one place where what went wrong becomes a status."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from mainstem.ingest_gateway.connections import Connection, Connections
from mainstem.ingest_gateway.failures import as_ours
from mainstem.ingest_gateway.requests import RequestDoor, RequestKind
from mainstem.ingest_gateway.services.caller import client_id
from mainstem.protocol import error_to_status
from mainstem.protocol.v1 import log_pb2

Context = grpc.aio.ServicerContext[Any, Any]


class Rpc:
    """Makes the handlers of a gateway's calls.

    Args:
        door: Lets the requests in.
        connections: Counts whose they are.
    """

    def __init__(self, door: RequestDoor, connections: Connections) -> None:
        self._door = door
        self._connections = connections

    def handlers(self, service: ServiceDescriptor, *servicers: object) -> dict[str, Any]:
        """The handler of each call of the service, by its name.

        Args:
            servicers: One of them has a coroutine function for each call, of the request and the
                context; of a stream: of its connection and the context. Its answer is a message, or
                serialised already; whatever it raises becomes the status of the call.
        """
        return {
            method.name: self._handler(method, _serve(method.name, servicers))
            for method in service.methods
        }

    def _handler(self, method: MethodDescriptor, serve: Callable[..., Any]) -> Any:
        # In place of the generated handlers, which would parse requests of any size, and on the
        # loop.
        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(partial(self._stream, serve))
        kind: RequestKind[Any] = self._door.produce
        if method.input_type is not log_pb2.ProduceRequest.DESCRIPTOR:
            kind = self._door.kind(GetMessageClass(method.input_type))
        return grpc.unary_unary_rpc_method_handler(partial(self._unary, kind, serve))

    async def _unary(
        self, kind: RequestKind[Any], serve: Callable[..., Any], data: bytes, context: Context
    ) -> bytes:
        try:
            with self._door.admitted(len(data)), self._call(context) as connection:
                connection.received(len(data))
                request = await self._door.decode(kind, data)
                del data
                answer = _serialised(await serve(request, context))
                connection.sent(len(answer))
                return answer
        except Exception as failure:
            await _abort(context, failure)
            raise

    async def _stream(
        self, serve: Callable[..., Any], requests: AsyncIterator[bytes], context: Context
    ) -> None:
        try:
            with self._door.admitted(0), self._call(context) as connection:
                await serve(connection, context)
        except Exception as failure:
            await _abort(context, failure)
            raise

    def _call(self, context: Context) -> AbstractContextManager[Connection]:
        return self._connections.call(context.peer(), lambda: client_id(context))


def _serve(name: str, servicers: tuple[object, ...]) -> Callable[..., Any]:
    (servicer,) = (one for one in servicers if hasattr(one, name))
    serve: Callable[..., Any] = getattr(servicer, name)
    return serve


async def _abort(context: Context, failure: Exception) -> None:
    """Ends the call with the status of what went wrong; the connection lives on."""
    await context.abort_with_status(error_to_status(as_ours(failure)))


def _serialised(answer: Any) -> bytes:
    if isinstance(answer, bytes):
        return answer
    data: bytes = answer.SerializeToString()
    return data

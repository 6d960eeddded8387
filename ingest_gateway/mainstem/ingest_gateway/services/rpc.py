"""The handlers of the gateway's calls: the one place where what went wrong becomes a status."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from mainstem.ingest_gateway.caller import NOBODY
from mainstem.ingest_gateway.connections import Connection, Connections
from mainstem.ingest_gateway.failures import as_ours
from mainstem.ingest_gateway.requests import RequestDoor, RequestKind
from mainstem.ingest_gateway.security import Access, SignIn
from mainstem.ingest_gateway.services.call import Call, Context, client_id
from mainstem.ingest_gateway.services.requirements import Requirement, requirement_of
from mainstem.protocol import error_to_status
from mainstem.protocol.v1 import log_pb2


class Rpc:
    """Makes the handlers of a gateway's calls.

    Args:
        door: Lets the requests in.
        connections: Counts whose they are.
        sign_in: Finds out who makes them.
        access: Decides what those may do.
    """

    def __init__(
        self, door: RequestDoor, connections: Connections, sign_in: SignIn, access: Access
    ) -> None:
        self._door = door
        self._connections = connections
        self._sign_in = sign_in
        self._access = access

    def handlers(self, service: ServiceDescriptor, *servicers: object) -> dict[str, Any]:
        """The handler of each call of the service, by its name.

        Args:
            servicers: One of them has a coroutine function for each call, of the request and the
                `Call`; of a stream: of the `Call`. Its answer is a message, or serialised already;
                whatever it raises becomes the status of the call.
        """
        return {
            method.name: self._handler(method, _serve(method.name, servicers))
            for method in service.methods
        }

    def _handler(self, method: MethodDescriptor, serve: Callable[..., Any]) -> Any:
        # In place of the generated handlers, which would parse requests of any size, and on the
        # loop.
        requirement = requirement_of(method)
        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(partial(self._stream, requirement, serve))
        kind: RequestKind[Any] = self._door.produce
        if method.input_type is not log_pb2.ProduceRequest.DESCRIPTOR:
            kind = self._door.kind(GetMessageClass(method.input_type))
        return grpc.unary_unary_rpc_method_handler(partial(self._unary, kind, requirement, serve))

    async def _unary(
        self,
        kind: RequestKind[Any],
        requirement: Requirement,
        serve: Callable[..., Any],
        data: bytes,
        context: Context,
    ) -> bytes:
        try:
            with self._door.admitted(len(data)), self._connection(context) as connection:
                connection.received(len(data))
                call = await self._call(requirement, connection, context)
                request = await self._door.decode(kind, data)
                del data
                call.require_all(requirement.needs, request)
                answer = _serialised(await serve(request, call))
                connection.sent(len(answer))
                return answer
        except Exception as failure:
            await _abort(context, failure)
            raise

    async def _stream(
        self,
        requirement: Requirement,
        serve: Callable[..., Any],
        requests: AsyncIterator[bytes],
        context: Context,
    ) -> None:
        try:
            with self._door.admitted(0), self._connection(context) as connection:
                await serve(await self._call(requirement, connection, context))
        except Exception as failure:
            await _abort(context, failure)
            raise

    async def _call(
        self, requirement: Requirement, connection: Connection, context: Context
    ) -> Call:
        identity = NOBODY
        if requirement.signed_in:
            identity = await self._sign_in.identity(connection, context)
        return Call(context, connection, identity, self._access)

    def _connection(self, context: Context) -> AbstractContextManager[Connection]:
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

"""The handlers of the gateway's calls: the one place where what went wrong becomes a status."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from mainstem.errors import AuthenticationError, SessionExpiredError
from mainstem.ingest_gateway.audit import AuditLog
from mainstem.ingest_gateway.caller import NOBODY
from mainstem.ingest_gateway.connections import Connection, Connections
from mainstem.ingest_gateway.failures import as_ours
from mainstem.ingest_gateway.quotas import Charge, Quotas
from mainstem.ingest_gateway.requests import RequestDoor, RequestKind
from mainstem.ingest_gateway.security import Access, SignIn
from mainstem.ingest_gateway.services.audited_calls import MethodAudit
from mainstem.ingest_gateway.services.call import Call, Context, client_id
from mainstem.ingest_gateway.services.charges import charge_of
from mainstem.ingest_gateway.services.requirements import Requirement, requirement_of
from mainstem.protocol import error_to_status
from mainstem.protocol.v1 import log_pb2

#: Of a caller whom no quota holds back.
_FREE: Final = nullcontext()


@dataclass(frozen=True, slots=True)
class _Method:
    """How the calls of a method are served.

    Attributes:
        charge: What they use; None: quotas are not about it.
        audit: Writes its rows; None: there is no audit.
    """

    serve: Callable[..., Any]
    requirement: Requirement
    charge: Charge | None
    audit: MethodAudit | None


class Rpc:
    """Makes the handlers of a gateway's calls.

    Args:
        door: Lets the requests in.
        connections: Counts whose they are.
        sign_in: Finds out who makes them.
        access: Decides what those may do.
        audit: Has what they did; None: nothing has.
        quotas: How much they may use; None: as much as they want.
    """

    def __init__(
        self,
        door: RequestDoor,
        connections: Connections,
        sign_in: SignIn,
        access: Access,
        audit: AuditLog | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        self._door = door
        self._connections = connections
        self._sign_in = sign_in
        self._access = access
        self._audit = audit
        self._quotas = quotas

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
        served = _Method(
            serve,
            requirement_of(method),
            charge_of(method),
            MethodAudit.of(self._audit, method),
        )
        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(partial(self._stream, served))
        kind: RequestKind[Any] = self._door.produce
        if method.input_type is not log_pb2.ProduceRequest.DESCRIPTOR:
            kind = self._door.kind(GetMessageClass(method.input_type))
        return grpc.unary_unary_rpc_method_handler(partial(self._unary, kind, served))

    async def _unary(
        self, kind: RequestKind[Any], method: _Method, data: bytes, context: Context
    ) -> bytes:
        try:
            with self._door.admitted(len(data)), self._connection(context) as connection:
                connection.received(len(data))
                call = await self._call(method, connection, context)
                throttle = None if method.charge is None else call.throttle
                with _FREE if throttle is None else throttle.connected(connection.peer):
                    if throttle is not None and method.charge is not None:
                        await throttle.admit(method.charge, len(data))
                    request = await self._door.decode(kind, data)
                    del data
                    answer = await _answer(method, request, call)
                    if throttle is not None and method.charge is not None:
                        throttle.answered(method.charge, len(answer))
                connection.sent(len(answer))
                return answer
        except Exception as failure:
            await _abort(context, failure)
            raise

    async def _stream(
        self, method: _Method, requests: AsyncIterator[bytes], context: Context
    ) -> None:
        try:
            with self._door.admitted(0), self._connection(context) as connection:
                call = await self._call(method, connection, context)
                throttle = None if method.charge is None else call.throttle
                with _FREE if throttle is None else throttle.connected(connection.peer):
                    await method.serve(call)
        except Exception as failure:
            await _abort(context, failure)
            raise

    async def _call(self, method: _Method, connection: Connection, context: Context) -> Call:
        identity = NOBODY
        if method.requirement.signed_in:
            try:
                identity = await self._sign_in.identity(connection, context)
            except AuthenticationError as error:
                if self._audit is not None and not isinstance(error, SessionExpiredError):
                    self._audit.sign_in_failed(connection, "", "", error)
                raise
        return Call(context, connection, identity, self._access, method.audit, self._quotas)

    def _connection(self, context: Context) -> AbstractContextManager[Connection]:
        return self._connections.call(context.peer(), lambda: client_id(context))


async def _answer(method: _Method, request: Any, call: Call) -> bytes:
    try:
        call.require_all(method.requirement.needs, request)
        answer = _serialised(await method.serve(request, call))
    except BaseException as failure:  # the audit has who gave up, too
        call.served(request, failure)
        raise
    call.served(request)
    return answer


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

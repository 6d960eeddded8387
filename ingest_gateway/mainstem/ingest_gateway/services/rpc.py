"""The handlers of the gateway's calls: the one place where what went wrong becomes a status."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from mainstem.ingest_gateway.failures import as_ours
from mainstem.ingest_gateway.requests import RequestDoor, RequestKind
from mainstem.protocol import error_to_status
from mainstem.protocol.v1 import log_pb2

Context = grpc.aio.ServicerContext[Any, Any]


def handlers(door: RequestDoor, service: ServiceDescriptor, *servicers: object) -> dict[str, Any]:
    """The handler of each call of the service, by its name.

    Args:
        door: Lets the requests in.
        servicers: One of them has a coroutine function for each call, of the request (of a stream:
            an iterator over serialised requests) and the context. Its answer is a message, or
            serialised already; whatever it raises becomes the status of the call.
    """
    return {
        method.name: _handler(door, method, _serve(method.name, servicers))
        for method in service.methods
    }


def _serve(name: str, servicers: tuple[object, ...]) -> Callable[..., Any]:
    (servicer,) = (one for one in servicers if hasattr(one, name))
    serve: Callable[..., Any] = getattr(servicer, name)
    return serve


def _handler(door: RequestDoor, method: MethodDescriptor, serve: Callable[..., Any]) -> Any:
    # In place of the generated handlers, which would parse requests of any size, and on the loop.
    if method.client_streaming:
        return grpc.stream_stream_rpc_method_handler(
            partial(_stream, door, serve), response_serializer=_serialised
        )
    kind: RequestKind[Any] = door.produce
    if method.input_type is not log_pb2.ProduceRequest.DESCRIPTOR:
        kind = door.kind(GetMessageClass(method.input_type))
    return grpc.unary_unary_rpc_method_handler(
        partial(_unary, door, kind, serve), response_serializer=_serialised
    )


async def _unary(
    door: RequestDoor,
    kind: RequestKind[Any],
    serve: Callable[..., Any],
    data: bytes,
    context: Context,
) -> Any:
    try:
        with door.admitted(len(data)):
            request = await door.decode(kind, data)
            del data
            return await serve(request, context)
    except Exception as failure:
        await _abort(context, failure)
        raise


async def _stream(
    door: RequestDoor,
    serve: Callable[..., Any],
    requests: AsyncIterator[bytes],
    context: Context,
) -> None:
    try:
        with door.admitted(0):
            await serve(requests, context)
    except Exception as failure:
        await _abort(context, failure)
        raise


async def _abort(context: Context, failure: Exception) -> None:
    """Ends the call with the status of what went wrong; the connection lives on."""
    await context.abort_with_status(error_to_status(as_ours(failure)))


def _serialised(answer: Any) -> bytes:
    if isinstance(answer, bytes):
        return answer
    data: bytes = answer.SerializeToString()
    return data

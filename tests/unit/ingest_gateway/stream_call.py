"""A stream call whose end is told as the gateway told it.

A write of grpc.aio that meets the end of its call replaces the status and the trailing metadata
that came by an INTERNAL of its own. The blocking API, which the project's client uses, does not:
tests that look at how a stream ends go through it.
"""

from __future__ import annotations

import asyncio
import queue
from types import TracebackType
from typing import Any

import grpc
import grpc.aio


class StreamCall:
    """What grpc.aio's StreamStreamCall offers, over a blocking channel of its own.

    Args:
        address: Of the gateway.
        method: The call's path: `/mainstem.v1.Log/ProduceStream`.
        credentials: Of the channel; none for plain text.
        metadata: Of the call.
        options: `request_serializer` and `response_deserializer`.
    """

    def __init__(
        self,
        address: str,
        method: str,
        credentials: grpc.ChannelCredentials | None = None,
        metadata: tuple[tuple[str, str], ...] = (),
        **options: Any,
    ) -> None:
        self._channel = (
            grpc.secure_channel(address, credentials)
            if credentials
            else grpc.insecure_channel(address)
        )
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        begin: Any = self._channel.stream_stream(method, **options)
        self._call = begin(iter(self._requests.get, None), metadata=metadata, timeout=20)
        if not self._call.add_callback(lambda: self._requests.put(None)):
            self._requests.put(None)  # it is over already

    async def __aenter__(self) -> StreamCall:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._call.cancel()
        await asyncio.to_thread(self._channel.close)

    async def write(self, message: Any) -> None:
        self._requests.put(message)

    async def done_writing(self) -> None:
        self._requests.put(None)

    async def read(self) -> Any:
        """The next answer, or grpc.aio.EOF; raises grpc.RpcError where the call failed."""
        return await asyncio.to_thread(next, self._call, grpc.aio.EOF)

    async def code(self) -> grpc.StatusCode:
        found: grpc.StatusCode = await asyncio.to_thread(self._call.code)
        return found

    async def trailing_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return tuple(await asyncio.to_thread(self._call.trailing_metadata))

    def cancel(self) -> None:
        self._call.cancel()

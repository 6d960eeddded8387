"""The door that every call comes in by: counted, its request parsed off the loop where that takes
long, and refused before it costs anything where there is too much of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from mainstem.config import GatewayConfig
from mainstem.errors import BackPressureError, RequestTooLargeError
from mainstem.ingest_gateway.requests.bounds import (
    RequestBounds,
    TooManyForNow,
    malformed,
    top_level,
)
from mainstem.limits import MESSAGE_OVERHEAD_BYTES, REQUEST_BYTES_MAX
from mainstem.protocol.v1 import log_pb2

M = TypeVar("M", bound=Message)
T = TypeVar("T")

#: A request of no more fields is counted and parsed on the loop, in a millisecond: a thread would
#: take longer.
_INLINE_FIELDS_MAX: Final = 1_000

#: Parsing holds the interpreter's lock: more threads would only take turns.
_THREADS: Final = 2

_RETRY_DELAY_MS: Final = 100

#: Fields of a produce request that have its records.
_PAYLOAD_FIELDS: Final = frozenset(
    log_pb2.ProduceRequest.DESCRIPTOR.fields_by_name[name].number for name in ("arrow", "records")
)


class RequestKind(Generic[M]):
    """How the requests of one call are parsed. Pure.

    Args:
        message: Their type.
        bytes_max: Of one.
    """

    def __init__(self, message: type[M], bytes_max: int) -> None:
        self._message = message
        self.name = message.DESCRIPTOR.name
        self.bounds = RequestBounds(message)
        self.bytes_max = bytes_max

    def check_size(self, data: bytes) -> None:
        """Raises RequestTooLargeError for more than `bytes_max` bytes."""
        if len(data) > self.bytes_max:
            raise RequestTooLargeError(
                f"{self.name} has {len(data)} bytes; {self.bytes_max} are the most, "
                "send less at a time",
                request=self.name,
                limit_bytes=self.bytes_max,
            )

    def parse(self, data: bytes) -> M:
        """The request, of bytes that `bounds` has checked.

        Raises:
            InvalidRequestError: They are not such a request.
        """
        try:
            return self._message.FromString(data)
        except DecodeError as error:
            raise malformed(self.name, str(error)) from None

    def check_and_parse(self, data: bytes) -> M:
        """The same with the check before it."""
        self.bounds.check(data)
        return self.parse(data)


class RequestDoor:
    """Lives on the event loop. Everything that is waited for here is the processor."""

    def __init__(self, config: GatewayConfig) -> None:
        produce_bytes_max = config.number("socket.request.max.bytes") + MESSAGE_OVERHEAD_BYTES
        self._bytes_max = min(REQUEST_BYTES_MAX, produce_bytes_max)
        self._calls_max = config.number("max.calls")
        self._held_bytes_max = config.number("request.queue.bytes")
        self._calls = 0
        self._held_bytes = 0
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="request")
        self.produce = RequestKind(log_pb2.ProduceRequest, produce_bytes_max)

    @property
    def calls(self) -> int:
        """Calls that are under way."""
        return self._calls

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def kind(self, message: type[M]) -> RequestKind[M]:
        """How the requests of a call that takes this type of message are parsed."""
        return RequestKind(message, self._bytes_max)

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Runs a call that computes and waits for nothing."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def decode(self, kind: RequestKind[M], data: bytes) -> M:
        """The request that the bytes are.

        Raises:
            RequestTooLargeError: There is too much of something in it; the message says of what.
            InvalidRequestError: It is malformed.
        """
        kind.check_size(data)
        try:
            kind.bounds.check(data, _INLINE_FIELDS_MAX)
        except TooManyForNow:
            return await self.in_thread(partial(kind.check_and_parse, data))
        return kind.parse(data)

    def without_records(self, data: bytes) -> log_pb2.ProduceRequest:
        """What a produce request that was refused says of itself, for the answer to it.

        Raises:
            InvalidRequestError: Not even that can be read.
        """
        try:
            parts = [part for number, part in top_level(data) if number not in _PAYLOAD_FIELDS]
        except IndexError:
            raise malformed(self.produce.name, "it is cut off") from None
        return self.produce.parse(b"".join(parts))

    @contextmanager
    def admitted(self, size_bytes: int) -> Iterator[None]:
        """Lets a call in for the block.

        Raises:
            BackPressureError: Too many are under way, or too large ones.
        """
        if self._calls >= self._calls_max:
            raise BackPressureError(
                f"{self._calls} calls are under way, the limit of max.calls; try again later",
                retry_delay_ms=_RETRY_DELAY_MS,
                limit_calls=self._calls_max,
            )
        if self._held_bytes and self._held_bytes + size_bytes > self._held_bytes_max:
            raise BackPressureError(
                f"requests of {self._held_bytes} bytes are under way, and request.queue.bytes is "
                f"{self._held_bytes_max}; try again later",
                retry_delay_ms=_RETRY_DELAY_MS,
                queued_bytes=self._held_bytes,
                limit_bytes=self._held_bytes_max,
            )
        self._calls += 1
        self._held_bytes += size_bytes
        try:
            yield
        finally:
            self._calls -= 1
            self._held_bytes -= size_bytes

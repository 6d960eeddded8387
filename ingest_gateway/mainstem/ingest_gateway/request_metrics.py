"""Counts calls and their time, by method and outcome, around every handler of the gateway."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio
from google.rpc import error_details_pb2, status_pb2
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

#: Seconds: an answer from memory, up to a long poll.
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

_DETAILS: Final = "grpc-status-details-bin"

_Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]


class RequestMetrics(grpc.aio.ServerInterceptor):
    """`mainstem_requests_total`, `mainstem_request_seconds`, `mainstem_open_streams`.

    A method's handler is wrapped once. `call` is a method that exists; `code` is OK, one of our
    codes, or a gRPC status where the call failed without one, as CANCELLED.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "mainstem_requests",
            "Calls that ended, by method and outcome; a stream is one.",
            ["call", "code"],
            registry=registry,
        )
        self._seconds = Histogram(
            "mainstem_request_seconds",
            "Time of unary calls until their answer; a fetch may wait for records.",
            ["call"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._streams = Gauge(
            "mainstem_open_streams", "Streams that are open.", ["call"], registry=registry
        )
        self._wrapped: dict[str, tuple[Any, Any]] = {}

    async def intercept_service(
        self, continuation: _Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:  # there is no such method
            return None
        method: str = handler_call_details.method
        known = self._wrapped.get(method)
        # Registered handlers are the same objects each time.
        if known is not None and known[0] is handler:
            return known[1]
        wrapped = self._wrap(handler, method.rpartition("/")[2])
        self._wrapped[method] = (handler, wrapped)
        return wrapped

    def _wrap(self, handler: Any, call: str) -> Any:
        for kind in ("unary_unary", "stream_unary", "unary_stream", "stream_stream"):
            behavior = getattr(handler, kind)
            if behavior is None or not inspect.iscoroutinefunction(behavior):
                continue  # health's watch and reflection give their answers another way
            if kind == "unary_unary":
                return handler._replace(unary_unary=self._counted_call(behavior, call))
            return handler._replace(**{kind: self._counted_stream(behavior, call)})
        return handler

    def _counted_call(self, behavior: Any, call: str) -> Any:
        ok = self._requests.labels(call, "OK")
        seconds = self._seconds.labels(call)

        async def counted(request: Any, context: Any) -> Any:
            began = time.perf_counter()
            try:
                answer = await behavior(request, context)
            except BaseException:
                self._requests.labels(call, _code(context)).inc()
                raise
            finally:
                seconds.observe(time.perf_counter() - began)
            ok.inc()
            return answer

        return counted

    def _counted_stream(self, behavior: Any, call: str) -> Any:
        streams = self._streams.labels(call)

        async def counted(request: Any, context: Any) -> Any:
            code = "OK"
            streams.inc()
            try:
                return await behavior(request, context)
            except BaseException:
                code = _code(context)
                raise
            finally:
                streams.dec()
                self._requests.labels(call, code).inc()

        return counted


def _code(context: Any) -> str:
    """Our code of a call that failed, which its ErrorInfo has; else gRPC's."""
    for name, value in context.trailing_metadata() or ():
        if name == _DETAILS:
            status: Any = status_pb2.Status.FromString(value)
            info = error_details_pb2.ErrorInfo()
            for detail in status.details:
                if detail.Is(info.DESCRIPTOR):
                    detail.Unpack(info)
                    return str(info.reason)
    number = context.code()
    for one in grpc.StatusCode:
        if number in (one, one.value[0]):
            return "CANCELLED" if one is grpc.StatusCode.OK else one.name
    return "CANCELLED"

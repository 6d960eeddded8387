"""Errors over a real gRPC server: what a client gets is what the gateway raised."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from mainstem.errors import (
    GatewayUnavailableError,
    InternalError,
    InvalidConfigError,
    MainstemError,
    NotLeaderError,
    OutcomeUnknownError,
    RequestTooLargeError,
    UnknownTopicError,
    error_classes,
)
from mainstem.protocol import (
    error_from_message,
    error_from_rpc,
    error_to_message,
    error_to_status,
    status_code_for,
)
from mainstem.protocol._status import _CODES
from mainstem.protocol.v1 import log_pb2

CODES = sorted({*error_classes(), MainstemError.code})


def test_every_error_class_has_a_status_and_every_status_an_error_class() -> None:
    assert set(_CODES) == set(error_classes())


@pytest.mark.parametrize("code", CODES)
def test_no_status_is_ok(code: str) -> None:
    assert status_code_for(code) is not grpc.StatusCode.OK


#: What the server does next, given the call's `grpc.ServicerContext`.
Behaviour = Callable[[Any], bytes]


def _call(channel: Any, timeout_s: float) -> Any:
    """A call without messages, of whichever kind the channel is."""
    return channel.unary_unary("/t.T/Call")(b"", timeout=timeout_s)


class _Server:
    def __init__(self) -> None:
        self.behaviour: Behaviour = lambda _: b""
        self._pool = ThreadPoolExecutor(2)
        self._server = grpc.server(self._pool)
        handler: Any = grpc.unary_unary_rpc_method_handler(
            lambda _, context: self.behaviour(context)
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("t.T", {"Call": handler}),)
        )
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def close(self) -> None:
        self._server.stop(None).wait()
        self._pool.shutdown()

    def failure(self, timeout_s: float = 10) -> grpc.RpcError:
        """What a blocking client gets."""
        with (
            grpc.insecure_channel(self.address) as channel,
            pytest.raises(grpc.RpcError) as caught,
        ):
            _call(channel, timeout_s)
        return caught.value

    def aio_failure(self, timeout_s: float = 10) -> grpc.RpcError:
        """What an asyncio client gets."""

        async def call() -> grpc.RpcError:
            async with grpc.aio.insecure_channel(self.address) as channel:
                with pytest.raises(grpc.RpcError) as caught:
                    await _call(channel, timeout_s)
                return caught.value

        return asyncio.run(call())


@pytest.fixture(scope="module")
def server() -> Iterator[_Server]:
    running = _Server()
    yield running
    running.close()


def _raise(error: MainstemError) -> Behaviour:
    def behave(context: Any) -> bytes:
        context.abort_with_status(error_to_status(error))
        raise AssertionError

    return behave


def _same(first: MainstemError, second: MainstemError) -> bool:
    return (first.code, first.message, first.facts, first.retry_delay_ms, first.retriable) == (
        second.code,
        second.message,
        second.facts,
        second.retry_delay_ms,
        second.retriable,
    )


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("delay_ms", [0, 1, 1_500])
def test_an_error_arrives_with_its_class_message_facts_and_delay(
    server: _Server, code: str, delay_ms: int
) -> None:
    sent = error_classes()[code]("what é, and why", retry_delay_ms=delay_ms, topic="t", number=5)
    server.behaviour = _raise(sent)
    failure = server.failure()
    assert isinstance(failure, grpc.Call)
    assert failure.code() is status_code_for(code)
    received = error_from_rpc(failure)
    assert type(received) is error_classes()[code]
    assert _same(received, sent)


def test_an_error_arrives_at_an_asyncio_client_too(server: _Server) -> None:
    sent = NotLeaderError("elsewhere", retry_delay_ms=7, leader="h:1")
    server.behaviour = _raise(sent)
    received = error_from_rpc(server.aio_failure())
    assert type(received) is NotLeaderError
    assert _same(received, sent)


def test_an_error_with_a_message_longer_than_a_status_can_be_arrives_cut_short(
    server: _Server,
) -> None:
    """A status travels in headers, of which gRPC takes 8 KiB."""
    for text in ("x" * 100_000, "é" * 100_000, "\U0001f600" * 100_000):
        server.behaviour = _raise(InvalidConfigError(text, name=text, value=text, other=text))
        received = error_from_rpc(server.failure())
        assert type(received) is InvalidConfigError
        assert received.message.startswith(text[:100])
        assert received.facts["name"].startswith(text[:20])


def test_an_error_with_text_that_is_no_unicode_arrives(server: _Server) -> None:
    """The name of a file can be anything."""
    server.behaviour = _raise(UnknownTopicError("no \ud800 topic", table="\udcff"))
    received = error_from_rpc(server.failure())
    assert type(received) is UnknownTopicError
    assert "topic" in received.message


def test_a_gateway_that_is_not_there_is_unavailable() -> None:
    with grpc.insecure_channel("127.0.0.1:1") as channel, pytest.raises(grpc.RpcError) as caught:
        _call(channel, 10)
    received = error_from_rpc(caught.value)
    assert type(received) is GatewayUnavailableError
    assert "bootstrap.servers" in received.message


@pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "asyncio"])
def test_a_call_that_was_cut_off_may_have_taken_effect(server: _Server, asynchronous: bool) -> None:
    def slow(context: Any) -> bytes:
        while context.is_active():
            pass
        return b""

    server.behaviour = slow
    failure = server.aio_failure(0.1) if asynchronous else server.failure(0.1)
    assert type(error_from_rpc(failure)) is OutcomeUnknownError


def _foreign(code: grpc.StatusCode) -> Behaviour:
    def behave(context: Any) -> bytes:
        context.abort(code, "not ours")
        raise AssertionError

    return behave


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (grpc.StatusCode.UNAVAILABLE, GatewayUnavailableError),
        (grpc.StatusCode.CANCELLED, OutcomeUnknownError),
        (grpc.StatusCode.UNIMPLEMENTED, InternalError),
        # What proxies and limits of rates say: it may be tried again.
        (grpc.StatusCode.RESOURCE_EXHAUSTED, OutcomeUnknownError),
        (grpc.StatusCode.ABORTED, OutcomeUnknownError),
        (grpc.StatusCode.INTERNAL, OutcomeUnknownError),
        (grpc.StatusCode.UNKNOWN, OutcomeUnknownError),
    ],
)
def test_a_status_that_is_not_ours_becomes_the_nearest_error(
    server: _Server, code: grpc.StatusCode, cls: type[MainstemError]
) -> None:
    server.behaviour = _foreign(code)
    received = error_from_rpc(server.failure())
    assert type(received) is cls
    assert code.name in received.message or "not ours" in received.message


def test_details_of_another_domain_are_not_taken_for_ours(server: _Server) -> None:
    packed = any_pb2.Any()
    packed.Pack(error_details_pb2.ErrorInfo(reason="UNKNOWN_TOPIC", domain="googleapis.com"))
    status = rpc_status.to_status(status_pb2.Status(code=13, message="m", details=[packed]))

    def behave(context: Any) -> bytes:
        context.abort_with_status(status)
        raise AssertionError

    server.behaviour = behave
    assert type(error_from_rpc(server.failure())) is OutcomeUnknownError


def test_a_message_that_grpc_refuses_for_its_size_is_not_tried_again(server: _Server) -> None:
    text = "Received message larger than max (5000000 vs. 4194304)"

    def behave(context: Any) -> bytes:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        raise AssertionError

    server.behaviour = behave
    received = error_from_rpc(server.failure())
    assert type(received) is RequestTooLargeError
    assert not received.retriable


def test_details_that_contradict_the_status_are_an_error_and_not_a_crash(server: _Server) -> None:
    """A proxy between the two may change the status and keep the details."""
    details = status_pb2.Status(code=5, message="other").SerializeToString()

    def behave(context: Any) -> bytes:
        context.set_trailing_metadata((("grpc-status-details-bin", details),))
        context.abort(grpc.StatusCode.UNAVAILABLE, "by a proxy")
        raise AssertionError

    server.behaviour = behave
    assert type(error_from_rpc(server.failure())) is GatewayUnavailableError


@pytest.mark.parametrize("code", CODES)
def test_an_error_survives_an_answer_of_a_stream(code: str) -> None:
    sent = error_classes()[code]("what", retry_delay_ms=5, topic="t")
    message = log_pb2.Error.FromString(error_to_message(sent).SerializeToString())
    assert message.retriable == sent.retriable
    received = error_from_message(message)
    assert type(received) is error_classes()[code]
    assert _same(received, sent)


def test_an_error_with_text_that_is_no_unicode_survives_an_answer_of_a_stream() -> None:
    received = error_from_message(error_to_message(UnknownTopicError("\ud800", table="\udcff")))
    assert type(received) is UnknownTopicError


def test_a_code_of_a_newer_gateway_keeps_its_name_and_whether_to_retry() -> None:
    received = error_from_message(
        log_pb2.Error(code="FROM_THE_FUTURE", message="m", retriable=True, retry_delay_ms=9)
    )
    assert isinstance(received, MainstemError)
    assert (received.code, received.retriable, received.retry_delay_ms) == (
        "FROM_THE_FUTURE",
        True,
        9,
    )

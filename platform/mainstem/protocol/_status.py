"""One table maps our errors to gRPC statuses, in both directions; a test keeps it complete."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from mainstem.errors import (
    GatewayUnavailableError,
    InternalError,
    InvalidRecordError,
    MainstemError,
    OutcomeUnknownError,
    RequestTooLargeError,
    error_classes,
)
from mainstem.protocol.v1 import log_pb2

DOMAIN: Final = "mainstem"

#: Of a message or a fact. Percent-encoded in `grpc-message` it is up to three times as long.
_TEXT_BYTES_MAX: Final = 600

#: Without an ErrorInfo of ours they come from a proxy, a limit of rates or gRPC itself.
_OF_OTHERS: Final = (
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)

#: How gRPC's text begins when it found no connection for a call.
_NO_CONNECTION: Final = (
    "failed to connect to all addresses",
    "errors resolving",
    "DNS resolution failed",
    "Misformatted domain name",
)

#: How it ends then, where somebody took the connection and ended it.
_ENDED_AT_ONCE: Final = ("Socket closed", "Connection reset by peer")

#: How it begins when a server that knows HTTP/2 and nothing of gRPC has no such page.
_NO_GRPC: Final = "Received http2 header with status"

#: How it begins when the client could not make a call's credentials; the reason follows.
_NO_CREDENTIALS: Final = "Getting metadata from plugin failed with error: "

_CODES: Final[dict[str, grpc.StatusCode]] = {
    "INTERNAL": grpc.StatusCode.INTERNAL,
    "UNKNOWN_TOPIC": grpc.StatusCode.NOT_FOUND,
    "UNKNOWN_PARTITION": grpc.StatusCode.NOT_FOUND,
    "TOPIC_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "INVALID_TOPIC": grpc.StatusCode.INVALID_ARGUMENT,
    "INVALID_CONFIG": grpc.StatusCode.INVALID_ARGUMENT,
    "INVALID_REQUEST": grpc.StatusCode.INVALID_ARGUMENT,
    "INVALID_RECORD": grpc.StatusCode.INVALID_ARGUMENT,
    "RECORD_TOO_LARGE": grpc.StatusCode.INVALID_ARGUMENT,
    "REQUEST_TOO_LARGE": grpc.StatusCode.INVALID_ARGUMENT,
    "NOT_LEADER": grpc.StatusCode.FAILED_PRECONDITION,
    "OFFSET_OUT_OF_RANGE": grpc.StatusCode.OUT_OF_RANGE,
    "LOG_TRUNCATED": grpc.StatusCode.OUT_OF_RANGE,
    "POLICY_VIOLATION": grpc.StatusCode.FAILED_PRECONDITION,
    "OUT_OF_ORDER_SEQUENCE": grpc.StatusCode.FAILED_PRECONDITION,
    "UNKNOWN_PRODUCER_ID": grpc.StatusCode.FAILED_PRECONDITION,
    "PRODUCER_FENCED": grpc.StatusCode.FAILED_PRECONDITION,
    "INVALID_TXN_STATE": grpc.StatusCode.FAILED_PRECONDITION,
    "TRANSACTION_ABORTED": grpc.StatusCode.FAILED_PRECONDITION,
    "TRANSACTION_TIMED_OUT": grpc.StatusCode.FAILED_PRECONDITION,
    "CONCURRENT_TRANSACTIONS": grpc.StatusCode.ABORTED,
    "UNKNOWN_MEMBER": grpc.StatusCode.FAILED_PRECONDITION,
    "STALE_MEMBER_EPOCH": grpc.StatusCode.FAILED_PRECONDITION,
    "STALE_COMMIT": grpc.StatusCode.FAILED_PRECONDITION,
    "INSTANCE_FENCED": grpc.StatusCode.FAILED_PRECONDITION,
    "NOT_ASSIGNED": grpc.StatusCode.FAILED_PRECONDITION,
    "UNKNOWN_GROUP": grpc.StatusCode.NOT_FOUND,
    "GROUP_NOT_EMPTY": grpc.StatusCode.FAILED_PRECONDITION,
    "GROUP_FULL": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "INVALID_OFFSET": grpc.StatusCode.INVALID_ARGUMENT,
    "BACK_PRESSURE": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "QUEUE_FULL": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "HELD": grpc.StatusCode.ABORTED,
    "SHUTTING_DOWN": grpc.StatusCode.UNAVAILABLE,
    "GATEWAY_UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "STORE_UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "OUTCOME_UNKNOWN": grpc.StatusCode.UNKNOWN,
    "SASL_AUTHENTICATION_FAILED": grpc.StatusCode.UNAUTHENTICATED,
    "SESSION_EXPIRED": grpc.StatusCode.UNAUTHENTICATED,
    "AUTHORIZATION_FAILED": grpc.StatusCode.PERMISSION_DENIED,
    "TOPIC_AUTHORIZATION_FAILED": grpc.StatusCode.PERMISSION_DENIED,
    "GROUP_AUTHORIZATION_FAILED": grpc.StatusCode.PERMISSION_DENIED,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": grpc.StatusCode.PERMISSION_DENIED,
    "CLUSTER_AUTHORIZATION_FAILED": grpc.StatusCode.PERMISSION_DENIED,
    "THROTTLING_QUOTA_EXCEEDED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "LOG_DAMAGED": grpc.StatusCode.DATA_LOSS,
    "UNSUPPORTED_TABLE": grpc.StatusCode.DATA_LOSS,
    "DELIVERY_TIMEOUT": grpc.StatusCode.DEADLINE_EXCEEDED,
    "PRODUCER_CLOSED": grpc.StatusCode.FAILED_PRECONDITION,
    "CONSUMER_CLOSED": grpc.StatusCode.FAILED_PRECONDITION,
}


def status_code_for(code: str) -> grpc.StatusCode:
    """The gRPC status of one of our codes."""
    return _CODES[code]


def error_to_status(error: MainstemError) -> grpc.Status:
    """For `context.abort_with_status`: with ErrorInfo, and RetryInfo where waiting helps."""
    facts = {_sendable(name): _sendable(value) for name, value in error.facts.items()}
    message = _sendable(error.message)
    details = [
        _packed(error_details_pb2.ErrorInfo(reason=error.code, domain=DOMAIN, metadata=facts))
    ]
    if error.retry_delay_ms > 0:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(error.retry_delay_ms)
        details.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
    number: int = status_code_for(error.code).value[0]
    assert number != code_pb2.OK
    return rpc_status.to_status(status_pb2.Status(code=number, message=message, details=details))


def error_to_message(error: MainstemError) -> log_pb2.Error:
    """The same error inside an answer of a stream."""
    return log_pb2.Error(
        code=error.code,
        message=_sendable(error.message),
        facts={_sendable(name): _sendable(value) for name, value in error.facts.items()},
        retriable=error.retriable,
        retry_delay_ms=error.retry_delay_ms,
    )


def refused_records(error: MainstemError) -> Sequence[int]:
    """The records of the request for which it was refused; none where it is wrong as a whole."""
    return error.record_indexes if isinstance(error, InvalidRecordError) else ()


def error_from_message(message: log_pb2.Error) -> MainstemError:
    """The exception for an error inside an answer of a stream."""
    return _rebuild(
        message.code,
        message.message,
        dict(message.facts),
        message.retry_delay_ms,
        retriable=message.retriable,
    )


def error_from_rpc(failure: grpc.RpcError, hint: str = "check bootstrap.servers") -> MainstemError:
    """The exception for a failed call: ours where the server said so, else by the gRPC status.

    A deadline, a cancelled call and what somebody in between says (a proxy, a limit of rates) is
    OutcomeUnknownError: it may have taken effect, and may be tried again if that does no harm.

    Args:
        failure: What a call raised, through a blocking or an asyncio channel. It loses its
            traceback.
        hint: What to do about a gateway that cannot be reached.
    """
    # gRPC raises the call itself, and the traceback leads to frames that hold the call: a cycle,
    # which the garbage collector may find only at the interpreter's end. There the call's
    # finaliser waits for a lock that a dead thread of gRPC may hold, for ever.
    failure.__traceback__ = None
    # AioRpcError has the methods of Call that are used here, but is no Call.
    assert isinstance(failure, (grpc.Call, grpc.aio.AioRpcError))
    try:
        status = rpc_status.from_call(failure)  # type: ignore[arg-type]
    except ValueError:  # the details contradict the status: somebody in between changed it
        status = None
    if status is not None:
        info = error_details_pb2.ErrorInfo()
        retry = error_details_pb2.RetryInfo()
        delay_ms = 0
        found = False
        for detail in status.details:
            if detail.Is(info.DESCRIPTOR) and not found:
                detail.Unpack(info)
                found = info.domain == DOMAIN
            elif detail.Is(retry.DESCRIPTOR):
                detail.Unpack(retry)
                delay_ms = retry.retry_delay.ToMilliseconds()
        if found:
            return _rebuild(
                info.reason, status.message, dict(info.metadata), delay_ms, retriable=delay_ms > 0
            )
    code = failure.code()
    text = failure.details() or ""
    if text.startswith(_NO_CREDENTIALS):
        return _not_signed_in(text.removeprefix(_NO_CREDENTIALS))
    if code == grpc.StatusCode.UNAVAILABLE:
        what_to_do = "; ".join(filter(None, (encryption_hint(text), hint)))
        unreachable = GatewayUnavailableError(
            f"the gateway cannot be reached: {text}; {what_to_do}"
        )
        if text.startswith(_NO_CONNECTION):
            unreachable.facts["connected"] = "false"
        return unreachable
    if code == grpc.StatusCode.UNIMPLEMENTED and text.startswith(_NO_GRPC):
        stranger = GatewayUnavailableError(
            f"another server than a gateway answers at this address: {text}; {hint}"
        )
        stranger.facts["connected"] = "false"
        return stranger
    if code in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
        return OutcomeUnknownError(
            f"the call ended before its answer came ({code.name}): it may have taken effect"
        )
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in text:
        return RequestTooLargeError(f"the gateway refused the message: {text}; send less at a time")
    if code in _OF_OTHERS:
        return OutcomeUnknownError(
            f"the call failed with {code.name}, which somebody between here and the gateway says: "
            f"{text}. It may have taken effect"
        )
    return InternalError(f"the call failed with {code.name}: {text}")


def encryption_hint(details: str) -> str:
    """What to do where one side encrypts and the other does not; empty: it does not look so.

    Args:
        details: Of a call for which gRPC found no connection.
    """
    if not details.startswith(_NO_CONNECTION):
        return ""
    if "WRONG_VERSION_NUMBER" in details:
        return (
            "what answers there speaks no TLS: check security.protocol, which is plaintext for a "
            "gateway without certificates"
        )
    if "handshake" not in details.lower() and details.endswith(_ENDED_AT_ONCE):
        return (
            "what answers there ends the connection at once, as a gateway with TLS does when a "
            "client has none: check security.protocol (ssl, or sasl_ssl)"
        )
    return ""


def sign_in_failure(error: MainstemError) -> str:
    """The error as text, for gRPC to fail a call with that has no credentials; `error_from_rpc`
    reads it."""
    return json.dumps(
        {
            "code": error.code,
            "message": _sendable(error.message),
            "facts": {name: _sendable(value) for name, value in error.facts.items()},
            "retry_delay_ms": int(error.retry_delay_ms),
            "retriable": error.retriable,
        }
    )


def _not_signed_in(text: str) -> MainstemError:
    """The error that `sign_in_failure` has made a text of. Its call has reached nobody."""
    try:
        said = json.loads(text)
        error = _rebuild(
            said["code"],
            said["message"],
            dict(said["facts"]),
            said["retry_delay_ms"],
            retriable=said["retriable"],
        )
    except (ValueError, KeyError, TypeError):  # gRPC, or a plugin that is not ours
        error = GatewayUnavailableError(f"signing in failed: {text}")
    error.facts["connected"] = "false"
    return error


def never_left(error: MainstemError) -> bool:
    """There was no connection, so that nothing of the call can have reached a gateway."""
    return error.facts.get("connected") == "false"


def _rebuild(
    code: str, text: str, facts: dict[str, str], delay_ms: int, *, retriable: bool
) -> MainstemError:
    cls = error_classes().get(code)
    error = (cls or InternalError)(text, retry_delay_ms=int(delay_ms))
    error.facts = facts
    if cls is None:  # of a newer gateway: what it says still counts
        vars(error).update(code=code, retriable=retriable)
    return error


def _sendable(text: str) -> str:
    """`text` as UTF-8 that fits: headers hold 8 KiB, in which a status has its message twice."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) > _TEXT_BYTES_MAX:
        data = data[: _TEXT_BYTES_MAX - 3] + b"..."
    return data.decode("utf-8", "ignore")


def _packed(message: object) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)  # type: ignore[arg-type]
    return packed

"""Calls that change something: to the first gateway that is reached, and never made twice."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import grpc

from mainstem.client.arguments import check_seconds
from mainstem.client.backoff import again_when_throttled
from mainstem.client.gateways import Gateways
from mainstem.errors import (
    GatewayUnavailableError,
    MainstemError,
    OutcomeUnknownError,
    SessionExpiredError,
)
from mainstem.protocol import never_left


def change(
    gateways: Gateways,
    method: Callable[[grpc.Channel], Callable[..., Any]],
    request: object,
    timeout_s: float,
) -> Any:
    """Makes a change. One that is refused for a quota is made again, within the time.

    Raises:
        GatewayUnavailableError: No gateway was reached.
        OutcomeUnknownError: One was, and nobody knows whether it has made the change.
        MainstemError: What it says.
    """
    check_seconds(timeout_s)
    return again_when_throttled(
        lambda left_s: _change(gateways, method, request, left_s), timeout_s
    )


def _change(
    gateways: Gateways,
    method: Callable[[grpc.Channel], Callable[..., Any]],
    request: object,
    timeout_s: float,
) -> Any:
    failure: MainstemError | None = None
    again = True
    servers = deque(gateways.order())
    while servers:
        server = servers.popleft()
        channel = gateways.channels.get(server)
        try:
            answer = method(channel)(request, timeout=timeout_s)
        except grpc.RpcError as error:
            failure = gateways.failed(error, server, channel)
            if again and isinstance(failure, SessionExpiredError):
                again = False  # nothing was done: the call signs in again
                servers.appendleft(server)
                continue
            if not isinstance(failure, GatewayUnavailableError):
                raise failure from None
            if failure.code == GatewayUnavailableError.code and not never_left(failure):
                raise OutcomeUnknownError(
                    f"the connection to {server} broke before the answer came: the call may "
                    f"have taken effect ({failure})"
                ) from None
        else:
            gateways.answered(server)
            return answer
    assert failure is not None
    raise failure

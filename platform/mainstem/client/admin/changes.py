"""Calls that change something: made once, at the first gateway that is reached."""

from __future__ import annotations

from collections import deque
from typing import Any

import grpc

from mainstem.client.arguments import check_seconds
from mainstem.client.gateways import Gateways, Method
from mainstem.errors import (
    GatewayUnavailableError,
    MainstemError,
    OutcomeUnknownError,
    SessionExpiredError,
)
from mainstem.protocol import never_left


def call_once(gateways: Gateways, method: Method, request: object, timeout_s: float) -> Any:
    """The answer; the call is never repeated once a gateway may have seen it.

    Raises:
        GatewayUnavailableError: No gateway was reached.
        OutcomeUnknownError: It may have taken effect.
        MainstemError: What the gateway says.
    """
    check_seconds(timeout_s)
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

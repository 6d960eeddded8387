"""Calls to the gateway that coordinates the groups; finds out which one that is."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message

from mainstem.client.gateways import Gateways
from mainstem.errors import GatewayUnavailableError, OutcomeUnknownError
from mainstem.limits import MIB
from mainstem.protocol.v1 import groups_pb2_grpc

M = TypeVar("M", bound=Message)

#: What the channels of an `AdminClient` send in one message, beside its other fields.
PART_BYTES_MAX: Final = MIB

#: Of a message inside another one: its tag and its length.
_FRAME_BYTES: Final = 8


def request_parts(
    messages: Iterable[M], count_max: int, bytes_max: int = PART_BYTES_MAX
) -> Iterator[list[M]]:
    """The messages in their order, in as few parts as have no more than `count_max` messages and
    `bytes_max` bytes each; one message at least."""
    part: list[M] = []
    size_bytes = 0
    for message in messages:
        message_bytes = message.ByteSize() + _FRAME_BYTES
        if part and (len(part) == count_max or size_bytes + message_bytes > bytes_max):
            yield part
            part, size_bytes = [], 0
        part.append(message)
        size_bytes += message_bytes
    if part:
        yield part


class CoordinatorCalls:
    """Asks the coordinator; who it is is learned from refusals, or by asking the others.

    Threads may share it: the worst that a race does is one more question to the wrong gateway.

    Args:
        gateways: Whom to ask.
        repeats: A call that may have been taken is made again at another gateway. Only for calls
            whose repetition does no harm.
    """

    def __init__(self, gateways: Gateways, *, repeats: bool) -> None:
        self._gateways = gateways
        self._elsewhere = (
            (GatewayUnavailableError, OutcomeUnknownError) if repeats else GatewayUnavailableError
        )
        self._coordinator = ""

    def call(
        self, method: str, request: Any, timeout_s: float, total_s: float | None = None
    ) -> Any:
        """The answer of `method` of the Groups service; `timeout_s` for each gateway asked, and no
        more than `total_s` for all.

        A gateway that does not answer in time is asked over a new connection the next time.

        Raises:
            GatewayUnavailableError: No gateway was reached.
            MainstemError: What the coordinator says.
        """
        gateways = self._gateways
        known = gateways.order()
        address = self._coordinator or known[0]
        untried = [one for one in known if one != address]
        # A gateway that says who coordinates may be behind: two of such answers, no more.
        redirects_left = 2
        ends_at = math.inf if total_s is None else time.monotonic() + total_s
        while True:
            channel = gateways.channels.get(address)
            stub = groups_pb2_grpc.GroupsStub(channel)
            left_s = min(timeout_s, max(0.001, ends_at - time.monotonic()))
            try:
                answer = getattr(stub, method)(request, timeout=left_s)
            except grpc.RpcError as failure:
                error = gateways.failed(failure, address, channel, left_s)
            except ValueError:  # of gRPC: the channel is closed
                raise GatewayUnavailableError("the client is closed") from None
            else:
                self._coordinator = address
                gateways.answered(address)
                return answer
            leader = error.facts.get("leader", "")
            if time.monotonic() >= ends_at:
                raise error
            if error.code == "NOT_LEADER" and leader and leader != address and redirects_left:
                redirects_left -= 1
                gateways.learn([leader])
                address = leader
            elif isinstance(error, self._elsewhere):
                self._coordinator = untried[0] if untried else ""
                if not untried:
                    raise error
                address = untried.pop(0)
            else:
                raise error

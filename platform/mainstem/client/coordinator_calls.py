"""Calls to the gateway that coordinates the groups; finds out which one that is."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message

from mainstem.client.channels import Channels
from mainstem.errors import GatewayUnavailableError, MainstemError, OutcomeUnknownError
from mainstem.limits import MIB
from mainstem.protocol import error_from_rpc
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
        servers: Addresses to begin with; at least one.
        repeats: A call that may have been taken is made again at another gateway. Only for calls
            whose repetition does no harm.
    """

    def __init__(self, servers: Sequence[str], channels: Channels, *, repeats: bool) -> None:
        self._servers = tuple(servers)
        self._channels = channels
        self._elsewhere = (
            (GatewayUnavailableError, OutcomeUnknownError) if repeats else GatewayUnavailableError
        )
        self._coordinator = self._servers[0]
        self._next_server = 0

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
        servers = self._servers
        address = self._coordinator
        error: MainstemError = GatewayUnavailableError("no gateway coordinates the group")
        total_s = timeout_s * (len(servers) + 2) if total_s is None else total_s
        ends_at = time.monotonic() + total_s
        for _ in range(len(servers) + 2):
            try:
                channel = self._channels.get(address)
            except AssertionError:
                raise GatewayUnavailableError("the client is closed") from None
            began_at = time.monotonic()
            try:
                stub = groups_pb2_grpc.GroupsStub(channel)
                left_s = min(timeout_s, max(0.001, ends_at - began_at))
                answer = getattr(stub, method)(request, timeout=left_s)
            except grpc.RpcError as failure:
                error = error_from_rpc(failure)
                if isinstance(error, OutcomeUnknownError):
                    self._channels.unanswered(address, channel, time.monotonic() - began_at)
            except ValueError:
                raise GatewayUnavailableError("the client is closed") from None
            else:
                self._coordinator = address
                return answer
            if time.monotonic() >= ends_at:
                raise error
            leader = error.facts.get("leader", "")
            if error.code == "NOT_LEADER" and leader and leader != address:
                address = leader
            elif isinstance(error, self._elsewhere):
                self._next_server = (self._next_server + 1) % len(servers)
                if servers[self._next_server] == address:
                    raise error
                address = servers[self._next_server]
                self._coordinator = address
            else:
                raise error
        raise error

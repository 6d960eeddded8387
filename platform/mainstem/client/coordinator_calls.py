"""Calls to the gateway that coordinates groups and transactions; finds out which one that is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message

from mainstem.client.backoff import again_when_throttled
from mainstem.client.gateways import Gateways
from mainstem.client.positions import LogIdentity, TopicPartition
from mainstem.errors import (
    GatewayUnavailableError,
    InvalidConfigError,
    OutcomeUnknownError,
    SessionExpiredError,
)
from mainstem.limits import MIB
from mainstem.protocol.v1 import groups_pb2, groups_pb2_grpc

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


def offset_message(
    tp: TopicPartition, offset: int, metadata: str, log: LogIdentity | None
) -> groups_pb2.CommittedOffset:
    """An offset to be committed, by a member of a group or with a transaction.

    Args:
        log: Which log it is of; None: that is not known.
    """
    return groups_pb2.CommittedOffset(
        topic=tp.topic,
        topic_id=log.topic_id if log else "",
        partition=tp.partition,
        offset=offset,
        leader_epoch=log.leader_epoch if log else -1,
        metadata=metadata,
    )


class CoordinatorCalls:
    """Asks the coordinator; who it is is learned from refusals, or by asking the others.

    Threads may share it: the worst that a race does is one more question to the wrong gateway.

    Args:
        gateways: Whom to ask.
        repeats: A call that may have been taken is made again at another gateway. Only for calls
            whose repetition does no harm.
        stub: Of the service that is called.
        missing: What a gateway has not that does not know the service, being older.
        waits: A call that is refused for a quota is made again. Otherwise its caller does so.
    """

    def __init__(
        self,
        gateways: Gateways,
        *,
        repeats: bool,
        stub: Callable[[grpc.Channel], Any] = groups_pb2_grpc.GroupsStub,
        missing: str = "groups",
        waits: bool = False,
    ) -> None:
        self._gateways = gateways
        self._stub = stub
        self._missing = missing
        self._waits = waits
        self._elsewhere = (
            (GatewayUnavailableError, OutcomeUnknownError) if repeats else GatewayUnavailableError
        )
        self._coordinator = ""  # a guess, once it has failed
        self._answered = ""

    @property
    def address(self) -> str:
        """host:port of the gateway that answered last; empty: none has."""
        return self._answered

    def coordinated_at(self, address: str) -> None:
        """Who coordinates has said so, with the address at which it is to be called: a name that
        stands for several gateways may lead to another one the next time.

        Args:
            address: host:port.
        """
        self._gateways.learn([address])
        self._coordinator = address

    def call(
        self,
        method: str,
        request: Any,
        timeout_s: float,
        total_s: float | None = None,
        *,
        only: str = "",
    ) -> Any:
        """The answer of `method` of the service; `timeout_s` for each gateway asked, and no more
        than `total_s` for all.

        A gateway that does not answer in time is asked over a new connection the next time.

        Args:
            only: host:port of the gateway to ask, and no other, whoever coordinates.

        Raises:
            GatewayUnavailableError: No gateway was reached.
            InvalidConfigError: The gateway does not know the service.
            MainstemError: What the coordinator says.
        """
        if not self._waits:
            return self._call(method, request, timeout_s, total_s, only)
        return again_when_throttled(
            lambda left_s: self._call(method, request, min(timeout_s, left_s), total_s, only),
            timeout_s if total_s is None else total_s,
        )

    def _call(
        self, method: str, request: Any, timeout_s: float, total_s: float | None, only: str
    ) -> Any:
        gateways = self._gateways
        known = gateways.order()
        address = only or self._coordinator or known[0]
        untried = [one for one in known if one != address]
        # A gateway that says who coordinates may be behind: two of such answers, no more.
        redirects_left = 2
        signed_out: set[str] = set()
        ends_at = math.inf if total_s is None else time.monotonic() + total_s
        while True:
            channel = gateways.channels.get(address)
            stub = self._stub(channel)
            left_s = min(timeout_s, max(0.001, ends_at - time.monotonic()))
            try:
                answer = getattr(stub, method)(request, timeout=left_s)
            except grpc.RpcError as failure:
                error = gateways.failed(failure, address, channel, left_s)
                if error.code == "INTERNAL" and _is_unknown(failure):
                    error = InvalidConfigError(
                        f"the gateway {address} is older than this client and has no "
                        f"{self._missing}: update it first",
                        address=address,
                    )
            except ValueError:  # of gRPC: the channel is closed
                raise GatewayUnavailableError("the client is closed") from None
            else:
                self._coordinator = self._answered = address
                gateways.answered(address)
                return answer
            if isinstance(error, SessionExpiredError) and address not in signed_out:
                signed_out.add(address)  # nothing was done: the call signs in again
                continue
            leader = error.facts.get("leader", "")
            if only or time.monotonic() >= ends_at:
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


def _is_unknown(failure: grpc.RpcError) -> bool:
    """Whether the server has no such method."""
    assert isinstance(failure, grpc.Call)
    return failure.code() == grpc.StatusCode.UNIMPLEMENTED

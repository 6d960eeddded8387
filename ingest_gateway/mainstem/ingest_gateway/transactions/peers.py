"""Calls from the coordinator of transactions to the gateways that lead the topics."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import grpc
import grpc.aio

from mainstem.delta_log.append import TransactionMark
from mainstem.errors import GatewayUnavailableError
from mainstem.ingest_gateway.security import AUTHORIZATION
from mainstem.limits import MIB
from mainstem.protocol import error_from_rpc
from mainstem.protocol.v1 import transactions_pb2, transactions_pb2_grpc

#: A leader has to read, encode and write what it is sent; a repeat of the call joins the first.
CALL_TIMEOUT_S: Final = 30.0

#: Connections to other gateways that are kept.
_CHANNELS_MAX: Final = 100

#: Given an address and gRPC's options.
OpenChannel = Callable[[str, Sequence[tuple[str, int]]], grpc.aio.Channel]

_OPTIONS: Final = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", 64 * MIB),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
]


class Peers:
    """The other gateways, as one of them calls them. On one event loop.

    Args:
        open_channel: Connects to host:port.
        authorization: Makes what proves to them that a gateway calls, afresh for each call; None:
            they do not ask.
    """

    def __init__(
        self, open_channel: OpenChannel, authorization: Callable[[], str] | None = None
    ) -> None:
        self._open_channel = open_channel
        self._authorization = authorization
        self._channels: OrderedDict[str, grpc.aio.Channel] = OrderedDict()

    async def append(
        self,
        address: str,
        mark: TransactionMark,
        topic: str,
        topic_id: str,
        staged: Iterable[str],
    ) -> tuple[list[transactions_pb2.TransactionResult], int]:
        """Has a leader append what a transaction brings to its topic.

        Raises:
            MainstemError: What it says, or that it does not answer.
        """
        request = transactions_pb2.AppendTransactionRequest(
            transactional_id=mark.transactional_id,
            ordinal=mark.ordinal,
            topic=topic,
            topic_id=topic_id,
            staged=staged,
        )
        answer = await self._call(address, "AppendTransaction", request)
        return list(answer.results), answer.table_version

    async def settle(self, address: str, mark: TransactionMark, topic: str, topic_id: str) -> bool:
        """Whether a topic has a transaction, which it otherwise never will have.

        Raises:
            MainstemError: What the leader says, or that it does not answer.
        """
        request = transactions_pb2.SettleTransactionRequest(
            transactional_id=mark.transactional_id,
            ordinal=mark.ordinal,
            topic=topic,
            topic_id=topic_id,
        )
        answer = await self._call(address, "SettleTransaction", request)
        return bool(answer.appended)

    async def _call(self, address: str, method: str, request: Any) -> Any:
        if not address:
            raise GatewayUnavailableError("it is not known yet who leads the topic", address="")
        stub = transactions_pb2_grpc.TransactionsStub(await self._channel(address))
        metadata = [(AUTHORIZATION, self._authorization())] if self._authorization else None
        try:
            return await getattr(stub, method)(request, timeout=CALL_TIMEOUT_S, metadata=metadata)
        except grpc.RpcError as failure:
            raise error_from_rpc(failure) from failure

    async def _channel(self, address: str) -> grpc.aio.Channel:
        channel = self._channels.pop(address, None)
        if channel is None:
            while len(self._channels) >= _CHANNELS_MAX:
                _, oldest = self._channels.popitem(last=False)
                await oldest.close()
            channel = self._open_channel(address, _OPTIONS)
        self._channels[address] = channel
        return channel

    async def close(self) -> None:
        """Ends the connections."""
        while self._channels:
            _, channel = self._channels.popitem()
            with contextlib.suppress(Exception):
                await channel.close()

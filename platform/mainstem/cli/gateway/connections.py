"""Asks one gateway who is connected to it."""

from __future__ import annotations

from typing import Final

import grpc

from mainstem.cli.context import open_channel
from mainstem.cli.gateway.status import failure_of
from mainstem.errors import MainstemError
from mainstem.protocol.v1 import admin_pb2, admin_pb2_grpc

#: What is told of a connection.
COLUMNS: Final = [
    "peer",
    "client_id",
    "open",
    "calls",
    "received_bytes",
    "sent_bytes",
    "age_s",
    "idle_s",
]


def gateway_connections(
    address: str, timeout_s: float
) -> tuple[list[list[object]], MainstemError | None]:
    """A row of `COLUMNS` for each connection, and what is wrong with the gateway if anything is."""
    with open_channel(address, [("grpc.max_receive_message_length", -1)]) as channel:
        try:
            answer = admin_pb2_grpc.AdminStub(channel).ListConnections(
                admin_pb2.ListConnectionsRequest(), timeout=timeout_s
            )
        except grpc.RpcError as failure:
            return [], failure_of(failure, address, timeout_s)
    return [
        [
            one.peer,
            one.client_id,
            one.open_calls,
            one.call_count,
            one.received_bytes,
            one.sent_bytes,
            round(one.age_ms / 1000, 1),
            round(one.idle_ms / 1000, 1),
        ]
        for one in answer.connections
    ], None

"""Asks one gateway for its health and its description."""

from __future__ import annotations

from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from mainstem.cli.context import open_channel
from mainstem.errors import (
    AuthenticationError,
    GatewayUnavailableError,
    MainstemError,
    ShuttingDownError,
    StoreUnavailableError,
)
from mainstem.protocol import encryption_hint, error_from_rpc
from mainstem.protocol.v1 import admin_pb2, admin_pb2_grpc


def gateway_status(
    address: str, timeout_s: float
) -> tuple[dict[str, object], MainstemError | None]:
    """What the gateway says of itself, and what is wrong with it, if anything is."""
    facts: dict[str, object] = {}
    with open_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            health = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
            cluster = admin_pb2_grpc.AdminStub(channel).DescribeCluster(
                admin_pb2.DescribeClusterRequest(), timeout=timeout_s
            )
        except grpc.RpcError as failure:
            return facts, failure_of(failure, address, timeout_s)
    facts["version"] = cluster.version
    facts["warehouse"] = cluster.warehouse_uri
    mine = [one for one in cluster.gateways if one.address == address] or cluster.gateways
    if len(mine) == 1:
        facts["gateway_id"] = mine[0].gateway_id
        facts["topics_led"] = mine[0].topics_led
    if cluster.store_trouble:
        return facts, StoreUnavailableError(cluster.store_trouble, address=address)
    if health.status == health_pb2.HealthCheckResponse.SERVING:
        return facts, None
    return facts, ShuttingDownError(
        "the gateway answers, but takes no more work: use another, or wait for its restart",
        address=address,
    )


def failure_of(failure: grpc.RpcError, address: str, timeout_s: float) -> MainstemError:
    """What a call of one gateway failed of."""
    assert isinstance(failure, grpc.Call)
    error = error_from_rpc(failure)
    if isinstance(error, AuthenticationError):
        return error
    hint = encryption_hint(failure.details() or "")
    if hint:
        return GatewayUnavailableError(f"no call reached {address}: {hint}", address=address)
    if failure.code() == grpc.StatusCode.UNAVAILABLE:
        return GatewayUnavailableError(
            f"nothing answers at {address}; check the address, and start a gateway with "
            "`mainstem gateway run`",
            address=address,
        )
    if failure.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
        return GatewayUnavailableError(
            f"no answer within {timeout_s:g} s; see --timeout", address=address
        )
    return error

"""Who makes a call, for the log."""

from __future__ import annotations

from typing import Any

import grpc.aio

_AGENT = "user-agent"


def caller(context: grpc.aio.ServicerContext[Any, Any]) -> dict[str, str]:
    """`peer`, the address that gRPC has, and `client_id` where the caller gave one."""
    facts = {"peer": context.peer()}
    found = client_id(context)
    if found:
        facts["client_id"] = found
    return facts


def client_id(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """The caller's client.id; empty: it gave none.

    Our client sends it in the user agent, between its name and gRPC's.
    """
    agents = [str(value) for name, value in context.invocation_metadata() or () if name == _AGENT]
    if not agents or not agents[0].startswith("mainstem-client"):
        return ""
    return agents[0].partition(" ")[2].partition("grpc-python/")[0].strip()

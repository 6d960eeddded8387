"""Who makes a call, for the log."""

from __future__ import annotations

from typing import Any

import grpc.aio

_AGENT = "user-agent"


def caller(context: grpc.aio.ServicerContext[Any, Any]) -> dict[str, str]:
    """`peer`, the address that gRPC has, and `client_id` where the caller gave one.

    Our client sends its client.id in the user agent, between its name and gRPC's.
    """
    facts = {"peer": context.peer()}
    agents = [str(value) for name, value in context.invocation_metadata() or () if name == _AGENT]
    if agents and agents[0].startswith("mainstem-client"):
        client_id = agents[0].partition(" ")[2].partition("grpc-python/")[0].strip()
        if client_id:
            facts["client_id"] = client_id
    return facts

"""The ingest gateway: gRPC in, table commits out. `mainstem gateway run` starts it."""

from mainstem.errors import extra_of

with extra_of("mainstem.ingest_gateway"):
    from mainstem.ingest_gateway.gateway_logging import configure_logging
    from mainstem.ingest_gateway.process import serve
    from mainstem.ingest_gateway.server import Gateway

__all__ = ["Gateway", "configure_logging", "serve"]

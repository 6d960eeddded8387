"""The ingest gateway: gRPC in, table commits out. `mainstem gateway run` starts it."""

from mainstem.ingest_gateway.server import Gateway, configure_logging, serve

__all__ = ["Gateway", "configure_logging", "serve"]

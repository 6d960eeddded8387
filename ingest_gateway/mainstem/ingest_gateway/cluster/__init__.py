"""The gateways of a warehouse: who is there, who should lead what, and topics that move."""

from mainstem.ingest_gateway.cluster.cluster import COORDINATION, LOOKS_PER_INTERVAL, Cluster, Load
from mainstem.ingest_gateway.cluster.heartbeats import REREADS_MAX
from mainstem.ingest_gateway.cluster.membership import Membership
from mainstem.ingest_gateway.cluster.placement import Placement, moves

__all__ = [
    "COORDINATION",
    "LOOKS_PER_INTERVAL",
    "REREADS_MAX",
    "Cluster",
    "Load",
    "Membership",
    "Placement",
    "moves",
]

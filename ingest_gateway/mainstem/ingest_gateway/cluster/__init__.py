"""The gateways of a warehouse: who is there, who should lead what, and topics that move."""

from mainstem.ingest_gateway.cluster.cluster import COORDINATION, Cluster, Load
from mainstem.ingest_gateway.cluster.membership import Membership
from mainstem.ingest_gateway.cluster.placement import Placement, moves

__all__ = ["COORDINATION", "Cluster", "Load", "Membership", "Placement", "moves"]

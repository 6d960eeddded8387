"""The gRPC services, a module each: what a call is checked for, and what it is answered.

A call raises what is wrong; `rpc` makes a status of it. Only the process (`server`) makes the
services; nothing below may import them.
"""

from mainstem.ingest_gateway.services.acls import AclService
from mainstem.ingest_gateway.services.admin import AdminService
from mainstem.ingest_gateway.services.fetch import FetchService
from mainstem.ingest_gateway.services.groups import GroupService
from mainstem.ingest_gateway.services.metadata import MetadataService
from mainstem.ingest_gateway.services.produce import ProduceService
from mainstem.ingest_gateway.services.quotas import QuotaService
from mainstem.ingest_gateway.services.rpc import Rpc
from mainstem.ingest_gateway.services.transactions import TransactionService
from mainstem.ingest_gateway.services.users import UserService

__all__ = [
    "AclService",
    "AdminService",
    "FetchService",
    "GroupService",
    "MetadataService",
    "ProduceService",
    "QuotaService",
    "Rpc",
    "TransactionService",
    "UserService",
]

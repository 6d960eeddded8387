"""The gRPC services, a module each: what a call is checked for, and what it is answered.

Only the process (`server`) makes them; nothing below may import them.
"""

from mainstem.ingest_gateway.services.admin import AdminService
from mainstem.ingest_gateway.services.fetch import FetchService
from mainstem.ingest_gateway.services.groups import GroupService
from mainstem.ingest_gateway.services.produce import LogService

__all__ = ["AdminService", "FetchService", "GroupService", "LogService"]

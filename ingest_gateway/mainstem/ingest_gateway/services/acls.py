"""Access control lists: added, removed, looked at."""

from __future__ import annotations

from mainstem.errors import InvalidConfigError
from mainstem.ingest_gateway.services.call import Call
from mainstem.protocol.v1 import security_pb2


class AclService:
    """Serves the calls of `mainstem.v1.Security` that are about access control lists."""

    async def CreateAcls(
        self, request: security_pb2.CreateAclsRequest, call: Call
    ) -> security_pb2.CreateAclsResponse:
        raise InvalidConfigError("authorizer is none on this gateway")

    async def DescribeAcls(
        self, request: security_pb2.DescribeAclsRequest, call: Call
    ) -> security_pb2.DescribeAclsResponse:
        raise InvalidConfigError("authorizer is none on this gateway")

    async def DeleteAcls(
        self, request: security_pb2.DeleteAclsRequest, call: Call
    ) -> security_pb2.DeleteAclsResponse:
        raise InvalidConfigError("authorizer is none on this gateway")

    async def CheckAcl(
        self, request: security_pb2.CheckAclRequest, call: Call
    ) -> security_pb2.CheckAclResponse:
        raise InvalidConfigError("authorizer is none on this gateway")

"""Quotas: set, removed, looked at."""

from __future__ import annotations

from mainstem.errors import InvalidConfigError
from mainstem.ingest_gateway.services.call import Call
from mainstem.protocol.v1 import security_pb2


class QuotaService:
    """Serves the calls of `mainstem.v1.Security` that are about quotas."""

    async def AlterClientQuotas(
        self, request: security_pb2.AlterClientQuotasRequest, call: Call
    ) -> security_pb2.AlterClientQuotasResponse:
        raise InvalidConfigError("this gateway has no quotas")

    async def DescribeClientQuotas(
        self, request: security_pb2.DescribeClientQuotasRequest, call: Call
    ) -> security_pb2.DescribeClientQuotasResponse:
        raise InvalidConfigError("this gateway has no quotas")

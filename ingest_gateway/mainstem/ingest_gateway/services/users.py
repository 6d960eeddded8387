"""Signing in with a password, and the users who can."""

from __future__ import annotations

from mainstem.errors import InvalidConfigError
from mainstem.ingest_gateway.services.call import Call
from mainstem.protocol.v1 import security_pb2


class UserService:
    """Serves the calls of `mainstem.v1.Security` that are about users."""

    async def Authenticate(self, call: Call) -> None:
        raise InvalidConfigError("sasl.enabled.mechanisms is not set on this gateway")

    async def AlterUserScramCredentials(
        self, request: security_pb2.AlterUserScramCredentialsRequest, call: Call
    ) -> security_pb2.AlterUserScramCredentialsResponse:
        raise InvalidConfigError("sasl.enabled.mechanisms is not set on this gateway")

    async def DescribeUserScramCredentials(
        self, request: security_pb2.DescribeUserScramCredentialsRequest, call: Call
    ) -> security_pb2.DescribeUserScramCredentialsResponse:
        raise InvalidConfigError("sasl.enabled.mechanisms is not set on this gateway")

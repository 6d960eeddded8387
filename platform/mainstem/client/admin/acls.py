"""Access control lists, seen and changed from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import grpc

from mainstem.client.admin.changes import change
from mainstem.client.gateways import Gateways
from mainstem.protocol import AUTHORIZER_KEY
from mainstem.protocol.v1 import security_pb2, security_pb2_grpc
from mainstem.security import (
    MATCH,
    AclBinding,
    AclBindingFilter,
    Operation,
    ResourceType,
    acl_binding_of,
    words_of,
)

_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class CreatedAcls:
    """What became of rules.

    Attributes:
        created_count: Those that were not there before.
        in_force: Whether the gateway that was asked lets rules decide; see its setting
            `authorizer`.
    """

    created_count: int
    in_force: bool


@dataclass(frozen=True, slots=True)
class DeletedAcls:
    """The rules that were removed; `in_force` as of `CreatedAcls`."""

    rules: tuple[AclBinding, ...]
    in_force: bool


@dataclass(frozen=True, slots=True)
class AclDecision:
    """Whether the rules allow something; `in_force` as of `CreatedAcls`."""

    allowed: bool
    in_force: bool


class AclAdmin:
    """The part of `AdminClient` that is about access control lists."""

    def __init__(self, gateways: Gateways) -> None:
        self._acl_gateways = gateways

    def create_acls(self, rules: Iterable[AclBinding], timeout: float = _TIMEOUT_S) -> CreatedAcls:
        """Adds rules, all or none. One that is there already stays as it is. In force everywhere
        within a second.

        Args:
            rules: 1,000 at most; a warehouse has 10,000 at most.

        Raises:
            ClusterAuthorizationError: The caller may not ALTER the cluster.
            PolicyViolationError: There would be too many.
        """
        request = security_pb2.CreateAclsRequest(
            rules=[security_pb2.AclRule(**words_of(one)) for one in rules]
        )
        answer, in_force = self._change(lambda stub: stub.CreateAcls, request, timeout)
        return CreatedAcls(answer.created_count, in_force)

    def describe_acls(
        self,
        filter: AclBindingFilter = AclBindingFilter(),  # noqa: B008  # it cannot change
        timeout: float = _TIMEOUT_S,
    ) -> list[AclBinding]:
        """The rules that a filter matches; without one, all of them.

        Raises:
            ClusterAuthorizationError: The caller may not DESCRIBE the cluster.
        """
        request = security_pb2.DescribeAclsRequest(filter=_message(filter))
        answer = self._acl_gateways.ask_again(
            lambda channel: security_pb2_grpc.SecurityStub(channel).DescribeAcls, request, timeout
        )
        return [_rule(one) for one in answer.rules]

    def delete_acls(
        self, filters: Iterable[AclBindingFilter], timeout: float = _TIMEOUT_S
    ) -> DeletedAcls:
        """Removes every rule that one of the filters matches.

        Raises:
            ClusterAuthorizationError: The caller may not ALTER the cluster.
        """
        request = security_pb2.DeleteAclsRequest(filters=[_message(one) for one in filters])
        answer, in_force = self._change(lambda stub: stub.DeleteAcls, request, timeout)
        return DeletedAcls(tuple(_rule(one) for one in answer.rules), in_force)

    def check_acl(
        self,
        principal: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        groups: Iterable[str] = (),
        host: str = "",
        timeout: float = _TIMEOUT_S,
    ) -> AclDecision:
        """Whether the rules of now, and super.users, allow something.

        Args:
            principal: As `User:alice`.
            groups: Of the principal, as its token has them.
            host: The address that it would call from; empty: one that no rule names.

        Raises:
            ClusterAuthorizationError: The caller may not DESCRIBE the cluster.
        """
        request = security_pb2.CheckAclRequest(
            principal=principal,
            groups=list(groups),
            host=host,
            operation=operation,
            resource_type=resource_type,
            name=name,
        )
        answer, in_force = self._change(lambda stub: stub.CheckAcl, request, timeout)
        return AclDecision(answer.allowed, in_force)

    def _change(
        self,
        method: Callable[[security_pb2_grpc.SecurityStub], Any],
        request: object,
        timeout_s: float,
    ) -> tuple[Any, bool]:
        """The answer, and whether rules are in force where it was given."""

        def with_call(channel: grpc.Channel) -> Any:
            return method(security_pb2_grpc.SecurityStub(channel)).with_call

        answer, call = change(self._acl_gateways, with_call, request, timeout_s)
        said = dict(call.trailing_metadata() or ())
        return answer, said.get(AUTHORIZER_KEY) == "acl"


def _message(asked: AclBindingFilter) -> security_pb2.AclFilter:
    return security_pb2.AclFilter(
        resource_type=asked.resource_type or "",
        name=asked.name or "",
        pattern_type=MATCH if asked.is_match else asked.pattern_type or "",
        principal=asked.principal or "",
        host=asked.host or "",
        operation=asked.operation or "",
        permission=asked.permission or "",
    )


def _rule(message: security_pb2.AclRule) -> AclBinding:
    return acl_binding_of(
        message.resource_type,
        message.name,
        message.pattern_type,
        message.principal,
        message.host,
        message.operation,
        message.permission,
    )

"""Access control lists: added, removed, looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import structlog

from mainstem.delta_log.system import AclsChange
from mainstem.errors import InvalidConfigError
from mainstem.ingest_gateway.security import FollowedAcls
from mainstem.ingest_gateway.services.call import Call
from mainstem.protocol import AUTHORIZER_KEY
from mainstem.protocol.v1 import security_pb2
from mainstem.security import (
    ANY,
    ANYBODY,
    OPERATIONS,
    AclBinding,
    Operation,
    Principal,
    ResourceType,
    acl_binding_of,
    acl_filter_of,
    check_principal,
    member_of,
    words_of,
)

log = structlog.get_logger()

T = TypeVar("T")

#: What a rule and a filter are made of.
_WORDS: Final = (
    "resource_type",
    "name",
    "pattern_type",
    "principal",
    "host",
    "operation",
    "permission",
)

#: Rules that are put into an answer in one step of the event loop.
_AT_ONCE: Final = 500

#: Rules in one line of the log.
_LOGGED_MAX: Final = 20


class AclService:
    """Serves the calls of `mainstem.v1.Security` that are about access control lists."""

    def __init__(self, acls: FollowedAcls) -> None:
        self._acls = acls

    async def CreateAcls(
        self, request: security_pb2.CreateAclsRequest, call: Call
    ) -> security_pb2.CreateAclsResponse:
        rules = _each("rule", request.rules, lambda one: acl_binding_of(**_words(one)))
        change = AclsChange(added=rules)
        await self._acls.change(change)
        log.info("rules added", count=change.created_count, rules=_logged(rules), **call.facts())
        self._tell_authorizer(call)
        return security_pb2.CreateAclsResponse(created_count=change.created_count)

    async def DescribeAcls(
        self, request: security_pb2.DescribeAclsRequest, call: Call
    ) -> security_pb2.DescribeAclsResponse:
        asked = acl_filter_of(**_words(request.filter))
        rules = await self._acls.rules()
        self._tell_authorizer(call)
        matching = (one for one in rules if asked.matches(one))
        return security_pb2.DescribeAclsResponse(rules=await _messages(matching))

    async def DeleteAcls(
        self, request: security_pb2.DeleteAclsRequest, call: Call
    ) -> security_pb2.DeleteAclsResponse:
        filters = _each("filter", request.filters, lambda one: acl_filter_of(**_words(one)))
        change = AclsChange(removed=filters)
        await self._acls.change(change)
        removed = change.removed
        log.info("rules removed", count=len(removed), rules=_logged(removed), **call.facts())
        self._tell_authorizer(call)
        return security_pb2.DeleteAclsResponse(rules=await _messages(removed))

    async def CheckAcl(
        self, request: security_pb2.CheckAclRequest, call: Call
    ) -> security_pb2.CheckAclResponse:
        kind, _, name = check_principal(request.principal).partition(":")
        if request.principal == ANYBODY:
            raise InvalidConfigError(
                f"{ANYBODY} is nobody in particular; ask about one user", name="principal"
            )
        operation = member_of(Operation, "operation", request.operation)
        resource_type = member_of(ResourceType, "resource type", request.resource_type)
        if operation not in OPERATIONS[resource_type]:
            possible = ", ".join(sorted(OPERATIONS[resource_type]))
            raise InvalidConfigError(
                f"{operation} is not done on a {resource_type}; there are {possible}",
                name="operation",
                value=request.operation,
            )
        if not request.name:
            raise InvalidConfigError("the name of the resource is empty", name="name")
        await self._acls.rules()
        self._tell_authorizer(call)
        allowed = self._acls.acls.allows(
            Principal(kind, name, frozenset(request.groups)),
            request.host or ANY,
            operation,
            resource_type,
            request.name,
        )
        return security_pb2.CheckAclResponse(allowed=allowed)

    def _tell_authorizer(self, call: Call) -> None:
        """Says beside the answer whether the rules decide anything at this gateway."""
        call.context.set_trailing_metadata(
            ((AUTHORIZER_KEY, "acl" if self._acls.in_force else "none"),)
        )


async def _messages(rules: Iterable[AclBinding]) -> list[security_pb2.AclRule]:
    """For an answer, in steps of the event loop."""
    found = []
    for number, rule in enumerate(rules, start=1):
        found.append(_message(rule))
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return found


def _each(what: str, messages: Iterable[T], read: Callable[[T], Any]) -> list[Any]:
    """All of them.

    Raises:
        InvalidConfigError: Which of them is wrong, and why.
    """
    found = []
    for number, one in enumerate(messages, start=1):
        try:
            found.append(read(one))
        except InvalidConfigError as error:
            facts: dict[str, Any] = (
                {"value": error.facts["value"]} if "value" in error.facts else {}
            )
            raise InvalidConfigError(
                f"{what} {number}: {error.message}; nothing was changed", number=number, **facts
            ) from None
    if not found:
        raise InvalidConfigError(f"the request has no {what}")
    return found


def _words(message: security_pb2.AclRule | security_pb2.AclFilter) -> dict[str, str]:
    return {name: getattr(message, name) for name in _WORDS}


def _message(rule: AclBinding) -> security_pb2.AclRule:
    return security_pb2.AclRule(**words_of(rule))


def _logged(rules: Iterable[AclBinding]) -> list[str]:
    """Some of them, each in a line."""
    return [
        f"{one.permission} {one.principal}@{one.host} {one.operation} {one.resource_type} "
        f"{one.pattern_type} {one.name}"
        for one, _ in zip(rules, range(_LOGGED_MAX), strict=False)
    ]

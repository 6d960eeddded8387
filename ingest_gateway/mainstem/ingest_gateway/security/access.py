"""What callers may do, as the gateway asks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mainstem.errors import (
    AuthorizationError,
    ClusterAuthorizationError,
    GroupAuthorizationError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
)
from mainstem.security import GATEWAY, Acls, Operation, Principal, Question, ResourceType

_ERRORS: Final[dict[ResourceType, type[AuthorizationError]]] = {
    ResourceType.TOPIC: TopicAuthorizationError,
    ResourceType.GROUP: GroupAuthorizationError,
    ResourceType.CLUSTER: ClusterAuthorizationError,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationError,
}


class Access:
    """On the event loop.

    Args:
        acls: None: everybody may do everything.

    Attributes:
        is_open: Whether everybody may do everything.
        remembered: Answers of `may` that hold now, for who asks with every request.
    """

    __slots__ = ("_acls", "is_open", "remembered")

    def __init__(self, acls: Acls | None = None) -> None:
        self._acls = acls
        self.is_open = acls is None
        self.remembered: Mapping[Question, bool] = {} if acls is None else acls.remembered

    def is_super_user(self, principal: Principal) -> bool:
        """Whether a caller may do everything, whatever the rules say."""
        return (
            self._acls is None or principal.type == GATEWAY or self._acls.is_super_user(principal)
        )

    def may(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Whether a caller at that address may do this."""
        if self._acls is None:
            return True
        if principal.type == GATEWAY:  # its calls come from what others were allowed
            return True
        return self._acls.allows(principal, host, operation, resource_type, name)

    def may_any(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether there may be something of that type with which a caller may do this."""
        if self._acls is None or principal.type == GATEWAY:
            return True
        return self._acls.allows_any(principal, host, operation, resource_type)


def refusal(
    principal: Principal, operation: Operation, resource_type: ResourceType, name: str
) -> AuthorizationError:
    """The same whether the resource exists or not."""
    what = f"{resource_type.lower().replace('_', ' ')} {name!r}"
    if resource_type is ResourceType.CLUSTER:
        what = "the cluster"
    return _ERRORS[resource_type](
        f"{principal} may not {operation} {what}: no access control list allows it, or one denies "
        "it; see mainstem acl",
        principal=principal,
        operation=operation,
        resource_type=resource_type,
        name=name,
    )

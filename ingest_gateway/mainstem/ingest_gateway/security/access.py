"""What callers may do, as the gateway asks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from mainstem.errors import (
    AuthorizationError,
    ClusterAuthorizationError,
    GroupAuthorizationError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
)
from mainstem.security import GATEWAY, Acls, Operation, Principal, Question, ResourceType

#: Characters of a name in a refusal: no thing has a longer one.
_NAME_TOLD_MAX: Final = 300

#: Of members of groups with patterns, mostly.
_DECIDERS_MAX: Final = 10_000

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

    __slots__ = ("_acls", "_deciders", "_deciders_of", "is_open", "remembered")

    def __init__(self, acls: Acls | None = None) -> None:
        self._acls = acls
        self._deciders: dict[tuple[object, ...], Callable[[str], bool]] = {}
        self._deciders_of = -1
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

    def decider(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> Callable[[str], bool] | None:
        """`may` for any name; None: everything is allowed. The same object as long as the rules are
        the same, so that what was decided by it can be kept."""
        if self._acls is None:
            return None
        if self._deciders_of != self._acls.generation or len(self._deciders) >= _DECIDERS_MAX:
            self._deciders.clear()
            self._deciders_of = self._acls.generation
        key = (principal, host, operation, resource_type)
        known = self._deciders.get(key)
        if known is not None:
            return known

        def decide(name: str) -> bool:
            return self.may(principal, host, operation, resource_type, name)

        self._deciders[key] = decide
        return decide

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
    if len(name) > _NAME_TOLD_MAX:
        name = f"{name[:_NAME_TOLD_MAX]}..."
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

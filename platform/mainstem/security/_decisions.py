"""What access control lists allow. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from mainstem.security._acls import AclBinding, Operation, Permission, ResourceType
from mainstem.security._principals import Principal

#: Decisions that are remembered: of some principals on some thousands of topics. With more they are
#: made again.
_REMEMBERED_MAX: Final = 50_000

_Question = tuple[Principal, str, Operation, ResourceType, str]


class Acls:
    """Decides by access control lists. One thread at a time.

    Nothing that no rule allows may be done, and nothing that one denies; super users may do
    everything.

    Args:
        super_users: As `User:admin`.
        allow_if_none: Where no rule is about a resource, everybody may do everything with it.
            Kafka: allow.everyone.if.no.acl.found.
    """

    def __init__(self, super_users: Collection[str] = (), *, allow_if_none: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_none = allow_if_none
        self._bindings: tuple[AclBinding, ...] = ()
        self._by_type: dict[ResourceType, list[AclBinding]] = {}
        self._remembered: dict[_Question, bool] = {}

    @property
    def bindings(self) -> tuple[AclBinding, ...]:
        """The rules."""
        return self._bindings

    def replace(self, bindings: Iterable[AclBinding]) -> None:
        """From now on these rules decide."""
        self._bindings = tuple(bindings)
        self._by_type = {kind: [] for kind in ResourceType}
        for binding in self._bindings:
            self._by_type[binding.resource_type].append(binding)
        self._remembered.clear()

    def is_super_user(self, principal: Principal) -> bool:
        """Whether everything is allowed."""
        return not self._super_users.isdisjoint(principal.names)

    def allows(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Whether the principal, at that address, may do this on the resource of that name."""
        question = (principal, host, operation, resource_type, name)
        answer = self._remembered.get(question)
        if answer is None:
            if len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.clear()
            answer = self._remembered[question] = self._decide(*question)
        return answer

    def allows_any(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether there may be a resource of the type on which this is allowed. Kafka:
        authorizeByResourceType."""
        if self.is_super_user(principal):
            return True
        names = principal.names
        mine = [
            binding
            for binding in self._by_type.get(resource_type, ())
            if binding.principal in names and binding.is_from(host) and binding.decides(operation)
        ]
        denied = [binding for binding in mine if binding.permission is Permission.DENY]
        if any(binding.is_about_all for binding in denied):
            return False
        for binding in mine:
            if binding.permission is Permission.ALLOW and not any(
                _covers(one, binding) for one in denied
            ):
                return True
        return self._allow_if_none

    def _decide(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        if self.is_super_user(principal):
            return True
        about = [one for one in self._by_type.get(resource_type, ()) if one.is_about(name)]
        if not about:
            return self._allow_if_none
        names = principal.names
        found = {
            one.permission
            for one in about
            if one.principal in names and one.is_from(host) and one.decides(operation)
        }
        return found == {Permission.ALLOW}


def _covers(denying: AclBinding, allowing: AclBinding) -> bool:
    """Whether each resource that the second is about the first is about as well."""
    if denying.is_about_all:
        return True
    if denying.is_prefix:
        return allowing.name.startswith(denying.name) and not allowing.is_about_all
    return not allowing.is_prefix and denying.name == allowing.name

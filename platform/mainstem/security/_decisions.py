"""What access control lists allow. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from mainstem.security._acls import (
    ANY,
    NAME_CHARACTERS_MAX,
    AclBinding,
    Operation,
    Permission,
    ResourceType,
)
from mainstem.security._principals import Principal

#: Decisions that are remembered: of some principals on some thousands of topics. With more they are
#: made again.
_REMEMBERED_MAX: Final = 50_000

#: The name is None where it is asked about any resource of the type.
Question = tuple[Principal, str, Operation, ResourceType, str | None]


class _Rules:
    """Those about one type of resource, found by the names that they are about."""

    def __init__(self) -> None:
        self.all: list[AclBinding] = []
        self._literal: dict[str, list[AclBinding]] = {}
        self._prefixed: dict[str, list[AclBinding]] = {}
        self._prefix_sizes: tuple[int, ...] = ()

    def add(self, rule: AclBinding) -> None:
        self.all.append(rule)
        if not rule.is_prefix:
            self._literal.setdefault(rule.name, []).append(rule)
            return
        self._prefixed.setdefault(rule.name, []).append(rule)
        if len(rule.name) not in self._prefix_sizes:
            self._prefix_sizes = (*self._prefix_sizes, len(rule.name))

    def about(self, name: str) -> list[AclBinding]:
        """Those that are about the resource of that name."""
        found = [*self._literal.get(ANY, ()), *self._literal.get(name, ())]
        if name == ANY:
            found = list(self._literal.get(ANY, ()))
        for size in self._prefix_sizes:
            if size <= len(name):
                found += self._prefixed.get(name[:size], ())
        return found


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
        self._by_type = {kind: _Rules() for kind in ResourceType}
        self._remembered: dict[Question, bool] = {}
        self._generation = 0

    @property
    def remembered(self) -> Mapping[Question, bool]:
        """Decisions that were made by the rules of now. The same object for ever."""
        return self._remembered

    @property
    def bindings(self) -> tuple[AclBinding, ...]:
        """The rules."""
        return self._bindings

    @property
    def generation(self) -> int:
        """Another number for other rules."""
        return self._generation

    def replace(self, bindings: Iterable[AclBinding]) -> None:
        """From now on these rules decide."""
        self._bindings = tuple(bindings)
        self._by_type = {kind: _Rules() for kind in ResourceType}
        for binding in self._bindings:
            self._by_type[binding.resource_type].add(binding)
        self._remembered.clear()
        self._generation += 1

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
            answer = self._remember(question, self._decide(*question))
        return answer

    def allows_any(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether there may be a resource of the type on which this is allowed. Kafka:
        authorizeByResourceType."""
        question = (principal, host, operation, resource_type, None)
        answer = self._remembered.get(question)
        if answer is None:
            answer = self._decide_any(principal, host, operation, resource_type)
            self._remember(question, answer)
        return answer

    def _remember(self, question: Question, answer: bool) -> bool:
        name = question[-1]
        if name is not None and len(name) > NAME_CHARACTERS_MAX:
            return answer  # whoever invents names of megabytes is not to fill the memory with them
        if len(self._remembered) >= _REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[question] = answer
        return answer

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
        about = self._by_type[resource_type].about(name)
        if not about:
            return self._allow_if_none
        names = principal.names
        found = {
            one.permission
            for one in about
            if one.principal in names and one.is_from(host) and one.decides(operation)
        }
        return found == {Permission.ALLOW}

    def _decide_any(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        if self.is_super_user(principal):
            return True
        names = principal.names
        mine = [
            rule
            for rule in self._by_type[resource_type].all
            if rule.principal in names and rule.is_from(host) and rule.decides(operation)
        ]
        denied = [rule for rule in mine if rule.permission is Permission.DENY]
        if any(rule.is_about_all for rule in denied):
            return False
        literal = {rule.name for rule in denied if not rule.is_prefix}
        prefixes = [rule for rule in denied if rule.is_prefix]
        for rule in mine:
            if rule.permission is Permission.DENY or (not rule.is_prefix and rule.name in literal):
                continue
            if not any(_covers(one, rule) for one in prefixes):
                return True
        return self._allow_if_none


def _covers(denying: AclBinding, allowing: AclBinding) -> bool:
    """Whether the prefix that is denied is one of each resource that the other is about."""
    return allowing.name.startswith(denying.name) and not allowing.is_about_all

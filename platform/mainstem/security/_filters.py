"""Which rules somebody means: those to list, or to remove. Pure.

Source: Kafka's AclBindingFilter and ResourcePatternFilter, KIP-290.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final, TypeVar

from mainstem.errors import InvalidConfigError
from mainstem.security._acls import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

E = TypeVar("E", bound=StrEnum)

#: As the pattern type of a filter: each rule that is about the name.
MATCH: Final = "MATCH"


@dataclass(frozen=True, slots=True)
class AclBindingFilter:
    """Rules that have everything that is said here; None: whatever they have.

    Attributes:
        pattern_type: With `is_match`, no part of the filter.
        is_match: `name` is a resource's, and the rules are those that are about it, also by a
            prefix or as `*`. Otherwise it is a rule's.
    """

    resource_type: ResourceType | None = None
    name: str | None = None
    pattern_type: PatternType | None = None
    is_match: bool = False
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None

    def matches(self, rule: AclBinding) -> bool:
        """Whether the rule is one of those that are meant."""
        if self.is_match and self.name is not None:
            is_named = rule.is_about(self.name)
        else:
            is_named = self.name in (None, rule.name) and (
                self.is_match or self.pattern_type in (None, rule.pattern_type)
            )
        return (
            is_named
            and self.resource_type in (None, rule.resource_type)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (None, rule.operation)
            and self.permission in (None, rule.permission)
        )


def acl_binding_of(
    resource_type: str,
    name: str,
    pattern_type: str,
    principal: str,
    host: str,
    operation: str,
    permission: str,
) -> AclBinding:
    """The rule that these words say.

    Raises:
        InvalidConfigError: One of them is none of those that there are, or `AclBinding` raises.
    """
    return AclBinding(
        member_of(ResourceType, "resource type", resource_type),
        name,
        member_of(PatternType, "pattern type", pattern_type),
        principal,
        host,
        member_of(Operation, "operation", operation),
        member_of(Permission, "permission", permission),
    )


def acl_filter_of(
    resource_type: str = "",
    name: str = "",
    pattern_type: str = "",
    principal: str = "",
    host: str = "",
    operation: str = "",
    permission: str = "",
) -> AclBindingFilter:
    """The filter that these words say; an empty one says nothing.

    Raises:
        InvalidConfigError: One of them is none of those that there are.
    """
    is_match = pattern_type == MATCH

    def known(kind: type[E], what: str, word: str) -> E | None:
        return member_of(kind, what, word) if word else None

    return AclBindingFilter(
        known(ResourceType, "resource type", resource_type),
        name or None,
        None if is_match else known(PatternType, "pattern type", pattern_type),
        is_match,
        principal or None,
        host or None,
        known(Operation, "operation", operation),
        known(Permission, "permission", permission),
    )


def words_of(rule: AclBinding) -> dict[str, str]:
    """The words that say a rule, by the names of `acl_binding_of`."""
    return {one.name: str(getattr(rule, one.name)) for one in fields(rule)}


def member_of(kind: type[E], what: str, word: str) -> E:
    """The member of an enumeration that a word says.

    Raises:
        InvalidConfigError: None does.
    """
    members: Callable[[str], Any] = kind
    try:
        found: E = members(word)
    except ValueError:
        raise InvalidConfigError(
            f"{word!r} is no {what}; there are {', '.join(kind)}", name=what, value=word[:100]
        ) from None
    return found

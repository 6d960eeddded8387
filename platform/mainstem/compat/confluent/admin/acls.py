"""AdminClient's calls about access control lists, and what they take and give."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import Future
from enum import Enum
from typing import Any, TypeVar

from mainstem import security
from mainstem.client import DeletedAcls
from mainstem.compat.confluent.admin.calls import Calls, list_of, options
from mainstem.compat.confluent.admin.model import ResourceType

E = TypeVar("E", bound=Enum)


class ResourcePatternType(Enum):
    """How a rule's name is meant; ANY and MATCH in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(Enum):
    """What is done; ANY in filters only."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class AclPermissionType(Enum):
    """Whether a rule allows or denies; ANY in filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@functools.total_ordering
class _Words:
    """What a rule and a filter have in common. Equal and sorted by all of it."""

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str | None,
        resource_pattern_type: ResourcePatternType | str | int,
        principal: str | None,
        host: str | None,
        operation: AclOperation | str | int,
        permission_type: AclPermissionType | str | int,
    ) -> None:
        for what, text in (("name", name), ("principal", principal), ("host", host)):
            self._check_text(what, text)
        self.restype = _member(ResourceType, restype)
        self.name = name
        self.resource_pattern_type = _member(ResourcePatternType, resource_pattern_type)
        self.principal = principal
        self.host = host
        self.operation = _member(AclOperation, operation)
        self.permission_type = _member(AclPermissionType, permission_type)
        for one in self._kinds():
            if one.name in self._no_kinds():
                raise ValueError(f"{one} is not possible in a {type(self).__name__}")

    @property
    def restype_int(self) -> int:
        return int(self.restype.value)

    @property
    def resource_pattern_type_int(self) -> int:
        return int(self.resource_pattern_type.value)

    @property
    def operation_int(self) -> int:
        return int(self.operation.value)

    @property
    def permission_type_int(self) -> int:
        return int(self.permission_type.value)

    def _check_text(self, what: str, text: object) -> None:
        if not isinstance(text, str) or not text:
            raise ValueError(f"{what} is {text!r}; it must be a string that is not empty")

    def _no_kinds(self) -> Sequence[str]:
        return ("UNKNOWN", "ANY", "MATCH")

    def _kinds(self) -> tuple[Enum, ...]:
        return self.restype, self.resource_pattern_type, self.operation, self.permission_type

    def _key(self) -> tuple[object, ...]:
        texts = (self.name or "", self.principal or "", self.host or "")
        return (*texts, *(one.value for one in self._kinds()))

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, type(self)) else NotImplemented

    def __lt__(self, other: _Words) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        words = [self.restype.name, self.name, self.resource_pattern_type.name, self.principal]
        words += [self.host, self.operation.name, self.permission_type.name]
        return f"{type(self).__name__}({','.join(str(one) for one in words)})"


class AclBinding(_Words):
    """A rule. The cluster is ResourceType.BROKER, with the name kafka-cluster."""


class AclBindingFilter(_Words):
    """Rules: those that have what is not None, ANY or, of names, MATCH."""

    def _check_text(self, what: str, text: object) -> None:
        if text is not None:
            super()._check_text(what, text)

    def _no_kinds(self) -> Sequence[str]:
        return ("UNKNOWN",)


class AclCalls(Calls):
    """Access control lists."""

    def create_acls(self, acls: list[AclBinding], **kwargs: Any) -> dict[Any, Future[None]]:
        """Adds rules, all or none."""
        list_of(acls, AclBinding)
        _no_twins(acls)
        timeout_s, _ = options(kwargs)

        def create() -> None:
            self._admin.create_acls([_to_ours(one) for one in acls], timeout_s)

        return self._start_together(create, acls, lambda _, __: None)

    def describe_acls(
        self, acl_binding_filter: AclBindingFilter, **kwargs: Any
    ) -> Future[list[AclBinding]]:
        """The rules that a filter matches."""
        list_of([acl_binding_filter], AclBindingFilter)
        timeout_s, _ = options(kwargs)

        def describe() -> list[AclBinding]:
            asked = _filter_to_ours(acl_binding_filter)
            return [_from_ours(one) for one in self._admin.describe_acls(asked, timeout_s)]

        return self._start(describe)

    def delete_acls(
        self, acl_binding_filters: list[AclBindingFilter], **kwargs: Any
    ) -> dict[Any, Future[list[AclBinding]]]:
        """Removes the rules that the filters match, and gives them by their filters."""
        list_of(acl_binding_filters, AclBindingFilter)
        _no_twins(acl_binding_filters)
        timeout_s, _ = options(kwargs)

        def delete() -> DeletedAcls:
            filters = [_filter_to_ours(one) for one in acl_binding_filters]
            return self._admin.delete_acls(filters, timeout_s)

        def matching(deleted: DeletedAcls, asked: AclBindingFilter) -> list[AclBinding]:
            ours = _filter_to_ours(asked)
            return [_from_ours(one) for one in deleted.rules if ours.matches(one)]

        return self._start_together(delete, acl_binding_filters, matching)


def _no_twins(values: Sequence[_Words]) -> None:
    if len(set(values)) < len(values):
        raise ValueError("there are duplicates among them")


def _member(kind: type[E], value: E | str | int) -> E:
    if isinstance(value, str):
        if value.upper() not in kind.__members__:
            names = ", ".join(one.name for one in kind)
            raise ValueError(f"there is no {kind.__name__} {value!r}; there are {names}")
        return kind[value.upper()]
    return kind(value)


def _words(one: _Words) -> dict[str, str]:
    """Ours; what matches anything is empty."""
    resource_type = "CLUSTER" if one.restype is ResourceType.BROKER else one.restype.name
    kinds = {
        "resource_type": resource_type,
        "pattern_type": one.resource_pattern_type.name,
        "operation": one.operation.name,
        "permission": one.permission_type.name,
    }
    texts = {"name": one.name or "", "principal": one.principal or "", "host": one.host or ""}
    return {key: "" if word == "ANY" else word for key, word in kinds.items()} | texts


def _to_ours(rule: AclBinding) -> security.AclBinding:
    return security.acl_binding_of(**_words(rule))


def _filter_to_ours(asked: AclBindingFilter) -> security.AclBindingFilter:
    return security.acl_filter_of(**_words(asked))


def _from_ours(rule: security.AclBinding) -> AclBinding:
    is_cluster = rule.resource_type is security.ResourceType.CLUSTER
    return AclBinding(
        "BROKER" if is_cluster else rule.resource_type.name,
        rule.name,
        rule.pattern_type.name,
        rule.principal,
        rule.host,
        rule.operation.name,
        rule.permission.name,
    )

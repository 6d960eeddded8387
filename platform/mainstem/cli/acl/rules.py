"""From the options of `mainstem acl`, which are those of kafka-acls, to rules and filters. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from mainstem.errors import InvalidConfigError
from mainstem.security import (
    ANY,
    CLUSTER_NAME,
    AclBinding,
    AclBindingFilter,
    acl_binding_of,
    acl_filter_of,
)


@dataclass(frozen=True, slots=True)
class Resources:
    """What rules are about, as the options name it."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    cluster: bool = False
    pattern_type: str = "LITERAL"

    def each(self) -> Iterator[tuple[str, str, str]]:
        """Types, names and pattern types."""
        for name in self.topics:
            yield "TOPIC", name, self.pattern_type
        for name in self.groups:
            yield "GROUP", name, self.pattern_type
        for name in self.transactional_ids:
            yield "TRANSACTIONAL_ID", name, self.pattern_type
        if self.cluster:
            is_word = self.pattern_type != "PREFIXED"
            yield "CLUSTER", CLUSTER_NAME, self.pattern_type if is_word else "LITERAL"


@dataclass(frozen=True, slots=True)
class Callers:
    """Whom rules name, as the options do.

    Attributes:
        allowed, denied: Principals.
        allowed_hosts, denied_hosts: None: every host.
    """

    allowed: Sequence[str] = ()
    denied: Sequence[str] = ()
    allowed_hosts: Sequence[str] = ()
    denied_hosts: Sequence[str] = ()

    def each(self) -> Iterator[tuple[str, str, str]]:
        """Principals, hosts and permissions."""
        for principal, host in product(self.allowed, self.allowed_hosts or (ANY,)):
            yield principal, host, "ALLOW"
        for principal, host in product(self.denied, self.denied_hosts or (ANY,)):
            yield principal, host, "DENY"


def rules_of(resources: Resources, callers: Callers, operations: Sequence[str]) -> list[AclBinding]:
    """A rule for each caller, resource and operation.

    Raises:
        InvalidConfigError: There are none, or one cannot be.
    """
    named, who = list(resources.each()), list(callers.each())
    if not named:
        raise InvalidConfigError(
            "say what the rules are about: --topic, --group, --transactional-id or --cluster"
        )
    if not who:
        raise InvalidConfigError("say whom the rules name: --allow-principal or --deny-principal")
    return [
        acl_binding_of(kind, name, pattern, principal, host, operation, permission)
        for (principal, host, permission), (kind, name, pattern), operation in product(
            who, named, operations or ("ALL",)
        )
    ]


def producer_rules(resources: Resources, callers: Callers, *, idempotent: bool) -> list[AclBinding]:
    """What a producer needs. As kafka-acls: to write topics, and to make them; to write in
    transactions with ids; to be given a producer id."""
    topics = replace(resources, groups=(), transactional_ids=(), cluster=False)
    if not topics.topics:
        raise InvalidConfigError("--producer needs a --topic")
    rules = rules_of(topics, callers, ("WRITE", "DESCRIBE", "CREATE"))
    if resources.transactional_ids:
        ids = replace(resources, topics=(), groups=(), cluster=False)
        rules += rules_of(ids, callers, ("WRITE", "DESCRIBE"))
    if idempotent:
        rules += rules_of(Resources(cluster=True), callers, ("IDEMPOTENT_WRITE",))
    return rules


def consumer_rules(resources: Resources, callers: Callers) -> list[AclBinding]:
    """What a member of a group needs, as kafka-acls."""
    if not resources.topics or not resources.groups:
        raise InvalidConfigError("--consumer needs a --topic and a --group")
    topics = replace(resources, groups=(), transactional_ids=(), cluster=False)
    groups = replace(resources, topics=(), transactional_ids=(), cluster=False)
    return [
        *rules_of(topics, callers, ("READ", "DESCRIBE")),
        *rules_of(groups, callers, ("READ",)),
    ]


def filters_of(
    resources: Resources,
    principals: Sequence[str],
    operations: Sequence[str],
    hosts: Sequence[str] = (),
    permission: str = "",
) -> list[AclBindingFilter]:
    """A filter for each of what is named; one that matches every rule where nothing is.

    Raises:
        InvalidConfigError: One cannot be.
    """
    pattern = "" if resources.pattern_type == "ANY" else resources.pattern_type
    named = list(resources.each()) or [("", "", pattern if pattern != "MATCH" else "")]
    return [
        acl_filter_of(
            kind, name, "" if kept == "ANY" else kept, principal, host, operation, permission
        )
        for (kind, name, kept), principal, operation, host in product(
            named, principals or ("",), operations or ("",), hosts or ("",)
        )
    ]

"""Access control lists: who may do what, on what. Pure.

Source: Kafka's ACLs, KIP-11 and KIP-290 (prefixed).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from mainstem.errors import InvalidConfigError
from mainstem.security._principals import check_principal

#: The one resource of its type. Kafka's name of it, which programs that make ACLs have.
CLUSTER_NAME: Final = "kafka-cluster"

#: As a name: every resource of the type. As a host: every host.
ANY: Final = "*"

#: As long as a name may be. Kafka's topics: 249.
NAME_CHARACTERS_MAX: Final = 249

#: The subject of a certificate may be long.
_PRINCIPAL_CHARACTERS_MAX: Final = 1_000


class ResourceType(StrEnum):
    """What an ACL is about."""

    TOPIC = "TOPIC"
    GROUP = "GROUP"
    CLUSTER = "CLUSTER"
    TRANSACTIONAL_ID = "TRANSACTIONAL_ID"

    # An enumeration's own takes longer than everything else that a decision takes.
    __hash__ = str.__hash__


class PatternType(StrEnum):
    """How an ACL's name is meant: as it stands, or as the beginning of names."""

    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class Operation(StrEnum):
    """What is done. ALL stands for each of the others."""

    ALL = "ALL"
    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    CLUSTER_ACTION = "CLUSTER_ACTION"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"
    IDEMPOTENT_WRITE = "IDEMPOTENT_WRITE"

    __hash__ = str.__hash__


class Permission(StrEnum):
    """Whether an ACL allows or denies. One that denies wins."""

    ALLOW = "ALLOW"
    DENY = "DENY"


_TOPIC: Final = frozenset(
    {
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    }
)

#: What can be done on each type of resource.
OPERATIONS: Final = {
    ResourceType.TOPIC: _TOPIC,
    ResourceType.GROUP: frozenset({Operation.READ, Operation.DESCRIBE, Operation.DELETE}),
    ResourceType.TRANSACTIONAL_ID: frozenset({Operation.WRITE, Operation.DESCRIBE}),
    ResourceType.CLUSTER: frozenset(
        {
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        }
    ),
}

#: Whoever is allowed one of these is allowed the operation as well; see KIP-11.
IMPLIED_BY: Final = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}


@dataclass(frozen=True, slots=True)
class AclBinding:
    """One rule.

    Attributes:
        resource_type: What it is about.
        name: Of the resource; `*` for all of the type. The cluster's is `kafka-cluster`.
        pattern_type: How `name` is meant.
        principal: `User:name`, `User:*` for every user, `Group:name`.
        host: An address, a network as `10.0.0.0/8`, or `*`.
        operation: What is done.
        permission: Whether that is allowed.

    Raises:
        InvalidConfigError: A part of it cannot be, or does not go with another.
    """

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __post_init__(self) -> None:
        check_principal(self.principal)
        if len(self.principal) > _PRINCIPAL_CHARACTERS_MAX:
            raise InvalidConfigError(
                f"the principal {self.principal[:50]!r}... has {len(self.principal)} characters; "
                f"it may have {_PRINCIPAL_CHARACTERS_MAX}"
            )
        if not (_is_text(self.name) and _is_text(self.principal)):
            raise InvalidConfigError("a name or a principal has bytes that are no text in UTF-8")
        if not 0 < len(self.name) <= NAME_CHARACTERS_MAX:
            raise InvalidConfigError(
                f"the name of a resource has {len(self.name)} characters; it must have 1 to "
                f"{NAME_CHARACTERS_MAX}"
            )
        if self.resource_type is ResourceType.CLUSTER and self.name != CLUSTER_NAME:
            raise InvalidConfigError(
                f"the cluster is called {CLUSTER_NAME!r}, not {self.name!r}", value=self.name
            )
        if self.operation is not Operation.ALL and (
            self.operation not in OPERATIONS[self.resource_type]
        ):
            possible = ", ".join(sorted(OPERATIONS[self.resource_type]))
            raise InvalidConfigError(
                f"{self.operation} is not done on a {self.resource_type}; there are ALL, "
                f"{possible}",
                value=self.operation,
            )
        if self.pattern_type is PatternType.PREFIXED and self.name == ANY:
            raise InvalidConfigError(
                f"the prefix {ANY!r} is the beginning of no name; for all names use LITERAL",
                value=self.name,
            )
        if self.host != ANY:
            try:
                _network(self.host)
            except ValueError as error:
                raise InvalidConfigError(
                    f"the host {self.host!r} is no address, no network and not {ANY!r}: {error}",
                    value=self.host,
                ) from None

    @property
    def is_prefix(self) -> bool:
        """Whether all names that begin with `name` are meant."""
        return self.pattern_type is PatternType.PREFIXED

    @property
    def is_about_all(self) -> bool:
        """Whether every resource of the type is meant."""
        return self.name == ANY

    def is_about(self, name: str) -> bool:
        """Whether the resource of that name, of the right type, is meant."""
        if self.is_prefix:
            return name.startswith(self.name)
        return self.name in (ANY, name)

    def is_from(self, host: str) -> bool:
        """Whether a caller at that address is meant."""
        if self.host in (ANY, host):
            return True
        try:
            return ipaddress.ip_address(host) in _network(self.host)
        except ValueError:
            return False

    def decides(self, operation: Operation) -> bool:
        """Whether it says something of the operation; one that allows says more than it names."""
        if self.operation in (Operation.ALL, operation):
            return True
        implied_by = IMPLIED_BY.get(operation, frozenset())
        return self.permission is Permission.ALLOW and self.operation in implied_by


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@lru_cache(1_000)
def _network(host: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(host)

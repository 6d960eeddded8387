"""Who may do what: principals, access control lists and what they decide. Pure."""

from mainstem.security._acls import (
    ANY,
    CLUSTER_NAME,
    IMPLIED_BY,
    OPERATIONS,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from mainstem.security._decisions import Acls
from mainstem.security._principals import (
    ANONYMOUS,
    GATEWAY,
    USER,
    Principal,
    check_principal,
)

__all__ = [
    "ANONYMOUS",
    "ANY",
    "CLUSTER_NAME",
    "GATEWAY",
    "IMPLIED_BY",
    "OPERATIONS",
    "USER",
    "AclBinding",
    "Acls",
    "Operation",
    "PatternType",
    "Permission",
    "Principal",
    "ResourceType",
    "check_principal",
]

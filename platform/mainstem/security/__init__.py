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
from mainstem.security._decisions import Acls, Question
from mainstem.security._filters import (
    MATCH,
    AclBindingFilter,
    acl_binding_of,
    acl_filter_of,
    member_of,
    words_of,
)
from mainstem.security._principals import (
    ANONYMOUS,
    ANYBODY,
    GATEWAY,
    USER,
    Principal,
    check_principal,
    parse_super_users,
)

__all__ = [
    "ANONYMOUS",
    "ANY",
    "ANYBODY",
    "CLUSTER_NAME",
    "GATEWAY",
    "IMPLIED_BY",
    "MATCH",
    "OPERATIONS",
    "USER",
    "AclBinding",
    "AclBindingFilter",
    "Acls",
    "Operation",
    "PatternType",
    "Permission",
    "Principal",
    "Question",
    "ResourceType",
    "acl_binding_of",
    "acl_filter_of",
    "check_principal",
    "member_of",
    "parse_super_users",
    "words_of",
]

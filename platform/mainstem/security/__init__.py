"""Who may do what, and how much: principals, access control lists, quotas. Pure."""

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
from mainstem.security._quotas import (
    DEFAULT,
    Limit,
    QuotaEntity,
    QuotaName,
    QuotaRows,
    limits_of,
    quota_name,
    quota_value,
)

__all__ = [
    "ANONYMOUS",
    "ANY",
    "CLUSTER_NAME",
    "DEFAULT",
    "GATEWAY",
    "IMPLIED_BY",
    "OPERATIONS",
    "USER",
    "AclBinding",
    "Acls",
    "Limit",
    "Operation",
    "PatternType",
    "Permission",
    "Principal",
    "QuotaEntity",
    "QuotaName",
    "QuotaRows",
    "ResourceType",
    "check_principal",
    "limits_of",
    "quota_name",
    "quota_value",
]

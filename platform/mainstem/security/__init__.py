"""Who may do what: principals, their passwords' keys, access control lists and what they decide.
Pure."""

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
from mainstem.security._scram import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES,
    SCRAM_MECHANISMS,
    ScramCredential,
    check_iterations,
    check_mechanism,
    check_user_name,
    new_credential,
    prepared_name,
)

__all__ = [
    "ANONYMOUS",
    "ANY",
    "CLUSTER_NAME",
    "GATEWAY",
    "IMPLIED_BY",
    "ITERATIONS_DEFAULT",
    "ITERATIONS_MAX",
    "ITERATIONS_MIN",
    "OPERATIONS",
    "SALT_BYTES",
    "SCRAM_MECHANISMS",
    "USER",
    "AclBinding",
    "Acls",
    "Operation",
    "PatternType",
    "Permission",
    "Principal",
    "ResourceType",
    "ScramCredential",
    "check_iterations",
    "check_mechanism",
    "check_principal",
    "check_user_name",
    "new_credential",
    "prepared_name",
]

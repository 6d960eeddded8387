"""Who calls, and what they may do: `sign_in` finds out the first, `access` decides the second.

What each call of the protocol needs is said beside the services, in `requirements`.
"""

from mainstem.ingest_gateway.security.access import Access, refusal
from mainstem.ingest_gateway.security.followed_acls import FollowedAcls
from mainstem.ingest_gateway.security.proofs import bearer_proof, certificate_proof
from mainstem.ingest_gateway.security.scram import ScramExchange
from mainstem.ingest_gateway.security.sessions import (
    GATEWAY_CALL,
    SESSION,
    GatewayCalls,
    Secret,
    Sessions,
)
from mainstem.ingest_gateway.security.sign_in import AUTHORIZATION, Proof, SignIn
from mainstem.ingest_gateway.security.users import Users
from mainstem.ingest_gateway.security.watched_rows import WatchedRows

__all__ = [
    "AUTHORIZATION",
    "GATEWAY_CALL",
    "SESSION",
    "Access",
    "FollowedAcls",
    "GatewayCalls",
    "Proof",
    "ScramExchange",
    "Secret",
    "Sessions",
    "SignIn",
    "Users",
    "WatchedRows",
    "bearer_proof",
    "certificate_proof",
    "refusal",
]

"""Who calls, and what they may do: `sign_in` finds out the first, `access` decides the second.

What each call of the protocol needs is said beside the services, in `requirements`.
"""

from mainstem.ingest_gateway.security.access import Access, refusal
from mainstem.ingest_gateway.security.followed_acls import FollowedAcls
from mainstem.ingest_gateway.security.sign_in import AUTHORIZATION, Proof, SignIn

__all__ = ["AUTHORIZATION", "Access", "FollowedAcls", "Proof", "SignIn", "refusal"]

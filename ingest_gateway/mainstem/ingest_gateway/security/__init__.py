"""Who calls, and what they may do: `sign_in` finds out the first, `access` decides the second.

What each call of the protocol needs is said beside the services, in `requirements`.
"""

from mainstem.ingest_gateway.security.access import Access, refusal
from mainstem.ingest_gateway.security.sign_in import AUTHORIZATION, Proof, SignIn
from mainstem.ingest_gateway.security.watched_rows import WatchedRows

__all__ = ["AUTHORIZATION", "Access", "Proof", "SignIn", "WatchedRows", "refusal"]

"""Requests on their way in: counted in their bytes, parsed off the loop, and limited in all.

What is in a request that has come through here is bounded; whether it makes sense is for the
services to say.
"""

from mainstem.ingest_gateway.requests.door import RequestDoor, RequestKind

__all__ = ["RequestDoor", "RequestKind"]

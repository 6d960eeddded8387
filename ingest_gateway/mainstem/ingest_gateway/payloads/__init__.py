"""From the bytes of a produce request to slices for the appender. Pure, and the gateway's border:
what is in a request is believed only after `read_payload`.
"""

from mainstem.ingest_gateway.payloads.payload import (
    NotInlineError,
    Payload,
    PayloadRules,
    read_payload,
)
from mainstem.ingest_gateway.payloads.placement import StickyPlacement

__all__ = ["NotInlineError", "Payload", "PayloadRules", "StickyPlacement", "read_payload"]

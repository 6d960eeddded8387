"""Makes what a gateway's settings say of security: who is asked, what they may do."""

from __future__ import annotations

from mainstem.config import GatewayConfig
from mainstem.ingest_gateway.security import Access, SignIn


class GatewaySecurity:
    """On the event loop.

    Attributes:
        sign_in: Finds out who calls.
        access: Decides what they may do.

    Raises:
        InvalidConfigError: The settings contradict each other.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self.sign_in = SignIn()
        self.access = Access()

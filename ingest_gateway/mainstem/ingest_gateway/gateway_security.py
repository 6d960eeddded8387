"""Makes what a gateway's settings say of security: who is asked, what they may do."""

from __future__ import annotations

from mainstem.config import GatewayConfig
from mainstem.ingest_gateway.security import Access, CertificateProof, SignIn


class GatewaySecurity:
    """On the event loop.

    Attributes:
        sign_in: Finds out who calls.
        access: Decides what they may do.

    Raises:
        InvalidConfigError: The settings contradict each other.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self.sign_in = SignIn(certificate=_certificate_proof(config))
        self.access = Access()


def _certificate_proof(config: GatewayConfig) -> CertificateProof | None:
    """None: clients are not asked for a certificate."""
    if config.text("ssl.client.auth") != "required":
        return None
    # A gateway that asks for none has no need of cryptography.
    from mainstem.ingest_gateway.security.certificates import Certificates

    return Certificates(config.text("ssl.principal.mapping.rules"))

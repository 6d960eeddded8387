"""What proves who calls, as the settings say; what a gateway does not use is not imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.config import GatewayConfig
from mainstem.ingest_gateway.security.sign_in import CertificateProof

if TYPE_CHECKING:
    from mainstem.ingest_gateway.security.oidc import BearerProof


def certificate_proof(config: GatewayConfig) -> CertificateProof | None:
    """Whose certificates are; None: clients are not asked for one.

    Raises:
        InvalidConfigError: A rule of `ssl.principal.mapping.rules` is malformed.
    """
    if config.text("ssl.client.auth") != "required":
        return None
    from mainstem.ingest_gateway.security.certificates import Certificates

    return Certificates(config.text("ssl.principal.mapping.rules"))


def bearer_proof(config: GatewayConfig) -> BearerProof | None:
    """Whose tokens are; None: they are not taken.

    Raises:
        InvalidConfigError: A setting of them is missing, or cannot be used.
    """
    if "OAUTHBEARER" not in config.text("sasl.enabled.mechanisms").split(","):
        return None
    from mainstem.ingest_gateway.security.oidc import bearer_proof_of

    return bearer_proof_of(config)

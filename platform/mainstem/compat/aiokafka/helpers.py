"""aiokafka.helpers, whose only function is refused."""

from __future__ import annotations

from typing import Any, NoReturn

from mainstem.compat.aiokafka.errors import UnsupportedFeatureError


def create_ssl_context(**_: Any) -> NoReturn:
    """Refused: connections are not encrypted yet."""
    raise UnsupportedFeatureError(
        "connections are not encrypted yet: leave out ssl_context, set security_protocol to "
        "PLAINTEXT, and keep the gateway in a trusted network"
    )

"""aiokafka.helpers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mainstem.compat.aiokafka.errors import UnsupportedFeatureError
from mainstem.tls import CA, CERTIFICATE, KEY


@dataclass(frozen=True, slots=True)
class SSLFiles:
    """PEM files, to be given as `ssl_context`: gRPC takes no `ssl.SSLContext`."""

    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None

    def settings(self) -> dict[str, object]:
        """The same by the client's names."""
        found = {CA: self.cafile, CERTIFICATE: self.certfile, KEY: self.keyfile}
        return {name: value for name, value in found.items() if value is not None}


def create_ssl_context(
    *,
    cafile: str | None = None,
    capath: Any = None,
    cadata: Any = None,
    certfile: str | None = None,
    keyfile: str | None = None,
    password: Any = None,
    crlfile: Any = None,
) -> SSLFiles:
    """What to give as `ssl_context`.

    Raises:
        UnsupportedFeatureError: What gRPC does not do: a directory of authorities, ones in memory,
            an encrypted key, a list of revoked certificates.
    """
    for name, value in (
        ("capath", capath),
        ("cadata", cadata),
        ("password", password),
        ("crlfile", crlfile),
    ):
        if value is not None:
            raise UnsupportedFeatureError(
                f"create_ssl_context: {name} is not supported; give PEM files as cafile, certfile "
                "and keyfile, and a key that is not encrypted"
            )
    return SSLFiles(cafile, certfile, keyfile)

"""Addresses of gateways, as settings have them."""

from __future__ import annotations

import re
from typing import Final

#: A listener of Kafka's may begin so. Connections are not encrypted, so that is all it can say.
_PLAINTEXT: Final = "PLAINTEXT://"

#: A name, an IPv4 address, `*`, or an IPv6 address in brackets (RFC 3986, with a zone at most).
_HOST: Final = re.compile(r"[\w.*-]+|\[[0-9A-Fa-f:.]+(%[\w.-]+)?\]", re.ASCII)

#: gRPC's way to say how to find the host: `dns:///host:port`.
_DNS: Final = "dns:///"

FORM: Final = "host:port, for example 127.0.0.1:9490 or [::1]:9490"


def split_address(text: str) -> tuple[str, int]:
    """The host and the port of `host:port` or `PLAINTEXT://host:port`; an IPv6 address keeps its
    brackets.

    Raises:
        ValueError: It is not; the message says in half a sentence why.
    """
    address = text.strip()
    if address[: len(_PLAINTEXT)].upper() == _PLAINTEXT:
        address = address[len(_PLAINTEXT) :]
    address = address.removeprefix(_DNS)
    scheme, separator, _ = address.partition("://")
    if separator:
        raise ValueError(f"{scheme}:// is not supported; write {FORM}")
    if "," in address:
        raise ValueError("it is one address, not several")
    host, _, port = address.rpartition(":")
    if ":" in host and not host.startswith("["):
        raise ValueError(f"an IPv6 address stands in brackets: {FORM}")
    if not _HOST.fullmatch(host) or not (port.isascii() and port.isdigit()):
        raise ValueError(f"an address is {FORM}")
    if int(port) > 65_535:
        raise ValueError("a port is 0 to 65535")
    return host, int(port)

"""Where a gateway listens, and where clients are told that it does."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Final

from mainstem.config import split_address
from mainstem.errors import InvalidConfigError

#: Hosts that stand for all addresses of a machine.
_ANYWHERE: Final = ("0.0.0.0", "[::]", "*")


def address_of(name: str, text: str) -> tuple[str, int]:
    """The host and the port of the setting `name`.

    Raises:
        InvalidConfigError: It is not an address.
    """
    try:
        return split_address(text)
    except ValueError as error:
        raise InvalidConfigError(f"{name} is {text!r}: {error}", name=name, value=text) from None


def advertised_address(text: str) -> str:
    """host:port that clients are told.

    Raises:
        InvalidConfigError: No client can connect to it.
    """
    host, port = address_of("advertised.listeners", text)
    if port == 0 or host in _ANYWHERE:
        raise InvalidConfigError(
            f"advertised.listeners is {text!r}; it must be an address that clients can connect to, "
            "with a host of its own and a port from 1",
            name="advertised.listeners",
            value=text,
        )
    return f"{host}:{port}"


def check_can_listen(host: str, port: int) -> None:
    """Tries to bind as gRPC will, which itself only says that it failed.

    Raises:
        InvalidConfigError: None of the host's addresses can be bound; the message says why.
    """
    failure: OSError | None = None
    try:
        found = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        found, failure = [], error
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
            return
        except OSError as error:
            failure = error
    hint = "; is another gateway running there?" if _is_in_use(failure) else ""
    why = failure.strerror if failure is not None else "it has no address"
    raise InvalidConfigError(f"cannot listen on {host}:{port}: {why}{hint}", name="listeners")


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach host:port."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def exposure(address: str, *, encrypted: bool, asks: bool, has_rules: bool) -> str:
    """What whoever reaches host:port may do that they perhaps should not; empty: nothing, or nobody
    but this machine reaches it.

    Args:
        encrypted: There is TLS.
        asks: Callers prove who they are.
        has_rules: Access control lists say what they may do.
    """
    if is_loopback(address):
        return ""
    if not encrypted:
        return (
            "anybody who reaches this address can read, write and delete: nothing is encrypted, "
            "and nobody is asked who they are; see ssl.certificate.location and "
            "sasl.enabled.mechanisms"
        )
    if not asks:
        return (
            "anybody who reaches this address can read, write and delete: nobody is asked who they "
            "are; see sasl.enabled.mechanisms and ssl.client.auth"
        )
    if not has_rules:
        return (
            "whoever has proved who they are can read, write and delete everything; see authorizer"
        )
    return ""


def _is_in_use(failure: OSError | None) -> bool:
    return failure is not None and failure.errno == errno.EADDRINUSE


def reachable(host: str) -> str:
    """The host that clients are told where the gateway listens on all of a machine's addresses."""
    return socket.gethostname() if host in _ANYWHERE else host

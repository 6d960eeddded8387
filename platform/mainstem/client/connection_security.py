"""Whether a client's connections are encrypted, and with which certificates: its settings."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, TypeVar

import grpc

from mainstem.config import ConfigKey, ConfigValue, Faults
from mainstem.errors import InvalidConfigError
from mainstem.tls import (
    CA,
    CERTIFICATE,
    KEY,
    TlsFiles,
    WatchedTls,
    channel_credentials,
    read_tls,
)

T = TypeVar("T")

_log = logging.getLogger("mainstem.client")

PROTOCOL: Final = "security.protocol"

#: What every client has.
SECURITY_KEYS: Final = (
    ConfigKey(
        PROTOCOL,
        "enum",
        "plaintext",
        "plaintext, or ssl: connections are encrypted, and the gateway proves by its certificate "
        "that it is the host of its address. Kafka: security.protocol.",
        choices=("plaintext", "ssl"),
    ),
    ConfigKey(
        CA,
        "str",
        "",
        "PEM file of the authorities that the gateways' certificates are from; empty: those that "
        "the operating system trusts. Kafka: ssl.ca.location.",
    ),
    ConfigKey(
        CERTIFICATE,
        "str",
        "",
        "PEM file of the client's own certificate, for gateways that ask for one. Read again when "
        "it changes. Kafka: ssl.certificate.location.",
    ),
    ConfigKey(
        KEY,
        "str",
        "",
        "PEM file of the certificate's key, not encrypted. Kafka: ssl.key.location.",
    ),
)


def connection_of(config: Mapping[str, T]) -> dict[str, T]:
    """What one client's settings say of how gateways are reached, for another client."""
    names = ("bootstrap.servers", "client.id", *(key.name for key in SECURITY_KEYS))
    return {name: config[name] for name in names if name in config}


def tls_files(values: Mapping[str, ConfigValue], faults: Faults) -> TlsFiles | None:
    """What `SECURITY_KEYS` say; None: nothing is encrypted. What is wrong goes to `faults`."""
    files = TlsFiles(*(str(values[name]) for name in (CA, CERTIFICATE, KEY)))
    if values[PROTOCOL] == "plaintext":
        for name in (CA, CERTIFICATE, KEY):
            if values[name]:
                faults.add(
                    InvalidConfigError(
                        f"{name} is set and {PROTOCOL} is plaintext: set {PROTOCOL}=ssl"
                    ),
                    name,
                )
        return None
    with faults.about(CA, CERTIFICATE, KEY):
        read_tls(files)
    return files


class Security:
    """Opens channels. Thread-safe.

    Args:
        files: See `tls_files`.

    Raises:
        InvalidConfigError: They cannot be used any more.
    """

    def __init__(self, files: TlsFiles | None) -> None:
        self._tls = None if files is None else WatchedTls(files, _say)

    @property
    def version(self) -> int:
        """Another one when the certificates have changed: channels that were opened before have
        the old ones."""
        return 0 if self._tls is None else self._tls.current()[0]

    def open(self, address: str, options: list[tuple[str, int | str]]) -> grpc.Channel:
        """A channel to host:port."""
        if self._tls is None:
            return grpc.insecure_channel(address, options=options)
        _, pems = self._tls.current()
        return grpc.secure_channel(address, channel_credentials(pems), options=options)


def _say(error: InvalidConfigError) -> None:
    _log.warning("%s; the certificates that were read before stay in use", error.message)

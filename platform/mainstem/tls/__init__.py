"""Certificates of gateways and clients, in PEM files that may be replaced while they are used."""

from mainstem.tls._files import (
    CA,
    CERTIFICATE,
    KEY,
    TlsFiles,
    TlsPems,
    WatchedTls,
    channel_credentials,
    read_tls,
)

__all__ = [
    "CA",
    "CERTIFICATE",
    "KEY",
    "TlsFiles",
    "TlsPems",
    "WatchedTls",
    "channel_credentials",
    "read_tls",
]

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
from mainstem.tls._versions import PROTOCOLS, leave_tls_1_2_out, tls_1_2_is_left_out

__all__ = [
    "CA",
    "CERTIFICATE",
    "KEY",
    "PROTOCOLS",
    "TlsFiles",
    "TlsPems",
    "WatchedTls",
    "channel_credentials",
    "leave_tls_1_2_out",
    "read_tls",
    "tls_1_2_is_left_out",
]

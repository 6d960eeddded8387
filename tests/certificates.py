"""Certificates for 127.0.0.1 from an authority of their own, for tests with TLS."""

from __future__ import annotations

from pathlib import Path

from mainstem.cli.cert.development import new_authority, new_certificate, write_pair


def write_certificates(directory: Path, *names: str) -> None:
    """Makes `ca.pem`, and `NAME.pem` and `NAME.key` of each name, by default of `gateway`."""
    authority = new_authority(days=1)
    (directory / "ca.pem").write_bytes(authority.certificate_pem())
    for name in names or ("gateway",):
        pair = new_certificate(authority, name, ["127.0.0.1"], days=1)
        write_pair(pair, directory / f"{name}.pem", directory / f"{name}.key")

"""Certificates and keys in PEM files: read, checked as a pair, and noticed when they change.

The files of a certificate and of its key are replaced one after the other; what is there between
is no pair, and is not taken: whoever has read them before goes on with that.
"""

from __future__ import annotations

import os
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mainstem.errors import InvalidConfigError

if TYPE_CHECKING:
    import grpc

#: How often the files are looked at, at most.
LOOK_S: Final = 1.0

CA: Final = "ssl.ca.location"
CERTIFICATE: Final = "ssl.certificate.location"
KEY: Final = "ssl.key.location"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the PEM files are; empty: there is none.

    Attributes:
        ca: Certificates of the authorities that the other side's certificate may be from.
        certificate: Our own, then those between it and its authority.
        key: Of our certificate, not encrypted.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class TlsPems:
    """What is in the files; None: there is none."""

    ca: bytes | None
    certificate: bytes | None
    key: bytes | None


def read_tls(files: TlsFiles) -> TlsPems:
    """Reads the files, and checks that they can be used.

    Raises:
        InvalidConfigError: A certificate without a key or the other way round; a file cannot be
            read; it has no certificate, no key, an encrypted key, or the key of another
            certificate. Its `name` is the setting's.
    """
    for given, name, missing in (
        (files.certificate, CERTIFICATE, KEY),
        (files.key, KEY, CERTIFICATE),
    ):
        if given and not (files.certificate and files.key):
            raise InvalidConfigError(f"{name} is set and {missing} is not: set both", name=missing)
    ca, certificate, key = (
        _read(name, path)
        for name, path in ((CA, files.ca), (CERTIFICATE, files.certificate), (KEY, files.key))
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca is not None:
        try:
            context.load_verify_locations(cadata=ca.decode("ascii", errors="ignore"))
        except (ssl.SSLError, ValueError) as error:
            raise _unusable(CA, files.ca, f"has no certificate: {_why(error)}") from None
    if certificate is not None:
        _check_pair(context, files)
    return TlsPems(ca, certificate, key)


def _check_pair(context: ssl.SSLContext, files: TlsFiles) -> None:
    def password() -> str:
        raise _unusable(
            KEY, files.key, "is encrypted; decrypt it (openssl pkey -in KEY -out NEW), and keep it "
            "from others by its mode"
        )  # fmt: skip

    try:
        context.load_cert_chain(files.certificate, files.key, password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise _unusable(
                KEY, files.key, f"is not the key of the certificate in {files.certificate}"
            ) from None
        raise InvalidConfigError(
            f"{CERTIFICATE} {files.certificate} and {KEY} {files.key} are no certificate and its "
            f"key in PEM: {_why(error)}",
            name=CERTIFICATE,
        ) from None
    except OSError as error:  # gone since it was read
        raise _unusable(CERTIFICATE, files.certificate, f"cannot be read: {error}") from None


def _read(name: str, path: str) -> bytes | None:
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise _unusable(name, path, f"cannot be read: {why}") from None


def _unusable(name: str, path: str, what: str) -> InvalidConfigError:
    return InvalidConfigError(f"{name} {path} {what}", name=name, value=path)


def _why(error: ssl.SSLError | ValueError) -> str:
    return (getattr(error, "reason", None) or str(error)).lower().replace("_", " ")


class WatchedTls:
    """Certificates that are read again when their files have changed. Thread-safe.

    Args:
        on_failure: Called once for each state of the files that cannot be used; what was read
            before stays in use.

    Raises:
        InvalidConfigError: As `read_tls`.
    """

    def __init__(
        self,
        files: TlsFiles,
        on_failure: Callable[[InvalidConfigError], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = files
        self._on_failure = on_failure
        self._clock = clock
        self._lock = threading.Lock()
        self._seen = self._stamps()
        self._pems = read_tls(files)
        self._number = 1
        self._looked_at = clock()

    def current(self) -> tuple[int, TlsPems]:
        """What is in use, and a number that is another one whenever it has changed."""
        with self._lock:
            now = self._clock()
            if now - self._looked_at >= LOOK_S:
                self._looked_at = now
                self._look()
            return self._number, self._pems

    def _look(self) -> None:
        stamps = self._stamps()
        if stamps == self._seen:
            return
        try:
            pems = read_tls(self._files)
        except InvalidConfigError as error:
            self._seen = stamps
            self._on_failure(error)
            return
        # What changed while they were read is looked at the next time.
        self._seen = stamps
        if pems != self._pems:
            self._pems = pems
            self._number += 1

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in (self._files.ca, self._files.certificate, self._files.key)]


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def channel_credentials(pems: TlsPems) -> grpc.ChannelCredentials:
    """For connecting to a gateway, which is to be of one of the authorities."""
    import grpc  # here: `leave_tls_1_2_out` has to come before it

    return grpc.ssl_channel_credentials(pems.ca or system_authorities(), pems.key, pems.certificate)


def system_authorities() -> bytes | None:
    """What the operating system trusts; None: it has no such file, and gRPC takes its own."""
    paths = ssl.get_default_verify_paths()
    for path in (paths.cafile, "/etc/ssl/certs/ca-certificates.crt"):
        if path:
            try:
                with open(path, "rb") as file:
                    return file.read()
            except OSError:
                continue
    return None

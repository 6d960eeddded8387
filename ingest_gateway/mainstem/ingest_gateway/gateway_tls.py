"""The gateway's certificate: for those who connect to it, and for the gateways that it connects to.

Its files may be replaced while it runs: connections that are open go on, new ones get what is there
now. A state of the files that cannot be used is logged, and what was read before stays in use.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Final

import grpc
import grpc.aio
import structlog

from mainstem.config import GatewayConfig
from mainstem.errors import InvalidConfigError
from mainstem.tls import (
    CA,
    CERTIFICATE,
    KEY,
    PROTOCOLS,
    TlsFiles,
    TlsPems,
    WatchedTls,
    channel_credentials,
    tls_1_2_is_left_out,
)

log = structlog.get_logger()

_CLIENT_AUTH: Final = "ssl.client.auth"


class GatewayTls:
    """Encrypts what the gateway serves and calls. Thread-safe.

    Args:
        config: With `ssl.certificate.location`; see `tls_of`.

    Raises:
        InvalidConfigError: A file cannot be used; or clients need a certificate, and it is not said
            whose; or gRPC does not speak the versions of TLS that are wanted.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self._minimum = _minimum_version(config.text(PROTOCOLS))
        self._files = TlsFiles(*(config.text(name) for name in (CA, CERTIFICATE, KEY)))
        self._asks_clients = config.text(_CLIENT_AUTH) == "required"
        if self._asks_clients and not self._files.ca:
            raise InvalidConfigError(
                f"{_CLIENT_AUTH} is required and {CA} is not set: name the authorities that "
                "clients' certificates are from",
                name=CA,
            )
        self._watched = WatchedTls(self._files, _say)

    def server_credentials(self) -> grpc.ServerCredentials:
        """For the gRPC server. Each new connection gets the certificate of the time."""
        told, pems = self._watched.current()

        def changed() -> grpc.ServerCertificateConfiguration | None:
            nonlocal told
            number, newest = self._watched.current()
            if number == told:
                return None
            told = number
            log.info("new connections get another certificate")
            return _configuration(newest)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(pems),
            changed,  # type: ignore[arg-type]  # None, which it may give, its type lacks
            require_client_authentication=self._asks_clients,
        )

    def http_context(self) -> ssl.SSLContext:
        """For the HTTP endpoint, whose clients need no certificate: probes have none."""
        told, _ = self._watched.current()
        newest = self._context()

        def choose(connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
            nonlocal told, newest
            number, _pems = self._watched.current()
            if number != told:
                told = number
                try:
                    newest = self._context()
                except (OSError, ssl.SSLError) as error:  # they are replaced at this moment
                    log.warning("the HTTP endpoint keeps its certificate", error=str(error))
            connection.context = newest

        first = self._context()
        first.sni_callback = choose
        return first

    def channel(self, address: str, options: Sequence[tuple[str, int]]) -> grpc.aio.Channel:
        """A connection to another gateway."""
        _, pems = self._watched.current()
        return grpc.aio.secure_channel(address, channel_credentials(pems), options=options)

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._minimum
        context.load_cert_chain(self._files.certificate, self._files.key)
        return context


def tls_of(config: GatewayConfig) -> GatewayTls | None:
    """What the settings say; None: nothing is encrypted.

    Raises:
        InvalidConfigError: They contradict each other, or a file cannot be used.
    """
    if config.text(CERTIFICATE):
        return GatewayTls(config)
    for name in (KEY, CA):
        if config.text(name):
            raise InvalidConfigError(
                f"{name} is set and {CERTIFICATE} is not: set both, or neither", name=CERTIFICATE
            )
    if config.text(_CLIENT_AUTH) == "required":
        raise InvalidConfigError(
            f"{_CLIENT_AUTH} is required and {CERTIFICATE} is not set: only an encrypted "
            "connection shows who the client is",
            name=CERTIFICATE,
        )
    return None


def _minimum_version(protocols: str) -> ssl.TLSVersion:
    if protocols == "TLSv1.2":
        raise InvalidConfigError(
            f"{PROTOCOLS} is TLSv1.2: TLS 1.3 cannot be left out; set TLSv1.2,TLSv1.3, or TLSv1.3",
            name=PROTOCOLS,
            value=protocols,
        )
    if protocols != "TLSv1.3":
        return ssl.TLSVersion.TLSv1_2
    if not tls_1_2_is_left_out():
        raise InvalidConfigError(
            f"{PROTOCOLS} is TLSv1.3, and this process has imported gRPC, which speaks TLS 1.2 as "
            "well: start the gateway by `mainstem gateway run`",
            name=PROTOCOLS,
            value=protocols,
        )
    return ssl.TLSVersion.TLSv1_3


def _configuration(pems: TlsPems) -> grpc.ServerCertificateConfiguration:
    assert pems.key is not None
    assert pems.certificate is not None
    return grpc.ssl_server_certificate_configuration([(pems.key, pems.certificate)], pems.ca)


def _say(error: InvalidConfigError) -> None:
    log.warning("the certificate that was read before stays in use", error=error.message)

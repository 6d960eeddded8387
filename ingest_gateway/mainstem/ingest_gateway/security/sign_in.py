"""Finds out who makes a call: by the certificate of the connection, or by what comes with the call.

A call that proves itself has the metadata `authorization: SCHEME CREDENTIALS`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import grpc.aio

from mainstem.errors import AuthenticationError, SessionExpiredError
from mainstem.ingest_gateway.caller import NOBODY, Identity
from mainstem.ingest_gateway.connections import Connection

#: The metadata of a call that proves who makes it.
AUTHORIZATION: Final = "authorization"

#: Whether credentials of a scheme are good, and whose they are.
#:
#: Raises: AuthenticationError, StoreUnavailableError.
Proof = Callable[[str], Awaitable[Identity]]

#: Whose certificate this is, in PEM; see `grpc.ServicerContext.auth_context`.
#:
#: Raises: AuthenticationError.
CertificateProof = Callable[[bytes], Identity]

_Context = grpc.aio.ServicerContext[Any, Any]

_PEM: Final = "x509_pem_cert"


class SignIn:
    """On the event loop.

    Args:
        proofs: By the scheme in small letters. None, and no `certificate`: nobody is asked.
        certificate: Whose the certificates of connections are; None: they say nothing.
    """

    def __init__(
        self,
        proofs: Mapping[str, Proof] | None = None,
        certificate: CertificateProof | None = None,
    ) -> None:
        self._proofs = dict(proofs or {})
        self._certificate = certificate

    @property
    def asks(self) -> bool:
        """Whether a caller has to prove who they are."""
        return bool(self._proofs) or self._certificate is not None

    async def identity(self, connection: Connection, context: _Context) -> Identity:
        """Who makes the call.

        Raises:
            SessionExpiredError: What proves it is good no longer.
            AuthenticationError: Nothing proves it, or what should does not.
        """
        if not self.asks:
            return NOBODY
        proof = _authorization(context)
        known = connection.identity
        if known is not None and connection.proof == proof:
            if not known.is_over:
                return known
            connection.identity = None
            if proof:
                raise SessionExpiredError("the session is over; sign in again")
        found = await self._prove(proof) if proof else self._certified(context)
        connection.proof, connection.identity = proof, found
        return found

    async def _prove(self, proof: str) -> Identity:
        scheme, _, credentials = proof.partition(" ")
        prove = self._proofs.get(scheme.lower())
        if prove is None:
            raise AuthenticationError(
                f"this gateway takes no credentials of the scheme {scheme[:20]!r}; see "
                "sasl.enabled.mechanisms"
            )
        return await prove(credentials.strip())

    def _certified(self, context: _Context) -> Identity:
        if self._certificate is not None:
            for pem in context.auth_context().get(_PEM, ()):
                return self._certificate(pem)
        raise AuthenticationError(
            "this gateway has to know who calls: set security.protocol=sasl_ssl with "
            "sasl.mechanism, or a certificate with ssl.certificate.location"
        )


def _authorization(context: _Context) -> str:
    for name, value in context.invocation_metadata() or ():
        if name == AUTHORIZATION:
            return value if isinstance(value, str) else value.decode("ascii", "replace")
    return ""

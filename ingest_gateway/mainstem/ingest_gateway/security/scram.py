"""Signing in with a password, the gateway's side of one exchange. Pure.

Somebody who does not exist is answered as somebody whose password is wrong.

Source: RFC 5802, RFC 7677.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any, Final

import scramp

from mainstem.errors import AuthenticationError
from mainstem.security import ITERATIONS_DEFAULT, SALT_BYTES, ScramCredential

#: Whatever is wrong, but the form of the messages.
WRONG: Final = "the user does not exist, or has another password"

_MALFORMED: Final = "the client's message is none of SCRAM"


class ScramExchange:
    """`first`, then `last`.

    Args:
        credential: Of a user's name, of the exchange's mechanism; None: there is none.
        decoy_key: From it salts are made for users that do not exist, the same each time.

    Attributes:
        mechanism: As given.
        name: Of the user, once the first message has come.
        credential: Theirs; None: there is none.
    """

    def __init__(
        self,
        mechanism: str,
        credential: Callable[[str], ScramCredential | None],
        decoy_key: bytes,
    ) -> None:
        self.mechanism = mechanism
        self.name = ""
        self.credential: ScramCredential | None = None
        self._find = credential
        self._decoy_key = decoy_key
        self._server: Any = scramp.ScramMechanism(mechanism).make_server(self._keys)

    def _keys(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        self.name = name
        self.credential = found = self._find(name)
        if found is None:
            found = self._decoy(name)
        return found.salt, found.stored_key, found.server_key, found.iterations

    def _decoy(self, name: str) -> ScramCredential:
        digest = self.mechanism.removeprefix("SCRAM-").replace("-", "").lower()

        def made(what: str, digest: str) -> bytes:
            data = f"{what}:{self.mechanism}:{name}".encode("utf-8", "surrogatepass")
            return hmac.digest(self._decoy_key, data, digest)

        return ScramCredential(
            self.mechanism,
            ITERATIONS_DEFAULT,
            made("salt", "sha256")[:SALT_BYTES],
            made("stored", digest),
            made("server", digest),
        )

    def first(self, message: bytes) -> bytes:
        """Answers the client's first message.

        Raises:
            AuthenticationError: It is none.
        """
        try:
            self._server.set_client_first(message.decode())
            answer: str = self._server.get_server_first()
        except (scramp.ScramException, ValueError):
            raise AuthenticationError(_MALFORMED) from None
        return answer.encode()

    def last(self, message: bytes) -> bytes:
        """Answers the client's last message: it has proved that it has the password.

        Raises:
            AuthenticationError: It has not.
        """
        try:
            self._server.set_client_final(message.decode())
            answer: str = self._server.get_server_final()
        except (scramp.ScramException, ValueError):
            raise AuthenticationError(WRONG) from None
        if self.credential is None:
            raise AuthenticationError(WRONG)
        return answer.encode()

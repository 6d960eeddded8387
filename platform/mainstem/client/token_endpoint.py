"""Tokens from an OpenID provider, for a client with a password of its own there.

Source: RFC 6749, section 4.4.
"""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from mainstem.client.bearer_tokens import (
    TOKEN_S_MAX,
    Token,
    checked_token,
    json_object,
    seconds_of,
    token_end_s,
)
from mainstem.errors import AuthenticationError, GatewayUnavailableError
from mainstem.web import Answer, WebError, call_web

#: All attempts together: somebody waits for the answer.
_ALL_S: Final = TOKEN_S_MAX - 1.0

_REQUEST_S: Final = 4.0

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 1.0

#: An answer that may be another one a moment later.
_TOO_MANY: Final = 429
_SERVER_ERRORS: Final = 500

_TEXT_CHARACTERS_MAX: Final = 200


class TokenEndpoint:
    """Asks for tokens by the grant of client credentials. Thread-safe.

    Args:
        address: Of the token endpoint.
        secret: Finds the client's password there; raises AuthenticationError.
        scope: What the token is to be good for; empty: what the provider gives.
        authorities: See `call_web`.
    """

    def __init__(
        self,
        address: str,
        client_id: str,
        secret: Callable[[], str],
        scope: str = "",
        authorities: str = "",
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._address = address
        self._client_id = client_id
        self._secret = secret
        form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
        self._form = urlencode(form).encode()
        self._authorities = authorities
        self._clock = clock
        self._sleep = sleep

    def __call__(self) -> Token:
        """A new token.

        Raises:
            AuthenticationError: The provider does not take the password, or gives no token.
            GatewayUnavailableError: It cannot be reached at the moment, or fails.
        """
        give_up_at = self._clock() + _ALL_S
        secret = self._secret()
        headers = {"Authorization": _basic(self._client_id, secret), "Accept": "application/json"}
        pause_s = _FIRST_PAUSE_S
        while True:
            left_s = give_up_at - self._clock()
            try:
                answer = call_web(
                    self._address,
                    max(0.1, min(_REQUEST_S, left_s)),
                    self._form,
                    headers,
                    self._authorities,
                )
                if answer.status < _SERVER_ERRORS and answer.status != _TOO_MANY:
                    return self._token(answer, secret)
                why = f"{self._address}: it answered with status {answer.status}"
            except WebError as error:
                why = str(error)
            pause_s *= 0.8 + 0.4 * random.random()
            if self._clock() + pause_s >= give_up_at:
                raise GatewayUnavailableError(
                    f"sasl.oauthbearer.token.endpoint.url gave no token: {why}; trying again"
                )
            self._sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _token(self, answer: Answer, secret: str) -> Token:
        found = json_object(answer.body)
        if answer.status != 200:
            said = " ".join(
                text for name in ("error", "error_description") if (text := _text(found, name))
            ).replace(secret, "********")
            raise AuthenticationError(
                f"sasl.oauthbearer.token.endpoint.url {self._address} gave no token: it answered "
                f"with status {answer.status} {said}".rstrip()
                + "; check sasl.oauthbearer.client.id, its secret and sasl.oauthbearer.scope"
            )
        whence = f"{self._address} answered with"
        kind = found.get("token_type", "Bearer")
        if str(kind).lower() != "bearer":
            raise AuthenticationError(f"{whence} a token that is no bearer token")
        value = checked_token(found.get("access_token"), whence)
        lifetime_s = seconds_of(found.get("expires_in"))
        if lifetime_s is None:
            ends_at = token_end_s(value)
            lifetime_s = None if ends_at is None else ends_at - time.time()
        if lifetime_s is None:
            raise AuthenticationError(f"{whence} a token, and not with when it ends: expires_in")
        if lifetime_s <= 0:
            raise AuthenticationError(f"{whence} a token that has ended already")
        return Token(value, lifetime_s)


def _basic(client_id: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode("ascii")


def _text(found: Mapping[str, Any], name: str) -> str:
    """What the provider says, as it may be shown."""
    text = found.get(name)
    if not isinstance(text, str):
        return ""
    return "".join(one if one.isprintable() else " " for one in text[:_TEXT_CHARACTERS_MAX])

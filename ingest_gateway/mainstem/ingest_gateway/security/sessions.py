"""Tokens that a gateway signs: of who has signed in, and of calls between gateways.

A token is `payload.signature` in base64url, the payload JSON. All gateways of a warehouse have the
same key, so that each takes what another has signed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from mainstem.delta_log.store import time_elapsed_s, wall_clock_ms
from mainstem.errors import AuthenticationError, InvalidConfigError, SessionExpiredError
from mainstem.ingest_gateway.caller import Identity
from mainstem.security import GATEWAY, USER, Principal

#: The schemes, in small letters, as `SignIn` has them.
SESSION: Final = "session"
GATEWAY_CALL: Final = "gateway"

_SECRET: Final = "gateway.secret"
_SECRET_CHARACTERS_MIN: Final = 32

#: A name of 249 characters takes up to 12 bytes each in JSON.
_TOKEN_CHARACTERS_MAX: Final = 8 * 1024

#: A call between gateways proves itself for so long, by clocks that may differ by as much.
_CALL_MS_MAX: Final = 60_000
_SKEW_MS_MAX: Final = 60_000


class Signer:
    """Signs payloads for one purpose, and reads what was signed for it.

    Args:
        key: `derived_key` of the purpose.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def sign(self, payload: dict[str, Any]) -> str:
        """The token of a payload."""
        data = json.dumps(payload, separators=(",", ":")).encode()
        return f"{_text(data)}.{_text(self._signature(data))}"

    def read(self, token: str) -> dict[str, Any] | None:
        """What was signed; None: it was signed with another key.

        Raises:
            AuthenticationError: It is no token.
        """
        try:
            if len(token) > _TOKEN_CHARACTERS_MAX:
                raise ValueError
            payload, dot, signature = token.partition(".")
            data, given = _bytes(payload), _bytes(signature)
            if not dot or len(given) != hashlib.sha256().digest_size:
                raise ValueError
        except ValueError:
            raise AuthenticationError("the credentials of the call are no token") from None
        if not hmac.compare_digest(self._signature(data), given):
            return None
        found: dict[str, Any] = json.loads(data)
        return found

    def _signature(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, "sha256")


class Secret:
    """The setting `gateway.secret`, or one that is made up: keys come from it.

    Raises:
        InvalidConfigError: It is too short.
    """

    def __init__(self, text: str) -> None:
        if text and len(text) < _SECRET_CHARACTERS_MIN:
            raise InvalidConfigError(
                f"{_SECRET} has {len(text)} characters; it must have at least "
                f"{_SECRET_CHARACTERS_MIN}, as `openssl rand -hex 32` makes them",
                name=_SECRET,
            )
        self._secret = text.encode() if text else secrets.token_bytes(32)

    def key(self, purpose: str) -> bytes:
        """Of 32 bytes, and another one for each purpose."""
        return hmac.digest(self._secret, b"mainstem:" + purpose.encode(), "sha256")


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody has signed in.

    Attributes:
        name: Of the user.
        mechanism: By which.
        ends_at_ms: By the wall clock, which all gateways have.
        fingerprint: Of the user's credentials of then.
    """

    name: str
    mechanism: str
    ends_at_ms: int
    fingerprint: str

    @property
    def principal(self) -> Principal:
        """Whose it is."""
        return Principal(USER, self.name)


class Sessions:
    """Makes the tokens of sessions, and reads them.

    Args:
        lifetime_ms: `connections.max.reauth.ms`.
    """

    def __init__(
        self, secret: Secret, lifetime_ms: int, now_ms: Callable[[], int] = wall_clock_ms
    ) -> None:
        self._signer = Signer(secret.key("session"))
        self._now_ms = now_ms
        self.lifetime_ms = lifetime_ms

    def token(self, name: str, mechanism: str, fingerprint: str) -> str:
        """For who has signed in just now."""
        ends_at_ms = self._now_ms() + self.lifetime_ms
        return self._signer.sign({"n": name, "m": mechanism, "e": ends_at_ms, "f": fingerprint})

    def read(self, token: str) -> Session:
        """The session that a token is of; whether the user's credentials are the same still is not
        looked at.

        Raises:
            SessionExpiredError: It is over; or another gateway has signed it, or this one before it
                started again.
            AuthenticationError: It is no token.
        """
        payload = self._signer.read(token)
        if payload is None:
            raise SessionExpiredError("this gateway does not know the session; sign in again")
        session = Session(payload["n"], payload["m"], payload["e"], payload["f"])
        # A clock that was put back makes none longer.
        if not 0 < session.ends_at_ms - self._now_ms() <= self.lifetime_ms + _SKEW_MS_MAX:
            raise SessionExpiredError("the session is over; sign in again")
        return session

    def identity(self, session: Session, is_revoked: Callable[[], bool]) -> Identity:
        """Who calls with a session."""
        left_s = (session.ends_at_ms - self._now_ms()) / 1000
        return Identity(session.principal, time_elapsed_s() + left_s, is_revoked)


class GatewayCalls:
    """Proves to other gateways that one of them calls, and finds out whether one does."""

    def __init__(self, secret: Secret, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._signer = Signer(secret.key("gateway"))
        self._now_ms = now_ms

    def authorization(self, gateway_id: str) -> str:
        """The metadata of one call."""
        return f"{GATEWAY_CALL} {self._signer.sign({'g': gateway_id, 't': self._now_ms()})}"

    async def prove(self, token: str) -> Identity:
        """See `Proof`."""
        payload = self._signer.read(token)
        if payload is None:
            raise AuthenticationError(
                f"another gateway calls, and has another {_SECRET} than this one, or none: set the "
                "same for all gateways of the warehouse"
            )
        age_ms = self._now_ms() - payload["t"]
        if not -_SKEW_MS_MAX <= age_ms <= _CALL_MS_MAX + _SKEW_MS_MAX:
            raise AuthenticationError(
                f"another gateway's clock is {abs(age_ms)} ms "
                f"{'behind' if age_ms > 0 else 'ahead of'} this one's: set their clocks"
            )
        ends_at = time_elapsed_s() + (_CALL_MS_MAX + _SKEW_MS_MAX - age_ms) / 1000
        return Identity(Principal(GATEWAY, payload["g"]), ends_at)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _bytes(text: str) -> bytes:
    """Raises ValueError."""
    data = text.encode("ascii")
    return base64.b64decode(data + b"=" * (-len(data) % 4), b"-_", validate=True)

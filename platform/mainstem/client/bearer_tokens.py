"""Tokens that prove who a client is: made by a function of the application or by a token endpoint,
and shared by the client's channels."""

from __future__ import annotations

import base64
import inspect
import json
import math
import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import grpc

from mainstem.client.sign_in import RENEW_AFTER, SIGN_IN_S, Authorization
from mainstem.errors import AuthenticationError, MainstemError

#: The setting, and what messages call the application's function.
CALLBACK: Final = "oauth_cb"

#: A call waits so long for a token: less than for signing in as a whole.
TOKEN_S_MAX: Final = SIGN_IN_S - 1.0

#: What a gateway takes.
TOKEN_BYTES_MAX: Final = 8 * 1024

#: Where no newer token could be made, another channel gets the last one, and asks again after this.
_ASK_AGAIN_S: Final = 1.0

#: RFC 6750, section 2.1. Anything else could become a second header.
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")

#: The year 5138 in seconds, and 1973 in milliseconds.
_SECONDS_MAX: Final = 1e11


@dataclass(frozen=True, slots=True)
class Token:
    """A token that was made just now.

    Attributes:
        lifetime_s: From now on.
    """

    value: str = field(repr=False)
    lifetime_s: float


class BearerTokens:
    """Makes a token when one is needed, for all channels at once. See `CredentialSource`.

    Each is made in a thread of its own, which nobody waits for without a deadline: the application
    may do there what it likes, also never come back.

    Args:
        make: Makes one; blocks, and may raise anything.
        what: Makes them, for errors.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        make: Callable[[], Token],
        what: str = CALLBACK,
        wait_s: float = TOKEN_S_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._what = what
        self._wait_s = wait_s
        self._clock = clock
        self._changed = threading.Condition()
        self._current: Authorization | None = None
        self._attempt: _Attempt | None = None
        #: What each channel has got. One that asks again has no use for the same: it is to be
        #: renewed, or a gateway has refused it.
        self._given: weakref.WeakKeyDictionary[grpc.Channel, str] = weakref.WeakKeyDictionary()

    def authorization(self, channel: grpc.Channel) -> Authorization:
        """The token, which is made if there is none that the channel has not had.

        Raises:
            AuthenticationError: What makes it failed, made none, or has not come back; the message
                says which.
            MainstemError: It is worth another try: what `make` has raised.
        """
        with self._changed:
            found = self._unused(channel)
            if found is None or self._clock() >= found.renew_at:
                found = self._made(channel)
            self._given[channel] = found.value
            return found

    def _unused(self, channel: grpc.Channel) -> Authorization | None:
        current = self._current
        if current is None or self._given.get(channel) == current.value:
            return None
        return current if self._clock() < current.ends_at else None

    def _made(self, channel: grpc.Channel) -> Authorization:
        attempt = self._attempt or self._begin()
        while attempt.result is None:
            left_s = attempt.began_at + self._wait_s - self._clock()
            if left_s <= 0:
                break
            self._changed.wait(left_s)
        if isinstance(attempt.result, Authorization):
            return attempt.result
        last = self._unused(channel)
        if last is not None:
            return replace(last, renew_at=self._clock() + _ASK_AGAIN_S)
        if attempt.result is not None:
            raise _copy(attempt.result)
        raise AuthenticationError(
            f"{self._what} has not come back within {self._wait_s:.0f} s with a token. If it uses "
            "this client, it waits for itself; give its own requests a timeout"
        )

    def _begin(self) -> _Attempt:
        attempt = _Attempt(self._clock())
        threading.Thread(
            target=self._run, args=(attempt,), name="mainstem-token", daemon=True
        ).start()
        self._attempt = attempt
        return attempt

    def _run(self, attempt: _Attempt) -> None:
        result: Authorization | MainstemError
        try:
            token = self._make()
            ends_in_s = token.lifetime_s
            now = self._clock()
            result = Authorization(
                f"Bearer {token.value}", now + RENEW_AFTER * ends_in_s, now + ends_in_s
            )
        except MainstemError as error:
            result = error
        except BaseException as failure:  # a thread has nobody who would see it
            result = AuthenticationError(
                f"{self._what} raised {type(failure).__name__} in the place of making a token"
            )
            result.__cause__ = failure
        with self._changed:
            attempt.result = result
            self._attempt = None
            if isinstance(result, Authorization):
                self._current = result
            self._changed.notify_all()


@dataclass(eq=False, slots=True)
class _Attempt:
    """One call of what makes tokens, which several channels may wait for."""

    began_at: float
    result: Authorization | MainstemError | None = None


def tokens_of_callback(
    callback: Callable[[str], object],
    config: str,
    wall_clock_s: Callable[[], float] = time.time,
) -> Callable[[], Token]:
    """Makes tokens by a function of the application, as confluent-kafka calls it.

    Args:
        callback: `oauth_cb(config) -> (token, end in seconds since 1970)`; a principal and
            extensions may follow, and are not used: the token says who it is of.
        config: `sasl.oauthbearer.config`.
    """

    def make() -> Token:
        found = callback(config)
        if inspect.iscoroutine(found):
            found.close()
            raise _nonsense("a coroutine, which nobody would await: give a plain function")
        if not isinstance(found, (tuple, list)) or len(found) < 2:
            raise _nonsense(
                f"a {type(found).__name__}; it must return (token, end in seconds since 1970)"
            )
        ends_at = found[1]
        if (
            isinstance(ends_at, bool)
            or not isinstance(ends_at, (int, float))
            or not math.isfinite(ends_at)
        ):
            raise _nonsense(
                f"a {type(ends_at).__name__} as the token's end; it must be seconds since 1970"
            )
        if ends_at > _SECONDS_MAX:
            raise _nonsense(
                f"{ends_at:.0f} as the token's end; it must be seconds since 1970, not milliseconds"
            )
        lifetime_s = ends_at - wall_clock_s()
        if lifetime_s <= 0:
            raise _nonsense(f"a token that ended {-lifetime_s:.0f} s ago by this machine's clock")
        return Token(checked_token(found[0], f"{CALLBACK} returned"), lifetime_s)

    return make


def checked_token(value: object, whence: str) -> str:
    """A token as it may be sent.

    Args:
        whence: It came, for the error.

    Raises:
        AuthenticationError: It is none.
    """
    if not isinstance(value, str):
        raise AuthenticationError(f"{whence} a {type(value).__name__} in the place of a token")
    if len(value) > TOKEN_BYTES_MAX:
        raise AuthenticationError(
            f"{whence} a token of {len(value)} characters; a gateway takes {TOKEN_BYTES_MAX}"
        )
    if not _TOKEN.fullmatch(value):
        raise AuthenticationError(
            f"{whence} what is no token: it is empty, or has characters that none has"
        )
    return value


def token_end_s(token: object) -> float | None:
    """When a JSON web token says that it ends, in seconds since 1970, which nobody has checked;
    None: it does not say."""
    parts = token.split(".") if isinstance(token, str) else []
    if len(parts) != 3:
        return None
    try:
        claims = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
    except ValueError:
        return None
    return seconds_of(json_object(claims).get("exp"))


def json_object(data: bytes) -> Mapping[str, Any]:
    """What is in it; nothing where it is none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def seconds_of(value: object) -> float | None:
    """A number, also as text; None: it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _nonsense(what: str) -> AuthenticationError:
    return AuthenticationError(f"{CALLBACK} returned {what}")


def _copy(error: MainstemError) -> MainstemError:
    """The same for another caller: an exception that is raised twice gets two tracebacks."""
    copy = type(error)(error.message, retry_delay_ms=error.retry_delay_ms)
    vars(copy).update(vars(error))
    copy.__cause__ = error.__cause__
    return copy

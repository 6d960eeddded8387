"""Signing in for the calls of a channel: once for all that wait, and again before it ends.

Each call has the metadata `authorization`, which gRPC asks for here before it sends the call. What
it is made of is for a `CredentialSource` to know.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import grpc

from mainstem.errors import (
    AuthenticationError,
    GatewayUnavailableError,
    InternalError,
    MainstemError,
    SessionExpiredError,
)
from mainstem.protocol import sign_in_failure

_log = logging.getLogger("mainstem.client")

#: For signing in as a whole. A gateway gives it 10 s.
SIGN_IN_S: Final = 10.0

#: A call waits for another one's signing in for no longer.
_WAIT_S: Final = SIGN_IN_S + 5.0

#: After a refusal, and after a failure that another attempt may cure, calls get the same error for
#: so long, and nobody is asked.
_REFUSED_S: Final = 1.0
_FAILED_S: Final = 0.1

#: The part of a session's lifetime after which it is renewed.
RENEW_AFTER: Final = 0.8

_HEADER: Final = "authorization"

#: The one call that is made to sign in, over the same channel.
_SERVICE: Final = "/mainstem.v1.Security"
_METHOD: Final = "Authenticate"


@dataclass(frozen=True, slots=True)
class Authorization:
    """What proves who makes a call.

    Attributes:
        value: Of the header.
        renew_at: Monotonic seconds from which on there should be a newer one.
        ends_at: Monotonic seconds from which on it is of no use any more.
    """

    value: str = field(repr=False)
    renew_at: float
    ends_at: float = math.inf


class CredentialSource(Protocol):
    """Knows how to prove who the client is. Thread-safe; shared by the channels of a client."""

    def authorization(self, channel: grpc.Channel) -> Authorization:
        """Makes a new one; may block for up to `SIGN_IN_S`.

        Args:
            channel: To the gateway that is to be called, over which it may be asked.

        Raises:
            AuthenticationError: The credentials are wrong, or there are none.
            MainstemError: It could not be made now.
        """
        ...


class _Refused(Exception):
    """What gRPC makes the text of the call's failure of; `error_from_rpc` reads it."""

    def __init__(self, error: MainstemError) -> None:
        super().__init__(sign_in_failure(error))


class ChannelSignIn(grpc.AuthMetadataPlugin):
    """What gRPC asks for the metadata of each call of one channel, in a thread of its own each.

    Args:
        source: Makes what is in it.
        clock: Monotonic seconds.
    """

    def __init__(
        self, source: CredentialSource, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._source = source
        self._clock = clock
        self._channel: weakref.ref[grpc.Channel] | None = None
        self._changed = threading.Condition()
        self._current: Authorization | None = None
        self._made_at = -math.inf
        self._failure: MainstemError | None = None
        self._ask_again_at = -math.inf
        self._asking = False

    def use(self, channel: grpc.Channel) -> None:
        """Signs in over this channel, whose calls it is for."""
        self._channel = weakref.ref(channel)  # it has this object, by its credentials

    def expired(self, begun_at: float = math.inf) -> None:
        """A gateway has said that the session is over: the next call signs in again.

        Args:
            begun_at: When the call was made that was told so. What was made later is not meant.
        """
        with self._changed:
            if self._made_at <= begun_at:
                self._current = None

    def __call__(
        self,
        context: grpc.AuthMetadataContext,
        callback: grpc.AuthMetadataPluginCallback,
    ) -> None:
        if context.method_name == _METHOD and context.service_url.endswith(_SERVICE):
            callback((), None)
            return
        try:
            value = self.value()
        except MainstemError as error:
            callback((), _Refused(error))
        except Exception as failure:
            _log.exception("signing in failed")
            callback((), _Refused(InternalError(f"signing in failed: {type(failure).__name__}")))
        else:
            callback(((_HEADER, value),), None)

    def value(self) -> str:
        """Of the header, for a call that is made now; waits until there is one.

        Raises:
            AuthenticationError: The gateway does not take the credentials.
            MainstemError: Signing in is not possible now.
        """
        give_up_at = self._clock() + _WAIT_S
        with self._changed:
            while True:
                now = self._clock()
                current = self._current
                if current is not None and now < current.ends_at:
                    if now >= current.renew_at and not self._asking and now >= self._ask_again_at:
                        self._asking = True
                        threading.Thread(
                            target=self._renew, name="mainstem-sign-in", daemon=True
                        ).start()
                    return current.value
                if self._failure is not None and now < self._ask_again_at:
                    raise _again(self._failure)
                if not self._asking:
                    self._asking = True
                    break
                if now >= give_up_at:
                    raise GatewayUnavailableError(
                        f"signing in did not end within {_WAIT_S:.0f} s; trying again"
                    )
                self._changed.wait(give_up_at - now)
        made = self._ask()
        if isinstance(made, MainstemError):
            raise made
        return made.value

    def _renew(self) -> None:
        failure = self._ask()
        if isinstance(failure, MainstemError):
            _log.warning("signing in again failed, the session goes on until it ends: %s", failure)

    def _ask(self) -> Authorization | MainstemError:
        """Signs in, for all that wait; who calls has set `_asking`."""
        made: Authorization | MainstemError = InternalError("signing in")
        began_at = self._clock()
        try:
            channel = None if self._channel is None else self._channel()
            if channel is None:
                made = GatewayUnavailableError("the client is closed")
            else:
                made = self._made(channel)
        except MainstemError as error:
            made = error
        except ValueError:  # of gRPC: the channel is closed
            made = GatewayUnavailableError("the connection was closed meanwhile")
        except Exception as failure:
            _log.exception("signing in failed")
            made = InternalError(f"signing in failed: {type(failure).__name__}")
        finally:
            with self._changed:
                self._asking = False
                if isinstance(made, MainstemError):
                    refused = isinstance(made, AuthenticationError) and not made.retriable
                    pause_s = _REFUSED_S if refused else _FAILED_S
                    self._failure, self._ask_again_at = made, self._clock() + pause_s
                else:
                    self._current, self._made_at = made, began_at
                    self._failure, self._ask_again_at = None, -math.inf
                self._changed.notify_all()
        return made

    def _made(self, channel: grpc.Channel) -> Authorization:
        try:
            return self._source.authorization(channel)
        except SessionExpiredError:  # the user was changed a moment ago, as the gateway sees now
            return self._source.authorization(channel)


def _again(error: MainstemError) -> MainstemError:
    """The same error for another call: an exception that is raised twice gets two tracebacks."""
    copy = type(error)(error.message, retry_delay_ms=error.retry_delay_ms)
    vars(copy).update(vars(error))
    return copy

"""Signing in with a password, and the users who can."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

import grpc.aio
import structlog
from google.protobuf.message import DecodeError

from mainstem.delta_log.store import time_elapsed_s
from mainstem.errors import (
    AuthenticationError,
    BackPressureError,
    InvalidConfigError,
    InvalidRequestError,
    MainstemError,
    SessionExpiredError,
)
from mainstem.ingest_gateway.audit import AuditLog
from mainstem.ingest_gateway.security import Users
from mainstem.ingest_gateway.services.call import Call
from mainstem.protocol.v1 import security_pb2
from mainstem.security import ScramCredential

log = structlog.get_logger()

#: For the whole exchange, which is two messages of the client.
_EXCHANGE_S: Final = 10.0
_MESSAGE_BYTES_MAX: Final = 8 * 1024

#: Exchanges under way at one gateway: each is two messages long, and waits for the client between.
_EXCHANGES_MAX: Final = 1_000
_RETRY_MS: Final = 500

#: Lines of the log about sign-ins that failed, in a minute; more are counted.
_LINES_MAX: Final = 60
_LINES_S: Final = 60.0

_NO_PASSWORDS: Final = (
    "sasl.enabled.mechanisms of this gateway has no SCRAM-SHA-256 or SCRAM-SHA-512: nobody signs "
    "in with a password"
)


class UserService:
    """Serves the calls of `mainstem.v1.Security` that are about users.

    Args:
        users: None: nobody signs in with a password.
        audit: Is told of those who fail to.
    """

    def __init__(self, users: Users | None = None, audit: AuditLog | None = None) -> None:
        self._users = users
        self._audit = audit
        self._under_way = 0
        self._lines = _Lines()

    async def Authenticate(self, call: Call) -> None:
        users = self._users
        if users is None:
            raise AuthenticationError(f"{_NO_PASSWORDS}; see sasl.mechanism")
        if self._under_way >= _EXCHANGES_MAX:
            raise BackPressureError(
                f"{self._under_way} clients sign in at this moment, of at most {_EXCHANGES_MAX}; "
                f"try again in {_RETRY_MS} ms",
                retry_delay_ms=_RETRY_MS,
            )
        self._under_way += 1
        claim = _Claim()
        try:
            async with asyncio.timeout(_EXCHANGE_S):
                await self._exchange(users, call, claim)
        except TimeoutError:
            late = AuthenticationError(f"the client has not signed in within {_EXCHANGE_S:.0f} s")
            self._failed(call, claim, late)
            raise late from None
        except SessionExpiredError:
            raise
        except MainstemError as error:
            self._failed(call, claim, error)
            raise
        finally:
            self._under_way -= 1

    def _failed(self, call: Call, claim: _Claim, error: MainstemError) -> None:
        self._lines.failed(call, claim.name, claim.mechanism, error)
        if self._audit is not None:
            self._audit.sign_in_failed(call.connection, claim.name, claim.mechanism, error)

    async def _exchange(self, users: Users, call: Call, claim: _Claim) -> None:
        began_at = time_elapsed_s()
        request = await _message(call)
        mechanism = request.mechanism
        claim.mechanism = ascii(mechanism[:50])[1:-1]
        if mechanism not in users.mechanisms:
            raise AuthenticationError(
                f"this gateway takes no passwords by {mechanism[:50]!a}, but by "
                f"{', '.join(users.mechanisms)}; see sasl.mechanism"
            )
        exchange = users.exchange(mechanism)
        try:
            answer = exchange.first(request.auth_bytes)
            claim.name = exchange.name
            await _say(call, security_pb2.AuthenticateResponse(auth_bytes=answer))
            answer = exchange.last((await _message(call)).auth_bytes)
        except AuthenticationError:
            claim.name = exchange.name
            if exchange.name and await users.changed_since(exchange, began_at):
                raise SessionExpiredError("the user has changed just now; sign in again") from None
            raise
        token, lifetime_ms = users.session(exchange.name, mechanism)
        await _say(
            call,
            security_pb2.AuthenticateResponse(
                auth_bytes=answer, session_token=token, session_lifetime_ms=lifetime_ms
            ),
        )

    async def AlterUserScramCredentials(
        self, request: security_pb2.AlterUserScramCredentialsRequest, call: Call
    ) -> security_pb2.AlterUserScramCredentialsResponse:
        users = self._required()
        upsertions = [
            (
                one.user,
                ScramCredential(
                    one.mechanism, one.iterations, one.salt, one.stored_key, one.server_key
                ),
            )
            for one in request.upsertions
        ]
        deletions = [(one.user, one.mechanism) for one in request.deletions]
        await users.change(upsertions, deletions)
        log.info(
            "users changed",
            set=sorted({name for name, _ in upsertions})[:20],
            removed=sorted({name for name, _ in deletions})[:20],
            credentials=len(upsertions) + len(deletions),
            **call.facts(),
        )
        return security_pb2.AlterUserScramCredentialsResponse()

    async def DescribeUserScramCredentials(
        self, request: security_pb2.DescribeUserScramCredentialsRequest, call: Call
    ) -> security_pb2.DescribeUserScramCredentialsResponse:
        found = self._required().all
        names = sorted(set(request.users) & found.keys() if request.users else found)
        return security_pb2.DescribeUserScramCredentialsResponse(
            users=[
                security_pb2.ScramUser(
                    user=name,
                    credentials=[
                        security_pb2.ScramCredentialInfo(
                            mechanism=one.mechanism, iterations=one.iterations
                        )
                        for _, one in sorted(found[name].credentials.items())
                    ],
                )
                for name in names
            ]
        )

    def _required(self) -> Users:
        if self._users is None:
            raise InvalidConfigError(_NO_PASSWORDS, name="sasl.enabled.mechanisms")
        return self._users


@dataclass(slots=True)
class _Claim:
    """What a client says of itself while it signs in.

    Attributes:
        name: Empty: it has not said who it is.
        mechanism: As it may be printed.
    """

    name: str = ""
    mechanism: str = ""


class _Lines:
    """Says who could not sign in, but no more than so much a minute."""

    def __init__(self) -> None:
        self._said_at: deque[float] = deque(maxlen=_LINES_MAX)
        self._left_out = 0

    def failed(self, call: Call, name: str, mechanism: str, error: MainstemError) -> None:
        """One line."""
        now = time_elapsed_s()
        if len(self._said_at) == _LINES_MAX and now - self._said_at[0] < _LINES_S:
            self._left_out += 1
            return
        self._said_at.append(now)
        more = {"left_out": self._left_out} if self._left_out else {}
        self._left_out = 0
        log.warning(
            "a sign-in failed",
            user=ascii(name[:250])[1:-1],
            mechanism=mechanism,
            peer=call.peer,
            error=error.message,
            **more,
        )


async def _message(call: Call) -> security_pb2.AuthenticateRequest:
    """The client's next message.

    Raises:
        InvalidRequestError: There is none, it is too long, or it is another one.
    """
    data = await call.context.read()
    if data is grpc.aio.EOF:
        raise InvalidRequestError("the client has ended signing in before its last message")
    if len(data) > _MESSAGE_BYTES_MAX:
        raise InvalidRequestError(
            f"a message of {len(data)} bytes to sign in; at most {_MESSAGE_BYTES_MAX} bytes"
        )
    try:
        return security_pb2.AuthenticateRequest.FromString(data)
    except DecodeError:
        raise InvalidRequestError("the message is no AuthenticateRequest") from None


async def _say(call: Call, answer: security_pb2.AuthenticateResponse) -> None:
    await call.context.write(answer.SerializeToString())

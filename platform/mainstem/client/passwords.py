"""Signing in with a password, the client's side: SCRAM, by which the password itself never travels.

Source: RFC 5802, RFC 7677.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final

import grpc
import scramp

from mainstem.client.sign_in import RENEW_AFTER, SIGN_IN_S, Authorization
from mainstem.errors import AuthenticationError
from mainstem.protocol import error_from_rpc
from mainstem.protocol.v1 import security_pb2, security_pb2_grpc

#: How a call names a session.
SCHEME: Final = "Session"

#: Of a mechanism's message: what is longer is no message of a gateway.
_MESSAGE_BYTES_MAX: Final = 8 * 1024


class PasswordSource:
    """Signs in to each gateway that is called. See `CredentialSource`.

    Args:
        password: Asked for each time that it is needed, as it may be in a file that changes; raises
            AuthenticationError.
        clock: Monotonic seconds.

    Raises:
        AuthenticationError: The name cannot be a user's.
    """

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mechanism = mechanism
        self._username = username
        self._password = password
        self._clock = clock
        self._client("-")

    def _client(self, password: str) -> Any:
        try:
            return scramp.ScramClient([self._mechanism], self._username, password)
        except (scramp.ScramException, UnicodeError):
            raise AuthenticationError(
                f"sasl.username {self._username[:50]!a} or its password has a character that none "
                "may have (RFC 4013)"
            ) from None

    def authorization(self, channel: grpc.Channel) -> Authorization:
        """Signs in over the channel."""
        client = self._client(self._password())
        began_at = self._clock()
        requests: SimpleQueue[security_pb2.AuthenticateRequest | None] = SimpleQueue()
        call: Any = security_pb2_grpc.SecurityStub(channel).Authenticate(
            iter(requests.get, None), timeout=SIGN_IN_S
        )
        try:
            requests.put(
                security_pb2.AuthenticateRequest(
                    mechanism=self._mechanism, auth_bytes=client.get_client_first().encode()
                )
            )
            client.set_server_first(_text(next(call)))
            requests.put(
                security_pb2.AuthenticateRequest(auth_bytes=client.get_client_final().encode())
            )
            last = next(call)
            client.set_server_final(_text(last))
            for _ in call:  # there is no third one: the end of the call
                break
        except grpc.RpcError as failure:
            unknown = grpc.StatusCode.UNIMPLEMENTED
            if isinstance(failure, grpc.Call) and failure.code() == unknown:
                raise AuthenticationError(
                    "nobody can sign in to this gateway, which is older than this client: update "
                    "it first"
                ) from None
            raise error_from_rpc(failure) from None
        except StopIteration:
            raise AuthenticationError("the gateway ended the signing in without a word") from None
        except scramp.ScramException as error:
            # It has no key of this password, so it is not what it says, or has another's.
            raise AuthenticationError(
                f"the gateway has not proved that it knows this user: {error}"
            ) from None
        finally:
            requests.put(None)
            call.cancel()
        ends_in_s = last.session_lifetime_ms / 1000 if last.session_lifetime_ms else float("inf")
        return Authorization(
            f"{SCHEME} {last.session_token}",
            renew_at=began_at + RENEW_AFTER * ends_in_s,
            ends_at=began_at + ends_in_s,
        )


def _text(answer: security_pb2.AuthenticateResponse) -> str:
    data = answer.auth_bytes
    try:
        if len(data) > _MESSAGE_BYTES_MAX:
            raise ValueError
        return str(data, "utf-8")
    except ValueError:
        raise AuthenticationError("the gateway answered what is no message of SCRAM") from None

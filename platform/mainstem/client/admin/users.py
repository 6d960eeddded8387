"""The users that sign in with a password, seen from outside. The password itself stays here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mainstem.client.arguments import check_seconds, names_of
from mainstem.client.coordinator_calls import CoordinatorCalls
from mainstem.client.gateways import Gateways
from mainstem.errors import InvalidConfigError
from mainstem.protocol.v1 import security_pb2, security_pb2_grpc
from mainstem.security import ITERATIONS_DEFAULT, check_user_name, new_credential

_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """By which mechanism somebody may sign in.

    Attributes:
        mechanism: SCRAM-SHA-256 or SCRAM-SHA-512.
        iterations: How much work a guess of the password is; 4096 to 16384.
    """

    mechanism: str = "SCRAM-SHA-512"
    iterations: int = ITERATIONS_DEFAULT


@dataclass(frozen=True, slots=True)
class UserScramCredentialsDescription:
    """A user, with one credential a mechanism."""

    user: str
    scram_credential_infos: tuple[ScramCredentialInfo, ...]


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion:
    """Gives somebody a password, or another one.

    Attributes:
        password: The gateway gets keys that are made of it, by which nobody can sign in.
        salt: At least 12 bytes; None: a random one.
    """

    user: str
    scram_credential_info: ScramCredentialInfo
    password: str | bytes = field(repr=False)
    salt: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    """Takes a password away.

    Attributes:
        mechanism: Empty: of each; the user is deleted.
    """

    user: str
    mechanism: str = ""


class UserAdmin:
    """The part of `AdminClient` that is about users."""

    def __init__(self, gateways: Gateways) -> None:
        self._users = CoordinatorCalls(
            gateways,
            repeats=False,
            stub=security_pb2_grpc.SecurityStub,
            missing="users with passwords",
        )

    def alter_user_scram_credentials(
        self,
        alterations: Sequence[UserScramCredentialUpsertion | UserScramCredentialDeletion],
        timeout: float = _TIMEOUT_S,
    ) -> None:
        """Adds, changes and deletes users, all or none. All gateways know of it within a second.

        Args:
            alterations: Each user and mechanism once; 1,000 at most.
            timeout: Seconds.

        Raises:
            InvalidConfigError: A name, a password or a number cannot be; or what is to be deleted
                is not there.
        """
        check_seconds(timeout)
        request = security_pb2.AlterUserScramCredentialsRequest()
        for one in alterations:
            if isinstance(one, UserScramCredentialUpsertion):
                request.upsertions.append(_upsertion(one))
            elif isinstance(one, UserScramCredentialDeletion):
                request.deletions.add(user=one.user, mechanism=one.mechanism)
            else:
                raise TypeError(
                    f"an alteration is a {type(one).__name__}; it must be a "
                    "UserScramCredentialUpsertion or a UserScramCredentialDeletion"
                )
        self._users.call("AlterUserScramCredentials", request, timeout)

    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, timeout: float = _TIMEOUT_S
    ) -> dict[str, UserScramCredentialsDescription]:
        """The users, by name.

        Args:
            users: Only these, as far as they are there; None: all.
            timeout: Seconds.
        """
        check_seconds(timeout)
        names = [] if users is None else names_of(users, "users")
        if users is not None and not names:
            return {}
        request = security_pb2.DescribeUserScramCredentialsRequest(users=names)
        answer = self._users.call("DescribeUserScramCredentials", request, timeout)
        return {
            user.user: UserScramCredentialsDescription(
                user.user,
                tuple(ScramCredentialInfo(o.mechanism, o.iterations) for o in user.credentials),
            )
            for user in answer.users
        }


def _upsertion(one: UserScramCredentialUpsertion) -> security_pb2.ScramCredentialUpsertion:
    check_user_name(one.user)
    password = one.password
    if isinstance(password, bytes):
        try:
            password = password.decode()
        except UnicodeDecodeError:
            raise InvalidConfigError("the password is no UTF-8") from None
    info = one.scram_credential_info
    made = new_credential(password, info.mechanism, info.iterations, one.salt)
    return security_pb2.ScramCredentialUpsertion(
        user=one.user,
        mechanism=made.mechanism,
        iterations=made.iterations,
        salt=made.salt,
        stored_key=made.stored_key,
        server_key=made.server_key,
    )

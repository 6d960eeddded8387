"""AdminClient's calls about users with passwords, and what they take and give."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from enum import Enum
from typing import Any, Final

from mainstem import client
from mainstem.compat.confluent.admin.calls import Calls, list_of, options
from mainstem.compat.confluent.error import refused


class ScramMechanism(Enum):
    """Kafka's numbers."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    def __lt__(self, other: object) -> bool:
        return self.value < other.value if isinstance(other, ScramMechanism) else NotImplemented


_OURS: Final = {
    ScramMechanism.SCRAM_SHA_256: "SCRAM-SHA-256",
    ScramMechanism.SCRAM_SHA_512: "SCRAM-SHA-512",
}
_THEIRS: Final = {name: mechanism for mechanism, name in _OURS.items()}


class ScramCredentialInfo:
    """A mechanism, and how much work a guess of the password is."""

    def __init__(self, mechanism: ScramMechanism, iterations: int) -> None:
        self.mechanism = mechanism
        self.iterations = iterations


class UserScramCredentialsDescription:
    """A user."""

    def __init__(self, user: str, scram_credential_infos: list[ScramCredentialInfo]) -> None:
        self.user = user
        self.scram_credential_infos = scram_credential_infos


class UserScramCredentialAlteration:
    """What the two kinds of change have in common."""

    def __init__(self, user: str) -> None:
        self.user = user


class UserScramCredentialUpsertion(UserScramCredentialAlteration):
    """Gives a user a password."""

    def __init__(
        self,
        user: str,
        scram_credential_info: ScramCredentialInfo,
        password: bytes,
        salt: bytes | None = None,
    ) -> None:
        super().__init__(user)
        self.scram_credential_info = scram_credential_info
        self.password = password
        self.salt = salt


class UserScramCredentialDeletion(UserScramCredentialAlteration):
    """Takes one away."""

    def __init__(self, user: str, mechanism: ScramMechanism) -> None:
        super().__init__(user)
        self.mechanism = mechanism


class UserCalls(Calls):
    """Users that sign in with a password."""

    def describe_user_scram_credentials(
        self, users: Sequence[str] | None = None, **kwargs: Any
    ) -> Any:
        """A future for each of the users; without them one future of all, by name."""
        timeout_s, _ = options(kwargs)
        if users is None:

            def find() -> dict[str, UserScramCredentialsDescription]:
                found = self._admin.describe_user_scram_credentials(timeout=timeout_s)
                return {name: _description(one) for name, one in found.items()}

            return self._start(find)
        list_of(users, str)

        def of(
            found: dict[str, client.UserScramCredentialsDescription], name: str
        ) -> UserScramCredentialsDescription:
            if name not in found:
                raise refused("RESOURCE_NOT_FOUND", f"there is no user {name!r}")
            return _description(found[name])

        return self._start_together(
            lambda: self._admin.describe_user_scram_credentials(users, timeout_s), users, of
        )

    def alter_user_scram_credentials(
        self, alterations: Sequence[UserScramCredentialAlteration], **kwargs: Any
    ) -> dict[str, Future[None]]:
        """A future for each user, whose changes are made all or none."""
        list_of(alterations, UserScramCredentialAlteration)
        timeout_s, _ = options(kwargs)
        by_user: dict[str, list[UserScramCredentialAlteration]] = {}
        for one in alterations:
            by_user.setdefault(one.user, []).append(one)

        def alter(user: str) -> None:
            self._admin.alter_user_scram_credentials(
                [_alteration(one) for one in by_user[user]], timeout_s
            )

        return {user: self._start(alter, user) for user in by_user}


def _alteration(
    one: UserScramCredentialAlteration,
) -> client.UserScramCredentialUpsertion | client.UserScramCredentialDeletion:
    if isinstance(one, UserScramCredentialDeletion):
        return client.UserScramCredentialDeletion(one.user, _name(one.mechanism))
    if isinstance(one, UserScramCredentialUpsertion):
        info = one.scram_credential_info
        ours = client.ScramCredentialInfo(_name(info.mechanism), info.iterations)
        return client.UserScramCredentialUpsertion(one.user, ours, one.password, one.salt)
    raise TypeError(f"{type(one).__name__} is neither an upsertion nor a deletion")


def _name(mechanism: ScramMechanism) -> str:
    if mechanism not in _OURS:
        raise ValueError(f"{mechanism} is no mechanism that a user can have")
    return _OURS[mechanism]


def _description(one: client.UserScramCredentialsDescription) -> UserScramCredentialsDescription:
    return UserScramCredentialsDescription(
        one.user,
        [
            ScramCredentialInfo(_THEIRS[info.mechanism], info.iterations)
            for info in one.scram_credential_infos
        ],
    )

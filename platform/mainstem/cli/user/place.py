"""Where `mainstem user` finds and keeps the users: behind a gateway, or in the warehouse itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mainstem.cli.context import Settings, admin_client
from mainstem.cli.warehouse import opened_warehouse

if TYPE_CHECKING:
    from mainstem.client import AdminClient
    from mainstem.delta_log.system import RowTable, User

#: Of a user: each mechanism, with its iterations.
Mechanisms = dict[str, int]


@dataclass(frozen=True, slots=True)
class NewPassword:
    """For one user and mechanism."""

    user: str
    mechanism: str
    iterations: int
    password: str

    def __repr__(self) -> str:
        return f"NewPassword({self.user!r}, {self.mechanism})"


class UserPlace(Protocol):
    """Raises MainstemError."""

    def read(self) -> dict[str, Mechanisms]:
        """Everybody, by name."""
        ...

    def change(self, new: Sequence[NewPassword], deleted: Sequence[str]) -> None:
        """Sets passwords and deletes users, all or none."""
        ...


@contextlib.contextmanager
def user_place(
    settings: Settings, servers: str, warehouse: str | None, *, create: bool = False
) -> Iterator[UserPlace]:
    """The warehouse where one is named, else what the gateways have.

    Args:
        create: Makes the warehouse if it is not there.
    """
    if warehouse is None:
        with admin_client(servers) as admin:
            yield _Gateways(admin, settings.timeout_s)
    else:
        from mainstem.delta_log.system import open_users

        with opened_warehouse(settings, warehouse, create=create) as store:
            yield _Table(open_users(store))


class _Gateways:
    def __init__(self, admin: AdminClient, timeout_s: float) -> None:
        self._admin = admin
        self._timeout_s = timeout_s

    def read(self) -> dict[str, Mechanisms]:
        found = self._admin.describe_user_scram_credentials(timeout=self._timeout_s)
        return {
            name: {one.mechanism: one.iterations for one in user.scram_credential_infos}
            for name, user in found.items()
        }

    def change(self, new: Sequence[NewPassword], deleted: Sequence[str]) -> None:
        from mainstem.client import (
            ScramCredentialInfo,
            UserScramCredentialDeletion,
            UserScramCredentialUpsertion,
        )

        self._admin.alter_user_scram_credentials(
            [
                *(
                    UserScramCredentialUpsertion(
                        one.user, ScramCredentialInfo(one.mechanism, one.iterations), one.password
                    )
                    for one in new
                ),
                *(UserScramCredentialDeletion(name) for name in deleted),
            ],
            timeout=self._timeout_s,
        )


class _Table:
    def __init__(self, table: RowTable[User]) -> None:
        self._table = table

    def read(self) -> dict[str, Mechanisms]:
        return {
            name: {one.mechanism: one.iterations for one in user.credentials.values()}
            for name, user in self._table.read().items()
        }

    def change(self, new: Sequence[NewPassword], deleted: Sequence[str]) -> None:
        from mainstem.delta_log.system import change_users, check_changes
        from mainstem.security import new_credential

        upsertions = [
            (one.user, new_credential(one.password, one.mechanism, one.iterations)) for one in new
        ]
        deletions = [(name, "") for name in deleted]
        check_changes(upsertions, deletions)
        self._table.update(lambda rows: change_users(rows, upsertions, deletions))

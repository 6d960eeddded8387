"""The users that can sign in with a password, in the system table `users`: one row each."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.system.row_table import RowTable
from mainstem.errors import InvalidConfigError
from mainstem.security import ScramCredential, check_mechanism, check_user_name

#: Below `system/`.
USERS_TABLE: Final = "users"

#: Each row is a file, which a gateway reads when it starts.
_USERS_MAX: Final = 5_000


@dataclass(frozen=True, slots=True)
class User:
    """Somebody with a password.

    Attributes:
        credentials: One a mechanism, by its name.
    """

    credentials: Mapping[str, ScramCredential]


#: What `change_users` takes: a user's name, and a mechanism to remove; empty: each.
Deletion = tuple[str, str]


def open_users(store: ObjectStore) -> RowTable[User]:
    """The table, made if it is not there. Blocks."""
    return RowTable(store, USERS_TABLE, operation="ALTER USERS", encode=_encoded, decode=_decoded)


def check_changes(
    upsertions: Iterable[tuple[str, ScramCredential]], deletions: Iterable[Deletion]
) -> None:
    """Refuses changes that make no sense, before any is made.

    Raises:
        InvalidConfigError: A name or a credential cannot be, or one is named twice.
    """
    named: set[tuple[str, str]] = set()
    for name, credential in upsertions:
        check_user_name(name)
        credential.check()
        _name_once(named, name, credential.mechanism)
    for name, mechanism in deletions:
        if mechanism:
            check_mechanism(mechanism)
        _name_once(named, name, mechanism)


def _name_once(named: set[tuple[str, str]], name: str, mechanism: str) -> None:
    clashes = {(name, mechanism), (name, "")}
    if clashes & named or (not mechanism and any(one == name for one, _ in named)):
        raise InvalidConfigError(f"user {name[:50]!a} is named twice in one request")
    named.add((name, mechanism))


def change_users(
    rows: Mapping[str, User],
    upsertions: Iterable[tuple[str, ScramCredential]],
    deletions: Iterable[Deletion],
) -> dict[str, User | None]:
    """What `RowTable.update` is to write.

    Args:
        rows: Those that are there.
        upsertions, deletions: See `check_changes`.

    Raises:
        InvalidConfigError: A user, or its credential of a mechanism, that is to be removed is not
            there; or there would be too many users. Nothing is changed.
    """
    changed: dict[str, dict[str, ScramCredential]] = {}

    def credentials(name: str) -> dict[str, ScramCredential]:
        if name not in changed:
            changed[name] = dict(rows[name].credentials) if name in rows else {}
        return changed[name]

    for name, mechanism in deletions:
        found = credentials(name)
        if not found or (mechanism and mechanism not in found):
            what = f"credentials of {mechanism}" if mechanism and found else "such user"
            raise InvalidConfigError(f"user {name[:50]!a}: there is no {what}", user=name[:50])
        for one in [mechanism] if mechanism else list(found):
            del found[one]
    for name, credential in upsertions:
        credentials(name)[credential.mechanism] = credential
    added = sum(1 for name, found in changed.items() if found and name not in rows)
    if added and len(rows) + added > _USERS_MAX:
        raise InvalidConfigError(
            f"there are {len(rows)} users, of at most {_USERS_MAX}; remove some, or have them sign "
            "in with tokens (OAUTHBEARER)",
            limit_users=_USERS_MAX,
        )
    return {name: User(found) if found else None for name, found in changed.items()}


def _encoded(user: User) -> dict[str, Any]:
    return {
        "credentials": {
            name: {
                "iterations": one.iterations,
                "salt": _text(one.salt),
                "stored_key": _text(one.stored_key),
                "server_key": _text(one.server_key),
            }
            for name, one in user.credentials.items()
        }
    }


def _decoded(row: Mapping[str, Any]) -> User:
    return User(
        {
            name: ScramCredential(
                name,
                one["iterations"],
                base64.b64decode(one["salt"]),
                base64.b64decode(one["stored_key"]),
                base64.b64decode(one["server_key"]),
            )
            for name, one in row["credentials"].items()
        }
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")

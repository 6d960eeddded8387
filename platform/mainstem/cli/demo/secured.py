"""The demo's own certificates, users and rules, for `mainstem demo --secure`."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mainstem.security import (
    ANY,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    new_credential,
)

if TYPE_CHECKING:
    from mainstem.delta_log.store import CloudPrefix, LocalDirectory

ADMIN: Final = "admin"
PRODUCER: Final = "flights-producer"

#: Has a password and may do nothing.
STRANGER: Final = "stranger"

_MECHANISM: Final = "SCRAM-SHA-256"
_SECRET_BYTES: Final = 24

#: Longer than a demo runs.
_DAYS: Final = 1


@dataclass(frozen=True, slots=True)
class SecuredDemo:
    """TLS, passwords and rules for one run.

    Args:
        directory: Gets the certificates and their keys.
    """

    directory: Path
    _passwords: dict[str, str]

    @classmethod
    def make(cls, directory: Path, place: LocalDirectory | CloudPrefix) -> SecuredDemo:
        """Makes certificates in the directory, and the users in the warehouse.

        Raises:
            StoreUnavailableError: The users could not be written.
        """
        from mainstem.cli.cert.development import new_authority, new_certificate, write_pair
        from mainstem.delta_log.store import open_warehouse
        from mainstem.delta_log.system import change_users, open_users

        authority = new_authority(_DAYS)
        gateway = new_certificate(authority, "gateway", ("localhost", "127.0.0.1"), _DAYS)
        for name, pair in (("ca", authority), ("gateway", gateway)):
            write_pair(pair, directory / f"{name}.pem", directory / f"{name}.key")
        passwords = {
            user: secrets.token_urlsafe(_SECRET_BYTES) for user in (ADMIN, PRODUCER, STRANGER)
        }
        users = [(user, new_credential(word, _MECHANISM)) for user, word in passwords.items()]
        with contextlib.closing(open_warehouse(place, create=True)) as store:
            open_users(store).update(lambda rows: change_users(rows, users, ()))
        return cls(directory, passwords)

    def gateway_settings(self) -> dict[str, object]:
        """For the gateway."""
        return {
            "ssl.certificate.location": self.directory / "gateway.pem",
            "ssl.key.location": self.directory / "gateway.key",
            "ssl.ca.location": self.directory / "ca.pem",
            "sasl.enabled.mechanisms": _MECHANISM,
            "authorizer": "acl",
            "super.users": f"User:{ADMIN}",
            "audit.enabled": True,
        }

    def client_settings(self, user: str) -> dict[str, object]:
        """For a client of that user."""
        return {
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.directory / "ca.pem"),
            "sasl.mechanism": _MECHANISM,
            "sasl.username": user,
            "sasl.password": self._passwords[user],
        }


def producer_rules(topics: Sequence[str]) -> list[AclBinding]:
    """What the producer may do: write, and nothing else."""
    return [
        AclBinding(
            ResourceType.TOPIC,
            topic,
            PatternType.LITERAL,
            f"User:{PRODUCER}",
            ANY,
            Operation.WRITE,
            Permission.ALLOW,
        )
        for topic in topics
    ]

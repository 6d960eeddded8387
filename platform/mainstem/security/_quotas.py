"""Quotas: how much of a gateway somebody may use. Pure.

Source: KIP-13 and KIP-546; the order of entities is that of Kafka's documentation of quotas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mainstem.errors import InvalidConfigError
from mainstem.security._principals import USER, check_principal

#: In an entity: each that has no quota of its own.
DEFAULT: Final = "<default>"

#: As long as the name of a principal or a client.id may be.
_CHARACTERS_MAX: Final = 1_000

#: A rate or a count beyond this is a slip.
_VALUE_MAX: Final = 1e15


class QuotaName(StrEnum):
    """What is limited. Each gateway counts for itself."""

    #: Bytes a second of produce requests.
    PRODUCER_BYTE_RATE = "producer_byte_rate"
    #: Bytes a second of the answers to fetches.
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    #: Requests a second.
    REQUEST_RATE = "request_rate"
    #: Connections that have a call under way.
    CONNECTIONS = "connections"
    #: Transactions that were begun and are not over.
    OPEN_TRANSACTIONS = "open_transactions"
    #: Consumer groups that were joined and have members.
    GROUPS = "groups"
    #: Partitions a second that are made or deleted, with topics or alone. KIP-599.
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"


_COUNTS: Final = (QuotaName.CONNECTIONS, QuotaName.OPEN_TRANSACTIONS, QuotaName.GROUPS)


#: Names that one may ask for, and why they are no quotas here.
_REFUSED: Final = {
    "topics": "a topic does not say who made it; use controller_mutation_rate, partitions a second",
    "request_percentage": "use request_rate, requests a second",
    "connection_creation_rate": "use connections, a count",
}


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Whom a quota is for.

    Attributes:
        principal: `User:name`; `<default>`: each user who has none; empty: whoever it is.
        client_id: Likewise.

    """

    principal: str = ""
    client_id: str = ""

    def check(self) -> None:
        """Raises InvalidConfigError: it is nobody, or a name is none."""
        if not self.principal and not self.client_id:
            raise InvalidConfigError(
                f"a quota is for a principal, a client.id or both; {DEFAULT} stands for each that "
                "has none of its own"
            )
        for name in (self.principal, self.client_id):
            if len(name) > _CHARACTERS_MAX:
                raise InvalidConfigError(
                    f"a name of {len(name)} characters is too long for a quota; {_CHARACTERS_MAX} "
                    "are the most"
                )
        if self.principal and self.principal != DEFAULT:
            check_principal(self.principal)
            if not self.principal.startswith(f"{USER}:") or self.principal == f"{USER}:*":
                raise InvalidConfigError(
                    f"{self.principal!r} cannot have a quota: write {USER}:name, or {DEFAULT} for "
                    "each user that has none",
                    value=self.principal,
                )

    def __str__(self) -> str:
        if not self.client_id:
            return self.principal
        client = f"client {self.client_id}"
        return f"{self.principal} {client}" if self.principal else client


def quota_name(text: str) -> QuotaName:
    """The quota of that name.

    Raises:
        InvalidConfigError: There is none.
    """
    try:
        return QuotaName(text)
    except ValueError:
        known = ", ".join(QuotaName)
        why = _REFUSED.get(text)
        raise InvalidConfigError(
            f"there is no quota {text[:100]!r}: {why or f'there are {known}'}", name=text[:100]
        ) from None


def quota_value(name: QuotaName, value: float) -> float:
    """The value, if it can be one.

    Raises:
        InvalidConfigError: It is none.
    """
    if not math.isfinite(value) or not 0 < value <= _VALUE_MAX:
        raise InvalidConfigError(
            f"{name} is {value}; it must be more than 0 and at most {_VALUE_MAX:.0e}: to take a "
            "quota back, remove it",
            name=name,
            value=value,
        )
    if name in _COUNTS and value != int(value):
        raise InvalidConfigError(
            f"{name} is {value}; it must be a whole number", name=name, value=value
        )
    return value


@dataclass(frozen=True, slots=True)
class Limit:
    """What holds for somebody.

    Attributes:
        entity: Of the quota that says so.
        who: Those that share it: a principal, a client.id, or one client.id of a principal.
        value: See `QuotaName`.
    """

    entity: QuotaEntity
    who: tuple[str, str]
    value: float


#: The values of each entity that has some.
QuotaRows = Mapping[QuotaEntity, Mapping[QuotaName, float]]


def limits_of(rows: QuotaRows, principal: str, client_id: str) -> dict[QuotaName, Limit]:
    """What holds for a principal with a client.id: of each name the quota of the entity that is
    most about them."""
    found: dict[QuotaName, Limit] = {}
    for user in (principal, DEFAULT, ""):
        for client in (client_id, DEFAULT, "") if client_id else ("",):
            if not user and not client:
                continue
            entity = QuotaEntity(user, client)
            for name, value in rows.get(entity, {}).items():
                who = (principal if user else "", client_id if client else "")
                found.setdefault(name, Limit(entity, who, value))
    return found

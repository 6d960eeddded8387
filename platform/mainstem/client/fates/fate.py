"""What a row of the table of Kafka's settings says, and how rows are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

#: Who is configured: a producer, a consumer or an administrator.
Role = Literal["producer", "consumer", "admin"]
ROLES: Final[tuple[Role, ...]] = ("producer", "consumer", "admin")
_LETTERS: Final[dict[str, Role]] = {"P": "producer", "C": "consumer", "A": "admin"}


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one setting, for the roles that it is a setting of.

    Attributes:
        roles: Whose setting it is; a client with another role ignores it.
        fate: used; accepted, because it changes nothing; refused.
        text: Of one that is used, what is different; of one that is accepted, why nothing changes;
            of one that is refused, what to do.
        target: Of one that is used: our setting that it sets, the same name or another.
        words: Values (lower case) that mean another value of the target.
        told: Words whose replacement is worth a line in the log.
        refuses: Values (lower case) that are refused with a reason of their own.
        factor: A number of it is so many units of the target.
        clamps: A number outside the target's range becomes its nearest bound, and a fraction the
            next whole number, with a line in the log.
        first: Of a list, or of words with commas between, the first counts.
        yields: The target's own name wins where both are given: in Kafka they are two settings.
        values: The only values (lower case) that are accepted; empty: any.
        otherwise: What to do about any other value.
        loud: Accepting it is worth a line in the log, as somebody may miss what it does in Kafka.
    """

    name: str
    roles: frozenset[Role]
    fate: Literal["used", "accepted", "refused"]
    text: str = ""
    target: str = ""
    words: Mapping[str, str] = field(default_factory=dict)
    told: frozenset[str] = frozenset()
    refuses: Mapping[str, str] = field(default_factory=dict)
    factor: int = 1
    clamps: bool = False
    first: bool = False
    yields: bool = False
    values: tuple[str, ...] = ()
    otherwise: str = ""
    loud: bool = False


def _roles(letters: str) -> frozenset[Role]:
    return frozenset(_LETTERS[letter] for letter in letters)


def own(letters: str, names: str) -> list[Fate]:
    """Settings that are the same here."""
    return [Fate(name, _roles(letters), "used", target=name) for name in names.split()]


def used(
    letters: str,
    name: str,
    target: str,
    text: str = "",
    *,
    words: Mapping[str, str] | None = None,
    told: Iterable[str] = (),
    refuses: Mapping[str, str] | None = None,
    factor: int = 1,
    clamps: bool = False,
    first: bool = False,
    yields: bool = False,
) -> list[Fate]:
    return [
        Fate(
            name,
            _roles(letters),
            "used",
            text,
            target,
            words or {},
            frozenset(told),
            refuses or {},
            factor,
            clamps,
            first,
            yields,
        )
    ]


def accepted(
    letters: str,
    names: str,
    text: str,
    *,
    values: tuple[str, ...] = (),
    otherwise: str = "",
    loud: bool = False,
) -> list[Fate]:
    return [
        Fate(
            name,
            _roles(letters),
            "accepted",
            text,
            values=values,
            otherwise=otherwise,
            loud=loud,
        )
        for name in names.split()
    ]


def refused(letters: str, names: str, text: str) -> list[Fate]:
    return [Fate(name, _roles(letters), "refused", text) for name in names.split()]

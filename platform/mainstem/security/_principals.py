"""Principals: who somebody is, once it is proved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mainstem.errors import InvalidConfigError

#: What a principal's type is where nothing else is said. Kafka: KafkaPrincipal.USER_TYPE.
USER: Final = "User"

#: The type of what a token says that somebody belongs to.
GROUP: Final = "Group"

#: Of the calls between gateways.
GATEWAY: Final = "Gateway"

#: In an ACL: every user.
ANYBODY: Final = "User:*"


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who has proved who they are, or nobody in particular.

    Attributes:
        type: `User`, or `Gateway`.
        name: As the certificate, the credentials or the token have it.
        groups: Names of groups, which ACLs may name as `Group:name`.
    """

    type: str
    name: str
    groups: frozenset[str] = frozenset()
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.type, self.name, self.groups)))

    def __hash__(self) -> int:
        return self._hash  # it is asked for with every request

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @property
    def names(self) -> frozenset[str]:
        """What an ACL or `super.users` may call this principal."""
        own = {str(self)} | {f"{GROUP}:{group}" for group in self.groups}
        return frozenset(own | {ANYBODY} if self.type == USER else own)


#: Whoever is not asked. Kafka: User:ANONYMOUS.
ANONYMOUS: Final = Principal(USER, "ANONYMOUS")


def check_principal(text: str) -> str:
    """The name of a principal, as `User:alice` or `Group:readers`.

    Raises:
        InvalidConfigError: It is none.
    """
    kind, colon, name = text.partition(":")
    if not colon or not name or kind not in (USER, GROUP, GATEWAY):
        raise InvalidConfigError(
            f"{text!r} is no principal: write User:name, or Group:name", value=text
        )
    return text


def parse_super_users(text: str) -> frozenset[str]:
    """Who `super.users` names.

    Raises:
        InvalidConfigError: Something in it is no principal.
    """
    found = frozenset(one.strip() for one in text.split(";") if one.strip())
    for one in sorted(found):
        try:
            check_principal(one)
        except InvalidConfigError as error:
            raise InvalidConfigError(
                f"super.users: {error.message}; there are semicolons between them",
                name="super.users",
                value=one,
            ) from None
        if one == ANYBODY:
            raise InvalidConfigError(
                f"super.users names {ANYBODY}: where everybody may do everything, set "
                "authorizer=none",
                name="super.users",
                value=one,
            )
    return found

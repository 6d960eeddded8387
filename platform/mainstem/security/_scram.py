"""What a gateway keeps of a password, in the place of it. Pure.

Source: RFC 5802 and RFC 7677; Kafka's KIP-84 (the bounds of the iterations) and KIP-554.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final

from mainstem.errors import InvalidConfigError
from mainstem.security._principals import ANONYMOUS

SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")

#: Kafka: ScramMechanism.minIterations, maxIterations.
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
ITERATIONS_DEFAULT: Final = 8_192

#: Bytes of a salt. RFC 5802 leaves it open; scramp takes no shorter one.
SALT_BYTES: Final = 32
_SALT_BYTES_MIN: Final = 12
_SALT_BYTES_MAX: Final = 64

_KEY_BYTES: Final = {
    "SCRAM-SHA-256": hashlib.sha256().digest_size,
    "SCRAM-SHA-512": hashlib.sha512().digest_size,
}

USER_CHARACTERS_MAX: Final = 249

#: Nobody types more, and what is longer must not keep a program busy.
_PASSWORD_CHARACTERS_MAX: Final = 1_024


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """Proves that somebody has a password; nobody can sign in with it.

    Attributes:
        salt, iterations: The password's keys were made with these.
        stored_key, server_key: As RFC 5802 has them.
    """

    mechanism: str
    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def check(self) -> None:
        """Refuses what no client of ours has made.

        Raises:
            InvalidConfigError: The mechanism is unknown, or a part is too short or too long.
        """
        check_mechanism(self.mechanism)
        check_iterations(self.iterations)
        if not _SALT_BYTES_MIN <= len(self.salt) <= _SALT_BYTES_MAX:
            raise InvalidConfigError(
                f"the salt has {len(self.salt)} bytes; it must be at least {_SALT_BYTES_MIN} and "
                f"at most {_SALT_BYTES_MAX} bytes"
            )
        size_bytes = _KEY_BYTES[self.mechanism]
        for name, key in (("stored", self.stored_key), ("server", self.server_key)):
            if len(key) != size_bytes:
                raise InvalidConfigError(
                    f"the {name} key has {len(key)} bytes; of {self.mechanism} it has {size_bytes}"
                )


def new_credential(
    password: str,
    mechanism: str = "SCRAM-SHA-512",
    iterations: int = ITERATIONS_DEFAULT,
    salt: bytes | None = None,
) -> ScramCredential:
    """What a gateway is given of a password.

    Args:
        salt: For tests; None: a random one.

    Raises:
        InvalidConfigError: The password is empty, too long, or has characters that none may have;
            the mechanism is unknown, or the iterations are out of bounds.
    """
    check_mechanism(mechanism)
    check_iterations(iterations)
    if not password:
        raise InvalidConfigError("the password is empty")
    if len(password) > _PASSWORD_CHARACTERS_MAX:
        raise InvalidConfigError(
            f"the password has {len(password)} characters; at most {_PASSWORD_CHARACTERS_MAX}"
        )
    if password != password.strip():
        raise InvalidConfigError(
            "the password begins or ends with a space, which settings and files would lose"
        )
    import scramp  # most clients and gateways never do this

    try:
        made = scramp.ScramMechanism(mechanism).make_auth_info(password, iterations, salt)
    except (scramp.ScramException, UnicodeError):
        raise InvalidConfigError(
            "the password has a character that none may have: a control character, or one that "
            "Unicode does not assign (RFC 4013)"
        ) from None
    made_salt, stored_key, server_key, count = made
    return ScramCredential(mechanism, count, made_salt, stored_key, server_key)


def check_mechanism(mechanism: str) -> None:
    """Raises InvalidConfigError unless it is one of `SCRAM_MECHANISMS`."""
    if mechanism not in SCRAM_MECHANISMS:
        raise InvalidConfigError(
            f"there is no mechanism {mechanism[:50]!r} with a password; it must be one of "
            f"{', '.join(SCRAM_MECHANISMS)}"
        )


def check_iterations(iterations: int) -> None:
    """Raises InvalidConfigError unless Kafka takes so many as well."""
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise InvalidConfigError(
            f"iterations is {iterations}; it must be at least {ITERATIONS_MIN} and at most "
            f"{ITERATIONS_MAX}"
        )


def check_user_name(name: str) -> None:
    """Refuses what cannot be a user's name.

    Raises:
        InvalidConfigError: It is empty or too long, has control characters, or is one of two
            spellings of the same name, and not the one that signing in makes of both (RFC 4013).
    """
    shown = ascii(name[:50])
    if not name:
        raise InvalidConfigError("a user's name is empty")
    if len(name) > USER_CHARACTERS_MAX:
        raise InvalidConfigError(
            f"the user's name {shown}... has {len(name)} characters; at most {USER_CHARACTERS_MAX}"
        )
    if not name.isprintable() or name != name.strip():
        raise InvalidConfigError(
            f"the user's name {shown} has a character that cannot be seen, or begins or ends with "
            "a space"
        )
    if name == ANONYMOUS.name:
        raise InvalidConfigError(
            f"{shown} is what whoever is not asked is called, and cannot be a user's name"
        )
    prepared = prepared_name(name)
    if not prepared:
        raise InvalidConfigError(f"the user's name {shown} has a character that none may have")
    if prepared != name:
        raise InvalidConfigError(
            f"the user's name {shown} is another spelling of {prepared!r}: use that"
        )


def prepared_name(name: str) -> str:
    """The name as it arrives at a gateway where somebody signs in with it; empty: it cannot be
    used."""
    import scramp

    try:
        client = scramp.ScramClient([SCRAM_MECHANISMS[0]], name, "-")
        name.encode()
    except (scramp.ScramException, UnicodeError):
        return ""
    return str(client.username)

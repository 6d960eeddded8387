"""What somebody may be called, whoever says so."""

from __future__ import annotations

import unicodedata

from mainstem.errors import AuthenticationError


def check_name(name: str, what: str, characters_max: int) -> None:
    """Refuses names that could not be told from others in a list, or not be written.

    Args:
        what: Has that name, for the error.

    Raises:
        AuthenticationError: It is empty or too long, or has a control character or half a
            surrogate pair.
    """
    why = ""
    if not name.strip():
        why = "is empty"
    elif len(name) > characters_max:
        why = f"has {len(name)} characters; it may have {characters_max}"
    elif any(unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") for one in name):
        why = "has a control character"
    if why:
        raise AuthenticationError(f"{what} {why}")

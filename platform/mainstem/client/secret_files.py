"""Files that have a secret in their first line."""

from __future__ import annotations

from typing import Final

from mainstem.errors import AuthenticationError

#: A secret and its line end are shorter.
_BYTES_MAX: Final = 8 * 1024


def first_line(name: str, path: str) -> str:
    """The first line of a file, without spaces around it.

    Args:
        name: The setting that names the file, for the error.

    Raises:
        AuthenticationError: It cannot be read.
    """
    try:
        with open(path, "rb") as file:
            line = file.readline(_BYTES_MAX)
        return line.decode().strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise AuthenticationError(f"{name} {path} cannot be read: {why}") from None

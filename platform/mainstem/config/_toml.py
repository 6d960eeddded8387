"""Reads a file of settings."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from mainstem.errors import InvalidConfigError


def read_toml(file: str | os.PathLike[str], what: str, verb: str) -> tuple[str, dict[str, Any]]:
    """Its text, and what that says.

    Args:
        what: The file is called so in errors, before its name: "the configuration".
        verb: "is" or "are", as `what` has it.

    Raises:
        InvalidConfigError: It cannot be read, or is not valid TOML in UTF-8.
    """
    name = os.fspath(file)
    try:
        text = Path(file).read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or error
        raise InvalidConfigError(f"cannot read {what} {name}: {why}") from error
    except (ValueError, RecursionError) as error:  # too long a number; nested too deep
        raise InvalidConfigError(f"{what} {name} {verb} not valid TOML: {error}") from error

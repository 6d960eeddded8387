"""Profiles: the options that one place needs, under a name. A file in the user's directory."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import click

from mainstem.cli.options import Settings

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(slots=True)
class Profiles:
    """What the file holds.

    Attributes:
        current: The one in use, or None.
        by_name: Of each its options: bootstrap_servers, config_file, format, timeout_s, flags.
    """

    path: Path
    current: str | None = None
    by_name: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def load(cls) -> Profiles:
        """Reads the file; one that is not there has no profiles.

        Raises:
            click.UsageError: It is not what `save` writes.
        """
        profiles = cls(_path())
        try:
            found = json.loads(profiles.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return profiles
        except (OSError, ValueError) as error:
            raise click.UsageError(
                f"the profiles in {profiles.path} cannot be read: {error}; mend or remove the file"
            ) from None
        if not isinstance(found, dict) or not isinstance(found.get("profiles"), dict):
            raise click.UsageError(
                f"{profiles.path} does not hold profiles; mend or remove the file"
            )
        profiles.current = found.get("current")
        profiles.by_name = found["profiles"]
        return profiles

    def save(self) -> None:
        """Replaces the file as a whole; only its owner may read it.

        Raises:
            click.ClickException: It cannot be written.
        """
        text = json.dumps({"current": self.current, "profiles": self.by_name}, indent=2) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            number, name = tempfile.mkstemp(dir=self.path.parent, prefix=".profiles-")
            try:
                with open(number, "w", encoding="utf-8") as file:
                    file.write(text)
                os.replace(name, self.path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
        except OSError as error:
            raise click.ClickException(f"{self.path} cannot be written: {error}") from None

    def settings(self, name: str | None) -> Settings:
        """The options of the profile `name`, or of the one in use, or none.

        Raises:
            click.UsageError: There is no such profile, or another version wrote it.
        """
        if name is None and (self.current is None or self.current not in self.by_name):
            return Settings()
        found = self.find(name or self.current or "")
        unknown = set(found) - {one.name for one in fields(Settings)}
        if unknown:
            raise click.UsageError(
                f"the profile {name or self.current} in {self.path} has {', '.join(unknown)}, "
                "which this version does not know; make it again, or remove the file"
            )
        return Settings(**found)

    def find(self, name: str) -> dict[str, Any]:
        """The profile `name`.

        Raises:
            click.UsageError: There is none.
        """
        found = self.by_name.get(name)
        if found is None:
            known = ", ".join(sorted(self.by_name)) or "none yet"
            raise click.UsageError(
                f"there is no profile {name!r}; there are: {known}. "
                f"`mainstem profile create {name} -b HOST:PORT` makes one"
            )
        return found


def new_profile(settings: Settings) -> Mapping[str, Any]:
    """The options that were given, as a profile has them."""
    given = {
        "bootstrap_servers": settings.bootstrap_servers,
        "config_file": settings.config_file,
        "format": settings.format,
        "timeout_s": settings.timeout_s,
        "flags": dict(settings.flags),
    }
    default = Settings()
    return {name: value for name, value in given.items() if value != getattr(default, name)}


def check_name(name: str) -> None:
    """
    Raises:
        click.UsageError: It cannot be a profile's name.
    """
    if not _NAME.fullmatch(name):
        raise click.UsageError(
            f"{name!r} cannot be a profile's name: it has 1 to 100 of a-z A-Z 0-9 . _ -"
        )


def _path() -> Path:
    """MAINSTEM_PROFILES, or the user's own place; a process without a home has no profiles."""
    if given := os.environ.get("MAINSTEM_PROFILES"):
        return Path(given)
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "mainstem" / "profiles.json"


def shown_flags(flags: Mapping[str, str]) -> dict[str, str]:
    """The settings of a profile, as they may be seen."""
    from mainstem.client.connection_security import SECURITY_KEYS
    from mainstem.config import GATEWAY_KEYS

    keys = {**GATEWAY_KEYS, **{key.name: key for key in SECURITY_KEYS}}
    return {
        name: str(keys[name].shown(value)) if name in keys else value
        for name, value in flags.items()
    }

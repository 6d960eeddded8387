"""What a profile in ~/.aws says: keys, region, endpoint.

The format is that of the AWS CLI ("Configuration and credential file settings"). Profiles that get
their keys elsewhere (sso, roles, a process) are botocore's matter.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mainstem.errors import InvalidConfigError

_DEFAULT: Final = "default"

#: Keys of a profile that say how others are got.
_ELSEWHERE: Final = (
    "sso_session",
    "sso_start_url",
    "role_arn",
    "credential_process",
    "web_identity_token_file",
    "login_session",
)


@dataclass(frozen=True, slots=True)
class AwsProfile:
    """A profile. What it does not say is empty.

    Attributes:
        elsewhere: The key that says that its access keys come from somewhere else.
    """

    name: str
    access_key_id: str = field(default="", repr=False)
    secret_access_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    region: str = ""
    endpoint: str = ""
    elsewhere: str = ""


def read_profile(name: str, environment: Mapping[str, str]) -> AwsProfile:
    """The profile of that name, or the one that the environment names, or `default`.

    Args:
        name: Empty: `AWS_PROFILE`, or `default`, which need not exist.
        environment: Also says where the files are: `AWS_CONFIG_FILE`,
            `AWS_SHARED_CREDENTIALS_FILE`.

    Raises:
        InvalidConfigError: A file cannot be read, or there is no such profile.
    """
    wanted = name or environment.get("AWS_PROFILE") or _DEFAULT
    config_path = _path(environment, "AWS_CONFIG_FILE", "config")
    keys_path = _path(environment, "AWS_SHARED_CREDENTIALS_FILE", "credentials")
    config, keys = _read(config_path), _read(keys_path)
    section = wanted if wanted == _DEFAULT else f"profile {wanted}"
    if not config.has_section(section) and config.has_section(f"profile {wanted}"):
        section = f"profile {wanted}"
    found: dict[str, str] = {}
    for parsed, part in ((config, section), (keys, wanted)):
        if parsed.has_section(part):
            found |= dict(parsed.items(part))
    if not found and wanted != _DEFAULT:
        raise InvalidConfigError(
            f"there is no profile {wanted!r} in {config_path} or {keys_path}", name="store.profile"
        )
    services = found.get("services", "")
    own = (
        dict(config.items(f"services {services}"))
        if services and config.has_section(f"services {services}")
        else {}
    )
    return AwsProfile(
        wanted,
        found.get("aws_access_key_id", ""),
        found.get("aws_secret_access_key", ""),
        found.get("aws_session_token", ""),
        found.get("region", ""),
        _nested(own.get("s3", ""), "endpoint_url") or found.get("endpoint_url", ""),
        next((key for key in _ELSEWHERE if key in found), ""),
    )


def _path(environment: Mapping[str, str], variable: str, name: str) -> Path:
    given = environment.get(variable)
    home = Path(environment.get("HOME") or os.path.expanduser("~"))
    return Path(os.path.expanduser(given)) if given else home / ".aws" / name


def _read(path: Path) -> configparser.RawConfigParser:
    parsed = configparser.RawConfigParser(default_section="\0", strict=False)
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return parsed
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or "it is not UTF-8"
        raise InvalidConfigError(f"{path} cannot be read: {why}", name="store.profile") from None
    try:
        parsed.read_string(text)
    except configparser.Error as error:
        # Its text quotes lines, which can have keys.
        line = getattr(error, "lineno", None) or (getattr(error, "errors", None) or [(0, "")])[0][0]
        raise InvalidConfigError(
            f"{path} is not a file of AWS profiles: line {line} is malformed", name="store.profile"
        ) from None
    return parsed


def _nested(text: str, key: str) -> str:
    """The value of a key in an indented block."""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == key:
            return value.strip()
    return ""

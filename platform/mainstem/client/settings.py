"""What the settings of producers, consumers and administrators have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mainstem.config import ConfigKey, unknown_setting
from mainstem.errors import ConfigError, InvalidConfigError

TLS_REASON: Final = "connections are not encrypted yet; keep the gateway in a trusted network"
_AUTH: Final = "there is no authentication yet; keep the gateway in a trusted network"
_UNSUPPORTED_PREFIXES: Final = {"ssl.": TLS_REASON, "sasl.": _AUTH, "enable.sasl.": _AUTH}


def parse_servers(text: str) -> tuple[str, ...]:
    """The addresses of `bootstrap.servers`.

    Raises:
        ConfigError: There is none, or one is not host:port.
    """
    servers = tuple(part.strip() for part in text.split(",") if part.strip())
    if not servers:
        raise ConfigError(
            "bootstrap.servers is not set; give the gateway's address, for example 127.0.0.1:9490",
            name="bootstrap.servers",
        )
    for server in servers:
        host, _, port = server.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(
                f"bootstrap.servers has {server!r}; an address is host:port, "
                "for example 127.0.0.1:9490",
                name="bootstrap.servers",
                value=server,
            )
    return servers


def refuse_setting(
    name: str, known: Mapping[str, ConfigKey], unsupported: Mapping[str, str]
) -> ConfigError:
    """The error for a name that is no setting: with the reason, or else the nearest name."""
    for prefix, reason in _UNSUPPORTED_PREFIXES.items():
        if name.startswith(prefix):
            unsupported = {name: reason}
    error = unknown_setting(name, known, unsupported)
    return config_error(error, name)


def config_error(error: InvalidConfigError, name: str) -> ConfigError:
    """The same as an error of the client's own settings."""
    found = ConfigError(error.message)
    found.facts = {**error.facts, "name": name}
    return found

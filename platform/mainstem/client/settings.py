"""How a producer, a consumer or an administrator reads its settings, by Kafka's names.

`mainstem.client.fates` says what becomes of each name; here that is done. All that is wrong with
one configuration is told in one error.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Final

from mainstem.client.arguments import check_config
from mainstem.client.fates import FATES, NESTED, REFUSED_PREFIXES, Fate, Role, fates_of
from mainstem.config import (
    GATEWAY_KEYS,
    TOPIC_KEYS,
    ConfigKey,
    ConfigValue,
    Faults,
    parse_value,
    split_address,
    unknown_setting,
)
from mainstem.errors import ConfigError, InvalidConfigError

LOG: Final = logging.getLogger("mainstem.client")

#: Of every client.
_EVERY_ROLES_FUNCTIONS: Final = ("oauth_cb",)

_BOOL_WORDS: Final = {"1": "true", "t": "true", "0": "false", "f": "false"}


@dataclass(frozen=True, slots=True)
class Reading:
    """A configuration as it was read.

    Attributes:
        values: Each setting of ours, by name: what was given, or its default.
        named: Those that were given, under whatever name.
        functions: Callbacks and the like, by name.
        faults: What is wrong so far; `tell` when all has been looked at.
    """

    values: dict[str, ConfigValue]
    named: frozenset[str]
    functions: dict[str, object]
    faults: Faults


def read_settings(
    role: Role,
    keys: Mapping[str, ConfigKey],
    config: Mapping[str, object],
    functions: Iterable[str] = (),
) -> Reading:
    """Reads what the caller gave. None as a value means: not set.

    Args:
        keys: The settings that the role has, by name.
        functions: Names that may be given a function, which is kept as it is.

    Raises:
        TypeError: The configuration is not a dict.
    """
    check_config(config)
    reader = _Reader(role, keys, frozenset((*functions, *_EVERY_ROLES_FUNCTIONS)))
    for name, value in _flat(config, reader.faults):
        reader.take(name, value)
    reader.say()
    return Reading(reader.values, frozenset(reader.origins), reader.functions, reader.faults)


def knows(role: Role, name: str) -> bool:
    """Whether a setting of that name is one of the role's, used, accepted or refused."""
    return name in _fates(role)


def parse_servers(text: str) -> tuple[str, ...]:
    """The addresses of `bootstrap.servers`.

    Raises:
        ConfigError: There is none, or one is not host:port.
    """
    given = [part.strip() for part in text.split(",") if part.strip()]
    if not given:
        raise ConfigError(
            "bootstrap.servers is not set; give the gateway's address, for example 127.0.0.1:9490",
            name="bootstrap.servers",
        )
    servers: list[str] = []
    for server in given:
        try:
            host, port = split_address(server)
            if port == 0 or host == "*":
                raise ValueError(
                    "it is where a gateway may listen; give its address, for example 127.0.0.1:9490"
                )
        except ValueError as error:
            raise ConfigError(
                f"bootstrap.servers has {server!r}: {error}",
                name="bootstrap.servers",
                value=server,
            ) from None
        servers.append(f"{host}:{port}")
    return tuple(dict.fromkeys(servers))


def check_client_id(text: str) -> None:
    """Refuses a client.id that gRPC cannot send.

    Raises:
        ConfigError: It has something else than printable ASCII.
    """
    if text and not (text.isascii() and text.isprintable()):
        raise ConfigError(f"client.id is {text!r}; it must be printable ASCII", name="client.id")


class _Reader:
    """Takes one setting after the other."""

    def __init__(
        self, role: Role, keys: Mapping[str, ConfigKey], may_be_functions: frozenset[str]
    ) -> None:
        self.faults = Faults(ConfigError)
        self.values: dict[str, ConfigValue] = {n: key.default for n, key in keys.items()}
        self.functions: dict[str, object] = {}
        #: By setting of ours, the row of the name that set it.
        self.origins: dict[str, Fate] = {}
        self._role = role
        self._keys = keys
        self._fates = _fates(role)
        self._may_be_functions = may_be_functions
        self._ignored: list[str] = []
        self._idle: list[str] = []

    def take(self, name: str, value: object) -> None:
        """Reads one setting, or keeps what is wrong with it."""
        fate = self._fates.get(name)
        if fate is None:
            self._take_unknown(name)
        elif value is None:
            pass
        elif name in self._may_be_functions and callable(value):
            self.functions[name] = value
        elif fate.fate == "refused":
            self.faults.add(InvalidConfigError(f"{name} is not supported: {fate.text}"), name)
        elif fate.fate == "accepted":
            self._accept(fate, value)
        elif not fate.target:
            self.faults.add(
                InvalidConfigError(f"{name} is {value!r}; it must be {fate.text}"), name
            )
        else:
            try:
                self._use(fate, value)
            except InvalidConfigError as error:
                self.faults.add(error, name, fate.target)

    def say(self) -> None:
        """Logs what was ignored, and what changes nothing: once in a process."""
        if self._ignored:
            say(
                logging.WARNING,
                f"a {self._role} has no use for {', '.join(sorted(self._ignored))}: ignored",
            )
        if self._idle:
            say(
                logging.INFO,
                f"{', '.join(sorted(self._idle))}: accepted, changes nothing for a {self._role} "
                "here",
            )

    def _take_unknown(self, name: str) -> None:
        for prefix, reason in REFUSED_PREFIXES.items():
            if name.startswith(prefix):
                self.faults.add(InvalidConfigError(f"{name} is not supported: {reason}"), name)
                return
        if name in _every_name():
            self._ignored.append(name)
            return
        error = unknown_setting(name, [n for n, f in self._fates.items() if f.fate == "used"], {})
        where = "topic" if name in TOPIC_KEYS else "gateway" if name in GATEWAY_KEYS else ""
        if where:
            error = InvalidConfigError(
                f"{name} is a setting of a {where}, not of the {self._role}: set it there"
            )
        self.faults.add(error, name)

    def _accept(self, fate: Fate, value: object) -> None:
        word = _text(value)
        if fate.values and word.lower() not in fate.values:
            self.faults.add(
                InvalidConfigError(
                    f"{fate.name}={word} is not supported: {fate.otherwise}", value=word
                ),
                fate.name,
            )
        elif fate.loud:
            say(logging.WARNING, f"{fate.name} changes nothing here: {fate.text}")
        else:
            self._idle.append(fate.name)

    def _use(self, fate: Fate, value: object) -> None:
        key = replace(self._keys[fate.target], name=fate.name)
        found = self._parsed(fate, key, value)
        earlier = self.origins.get(fate.target)
        if earlier is not None and not earlier.yields:
            if fate.yields:
                return
            if self.values[fate.target] != found:
                raise InvalidConfigError(
                    f"{fate.name} and {earlier.name} are one setting here, {fate.target}, and "
                    f"have two values, {key.shown(found)} and "
                    f"{key.shown(self.values[fate.target])}: keep one"
                )
        self.values[fate.target] = found
        self.origins[fate.target] = fate

    def _parsed(self, fate: Fate, key: ConfigKey, value: object) -> ConfigValue:
        if isinstance(value, (list, tuple)):
            value = ",".join(map(_text, value))
        word = _text(value).lower()
        if fate.first:
            word = word.split(",")[0].strip()
            value = word
        if word in fate.refuses:
            raise InvalidConfigError(f"{fate.name}={word} is not supported: {fate.refuses[word]}")
        if word in fate.words:
            value = fate.words[word]
            if word in fate.told:
                say(logging.WARNING, f"{fate.name}={word} is taken as {value} here: {fate.text}")
        elif key.type == "bool":
            value = _BOOL_WORDS.get(word, value)
        elif key.type == "enum" and word in key.choices:
            value = word
        if fate.clamps or fate.factor != 1:
            value = _clamped(fate, key, value)
        return parse_value(key, value)


def _clamped(fate: Fate, key: ConfigKey, value: object) -> ConfigValue:
    """The number that comes nearest, which is said when it is another one."""
    number = parse_value(replace(key, type="float", minimum=None, maximum=None), value)
    assert isinstance(number, float)
    wanted = math.ceil(number * fate.factor)
    if number < 0:
        return math.floor(number)  # neither a size nor a time: refused by its bounds
    low = wanted if key.minimum is None else key.minimum
    high = wanted if key.maximum is None else key.maximum
    taken = max(low, min(high, wanted))
    if taken != number * fate.factor:
        unit = f" {key.unit}" if key.unit else ""
        say(logging.WARNING, f"{fate.name}={_text(value)} is taken as {taken}{unit} here")
    return taken


@lru_cache(maxsize=1024)
def say(level: int, sentence: str) -> None:
    """Logs a sentence about settings, the first time only."""
    LOG.log(level, sentence)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def _flat(config: Mapping[str, object], faults: Faults) -> Iterator[tuple[str, object]]:
    for given, value in config.items():
        name = str(given)
        if name != NESTED or value is None:
            yield name, value
        elif isinstance(value, Mapping):
            yield from _flat({n: v for n, v in value.items() if n != NESTED}, faults)
        else:
            faults.add(InvalidConfigError(f"{name} is {value!r}; it must be a dict"), name)


@cache
def _fates(role: Role) -> dict[str, Fate]:
    return fates_of(role)


@cache
def _every_name() -> frozenset[str]:
    return frozenset(fate.name for fate in FATES)

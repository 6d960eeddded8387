"""One setting: its name, type, default, unit, bounds and doc, and how its text is read."""

from __future__ import annotations

import contextlib
import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from mainstem.config._amounts import EXAMPLES, parse_amount, with_unit
from mainstem.errors import InvalidConfigError

ConfigType = Literal["int", "float", "bool", "str", "enum", "list"]
ConfigValue = int | float | bool | str

#: What is shown in the place of a secret.
SECRET_SHOWN: Final = "********"

_TRUE = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A setting.

    Attributes:
        name: Dotted, Kafka's where Kafka has it.
        type: How a value given as text is read.
        default: Used where nobody sets it.
        doc: What it does, in one or two sentences.
        unit: Of the value: `ms`, `bytes`, `records`; empty for a plain count or a word.
        minimum, maximum: Inclusive bounds of a number.
        choices: The words that an `enum` may be; those that a `list` may have, each once at most.
            A list's value is its words in the order given, with commas between; it is empty only
            where the default is.
        pattern: What a `str` must match as a whole; empty: anything.
        secret: Its value is shown nowhere.
    """

    name: str
    type: ConfigType
    default: ConfigValue
    doc: str
    unit: str = ""
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    secret: bool = False

    def shown(self, value: object) -> object:
        """The value, as it may be seen by whoever reads a message, a log or a listing."""
        return SECRET_SHOWN if self.secret and value != "" else value


def keys_by_name(keys: Iterable[ConfigKey]) -> dict[str, ConfigKey]:
    """A table of settings, which has each name once: the later of two would win unseen."""
    table: dict[str, ConfigKey] = {}
    for key in keys:
        assert key.name not in table, f"the setting {key.name} is defined twice"
        table[key.name] = key
    return table


def parse_value(key: ConfigKey, value: object) -> ConfigValue:
    """Reads `value` (text, or already of the right type) for `key`.

    The text of a time or a size may have a unit: `7d`, `10GiB`.

    Raises:
        InvalidConfigError: Wrong type, out of range, or none of the choices.
    """
    if key.type in ("int", "float"):
        number = _integer(key, value) if key.type == "int" else _fraction(key, value)
        if (key.minimum is not None and number < key.minimum) or (
            key.maximum is not None and number > key.maximum
        ):
            low = "" if key.minimum is None else f"at least {key.minimum}"
            high = "" if key.maximum is None else f"at most {key.maximum}"
            bounds = " and ".join(filter(None, (low, high)))
            unit = f" {key.unit}" if key.unit else ""
            shown = with_unit(number, key.unit) if isinstance(number, int) else f"{number}{unit}"
            raise InvalidConfigError(
                f"{key.name} is {shown}; it must be {bounds}{unit}",
                name=key.name,
                value=number,
            )
        return number
    if key.type == "bool":
        if isinstance(value, bool):
            return value
        word = str(value).strip().lower()
        if word not in _TRUE:
            raise InvalidConfigError(
                f"{key.name} is {value!r}; it must be true or false", name=key.name, value=value
            )
        return _TRUE[word]
    text = str(value).strip() if isinstance(value, (str, int, float)) else None
    if text is None:
        raise InvalidConfigError(
            f"{key.name} is {key.shown(value)!r}; it must be text",
            name=key.name,
            value=key.shown(value),
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidConfigError(
            f"{key.name} is {key.shown(text)!r}, which has no UTF-8 form: a half of a surrogate "
            f"pair at character {error.start}",
            name=key.name,
            value=ascii(key.shown(text)),
        ) from None
    if key.type == "enum" and text not in key.choices:
        raise InvalidConfigError(
            f"{key.name} is {text!r}; it must be one of {', '.join(key.choices)}",
            name=key.name,
            value=text,
        )
    if key.type == "list":
        return text if text == key.default else _words(key, text)
    if key.pattern and not re.fullmatch(key.pattern, text):
        raise InvalidConfigError(
            f"{key.name} is {text!r}; it must have the form {key.pattern}, as {key.default!r} has",
            name=key.name,
            value=text,
        )
    return text


def _integer(key: ConfigKey, value: object) -> int:
    if isinstance(value, bool):
        pass
    elif isinstance(value, int):
        return value
    elif isinstance(value, float) and value.is_integer():
        return int(value)
    elif isinstance(value, str):
        with contextlib.suppress(ValueError):
            return int(value.strip())
        amount = parse_amount(value, key.unit)
        if amount is not None:
            return amount
    unit = f" ({key.unit})" if key.unit else ""
    example = f", or such as {EXAMPLES[key.unit]}" if key.unit in EXAMPLES else ""
    raise InvalidConfigError(
        f"{key.name} is {value!r}; it must be a whole number{unit}{example}",
        name=key.name,
        value=value,
    )


def _fraction(key: ConfigKey, value: object) -> float:
    number = math.nan
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            number = float(value)
    if not math.isfinite(number):
        raise InvalidConfigError(
            f"{key.name} is {value!r}; it must be a number", name=key.name, value=value
        )
    return number


def _words(key: ConfigKey, text: str) -> str:
    words = [word.strip() for word in text.split(",")]
    if not set(words) <= set(key.choices) or len(set(words)) < len(words):
        raise InvalidConfigError(
            f"{key.name} is {text!r}; it must be one or more of {', '.join(key.choices)}, "
            "each once, with commas between",
            name=key.name,
            value=text,
        )
    return ",".join(words)


def format_value(value: ConfigValue) -> str:
    """The text form, as it is stored and shown: booleans in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be, or None."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return close[0] if close else None


def unknown_setting(
    name: str, known: Iterable[str], unsupported: Mapping[str, str]
) -> InvalidConfigError:
    """The error for a name that is no setting: why we lack it, if Kafka has it, or the nearest."""
    if name in unsupported:
        return InvalidConfigError(f"{name} is not supported: {unsupported[name]}", name=name)
    close = nearest_name(name, known)
    hint = f"; did you mean {close}?" if close else ""
    return InvalidConfigError(f"there is no setting {name!r}{hint}", name=name, nearest=close or "")

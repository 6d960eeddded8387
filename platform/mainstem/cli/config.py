"""`mainstem config ...`"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import click
from rich.text import Text

from mainstem.cli.context import (
    Settings,
    out,
    pass_settings,
    print_object,
    print_rows,
    reports_errors,
    unit_of,
)
from mainstem.cli.help import ExampleGroup
from mainstem.cli.options import DEFAULT_SERVERS, given_on_the_command_line
from mainstem.config import GATEWAY_KEYS, TOPIC_KEYS, ConfigKey, format_value, with_unit

#: Lines longer than this are hard to read, however wide the terminal is.
_TEXT_WIDTH_MAX = 100


@dataclass(frozen=True, slots=True)
class ConfigScope:
    """What a table of settings is for, and where its settings are given."""

    name: str
    where: str
    keys: Mapping[str, ConfigKey]


def config_scopes() -> dict[str, ConfigScope]:
    """Every table of settings, by name."""
    from mainstem.client import CONSUMER_KEYS, PRODUCER_KEYS

    scopes = (
        ConfigScope(
            "gateway",
            "A file given with --config, MAINSTEM_* in the environment, or -X NAME=VALUE; "
            "a later one of these wins.",
            GATEWAY_KEYS,
        ),
        ConfigScope(
            "topic",
            "`mainstem topic create -c NAME=VALUE` and `mainstem topic alter-config --set "
            "NAME=VALUE`. They are stored with the topic.",
            TOPIC_KEYS,
        ),
        ConfigScope(
            "producer",
            'Producer({"NAME": VALUE}), or -X NAME=VALUE for `mainstem topic produce` and '
            "`mainstem bench produce`.",
            PRODUCER_KEYS,
        ),
        ConfigScope(
            "consumer",
            'Consumer({"NAME": VALUE}), or -X NAME=VALUE for `mainstem topic consume`.',
            CONSUMER_KEYS,
        ),
    )
    return {scope.name: scope for scope in scopes}


_SCOPE_NAMES = ("gateway", "topic", "producer", "consumer")


@click.group(cls=ExampleGroup)
def config() -> None:
    """Say which settings exist, and which are in force.

    \b
    EXAMPLES
      mainstem config list topic
      mainstem --config conf/gateway.toml config show
    """


@config.command("list")
@click.argument("scopes", nargs=-1, type=click.Choice(_SCOPE_NAMES), metavar="[SCOPE]...")
@pass_settings
def list_(settings: Settings, scopes: tuple[str, ...]) -> None:
    """Print every setting with its default, its unit, its bounds and what it does.

    SCOPE is gateway, topic, producer or consumer; all of them when none is given. `--format wide`
    prints a line for each, `--format json` an object.

    \b
    EXAMPLES
      mainstem config list
      mainstem config list gateway
      mainstem config list topic --format wide | grep commit
      mainstem config list producer --format json
    """
    tables = config_scopes()
    chosen = [tables[name] for name in dict.fromkeys(scopes or _SCOPE_NAMES)]
    if settings.format == "json":
        for scope in chosen:
            for key in scope.keys.values():
                print_object(settings, _facts(scope, key))
        return
    if settings.format == "wide":
        rows = [
            (scope.name, key.name, format_value(key.default), key.unit, bounds(key), key.doc)
            for scope in chosen
            for key in scope.keys.values()
        ]
        print_rows(settings, ["scope", "setting", "default", "unit", "values", "doc"], rows)
        return
    width = min(out.width, _TEXT_WIDTH_MAX)
    for index, scope in enumerate(chosen):
        out.print(Text(f"{chr(10) if index else ''}{scope.name.upper()}", style="bold"))
        _print_filled(scope.where, width, "  ")
        for key in scope.keys.values():
            out.print()
            allowed = f"  ({bounds(key)})" if bounds(key) else ""
            line = Text.assemble("  ", (key.name, "bold"), f" = {_default(key)}{allowed}")
            out.print(line, soft_wrap=True)
            _print_filled(key.doc, width, "      ")


@config.command()
@click.argument("scope", type=click.Choice(["gateway", "producer", "consumer"]), default="gateway")
@pass_settings
@reports_errors
def show(settings: Settings, scope: str) -> None:
    """Print the settings in force and where each came from.

    SCOPE is gateway (the default: what `mainstem gateway run` would use here), producer or consumer
    (what the flags give to `mainstem topic produce` and `consume`, which choose their own
    time-outs). The origin is `default`, the path of the file, the name of the variable, or `flag`.
    Settings of a topic: `mainstem topic describe`.

    \b
    EXAMPLES
      mainstem config show
      mainstem --config conf/gateway.toml -X num.partitions=6 config show
      mainstem -X linger.ms=0 config show producer
    """
    rows: Iterable[tuple[str, object, str, str]]
    if scope == "gateway":
        rows = [
            (name, GATEWAY_KEYS[name].shown(setting.value), GATEWAY_KEYS[name].unit, setting.origin)
            for name, setting in settings.gateway_config().settings.items()
        ]
    else:
        rows = _client_rows(settings, "producer" if scope == "producer" else "consumer")
    if settings.format != "json":
        rows = [
            (name, shown := _shown(value), unit_of(shown, unit), origin)
            for name, value, unit, origin in rows
        ]
    print_rows(settings, ["setting", "value", "unit", "origin"], list(rows))


def bounds(key: ConfigKey) -> str:
    """What a setting may be, in words; empty for any text."""
    if key.type == "enum":
        return "one of " + ", ".join(key.choices)
    if key.type == "list":
        return "one or more of " + ", ".join(key.choices) + ", with commas between"
    if key.type == "bool":
        return "true or false"
    if key.type == "str":
        return ""
    if key.minimum is None and key.maximum is None:
        return "a whole number" if key.type == "int" else "a number"
    low = "" if key.minimum is None else f"{key.minimum}"
    high = "" if key.maximum is None else f"{key.maximum}"
    if low and high:
        return f"{low} to {high}"
    return f"at least {low}" if low else f"at most {high}"


def _client_rows(
    settings: Settings, scope: Literal["producer", "consumer"]
) -> list[tuple[str, object, str, str]]:
    from mainstem.client import ConsumerSettings, ProducerSettings
    from mainstem.client.settings import read_settings

    given: dict[str, object] = {
        "bootstrap.servers": settings.bootstrap_servers or DEFAULT_SERVERS,
        **settings.flags,
    }
    parse = ProducerSettings.parse if scope == "producer" else ConsumerSettings.parse
    parse(given)
    keys = config_scopes()[scope].keys
    reading = read_settings(scope, keys, given)
    origins = dict.fromkeys(reading.named, "flag")
    if "bootstrap.servers" not in settings.flags and not given_on_the_command_line(
        "bootstrap_servers"
    ):
        known = settings.bootstrap_servers
        origins["bootstrap.servers"] = (
            "MAINSTEM_BOOTSTRAP_SERVERS or profile" if known else "default"
        )
    return [
        (name, key.shown(reading.values[name]), key.unit, origins.get(name, "default"))
        for name, key in keys.items()
    ]


def _facts(scope: ConfigScope, key: ConfigKey) -> dict[str, object]:
    return {
        "scope": scope.name,
        "setting": key.name,
        "type": key.type,
        "default": key.default,
        "unit": key.unit,
        "minimum": key.minimum,
        "maximum": key.maximum,
        "choices": list(key.choices),
        "doc": key.doc,
    }


def _default(key: ConfigKey) -> str:
    if isinstance(key.default, int) and not isinstance(key.default, bool):
        return with_unit(key.default, key.unit)
    return f"{_shown(key.default)} {key.unit}".rstrip()


def _shown(value: object) -> str:
    if value == "":
        return '""'
    return format_value(value) if isinstance(value, (bool, int, float, str)) else str(value)


def _print_filled(text: str, width: int, indent: str) -> None:
    filled = textwrap.fill(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    out.print(Text(filled), soft_wrap=True)

"""The options that every command takes, before or after it: `--format`, `-b`, `-X`, `-v`, ..."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import click
from click.core import ParameterSource

from mainstem.cli.errors import as_json
from mainstem.config import GatewayConfig, load_gateway_config, parse_amount

_FORMATS: Final = ("text", "wide", "json")

#: Of --timeout. A clock's deadline has to be a date.
_SECONDS_MAX: Final = 365 * 86_400

DEFAULT_SERVERS: Final = "127.0.0.1:9490"


@dataclass(frozen=True, slots=True)
class Settings:
    """The global options.

    Attributes:
        bootstrap_servers: None: not given, by an option, the environment or a profile.
    """

    config_file: str | None = None
    flags: Mapping[str, str] = field(default_factory=dict)
    format: str = "text"
    verbose: bool = False
    timeout_s: float = 30.0
    bootstrap_servers: str | None = None

    def gateway_config(
        self, more: Mapping[str, object] | None = None, *, warns: bool = True
    ) -> GatewayConfig:
        """The gateway's settings with the global `-X` and a command's own flags on top.

        Args:
            warns: Says the warnings on stderr; False where they go to a log.
        """
        config = load_gateway_config(self.config_file, flags={**self.flags, **(more or {})})
        for warning in config.warnings if warns else ():
            click.echo(f"warning: {warning}", err=True)
        return config


def take_format(settings: Settings, format_text: str | None) -> tuple[Settings, str | None]:
    """For commands whose own `--format` says how a record is written: text, wide, json are global.

    Returns:
        The settings, with text, wide or json if the format is one of these; and the format of
        records: `json`, one with fields, or None.
    """
    if format_text not in _FORMATS:
        return settings, format_text
    as_json(format_text == "json")
    return replace(settings, format=format_text), "json" if format_text == "json" else None


def current_settings() -> Settings:
    """Those of the command that runs."""
    context = click.get_current_context(silent=True)
    return (context.find_object(Settings) if context is not None else None) or Settings()


def given_on_the_command_line(parameter: str) -> bool:
    """Whether an option before the verb was typed, rather than set by the environment."""
    context = click.get_current_context(silent=True)
    while context is not None:
        if context.get_parameter_source(parameter) is ParameterSource.COMMANDLINE:
            return True
        context = context.parent
    return False


def refuse_transactions(settings: Settings) -> None:
    """Raises UsageError for a setting of producers with which records need a transaction."""
    if settings.flags.get("transactional.id"):
        raise click.UsageError(
            "transactional.id: this command sends records one by one, outside of transactions; "
            "leave it out"
        )


def parse_pairs(pairs: Sequence[str], option: str) -> dict[str, str]:
    """Reads KEY=VALUE arguments.

    Raises:
        click.BadParameter: Some have no `=`.
    """
    found, wrong = {}, []
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if separator and name.strip():
            found[name.strip()] = value
        else:
            wrong.append(repr(pair))
    if wrong:
        are = "is" if len(wrong) == 1 else "are"
        raise click.BadParameter(f"{', '.join(wrong)} {are} not KEY=VALUE", param_hint=option)
    return found


class _Seconds(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on
    """A time: a number of seconds, or with a unit."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        amount = parse_amount(str(value), "ms")
        try:
            seconds = float(value) if amount is None else amount / 1_000
        except ValueError:
            seconds = 0.0
        if not 0.001 <= seconds <= _SECONDS_MAX:
            self.fail(
                f"{value!r} is not a time from 1ms on, and of 365 days at most, such as 30, 1.5s "
                "or 2m",
                param,
                ctx,
            )
        return seconds


def _changed(change: Callable[[Settings, Any], Settings]) -> Callable[..., Any]:
    def callback(context: click.Context, _: click.Parameter, value: Any) -> Any:
        if value is not None and value != () and value is not False:
            context.obj = change(context.find_object(Settings) or Settings(), value)
            as_json(context.obj.format == "json")
        return value

    return callback


def _with_config(old: Settings, file: str) -> Settings:
    """Also a command that needs no setting of it must not pass over a name that is mistyped."""
    try:
        os.stat(file)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise click.ClickException(f"cannot read the configuration {file}: {why}") from None
    return replace(old, config_file=file)


def global_options(*, hidden: bool) -> list[click.Option]:
    """New options, which change the `Settings` of the context that they are given to."""
    return [
        click.Option(
            ["--config", "config_file"],
            envvar=None if hidden else "MAINSTEM_CONFIG",
            type=click.Path(),
            help="A TOML file of settings.",
            callback=_changed(_with_config),
            expose_value=False,
            hidden=hidden,
        ),
        click.Option(
            ["-X", "flags"],
            multiple=True,
            metavar="KEY=VALUE",
            help="A setting by its name: of the gateway where one is run, of the producer or the "
            "consumer where records are sent or read; may be repeated.",
            callback=_changed(
                lambda old, pairs: replace(old, flags={**old.flags, **parse_pairs(pairs, "-X")})
            ),
            expose_value=False,
            hidden=hidden,
        ),
        click.Option(
            ["--format", "format_"],
            envvar=None if hidden else "MAINSTEM_FORMAT",
            type=click.Choice(_FORMATS),
            help="How data is printed.  [default: text]",
            callback=_changed(lambda old, format_: replace(old, format=format_)),
            expose_value=False,
            hidden=hidden,
        ),
        click.Option(
            ["-v", "--verbose"],
            is_flag=True,
            help="Say more, on stderr.",
            callback=_changed(lambda old, _: replace(old, verbose=True)),
            expose_value=False,
            hidden=hidden,
        ),
        click.Option(
            ["--timeout", "timeout_s"],
            envvar=None if hidden else "MAINSTEM_TIMEOUT",
            type=_Seconds(),
            metavar="TIME",
            help="How long a call may take, in seconds or such as 500ms or 2m.  [default: 30]",
            callback=_changed(lambda old, seconds: replace(old, timeout_s=seconds)),
            expose_value=False,
            hidden=hidden,
        ),
        click.Option(
            ["-b", "--bootstrap-servers"],
            envvar=None if hidden else "MAINSTEM_BOOTSTRAP_SERVERS",
            metavar="HOST:PORT,...",
            help=f"Gateways to ask; any one that answers is enough.  [default: {DEFAULT_SERVERS}]",
            callback=_changed(lambda old, servers: replace(old, bootstrap_servers=servers)),
            expose_value=False,
            hidden=hidden,
        ),
    ]


def add_global_options(command: click.Command) -> None:
    """Lets a command take them too, but for those whose names it has given to something else."""
    taken = {name for parameter in command.params for name in parameter.opts}
    for option in global_options(hidden=True):
        option.opts = [name for name in option.opts if name not in taken]
        if option.opts:
            command.params.append(option)

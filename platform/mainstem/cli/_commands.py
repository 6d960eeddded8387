"""The root of the command tree and its global options."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version as installed_version

import click

from mainstem.cli._context import Settings, parse_pairs, pass_settings, print_object
from mainstem.cli._help import ExampleGroup

#: noun → module and command. Imported when used: Spark, pandas and gRPC servers are slow to import.
_NOUNS: dict[str, tuple[str, str]] = {
    "bench": ("mainstem.cli._bench", "bench"),
    "cluster": ("mainstem.cli._cluster", "cluster"),
    "config": ("mainstem.cli._config", "config"),
    "demo": ("mainstem.cli._demo", "demo"),
    "gateway": ("mainstem.cli._gateway", "gateway"),
    "group": ("mainstem.cli._group", "group"),
    "job": ("mainstem.cli._job", "job"),
    "sql": ("mainstem.cli._sql", "sql"),
    "topic": ("mainstem.cli._topic", "topic"),
}


class _Lazy(ExampleGroup):
    """A group that imports a noun's module when the noun is used or listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_NOUNS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _NOUNS:
            module, attribute = _NOUNS[cmd_name]
            command: click.Command = getattr(import_module(module), attribute)
            return command
        return super().get_command(ctx, cmd_name)


@click.group(
    cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(),
    envvar="MAINSTEM_CONFIG",
    help="A TOML file of settings.",
)
@click.option(
    "-X",
    "flags",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting by its name: of the gateway where one is run, of the producer where one "
    "produces; may be repeated.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "wide", "json"]),
    default="text",
    envvar="MAINSTEM_FORMAT",
    help="How data is printed.",
)
@click.option("-v", "--verbose", is_flag=True, help="Say more, on stderr.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.001),
    default=30.0,
    envvar="MAINSTEM_TIMEOUT",
    metavar="SECONDS",
    help="How long a call may take.  [default: 30]",
)
@click.pass_context
def cli(
    ctx: click.Context,
    config_file: str | None,
    flags: Sequence[str],
    format_: str,
    verbose: bool,
    timeout_s: float,
) -> None:
    """mainstem: a streaming platform in which Delta tables are the commit log.

    Data goes to stdout, messages to stderr. Exit code 0: all well; 1: something failed; 2: wrong
    usage; 130: interrupted. The options below come before the command. From the environment:
    MAINSTEM_CONFIG, MAINSTEM_FORMAT, MAINSTEM_TIMEOUT, MAINSTEM_BOOTSTRAP_SERVERS, and settings of
    the gateway as MAINSTEM_<NAME> with underscores for dots.

    \b
    EXAMPLES
      mainstem demo
      mainstem gateway run --warehouse ./warehouse
      mainstem topic create orders -p 6
      echo hello | mainstem topic produce orders -k greeting
      mainstem --format json topic describe orders
    """
    ctx.obj = Settings(config_file, parse_pairs(flags, "-X"), format_, verbose, timeout_s)


@cli.command()
@pass_settings
def version(settings: Settings) -> None:
    """Print the version."""
    print_object(settings, {"version": installed_version("mainstem")})

"""The root of the command tree and its global options."""

from __future__ import annotations

import contextlib
import platform
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

import click

from mainstem.cli.context import Settings, pass_settings, print_object
from mainstem.cli.errors import as_json
from mainstem.cli.help import ExampleGroup
from mainstem.cli.options import global_options
from mainstem.cli.profile.file import Profiles
from mainstem.config import nearest_name

#: noun → module and command. Imported when used: Spark, pandas and gRPC servers are slow to import.
_NOUNS: dict[str, tuple[str, str]] = {
    "acl": ("mainstem.cli.acl.commands", "acl"),
    "bench": ("mainstem.cli.bench.commands", "bench"),
    "cert": ("mainstem.cli.cert.commands", "cert"),
    "cluster": ("mainstem.cli.cluster", "cluster"),
    "config": ("mainstem.cli.config", "config"),
    "demo": ("mainstem.cli.demo.commands", "demo"),
    "gateway": ("mainstem.cli.gateway.commands", "gateway"),
    "group": ("mainstem.cli.group.commands", "group"),
    "job": ("mainstem.cli.job.commands", "job"),
    "pipeline": ("mainstem.cli.pipeline.commands", "pipeline"),
    "profile": ("mainstem.cli.profile.commands", "profile"),
    "quota": ("mainstem.cli.quota.commands", "quota"),
    "sql": ("mainstem.cli.sql.commands", "sql"),
    "store": ("mainstem.cli.store", "store"),
    "topic": ("mainstem.cli.topic.commands", "topic"),
    "user": ("mainstem.cli.user.commands", "user"),
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, which knows only of nouns that were imported when it says what is meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            close = nearest_name(args[0], self.list_commands(ctx))
            if close is not None:
                ctx.fail(f"No such command {args[0]!r}. Did you mean {close!r}?")
            raise


def versions() -> dict[str, str]:
    """mainstem's version and those of what it runs on, as a report of a fault needs them."""
    found = {"version": installed_version("mainstem"), "python": platform.python_version()}
    for name in ("pyarrow", "grpcio", "protobuf", "deltalake", "pyspark", "click"):
        try:
            found[name] = installed_version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found | {"platform": platform.platform()}


def _use_profile(context: click.Context, _: click.Parameter, name: str | None) -> None:
    if context.resilient_parsing:  # for what Tab offers, which is silent
        with contextlib.suppress(click.ClickException):
            context.obj = Profiles.load().settings(name)
        return
    context.obj = Profiles.load().settings(name)
    as_json(context.obj.format == "json")


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        print_object(Settings(), versions())
        context.exit()


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=global_options(hidden=False),
)
@click.option(
    "--profile",
    metavar="NAME",
    envvar="MAINSTEM_PROFILE",
    is_eager=True,  # the options that are given win over it
    expose_value=False,
    callback=_use_profile,
    help="Use this profile, see `mainstem profile`.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the versions of mainstem and what it runs on, and exit.",
)
def cli() -> None:
    """mainstem: a streaming platform in which Delta tables are the commit log.

    New here? `mainstem demo` shows all of it in a minute.

    Data goes to stdout, messages to stderr. Exit code 0: all well; 1: something failed, or a
    setting was refused; 2: wrong usage; 130: interrupted. The options below may stand before or
    after the command, but for --profile and where a command has an option of the same name. From
    the environment: MAINSTEM_CONFIG, MAINSTEM_FORMAT, MAINSTEM_TIMEOUT, MAINSTEM_BOOTSTRAP_SERVERS,
    MAINSTEM_PROFILE, MAINSTEM_SASL_PASSWORD, and settings of the gateway as MAINSTEM_<NAME> with
    underscores for dots.

    \b
    EXAMPLES
      mainstem demo
      mainstem gateway run --warehouse ./warehouse
      mainstem topic create orders -p 6
      echo hello | mainstem topic produce orders -k greeting
      mainstem topic describe orders --format json
    """


@cli.command()
@pass_settings
def version(settings: Settings) -> None:
    """Print the versions of mainstem and what it runs on."""
    print_object(settings, versions())

"""`mainstem profile ...`"""

from __future__ import annotations

import click

from mainstem.cli.context import (
    Settings,
    pass_settings,
    print_rows,
    reports_errors,
    say,
    say_if_empty,
)
from mainstem.cli.help import ExampleGroup
from mainstem.cli.profile.file import Profiles, check_name, new_profile, shown_flags


@click.group(cls=ExampleGroup)
def profile() -> None:
    """Keep the options of a place under a name, and use them without typing them.

    A profile holds -b, -X, --format, --timeout and --config. `mainstem --profile NAME ...` or
    MAINSTEM_PROFILE=NAME uses one for one command, `mainstem profile use NAME` from then on.
    Options that are given, and the environment, win over it. They are kept in
    ~/.config/mainstem/profiles.json, or where MAINSTEM_PROFILES says.

    \b
    EXAMPLES
      mainstem profile create prod -b 10.0.0.1:9490,10.0.0.2:9490 --timeout 10
      mainstem profile use prod
      mainstem --profile prod topic list
    """


@profile.command()
@click.argument("name")
@pass_settings
@reports_errors
def create(settings: Settings, name: str) -> None:
    """Keep the options that are given here as a profile.

    One of that name is replaced.

    \b
    EXAMPLES
      mainstem profile create local -b 127.0.0.1:9490
      mainstem profile create prod -b 10.0.0.1:9490 -X linger.ms=50 --format json
    """
    check_name(name)
    profiles = Profiles.load()
    profiles.by_name[name] = dict(new_profile(settings))
    profiles.save()
    say(f"profile {name} is kept in {profiles.path}; `mainstem profile use {name}` uses it")


@profile.command()
@click.argument("name", required=False)
@click.option("--none", is_flag=True, help="Use none.")
@reports_errors
def use(name: str | None, none: bool) -> None:
    """Use the profile NAME from now on, in every shell of this user.

    \b
    EXAMPLES
      mainstem profile use prod
      mainstem profile use --none
    """
    if (name is None) != none:
        raise click.UsageError("give the name of a profile, or --none")
    profiles = Profiles.load()
    if name is not None:
        profiles.find(name)
    profiles.current = name
    profiles.save()


@profile.command("list")
@pass_settings
@reports_errors
def list_(settings: Settings) -> None:
    """List the profiles; the one in use has a star.

    \b
    EXAMPLES
      mainstem profile list
      mainstem profile list --format json
    """
    profiles = Profiles.load()
    rows: list[list[object]] = []
    for name, one in sorted(profiles.by_name.items()):
        used = name == profiles.current
        flags = shown_flags(one.get("flags", {}))
        rows.append(
            [
                name,
                used if settings.format == "json" else "*" if used else "",
                one.get("bootstrap_servers"),
                one.get("format"),
                one.get("timeout_s"),
                one.get("config_file"),
                flags
                if settings.format == "json"
                else " ".join(f"{key}={value}" for key, value in flags.items()),
            ]
        )
    columns = ["profile", "used", "bootstrap_servers", "format", "timeout", "config", "settings"]
    print_rows(settings, columns, rows)
    hint = "no profile yet: `mainstem profile create NAME -b HOST:PORT` makes one"
    say_if_empty(settings, rows, hint)


@profile.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@reports_errors
def delete(names: tuple[str, ...]) -> None:
    """Forget profiles.

    \b
    EXAMPLES
      mainstem profile delete old
    """
    profiles = Profiles.load()
    for name in names:
        profiles.find(name)
    for name in names:
        profiles.by_name.pop(name, None)
        if profiles.current == name:
            profiles.current = None
    profiles.save()

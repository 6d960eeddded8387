"""`mainstem user ...`"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from mainstem.cli.context import (
    Settings,
    bootstrap_servers,
    confirm,
    fail,
    no_confirm_option,
    pass_settings,
    print_rows,
    reports_errors,
    run_each,
    say,
    say_if_empty,
)
from mainstem.cli.help import ExampleGroup
from mainstem.cli.user.place import NewPassword, user_place
from mainstem.errors import InvalidConfigError
from mainstem.security import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_MECHANISMS,
    check_user_name,
)

#: Has the password where no file is named.
PASSWORD_VARIABLE: Final = "MAINSTEM_USER_PASSWORD"

#: A password and its line end are shorter.
_FILE_BYTES_MAX: Final = 8 * 1024

_warehouse = click.option(
    "--warehouse",
    metavar="URI",
    help="Write the table of users there itself, without a gateway: for the first user.",
)
_password_file = click.option(
    "--password-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help=f"Its first line is the password.  [default: {PASSWORD_VARIABLE}, or else it is asked]",
)


@click.group(cls=ExampleGroup)
def user() -> None:
    """Users that sign in to gateways with a password (SCRAM).

    A password never leaves this program: gateways keep keys that are made of it. What is changed is
    in force on all gateways within a second; sessions of who has another password, or is deleted,
    end then.

    \b
    EXAMPLES
      mainstem user create alice
      mainstem user create admin --warehouse ./warehouse
      mainstem user list
    """


@user.command()
@click.argument("name")
@click.option(
    "--mechanism",
    type=click.Choice(SCRAM_MECHANISMS, case_sensitive=False),
    default="SCRAM-SHA-512",
    show_default=True,
    help="By which they sign in.",
)
@click.option(
    "--iterations",
    type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
    default=ITERATIONS_DEFAULT,
    show_default=True,
    help="How much work a guess of the password is.",
)
@_password_file
@_warehouse
@bootstrap_servers
@pass_settings
@reports_errors
def create(
    settings: Settings,
    name: str,
    mechanism: str,
    iterations: int,
    password_file: Path | None,
    warehouse: str | None,
    bootstrap_servers: str,
) -> None:
    """Create the user NAME, or let them sign in by another mechanism as well.

    NAME has up to 249 characters. A gateway asks its clients who they are with
    sasl.enabled.mechanisms; the first user is created with --warehouse.

    \b
    EXAMPLES
      mainstem user create alice
      mainstem user create reports --password-file reports.password
      mainstem user create admin --warehouse s3://bucket/warehouse
    """
    check_user_name(name)
    with user_place(settings, bootstrap_servers, warehouse, create=True) as place:
        if mechanism in place.read().get(name, {}):
            fail(
                f"user {name!r} has a password by {mechanism}: mainstem user passwd changes it",
                InvalidConfigError.code,
            )
        password = _password(password_file)
        _do(settings, name, lambda: place.change([_new(name, mechanism, iterations, password)], []))


@user.command("list")
@_warehouse
@bootstrap_servers
@pass_settings
@reports_errors
def list_(settings: Settings, warehouse: str | None, bootstrap_servers: str) -> None:
    """List the users, and by which mechanisms they sign in.

    \b
    EXAMPLES
      mainstem user list
      mainstem user list --format json
    """
    with user_place(settings, bootstrap_servers, warehouse) as place:
        rows = [
            (name, mechanism, iterations)
            for name, mechanisms in sorted(place.read().items())
            for mechanism, iterations in sorted(mechanisms.items())
        ]
    print_rows(settings, ["user", "mechanism", "iterations"], rows, numbers=["iterations"])
    say_if_empty(settings, rows, "no user yet: `mainstem user create NAME` makes one")


@user.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@no_confirm_option
@_warehouse
@bootstrap_servers
@pass_settings
@reports_errors
def delete(
    settings: Settings,
    names: tuple[str, ...],
    no_confirm: bool,
    warehouse: str | None,
    bootstrap_servers: str,
) -> None:
    """Delete users; their sessions end within a second.

    \b
    EXAMPLES
      mainstem user delete alice
      mainstem user delete alice bob -y
    """
    wanted = tuple(dict.fromkeys(names))
    if not no_confirm and not confirm(f"Delete {', '.join(wanted)}?"):
        say("nothing was deleted")
        raise SystemExit(1)
    with user_place(settings, bootstrap_servers, warehouse) as place:

        def remove(name: str) -> dict[str, object]:
            place.change([], [name])
            return {}

        run_each(settings, "user", wanted, remove)


@user.command()
@click.argument("name")
@click.option(
    "--mechanism",
    type=click.Choice(SCRAM_MECHANISMS, case_sensitive=False),
    help="Change only this one.  [default: each that the user has]",
)
@_password_file
@_warehouse
@bootstrap_servers
@pass_settings
@reports_errors
def passwd(
    settings: Settings,
    name: str,
    mechanism: str | None,
    password_file: Path | None,
    warehouse: str | None,
    bootstrap_servers: str,
) -> None:
    """Give the user NAME another password; sessions of the old one end within a second.

    Clients with sasl.password.location go on with the new one, if the file has it by then.

    \b
    EXAMPLES
      mainstem user passwd alice
      mainstem user passwd reports --password-file reports.password
    """
    with user_place(settings, bootstrap_servers, warehouse) as place:
        found = place.read().get(name, {})
        chosen = {one: i for one, i in found.items() if mechanism in (None, one)}
        if not chosen:
            what = f"no password by {mechanism}" if found else "not been created"
            fail(f"user {name!r} has {what}: mainstem user create", InvalidConfigError.code)
        password = _password(password_file)
        new = [_new(name, one, iterations, password) for one, iterations in chosen.items()]
        _do(settings, name, lambda: place.change(new, []))


def _new(name: str, mechanism: str, iterations: int, password: str) -> NewPassword:
    return NewPassword(name, mechanism, iterations, password)


def _do(settings: Settings, name: str, change: Callable[[], None]) -> None:
    def action(_: str) -> dict[str, object]:
        change()
        return {}

    run_each(settings, "user", [name], action)


def _password(file: Path | None) -> str:
    """From the file, the environment, or who sits there; not empty."""
    if file is not None:
        try:
            with file.open("rb") as opened:
                found = opened.readline(_FILE_BYTES_MAX).decode().strip("\r\n")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
            fail(f"the password in {file} cannot be read: {why}")
    elif PASSWORD_VARIABLE in os.environ:
        found = os.environ[PASSWORD_VARIABLE]
    else:
        try:
            found = click.prompt(
                "Password",
                hide_input=True,
                confirmation_prompt=True,
                err=True,
                default="",
                show_default=False,
            )
        except click.Abort as abort:
            if isinstance(abort.__context__, EOFError):
                raise click.UsageError(
                    "stdin is not a terminal and has no password twice: use --password-file or "
                    f"{PASSWORD_VARIABLE}"
                ) from None
            raise
    if not found:
        fail("the password is empty", InvalidConfigError.code)
    return found

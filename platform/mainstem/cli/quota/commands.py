"""`mainstem quota ...`"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from mainstem.cli.context import (
    Settings,
    admin_client,
    bootstrap_servers,
    pass_settings,
    print_rows,
    reports_errors,
    say,
    say_if_empty,
)
from mainstem.cli.help import ExampleGroup
from mainstem.config import parse_amount

#: As the gateway has it: each that has no quota of its own.
_DEFAULT = "<default>"

_NAMES = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_rate",
    "connections",
    "open_transactions",
    "groups",
    "controller_mutation_rate",
)


class _Bytes(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on
    """Bytes, with a unit or without."""

    name = "bytes"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        amount = parse_amount(str(value), "bytes")
        if amount is not None:
            return amount
        try:
            return float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of bytes; write 1048576, or 1MiB", param, ctx)


@click.group(cls=ExampleGroup)
def quota() -> None:
    """How much of a gateway somebody may use: bytes and requests a second, and more.

    Each gateway counts for itself. Who uses more is slowed down, and refused only what would have
    to wait for more than a second; clients try that again by themselves.

    Of several quotas the one counts that is most about the caller: of a user with a client.id, of a
    user, of a client.id; and each time the named one before the default.

    \b
    EXAMPLES
      mainstem quota set --user alice --producer-byte-rate 1MiB
      mainstem quota set --default-user --request-rate 100
      mainstem quota list
      mainstem quota remove --user alice
    """


def _entity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--default-client", is_flag=True, help="Each client.id that has none."),
        click.option("--client-id", metavar="ID", help="The client.id that the quota is for."),
        click.option("--default-user", is_flag=True, help="Each user who has none."),
        click.option("--user", metavar="NAME", help="The user that the quota is for."),
    ):
        command = option(command)
    return command


def _entity(
    user: str | None, default_user: bool, client_id: str | None, default_client: bool
) -> tuple[str, str]:
    if (user is not None and default_user) or (client_id is not None and default_client):
        raise click.UsageError("name one, or say that the default is meant: not both")
    if user == "" or client_id == "":
        raise click.UsageError("an empty name is nobody's")
    principal = ""
    if default_user:
        principal = _DEFAULT
    elif user is not None:
        principal = user if user.startswith("User:") else f"User:{user}"
    client = _DEFAULT if default_client else client_id or ""
    if not principal and not client:
        raise click.UsageError(
            "say whom the quota is for: --user, --default-user, --client-id or --default-client"
        )
    return principal, client


@quota.command("set")
@_entity_options
@click.option(
    "--producer-byte-rate", type=_Bytes(), metavar="BYTES", help="Bytes a second it may produce."
)
@click.option(
    "--consumer-byte-rate", type=_Bytes(), metavar="BYTES", help="Bytes a second it may fetch."
)
@click.option("--request-rate", type=float, metavar="N", help="Requests a second.")
@click.option(
    "--connections", type=float, metavar="N", help="Connections that have a call under way."
)
@click.option(
    "--open-transactions", type=float, metavar="N", help="Transactions that are not over."
)
@click.option("--groups", type=float, metavar="N", help="Consumer groups that have members.")
@click.option(
    "--controller-mutation-rate",
    type=float,
    metavar="N",
    help="Partitions a second it may make or delete.",
)
@bootstrap_servers
@pass_settings
@reports_errors
def set_(
    settings: Settings,
    bootstrap_servers: str,
    user: str | None,
    default_user: bool,
    client_id: str | None,
    default_client: bool,
    producer_byte_rate: float | None,
    consumer_byte_rate: float | None,
    request_rate: float | None,
    connections: float | None,
    open_transactions: float | None,
    groups: float | None,
    controller_mutation_rate: float | None,
) -> None:
    """Set quotas of a user, a client.id, or a user's client.id. Others stay as they are.

    \b
    EXAMPLES
      mainstem quota set --user alice --producer-byte-rate 1MiB --consumer-byte-rate 4MiB
      mainstem quota set --user alice --client-id nightly --producer-byte-rate 64KiB
      mainstem quota set --default-user --request-rate 100 --connections 20
    """
    from mainstem.client.admin import ClientQuotaAlteration

    principal, client = _entity(user, default_user, client_id, default_client)
    values = (
        producer_byte_rate,
        consumer_byte_rate,
        request_rate,
        connections,
        open_transactions,
        groups,
        controller_mutation_rate,
    )
    given = {name: value for name, value in zip(_NAMES, values, strict=True) if value is not None}
    if not given:
        raise click.UsageError("say what to set, for example --producer-byte-rate 1MiB")
    with admin_client(bootstrap_servers) as admin:
        admin.alter_client_quotas(
            [ClientQuotaAlteration(principal, client, set=given)], settings.timeout_s
        )
    _print(settings, [(principal, client, given)])


@quota.command("list")
@bootstrap_servers
@pass_settings
@reports_errors
def list_(settings: Settings, bootstrap_servers: str) -> None:
    """List all quotas, as the first gateway that answers has them in force.

    \b
    EXAMPLES
      mainstem quota list
      mainstem quota list --format json
    """
    with admin_client(bootstrap_servers) as admin:
        found = admin.describe_client_quotas(settings.timeout_s)
    _print(settings, [(one.principal, one.client_id, one.values) for one in found])
    say_if_empty(settings, found, "nobody has a quota; see mainstem quota set --help")


@quota.command()
@_entity_options
@click.option(
    "--quota",
    "names",
    multiple=True,
    type=click.Choice([name.replace("_", "-") for name in _NAMES]),
    help="Only this one; may be repeated.  [default: all]",
)
@bootstrap_servers
@pass_settings
@reports_errors
def remove(
    settings: Settings,
    bootstrap_servers: str,
    user: str | None,
    default_user: bool,
    client_id: str | None,
    default_client: bool,
    names: tuple[str, ...],
) -> None:
    """Take quotas back. Those of others may count then, such as the default.

    \b
    EXAMPLES
      mainstem quota remove --user alice
      mainstem quota remove --user alice --client-id nightly --quota producer-byte-rate
    """
    from mainstem.client.admin import ClientQuotaAlteration

    principal, client = _entity(user, default_user, client_id, default_client)
    wanted = tuple(name.replace("-", "_") for name in names) or _NAMES
    with admin_client(bootstrap_servers) as admin:
        before = [
            one
            for one in admin.describe_client_quotas(settings.timeout_s)
            if (one.principal, one.client_id) == (principal, client)
        ]
        if not any(name in one.values for one in before for name in wanted):
            say("there was no such quota; nothing was changed")
            return
        admin.alter_client_quotas(
            [ClientQuotaAlteration(principal, client, remove=wanted)], settings.timeout_s
        )
    say("removed")


def _print(settings: Settings, quotas: list[tuple[str, str, Mapping[str, float]]]) -> None:
    rows: list[list[object]] = [
        [principal, client, *(_shown(values.get(name)) for name in _NAMES)]
        for principal, client, values in quotas
    ]
    print_rows(settings, ["principal", "client_id", *_NAMES], rows, numbers=_NAMES)


def _shown(value: float | None) -> object:
    return int(value) if value is not None and value == int(value) else value

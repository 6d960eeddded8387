"""`mainstem cluster transactions ...`"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mainstem.cli.context import (
    Settings,
    admin_client,
    bootstrap_servers,
    pass_settings,
    print_rows,
    reports_errors,
    say,
)
from mainstem.cli.help import ExampleGroup

if TYPE_CHECKING:
    from mainstem.client import TransactionDescription

_STATES = ("EMPTY", "OPEN", "PREPARED", "COMMITTING")

_COLUMNS = [
    "transactional_id",
    "state",
    "age_s",
    "timeout_s",
    "records",
    "producer_id",
    "epoch",
    "number",
    "client_id",
]
_NUMBERS = ["age_s", "timeout_s", "records", "producer_id", "epoch", "number"]


@click.group(cls=ExampleGroup)
def transactions() -> None:
    """Look at transactions that are open, prepared or on their way, and end them.

    \b
    EXAMPLES
      mainstem cluster transactions list
      mainstem cluster transactions describe orders-writer-1
      mainstem cluster transactions abort orders-writer-1
      mainstem cluster transactions complete WyJvcmRlcnMiLDcsMCwxXQ==
    """


@transactions.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only these; may be repeated.  [default: all but EMPTY]",
)
@bootstrap_servers
@pass_settings
@reports_errors
def list_(settings: Settings, bootstrap_servers: str, states: Sequence[str]) -> None:
    """List transactions that are not over, as their coordinator knows them.

    STATE is OPEN (its producer sends), PREPARED (it waits to be completed, by whoever has its
    token), or COMMITTING (it is decided, and waits for the leader of a topic); EMPTY are ids whose
    producers have none. AGE_S counts from when it was opened, prepared or decided. None of them
    holds back readers or other producers.

    \b
    EXAMPLES
      mainstem cluster transactions list
      mainstem cluster transactions list --state PREPARED --format json
    """
    with admin_client(bootstrap_servers) as admin:
        found = admin.list_transactions(states, settings.timeout_s)
    print_rows(settings, _COLUMNS, [_row(one) for one in found], numbers=_NUMBERS)


@transactions.command()
@click.argument("transactional_id")
@bootstrap_servers
@pass_settings
@reports_errors
def describe(settings: Settings, bootstrap_servers: str, transactional_id: str) -> None:
    """Show one transactional id, with the topics and groups that its transaction touches.

    \b
    EXAMPLES
      mainstem cluster transactions describe orders-writer-1
    """
    with admin_client(bootstrap_servers) as admin:
        one = admin.describe_transaction(transactional_id, settings.timeout_s)
    more: list[object] = [one.size_bytes, ",".join(one.topics), ",".join(one.groups), one.token]
    print_rows(
        settings,
        [*_COLUMNS, "bytes", "topics", "groups", "token"],
        [[*_row(one), *more]],
        numbers=[*_NUMBERS, "bytes"],
    )


@transactions.command()
@click.argument("transactional_id")
@bootstrap_servers
@pass_settings
@reports_errors
def abort(settings: Settings, bootstrap_servers: str, transactional_id: str) -> None:
    """Abort what is open or prepared under a transactional id.

    Nothing of it gets into a topic.

    Its producer is told so when it sends on, and may go on with its next transaction.

    \b
    EXAMPLES
      mainstem cluster transactions abort orders-writer-1
    """
    with admin_client(bootstrap_servers) as admin:
        admin.abort_transaction(transactional_id, settings.timeout_s)
    say(f"the transaction of {transactional_id} is aborted")


@transactions.command()
@click.argument("token")
@click.option("--abort", "commit", is_flag=True, default=True, flag_value=False, help="Abort it.")
@bootstrap_servers
@pass_settings
@reports_errors
def complete(settings: Settings, bootstrap_servers: str, token: str, commit: bool) -> None:
    """Commit a prepared transaction by its token; or abort it.

    `describe` shows the token of one. Commit it only if whoever has prepared it together with this
    one has committed, too. Again, it is answered as the first time.

    \b
    EXAMPLES
      mainstem cluster transactions complete WyJvcmRlcnMiLDcsMCwxXQ==
      mainstem cluster transactions complete --abort WyJvcmRlcnMiLDcsMCwxXQ==
    """
    with admin_client(bootstrap_servers) as admin:
        places = admin.complete_transaction(token, commit, settings.timeout_s)
    if not commit:
        say("the transaction is aborted")
        return
    rows = [
        [topic, partition, one.base_offset, one.record_count, one.table_version]
        for (topic, partition), one in sorted(places.items())
    ]
    columns = ["topic", "partition", "base_offset", "records", "table_version"]
    print_rows(settings, columns, rows, numbers=columns[1:])


def _row(one: TransactionDescription) -> list[object]:
    return [
        one.transactional_id,
        one.state,
        round(one.age_ms / 1000, 1),
        round(one.timeout_ms / 1000, 1),
        one.record_count,
        one.producer_id,
        one.producer_epoch,
        one.number,
        one.client_id,
    ]

"""`mainstem gateway ...`"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from mainstem.cli.context import (
    Settings,
    bootstrap_servers,
    pass_settings,
    print_rows,
    reports_errors,
    status_columns,
    status_of,
)
from mainstem.cli.gateway.allocators import take_little_memory
from mainstem.cli.help import ExampleGroup
from mainstem.cli.without_pandas import leave_pandas_out
from mainstem.tls import PROTOCOLS, leave_tls_1_2_out

if TYPE_CHECKING:
    from mainstem.config import GatewayConfig


@click.group(cls=ExampleGroup)
def gateway() -> None:
    """Run a gateway, and ask one how it is.

    \b
    EXAMPLES
      mainstem gateway run --warehouse ./warehouse
      mainstem gateway status -b 127.0.0.1:9490
    """


@gateway.command()
@click.option("--warehouse", metavar="DIR", help="Where the tables are.")
@click.option(
    "--listen", "listeners", metavar="HOST:PORT", help="Where to listen; port 0 takes a free one."
)
@pass_settings
@reports_errors
def run(settings: Settings, warehouse: str | None, listeners: str | None) -> None:
    """Run a gateway until SIGTERM or Ctrl-C.

    Prints `listening on HOST:PORT` to stdout once it answers, and its log to stderr. On SIGTERM it
    commits and answers what it has accepted, then exits 0. On SIGHUP it reads its settings again
    and takes `log.level` over; where it runs on a terminal, SIGHUP ends it as SIGTERM does.

    \b
    EXAMPLES
      mainstem gateway run --warehouse ./warehouse
      mainstem --config conf/gateway.toml gateway run
      MAINSTEM_LISTENERS=0.0.0.0:9490 mainstem -X message.max.bytes=4194304 gateway run
    """
    asked = {"warehouse": warehouse, "listeners": listeners}
    flags = {name: value for name, value in asked.items() if value is not None}
    config = settings.gateway_config(flags, warns=False)
    if config.text("log.format") == "json":
        # gRPC writes lines of its own, which are none, and reads this when it is imported.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    take_little_memory()
    if config.text(PROTOCOLS) == "TLSv1.3":
        leave_tls_1_2_out()

    leave_pandas_out()
    import uvloop

    from mainstem.ingest_gateway import configure_logging, serve

    configure_logging(config)

    def reload() -> GatewayConfig:
        return settings.gateway_config(flags, warns=False)

    uvloop.run(
        serve(
            config,
            lambda address: click.echo(f"listening on {address}"),
            # On a terminal SIGHUP says that it was closed.
            reload=None if sys.stdin.isatty() else reload,
        )
    )


@gateway.command()
@bootstrap_servers
@pass_settings
@reports_errors
def status(settings: Settings, bootstrap_servers: str) -> None:
    """Ask each of the given gateways whether it serves, and what.

    STATUS is OK, or the reason why it is not; then the exit code is 1. The check is the standard
    health service of gRPC, so any load balancer can ask the same.

    \b
    EXAMPLES
      mainstem gateway status
      mainstem gateway status -b 10.0.0.1:9490,10.0.0.2:9490
      mainstem gateway status --timeout 2 --format json
    """
    from mainstem.cli.gateway.status import gateway_status

    servers = [server.strip() for server in bootstrap_servers.split(",") if server.strip()]
    columns = ["address", "gateway_id", "topics_led", "version", "warehouse"]
    rows: list[list[object]] = []
    failed = False
    for server in servers:
        facts, error = gateway_status(server, settings.timeout_s)
        failed = failed or error is not None
        rows.append([server, *map(facts.get, columns[1:]), *status_of(settings, error)])
    print_rows(settings, [*columns, *status_columns(settings)], rows, numbers=["topics_led"])
    if failed:
        raise SystemExit(1)


@gateway.group(cls=ExampleGroup)
def connections() -> None:
    """See who is connected.

    \b
    EXAMPLES
      mainstem gateway connections list
    """


@connections.command("list")
@bootstrap_servers
@pass_settings
@reports_errors
def list_connections(settings: Settings, bootstrap_servers: str) -> None:
    """List the connections of each of the given gateways.

    CLIENT_ID is the client.id of a client of ours. A connection is there from its first call on,
    and for five minutes after its last; OPEN is how many calls are under way, a stream being one.
    Bytes are those of requests and answers.

    \b
    EXAMPLES
      mainstem gateway connections list
      mainstem gateway connections list -b 10.0.0.1:9490,10.0.0.2:9490
      mainstem --format json gateway connections list
    """
    from mainstem.cli.gateway.connections import COLUMNS, gateway_connections

    servers = [server.strip() for server in bootstrap_servers.split(",") if server.strip()]
    rows: list[list[object]] = []
    failed = False
    for server in servers:
        found, error = gateway_connections(server, settings.timeout_s)
        if error is not None:
            found, failed = [[None] * len(COLUMNS)], True
        rows += [[server, *row, *status_of(settings, error)] for row in found]
    columns = ["address", *COLUMNS, *status_columns(settings)]
    print_rows(settings, columns, rows, numbers=COLUMNS[2:])
    if failed:
        raise SystemExit(1)

"""`mainstem gateway ...`"""

from __future__ import annotations

import click

from mainstem.cli._context import Settings, pass_settings, reports_errors


@click.group()
def gateway() -> None:
    """Run a gateway, and ask one how it is."""


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
    commits and answers what it has accepted, then exits 0.

    \b
    EXAMPLES
      mainstem gateway run --warehouse ./warehouse
      mainstem --config conf/gateway.toml gateway run
      MAINSTEM_LISTENERS=0.0.0.0:9490 mainstem -X message.max.bytes=4194304 gateway run
    """
    import uvloop

    from mainstem.ingest_gateway import configure_logging, serve

    flags = {"warehouse": warehouse, "listeners": listeners}
    config = settings.gateway_config(
        {name: value for name, value in flags.items() if value is not None}
    )
    configure_logging(config)
    uvloop.run(serve(config, lambda address: click.echo(f"listening on {address}")))

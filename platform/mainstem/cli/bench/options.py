"""What the commands of `mainstem bench` share: options, the place, and how figures are printed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from mainstem.cli.context import Settings, out, print_object
from mainstem.cli.options import (
    current_settings,
    given_on_the_command_line,
    refuse_transactions,
)
from mainstem.config import GATEWAY_KEYS

if TYPE_CHECKING:
    from mainstem.cli.bench.place import BenchPlace

value_bytes_option = click.option(
    "--value-bytes",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Size of a value; values are random bytes.",
)
key_bytes_option = click.option(
    "--key-bytes",
    type=click.IntRange(min=0),
    default=16,
    show_default=True,
    help="Size of a key; 0: no key.",
)
partitions_option = click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=6,
    show_default=True,
    help="Partitions of the topic.",
)
acks_option = click.option(
    "--acks",
    type=click.Choice(["0", "1", "all"]),
    default="all",
    show_default=True,
    help="When a record counts as delivered.",
)
topic_config_option = click.option(
    "-c",
    "--config",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the topic; may be repeated.",
)


def _servers_given() -> str | None:
    """-b before the noun. What the environment or a profile says is not meant to be measured."""
    given = given_on_the_command_line("bootstrap_servers")
    return current_settings().bootstrap_servers if given else None


servers_option = click.option(
    "-b",
    "--bootstrap-servers",
    default=_servers_given,
    metavar="HOST:PORT,...",
    help="Measure these gateways.  [default: one that is started for it]",
)
directory_option = click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False),
    help="Where the started gateway's warehouse is made, and removed.  [default: the system's "
    "temporary directory]",
)


def bench_place(
    settings: Settings,
    bootstrap_servers: str | None,
    directory: str | None,
    partition_count: int,
    topic_config: Mapping[str, str],
) -> BenchPlace:
    """Raises UsageError for a setting of a gateway that runs already."""
    from mainstem.cli.bench.place import BenchPlace

    refuse_transactions(settings)
    gateway = {name: value for name, value in settings.flags.items() if name in GATEWAY_KEYS}
    if bootstrap_servers:
        for name in client_flags(settings):
            gateway.pop(name, None)
    if gateway and bootstrap_servers:
        raise click.UsageError(
            f"{', '.join(gateway)}: a setting of the gateway, which runs already"
        )
    return BenchPlace(
        bootstrap_servers,
        directory,
        partition_count,
        settings.timeout_s,
        gateway_config=gateway,
        topic_config=topic_config,
    )


def client_flags(settings: Settings) -> dict[str, str]:
    """`-X` of the producer and the consumer; certificates have the same names as a gateway's."""
    from mainstem.client.connection_security import SECURITY_KEYS

    security = {key.name for key in SECURITY_KEYS}
    return {
        name: value
        for name, value in settings.flags.items()
        if name not in GATEWAY_KEYS or name in security
    }


def percentiles_text(milliseconds: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:,.1f}" for name, value in milliseconds.items())


def print_figures(
    settings: Settings, result: Mapping[str, Any], figures: Mapping[str, str]
) -> None:
    """What was measured, then what it depends on."""
    peak = result["gateway_peak_rss_bytes"]
    memory = "unknown" if peak is None else f"{peak / 1e6:,.0f} MB"
    print_object(settings, {**figures, "gateway peak memory": memory})
    out.print()
    print_object(settings, result["settings"])

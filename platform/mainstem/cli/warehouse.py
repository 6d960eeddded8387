"""The warehouse of commands that read and write tables themselves, without a gateway."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from mainstem.cli.options import Settings

if TYPE_CHECKING:
    from mainstem.delta_log.store import Warehouse

warehouse_option = click.option(
    "--warehouse",
    metavar="DIR",
    help="Where the tables are.  [default: the gateway's setting `warehouse`]",
)


def warehouse_uri(settings: Settings, given: str | None) -> str:
    """Where the tables are: what `warehouse_option` was given, else the gateway's setting."""
    return given or settings.gateway_config().text("warehouse")


@contextlib.contextmanager
def opened_warehouse(settings: Settings, given: str | None) -> Iterator[Warehouse]:
    """The store of the warehouse, while the block lasts.

    Raises:
        InvalidConfigError, StoreUnavailableError: As `open_warehouse`.
    """
    from mainstem.delta_log.store import open_warehouse

    with contextlib.closing(open_warehouse(warehouse_uri(settings, given))) as store:
        yield store

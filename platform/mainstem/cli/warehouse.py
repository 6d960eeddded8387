"""The warehouse of commands that read and write tables themselves, without a gateway."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from mainstem.cli.options import Settings

if TYPE_CHECKING:
    from mainstem.delta_log.store import CloudPrefix, LocalDirectory, Warehouse

warehouse_option = click.option(
    "--warehouse",
    metavar="DIR",
    help="Where the tables are.  [default: the gateway's setting `warehouse`]",
)


def warehouse_place(
    settings: Settings, given: str | None, *, what: str = "warehouse"
) -> LocalDirectory | CloudPrefix:
    """Where the tables are: what `warehouse_option` was given, else the gateway's setting; with the
    settings `store.*`.

    Raises:
        InvalidConfigError: As `parse_warehouse`.
    """
    from mainstem.delta_log.store import parse_warehouse

    config = settings.gateway_config()
    return parse_warehouse(given or config.text("warehouse"), what, config.store_settings())


@contextlib.contextmanager
def opened_warehouse(
    settings: Settings, given: str | None, *, create: bool = False
) -> Iterator[Warehouse]:
    """The store of the warehouse, while the block lasts.

    Args:
        create: Makes it if it is not there.

    Raises:
        InvalidConfigError, StoreUnavailableError: As `open_warehouse`.
    """
    from mainstem.delta_log.store import open_warehouse

    place = warehouse_place(settings, given)
    with contextlib.closing(open_warehouse(place, create=create)) as store:
        yield store

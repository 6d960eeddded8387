"""`mainstem store ...`"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mainstem.cli.context import (
    Settings,
    pass_settings,
    print_rows,
    reports_errors,
    say,
    status_columns,
    status_of,
)
from mainstem.cli.help import ExampleGroup
from mainstem.cli.warehouse import warehouse_place

if TYPE_CHECKING:
    from mainstem.delta_log.store import StoreCheck


@click.group(cls=ExampleGroup)
def store() -> None:
    """Look at the place where a warehouse lies: a directory, or an object storage service.

    \b
    EXAMPLES
      mainstem store check s3://lake/streams
    """


@store.command()
@click.argument("uri", required=False)
@click.option(
    "--writers",
    type=click.IntRange(2, 64),
    default=16,
    show_default=True,
    help="How many at a time race for a name.",
)
@pass_settings
@reports_errors
def check(settings: Settings, uri: str | None, writers: int) -> None:
    """Prove that a place keeps the promises that a log rests on.

    URI is a directory or s3://bucket/prefix, gs://bucket/prefix, az://container/prefix; by default
    the gateway's setting `warehouse`. Nothing has to be there yet but the directory or the bucket,
    and gateways may write beside it. A row for each promise: OK, or what is missing. What the check
    puts lies below `.check-...` in URI and is deleted in the end, also after Ctrl-C.

    \b
    put          a file can be written, and is read back
    condition    a file is not replaced by a put on condition that there is none
    race         of many writers of one name exactly one wins, and is told so
    lost answer  a writer that heard nothing finds out whether it has won
    reads        a name that was asked for too early is found as soon as it is put
    ranges       parts of a file are read
    list         files are listed at once, by name, from a name on
    delete       a file goes, from listings too

    \b
    EXAMPLES
      mainstem store check ./warehouse
      mainstem store check s3://lake/streams --writers 32
      mainstem store check s3://lake/streams --format json
    """
    from mainstem.delta_log.store import CloudPrefix, StoreCheck, open_warehouse

    rows: list[list[object]] = []
    failed = False
    where = warehouse_place(settings, uri, what="URI")
    # A bucket's prefix is there when something is in it; a directory has to be made.
    opened = open_warehouse(where, create=isinstance(where, CloudPrefix), what="directory")
    with contextlib.closing(opened):
        checking = StoreCheck(opened, writers)
        try:
            for promise in checking.run():
                failed = failed or promise.error is not None
                took = round(promise.took_ms, 1)
                rows.append([promise.name, took, *status_of(settings, promise.error)])
        finally:
            _clean_up(checking, put_any=bool(rows) and rows[0][2] == "OK")
    print_rows(
        settings, ["promise", "took_ms", *status_columns(settings)], rows, numbers=["took_ms"]
    )
    if failed:
        raise SystemExit(1)


def _clean_up(checking: StoreCheck, *, put_any: bool) -> None:
    from mainstem.delta_log.store import LocalStore

    left = checking.clean_up()
    if isinstance(checking.store, LocalStore):
        for directory in (*checking.directories, checking.directory):
            with contextlib.suppress(OSError):
                Path(checking.store.uri, directory).rmdir()
    if left and put_any:
        say(
            f"warning: {len(left)} files below {checking.store.uri}/{checking.directory} could not "
            "be deleted: delete them by hand"
        )

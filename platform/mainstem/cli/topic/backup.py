"""`mainstem topic backup` and `mainstem topic restore`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from mainstem.cli.completion import complete_topics
from mainstem.cli.context import (
    Settings,
    err,
    parse_pairs,
    pass_settings,
    print_object,
    reports_errors,
    say,
    say_dry_run,
)
from mainstem.cli.help import ExampleCommand
from mainstem.cli.warehouse import opened_warehouse, warehouse_option, warehouse_place

if TYPE_CHECKING:
    from mainstem.delta_log.backup import Manifest
    from mainstem.delta_log.store import Warehouse


@click.command(cls=ExampleCommand)
@click.argument("topic", shell_complete=complete_topics)
@click.argument("directory", metavar="DIR")
@warehouse_option
@pass_settings
@reports_errors
def backup(settings: Settings, topic: str, directory: str, warehouse: str | None) -> None:
    """Copy a topic's records, offsets and settings into a directory.

    `topic restore` makes the topic again from it. DIR, a directory or s3://bucket/prefix, is made
    or is empty. It gets the topic's Parquet files and `manifest.json`, which names each file with
    its offsets and its checksum, and is written last: a directory without it is not a backup. The
    backup is of one version of the table, whatever producers write meanwhile.

    Reads the warehouse; no gateway is needed. If the command is interrupted, the same command goes
    on with what has been copied. Offsets that groups have committed are not part of it, nor are
    records that were acknowledged with acks=1 and are not in the table yet.

    \b
    EXAMPLES
      mainstem topic backup orders /backup/orders-2026-01-31
      mainstem topic backup orders ./orders --warehouse ./warehouse
      mainstem topic restore ./orders --dry-run
    """
    from mainstem.delta_log import Topics
    from mainstem.delta_log.backup import back_up

    with contextlib.ExitStack() as stack:
        store = stack.enter_context(opened_warehouse(settings, warehouse))
        topics = Topics(store)
        topics.open(topic)  # before a directory is made for what is not there
        target = stack.enter_context(_open_directory(settings, directory, store, create=True))
        made = back_up(topics, topic, target, on_copied=stack.enter_context(_progress("copied")))
        _print(settings, made, target.uri)


@click.command(cls=ExampleCommand)
@click.argument("directory", metavar="DIR")
@click.option("--as", "name", metavar="TOPIC", help="Its name.  [default: the one that it had]")
@click.option(
    "-c",
    "--config",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the topic, instead of the backup's; may be repeated.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Read all of the backup, compare it with its checksums, change nothing.",
)
@warehouse_option
@pass_settings
@reports_errors
def restore(
    settings: Settings,
    directory: str,
    name: str | None,
    pairs: Sequence[str],
    dry_run: bool,
    warehouse: str | None,
) -> None:
    """Create a topic from a backup, with its records at their offsets.

    Records have the offsets, timestamps, keys, values, headers and producer ids that they had. The
    topic comes to be with all of them in one commit; a topic that exists is not touched. Gateways
    may run meanwhile, and serve it at once.

    It is a new topic: offsets that groups have committed are not part of it (`group seek --to-file`
    sets them), and its retention may soon remove records that are old: -c retention.ms=-1 keeps
    them.

    \b
    EXAMPLES
      mainstem topic restore /backup/orders-2026-01-31
      mainstem topic restore ./orders --as orders-of-january -c retention.ms=-1
      mainstem topic restore ./orders --dry-run
    """
    from mainstem.delta_log import Topics
    from mainstem.delta_log.backup import check_backup
    from mainstem.delta_log.backup import restore as make_again

    config = parse_pairs(pairs, "-c")
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(opened_warehouse(settings, warehouse))
        source = stack.enter_context(_open_directory(settings, directory, store))
        progress = stack.enter_context(_progress("read" if dry_run else "restored"))
        make = check_backup if dry_run else make_again
        made = make(Topics(store), store, source, name, config, on_read=progress)
        _print(settings, made, source.uri)
    if dry_run:
        say_dry_run()
    else:
        _warn_of_retention(made)


@contextlib.contextmanager
def _open_directory(
    settings: Settings,
    directory: str,
    warehouse: Warehouse | None = None,
    *,
    create: bool = False,
) -> Iterator[Warehouse]:
    """Raises InvalidRequestError for a directory inside the warehouse."""
    from mainstem.delta_log.store import open_warehouse
    from mainstem.errors import InvalidRequestError

    place = warehouse_place(settings, directory, what="directory")
    if warehouse is not None and f"{place.uri}/".startswith(f"{warehouse.uri}/"):
        raise InvalidRequestError(
            f"{place.uri} is inside the warehouse {warehouse.uri}; a backup lies elsewhere"
        )
    with contextlib.closing(open_warehouse(place, create=create, what="directory")) as store:
        yield store


@contextlib.contextmanager
def _progress(done: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr, where somebody looks at it."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = [TextColumn(done), BarColumn(), DownloadColumn()]
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(done, total=None)
        yield lambda done_bytes, all_bytes: bar.update(task, completed=done_bytes, total=all_bytes)


def _print(settings: Settings, made: Manifest, directory: str) -> None:
    from mainstem.records import format_timestamp_ms

    print_object(
        settings,
        {
            "topic": made.topic,
            "partitions": len(made.partitions),
            "records": made.record_count,
            "files": made.file_count,
            "bytes": made.size_bytes,
            "directory": directory,
            "taken": format_timestamp_ms(made.taken_ms),
            "table_version": made.table_version,
        },
    )


def _warn_of_retention(made: Manifest) -> None:
    from mainstem.config import TopicConfig
    from mainstem.delta_log.store import wall_clock_ms

    config = TopicConfig.parse(made.config)
    oldest_ms = min((file.timestamp_ms_min for _, file in made.files()), default=None)
    if not config.deletes or config.retention_ms < 0 or oldest_ms is None:
        return
    if oldest_ms < wall_clock_ms() - config.retention_ms:
        say(
            f"note: retention.ms is {config.retention_ms} ms, and some records are older: the job "
            f"retention will remove them. To keep them: mainstem topic alter-config {made.topic} "
            "--set retention.ms=-1"
        )

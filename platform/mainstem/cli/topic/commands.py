"""`mainstem topic ...`"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from mainstem.cli.context import (
    Settings,
    admin_client,
    bootstrap_servers,
    confirm,
    out,
    parse_pairs,
    pass_settings,
    print_object,
    print_rows,
    reports_errors,
    run_each,
    say,
    say_dry_run,
)
from mainstem.cli.help import ExampleGroup
from mainstem.cli.topic.backup import backup, restore
from mainstem.cli.topic.consume import consume
from mainstem.cli.topic.produce import produce
from mainstem.cli.topic.redrive import redrive
from mainstem.cli.topic.trim import trim_prefix

if TYPE_CHECKING:
    from mainstem.client import TopicDescription


@click.group(cls=ExampleGroup)
def topic() -> None:
    """Create, look at, change and delete topics, produce to one and read one.

    \b
    EXAMPLES
      mainstem topic create orders -p 6 -c commit.interval.ms=50
      echo '{"id": 1}' | mainstem topic produce orders -k 1
      mainstem topic consume orders -o -10 -e
      mainstem topic describe orders
    """


topic.add_command(consume)
topic.add_command(produce)
topic.add_command(trim_prefix)
topic.add_command(redrive)
topic.add_command(backup)
topic.add_command(restore)

#: Units that people read more easily, the largest first.
_LARGER: Final = {
    "ms": (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)),
    "bytes": (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)),
}

_topics = click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
_dry_run = click.option("--dry-run", is_flag=True, help="Check everything, change nothing.")


@topic.command()
@_topics
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(min=1),
    help="How many partitions.  [default: num.partitions of the gateway]",
)
@click.option(
    "-c",
    "--config",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the topic; may be repeated. See `mainstem config list topic`.",
)
@_dry_run
@bootstrap_servers
@pass_settings
@reports_errors
def create(
    settings: Settings,
    topics: Sequence[str],
    partitions: int | None,
    pairs: Sequence[str],
    dry_run: bool,
    bootstrap_servers: str,
) -> None:
    """Create topics, all with the same settings.

    A name has 1 to 249 of the characters a-z A-Z 0-9 . _ - and is not `.` or `..`.

    \b
    EXAMPLES
      mainstem topic create orders
      mainstem topic create orders payments -p 6
      mainstem topic create clicks -p 12 -c compression.type=lz4 -c retention.ms=86400000
      mainstem topic create orders -c retention.ms=-1 --dry-run
    """
    config = parse_pairs(pairs, "-c")
    with admin_client(bootstrap_servers) as admin:

        def create_one(name: str) -> dict[str, object]:
            made = admin.create_topic(
                name,
                partitions or 0,
                config,
                validate_only=dry_run,
                timeout=settings.timeout_s,
            )
            return {"partitions": made.partition_count}

        run_each(settings, "topic", topics, create_one, columns=["partitions"])
    if dry_run:
        say_dry_run()


@topic.command("list")
@bootstrap_servers
@pass_settings
@reports_errors
def list_(settings: Settings, bootstrap_servers: str) -> None:
    """List the topics.

    `--format wide` adds the topic's id, which is a new one after delete and create.

    \b
    EXAMPLES
      mainstem topic list
      mainstem --format json topic list
    """
    with admin_client(bootstrap_servers) as admin:
        listings = admin.list_topics(timeout=settings.timeout_s)
    columns = ["topic", "partitions"]
    rows: list[list[object]] = [[one.topic, one.partition_count] for one in listings]
    if settings.format != "text":
        columns.append("topic_id")
        rows = [[*row, one.topic_id] for row, one in zip(rows, listings, strict=True)]
    print_rows(settings, columns, rows, numbers=["partitions"])
    broken = [one.topic for one in listings if not one.topic_id]
    for name in broken:
        say(f"topic {name} cannot be read; `mainstem topic describe {name}` says why")
    if broken:
        raise SystemExit(1)


@topic.command()
@_topics
@bootstrap_servers
@pass_settings
@reports_errors
def describe(settings: Settings, topics: Sequence[str], bootstrap_servers: str) -> None:
    """Print a topic's table, its settings, and its partitions with their offsets.

    Shown are the settings that were set; `--format wide` adds the others. RECORDS is the high
    watermark less the log start offset.

    \b
    EXAMPLES
      mainstem topic describe orders
      mainstem --format wide topic describe orders payments
      mainstem --format json topic describe orders
    """
    from mainstem.errors import MainstemError

    failed = False
    with admin_client(bootstrap_servers) as admin:
        for index, name in enumerate(topics):
            try:
                described = admin.describe_topic(name, timeout=settings.timeout_s)
            except MainstemError as error:
                failed = True
                if settings.format == "json":
                    status = {"status": error.code, "message": error.message}
                    print_object(settings, {"topic": name, **status})
                else:
                    say(f"{name}: {error.code}: {error.message}")
                continue
            if settings.format == "json":
                print_object(settings, _as_object(described))
                continue
            if index:
                out.print()
            _print_description(settings, described)
    if failed:
        raise SystemExit(1)


@topic.command("alter-config")
@_topics
@click.option(
    "--set", "pairs", multiple=True, metavar="KEY=VALUE", help="Set a setting; may be repeated."
)
@click.option("--reset", multiple=True, metavar="KEY", help="Back to the default; may be repeated.")
@_dry_run
@bootstrap_servers
@pass_settings
@reports_errors
def alter_config(
    settings: Settings,
    topics: Sequence[str],
    pairs: Sequence[str],
    reset: Sequence[str],
    dry_run: bool,
    bootstrap_servers: str,
) -> None:
    """Change settings of topics, from the next table commit on.

    For each topic all changes are made in one table commit, or none. TABLE VERSION is the version
    of the topic's table that has them.

    \b
    EXAMPLES
      mainstem topic alter-config orders --set commit.interval.ms=0
      mainstem topic alter-config orders payments --set retention.ms=86400000 --reset commit.bytes
    """
    if not pairs and not reset:
        raise click.UsageError("say what to change: --set KEY=VALUE or --reset KEY")
    set_to = parse_pairs(pairs, "--set")
    with admin_client(bootstrap_servers) as admin:

        def alter_one(name: str) -> dict[str, object]:
            version = admin.alter_config(
                name, set_to, reset, validate_only=dry_run, timeout=settings.timeout_s
            )
            return {"table_version": version}

        run_each(settings, "topic", topics, alter_one, columns=["table_version"])
    if dry_run:
        say_dry_run()


@topic.command("add-partitions")
@_topics
@click.option(
    "-n",
    "--total",
    type=click.IntRange(min=2),
    required=True,
    help="How many partitions the topic shall have, the old ones included.",
)
@bootstrap_servers
@pass_settings
@reports_errors
def add_partitions(
    settings: Settings, topics: Sequence[str], total: int, bootstrap_servers: str
) -> None:
    """Give topics more partitions. There is no way back to fewer.

    Records stay where they are. A key may have another partition from now on, so the order of
    records with the same key is not kept across this change.

    \b
    EXAMPLES
      mainstem topic add-partitions orders --total 12
    """
    with admin_client(bootstrap_servers) as admin:

        def add_to(name: str) -> dict[str, object]:
            version = admin.add_partitions(name, total, timeout=settings.timeout_s)
            return {"table_version": version}

        run_each(settings, "topic", topics, add_to, columns=["table_version"])


@topic.command()
@_topics
@click.option("--no-confirm", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, delete nothing.")
@bootstrap_servers
@pass_settings
@reports_errors
def delete(
    settings: Settings,
    topics: Sequence[str],
    no_confirm: bool,
    dry_run: bool,
    bootstrap_servers: str,
) -> None:
    """Delete topics with all their records and their tables. There is no way back.

    \b
    EXAMPLES
      mainstem topic delete orders
      mainstem topic delete orders payments --no-confirm
      mainstem topic delete orders --dry-run
    """
    with admin_client(bootstrap_servers) as admin:

        def look_at(name: str) -> dict[str, object]:
            described = admin.describe_topic(name, timeout=settings.timeout_s)
            return {"records": _record_count(described), "bytes": _size_bytes(described)}

        def delete_one(name: str) -> dict[str, object]:
            admin.delete_topic(name, timeout=settings.timeout_s)
            return {}

        if dry_run:
            run_each(settings, "topic", topics, look_at, columns=["records", "bytes"])
            say_dry_run()
            return
        if not no_confirm:
            names = ", ".join(topics)
            if not confirm(f"Delete {names}, with all records?"):
                say("nothing was deleted")
                raise SystemExit(1)
        run_each(settings, "topic", topics, delete_one)


def _unit(value: str, unit: str) -> str:
    """The unit, and what the value is in a larger one that fits: `ms (7 d)`."""
    if not value.isdecimal() or unit not in _LARGER:
        return unit
    number = int(value)
    for larger, size in _LARGER[unit]:
        if number >= size and number % size == 0 and number < 10_000 * size:
            return f"{unit} ({number // size} {larger})"
    return unit


def _record_count(described: TopicDescription) -> int:
    return sum(one.record_count for one in described.partitions)


def _size_bytes(described: TopicDescription) -> int:
    return sum(one.size_bytes for one in described.partitions)


def _as_object(described: TopicDescription) -> dict[str, object]:
    from dataclasses import asdict

    return {**asdict(described), "status": "OK", "message": ""}


def _print_description(settings: Settings, described: TopicDescription) -> None:
    print_object(
        settings,
        {
            "topic": described.topic,
            "topic id": described.topic_id,
            "partitions": len(described.partitions),
            "records": _record_count(described),
            "bytes": _size_bytes(described),
            "leader": described.leader,
            "leader epoch": described.leader_epoch,
            "table": described.table_uri,
            "table version": described.table_version,
        },
    )
    wide = settings.format == "wide"
    shown = [one for one in described.config if wide or not one.is_default]
    if shown:
        out.print()
        rows = [
            [
                one.name,
                one.value,
                _unit(one.value, one.unit),
                "default" if one.is_default else "set",
            ]
            for one in shown
        ]
        print_rows(settings, ["setting", "value", "unit", "origin"], rows)
    out.print()
    columns = ["partition", "log_start", "high_watermark", "log_end", "records", "files", "bytes"]
    print_rows(
        settings,
        columns,
        [
            [
                one.partition,
                one.log_start_offset,
                one.high_watermark,
                one.log_end_offset,
                one.record_count,
                one.file_count,
                one.size_bytes,
            ]
            for one in described.partitions
        ],
        numbers=columns,
    )

"""`mainstem topic ...`"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from mainstem.cli.completion import complete_topics
from mainstem.cli.context import (
    Settings,
    admin_client,
    bootstrap_servers,
    confirm,
    no_confirm_option,
    out,
    parse_pairs,
    pass_settings,
    print_object,
    print_rows,
    reports_errors,
    run_each,
    say,
    say_dry_run,
    say_if_empty,
    unit_of,
)
from mainstem.cli.help import ExampleGroup
from mainstem.cli.patterns import chosen, is_pattern, matching
from mainstem.cli.topic.backup import backup, restore
from mainstem.cli.topic.consume import consume
from mainstem.cli.topic.produce import produce
from mainstem.cli.topic.redrive import redrive
from mainstem.cli.topic.trim import trim_prefix

if TYPE_CHECKING:
    from mainstem.client import AdminClient, TopicDescription


@click.group(cls=ExampleGroup)
def topic() -> None:
    """Create, look at, change, back up and delete topics, produce to one and read one.

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

_existing = click.argument(
    "topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics
)
_dry_run = click.option("--dry-run", is_flag=True, help="Check everything, change nothing.")


def _named(admin: AdminClient, texts: Sequence[str], timeout_s: float) -> list[str]:
    """The topics that were given, by name or pattern."""
    if not any(map(is_pattern, texts)):
        return list(dict.fromkeys(texts))
    return chosen(texts, (one.topic for one in admin.list_topics(timeout=timeout_s)), "topic")


@topic.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
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
@click.option(
    "--if-not-exists", is_flag=True, help="A topic that exists already is left as it is: no error."
)
@click.option(
    "-r",
    "--replication-factor",
    "replicas",
    type=int,
    metavar="N",
    help="Accepted for Kafka's scripts, and not used: the store replicates.",
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
    if_not_exists: bool,
    replicas: int | None,
    dry_run: bool,
    bootstrap_servers: str,
) -> None:
    """Create topics, all with the same settings.

    A name has 1 to 249 of the characters a-z A-Z 0-9 . _ - and is not `.` or `..`. Times and sizes
    in settings may have a unit: 90s, 12h, 7d; 64KiB, 10GiB, 10GB.

    \b
    EXAMPLES
      mainstem topic create orders
      mainstem topic create orders payments -p 6
      mainstem topic create clicks -p 12 -c compression.type=lz4 -c retention.ms=1d
      mainstem topic create orders -c retention.ms=-1 --dry-run
      mainstem topic create orders -p 6 --if-not-exists
    """
    from mainstem.errors import TopicExistsError

    config = parse_pairs(pairs, "-c")
    with admin_client(bootstrap_servers) as admin:

        def create_one(name: str) -> dict[str, object]:
            try:
                made = admin.create_topic(
                    name,
                    partitions or 0,
                    config,
                    validate_only=dry_run,
                    timeout=settings.timeout_s,
                )
            except TopicExistsError:
                if not if_not_exists:
                    raise
                say(f"topic {name} exists already and was left as it is")
                described = admin.describe_topic(name, timeout=settings.timeout_s)
                return {"partitions": len(described.partitions)}
            return {"partitions": made.partition_count}

        run_each(settings, "topic", topics, create_one, columns=["partitions"])
    _say_amounts(config)
    if replicas is not None:
        say("note: the replication factor is not used: the store replicates, not the gateways")
    if dry_run:
        say_dry_run()


@topic.command("list")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...", shell_complete=complete_topics)
@bootstrap_servers
@pass_settings
@reports_errors
def list_(settings: Settings, topics: Sequence[str], bootstrap_servers: str) -> None:
    """List the topics, all of them or those that are named.

    TOPIC is a name, or a pattern: 'ord*', or '^ord.*s$' as a regular expression. `--format wide`
    adds the topic's id, which is a new one after delete and create, and its status: OK, or the
    code of the error for which it cannot be read. Such a topic ends the command with 1.

    \b
    EXAMPLES
      mainstem topic list
      mainstem topic list 'ord*' payments
      mainstem topic list --format json
    """
    with admin_client(bootstrap_servers) as admin:
        listings = list(admin.list_topics(timeout=settings.timeout_s))
    if topics:
        wanted = _listed(topics, [one.topic for one in listings])
        listings = [one for one in listings if one.topic in wanted]
    columns = ["topic", "partitions"]
    rows: list[list[object]] = [[one.topic, one.partition_count] for one in listings]
    if settings.format != "text":
        columns += ["topic_id", "status"]
        codes = ["OK" if one.error is None else one.error.code for one in listings]
        rows = [
            [*row, one.topic_id, code] for row, one, code in zip(rows, listings, codes, strict=True)
        ]
    print_rows(settings, columns, rows, numbers=["partitions"])
    if not topics:
        say_if_empty(settings, rows, "no topic yet: `mainstem topic create NAME` makes one")
    broken = [(one.topic, one.error) for one in listings if one.error is not None]
    for name, error in broken:
        say(f"topic {name} cannot be read: {error.code}: {error.message}")
    if broken:
        raise SystemExit(1)


@topic.command()
@_existing
@bootstrap_servers
@pass_settings
@reports_errors
def describe(settings: Settings, topics: Sequence[str], bootstrap_servers: str) -> None:
    """Print a topic's table, its settings, and its partitions with their offsets.

    TOPIC is a name, or a pattern: 'ord*', or '^ord.*s$' as a regular expression.

    Shown are the settings that were set; `--format wide` adds the others. RECORDS is the high
    watermark less the log start offset.

    \b
    EXAMPLES
      mainstem topic describe orders
      mainstem topic describe orders payments --format wide
      mainstem topic describe orders --format json
    """
    from mainstem.errors import MainstemError

    failed = False
    with admin_client(bootstrap_servers) as admin:
        for index, name in enumerate(_named(admin, topics, settings.timeout_s)):
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
@_existing
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
    of the topic's table that has them. Times and sizes may have a unit: 90s, 12h, 7d; 64KiB, 10GiB,
    10GB.

    \b
    EXAMPLES
      mainstem topic alter-config orders --set commit.interval.ms=0
      mainstem topic alter-config orders payments --set retention.ms=7d --reset commit.bytes
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

        names = _named(admin, topics, settings.timeout_s)
        run_each(settings, "topic", names, alter_one, columns=["table_version"])
    _say_amounts(set_to)
    if dry_run:
        say_dry_run()


@topic.command("add-partitions")
@_existing
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

        names = _named(admin, topics, settings.timeout_s)
        run_each(settings, "topic", names, add_to, columns=["table_version"])


@topic.command()
@_existing
@no_confirm_option
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

    TOPIC is a name, or a pattern: 'ord*', or '^ord.*s$' as a regular expression. What fits it is
    named before you are asked.

    \b
    EXAMPLES
      mainstem topic delete orders
      mainstem topic delete 'test-*'
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

        names = _named(admin, topics, settings.timeout_s)
        if dry_run:
            run_each(settings, "topic", names, look_at, columns=["records", "bytes"])
            say_dry_run()
            return
        if not no_confirm and not confirm(f"Delete {', '.join(names)}, with all records?"):
            say("nothing was deleted")
            raise SystemExit(1)
        run_each(settings, "topic", names, delete_one)


def _say_amounts(config: Mapping[str, str]) -> None:
    """What was given with a unit, in the setting's own. What is wrong the gateway tells."""
    from mainstem.config import TOPIC_KEYS, parse_amount, with_unit

    for name, text in config.items():
        key = TOPIC_KEYS.get(name)
        amount = None if key is None else parse_amount(text, key.unit)
        if key is not None and amount is not None:
            say(f"{name} = {with_unit(amount, key.unit)}")


def _listed(texts: Sequence[str], names: Sequence[str]) -> set[str]:
    """Raises UnknownTopicError for a name that is not there; a pattern may fit nothing."""
    from mainstem.errors import UnknownTopicError

    wanted: set[str] = set()
    for text in texts:
        if is_pattern(text):
            wanted.update(matching(text, names))
        elif text in names:
            wanted.add(text)
        else:
            raise UnknownTopicError(f"there is no topic {text!r}", topic=text)
    return wanted


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
                unit_of(one.value, one.unit),
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

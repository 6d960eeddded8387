"""`mainstem topic trim-prefix`"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mainstem.cli.completion import complete_topics
from mainstem.cli.context import (
    Settings,
    admin_client,
    bootstrap_servers,
    confirm,
    no_confirm_option,
    pass_settings,
    print_rows,
    reports_errors,
    say,
    say_dry_run,
)
from mainstem.cli.errors import FormatError
from mainstem.cli.help import ExampleCommand
from mainstem.cli.where import Where, parse_where

if TYPE_CHECKING:
    from mainstem.client import AdminClient, DeletedRecords, PartitionDescription

#: For the gateway: the high watermark, whatever it is by then.
_HIGH_WATERMARK = -1


@click.command("trim-prefix", cls=ExampleCommand)
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "-t",
    "--to",
    "place",
    required=True,
    metavar="WHERE",
    help="The first record to keep: an offset, end for none, -N for the last N records, or @TIME, "
    "see above.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(min=0),
    help="Only this partition; may be repeated.  [default: all]",
)
@no_confirm_option
@click.option("--dry-run", is_flag=True, help="Say what would be removed, remove nothing.")
@bootstrap_servers
@pass_settings
@reports_errors
def trim_prefix(
    settings: Settings,
    topic: str,
    place: str,
    partitions: Sequence[int],
    no_confirm: bool,
    dry_run: bool,
    bootstrap_servers: str,
) -> None:
    """Remove the records before an offset, in all partitions named or in none. No way back.

    The offsets of what stays do not change, and a partition that is emptied goes on where it ended.
    With a time, what goes is everything before the first record with that timestamp or a later one;
    all of it where there is none. TIME is as of `mainstem topic consume`: 2026-01-31T12:00:00Z (UTC
    where no zone is named), -7d, or a number since 1970 (10 digits: seconds, 13: milliseconds); one
    in the future is refused. RECORDS counts offsets: a compacted topic had fewer records.

    What was removed cannot be consumed any more. SQL over the table may show some of it until
    compaction: a data file that has the offset inside stays whole. Other gateways know within
    seconds. Kafka: kafka-delete-records.

    \b
    EXAMPLES
      mainstem topic trim-prefix orders --to 1000000 -p 0
      mainstem topic trim-prefix orders --to @2026-01-31T00:00:00Z --dry-run
      mainstem topic trim-prefix orders --to -1000
      mainstem topic trim-prefix orders --to end --no-confirm
    """
    where = _parse(place)
    with admin_client(bootstrap_servers) as admin:
        offsets = _offsets(admin, topic, where, partitions, settings.timeout_s)
        planned = admin.delete_records(
            topic, offsets, validate_only=True, timeout=settings.timeout_s
        )
        count = sum(map(_removed, planned.values()))
        if where.kind == "time":
            say(f"records before {where} go")
        if not dry_run and not no_confirm and count:
            _print(settings, planned)
            if not confirm(f"Remove {count} records from the front of {topic}?"):
                say("nothing was removed")
                raise SystemExit(1)
        if not dry_run:
            # What was planned and asked about, and nothing that has come since.
            offsets = {partition: one.log_start_offset for partition, one in planned.items()}
            planned = admin.delete_records(topic, offsets, timeout=settings.timeout_s)
        if dry_run or no_confirm or not count:
            _print(settings, planned)
    if dry_run:
        say_dry_run()


def _parse(place: str) -> Where:
    try:
        where = parse_where(place, time.time_ns() // 1_000_000, "--to")
    except FormatError as error:
        raise click.UsageError(str(error)) from None
    if where.kind == "start":
        raise click.UsageError("--to start would remove nothing; it is the first record to keep")
    return where


def _offsets(
    admin: AdminClient, topic: str, where: Where, numbers: Sequence[int], timeout_s: float
) -> dict[int, int]:
    """The first offset to keep of each partition that is named.

    Raises:
        UnknownPartitionError: One is not there.
    """
    from mainstem.errors import UnknownPartitionError

    described = admin.describe_topic(topic, timeout=timeout_s)
    there = {one.partition: one for one in described.partitions}
    for number in numbers:
        if number not in there:
            raise UnknownPartitionError(
                f"topic {topic!r} has no partition {number}; it has {len(there)}",
                topic=topic,
                partition=number,
            )
    chosen = [there[number] for number in sorted(set(numbers)) or sorted(there)]
    if where.kind == "end":
        return {one.partition: _HIGH_WATERMARK for one in chosen}
    if where.kind == "time":
        return _at_time(admin, topic, where.number, chosen, timeout_s)
    if where.kind == "last":
        return {one.partition: max(one.high_watermark - where.number, 0) for one in chosen}
    return {one.partition: where.number for one in chosen}


def _at_time(
    admin: AdminClient,
    topic: str,
    timestamp_ms: int,
    chosen: Sequence[PartitionDescription],
    timeout_s: float,
) -> dict[int, int]:
    from mainstem.client import TopicPartition
    from mainstem.errors import MainstemError

    queries = {TopicPartition(topic, one.partition): timestamp_ms for one in chosen}
    ends = {one.partition: one.high_watermark for one in chosen}
    found: dict[int, int] = {}
    for tp, offset in admin.list_offsets(queries, timeout=timeout_s).items():
        if isinstance(offset, MainstemError):
            raise offset
        # No record is that late: all that there was a moment ago. What came since is later.
        found[tp.partition] = ends[tp.partition] if offset < 0 else offset
    return found


def _removed(one: DeletedRecords) -> int:
    return one.log_start_offset - one.log_start_offset_before


def _print(settings: Settings, trimmed: dict[int, DeletedRecords]) -> None:
    columns = ["partition", "log_start_before", "log_start", "records"]
    rows = [
        [partition, one.log_start_offset_before, one.log_start_offset, _removed(one)]
        for partition, one in sorted(trimmed.items())
    ]
    print_rows(settings, columns, rows, numbers=columns)

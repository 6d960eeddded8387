"""`mainstem topic consume`"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from mainstem.cli.completion import complete_groups, complete_topics
from mainstem.cli.context import (
    EXIT_INTERRUPTED,
    Settings,
    admin_client,
    bootstrap_servers,
    pass_settings,
    reports_errors,
    say,
)
from mainstem.cli.errors import FormatError
from mainstem.cli.help import ExampleCommand
from mainstem.cli.options import take_format
from mainstem.cli.output import Output
from mainstem.cli.topic.consume_run import ConsumeRun
from mainstem.cli.topic.record_printer import RecordPrinter, json_line, json_object
from mainstem.cli.where import Where, parse_range

if TYPE_CHECKING:
    from mainstem.client import Consumer, ConsumerRecord, TopicMetadata, TopicPartition

#: --reset, and what the consumer calls it.
_RESETS = {"start": "earliest", "end": "latest", "none": "none"}


@click.command(cls=ExampleCommand)
@click.argument(
    "topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics
)
@click.option(
    "-o",
    "--offset",
    default=None,
    metavar="WHERE",
    help="Where to begin, see above.  [default: start; with -g: what the group has committed]",
)
@click.option(
    "--reset",
    type=click.Choice(list(_RESETS)),
    help="Where to begin instead in a partition that does not have the offset; none: that is an "
    "error.  [default: none; with -g: start]",
)
@click.option("-n", "--num", type=click.IntRange(min=1), help="End after so many records.")
@click.option("-e", "--exit-eof", is_flag=True, help="End where the log ended at the start.")
@click.option(
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(min=0),
    help="Only this partition; may be repeated.  [default: all]",
)
@click.option(
    "-g",
    "--group",
    help="Read as a member of this group, and commit.",
    shell_complete=complete_groups,
)
@click.option(
    "-f",
    "--format",
    "format_text",
    metavar="FORMAT",
    help="How a record is printed, see above; or json.",
)
@click.option(
    "--pretty-print", is_flag=True, help="Print objects over several lines; implies -f json."
)
@click.option("--meta-only", is_flag=True, help="Print objects without value; implies -f json.")
@bootstrap_servers
@pass_settings
@reports_errors
def consume(
    settings: Settings,
    topics: Sequence[str],
    offset: str | None,
    reset: str | None,
    num: int | None,
    exit_eof: bool,
    partitions: Sequence[int],
    group: str | None,
    format_text: str | None,
    pretty_print: bool,
    meta_only: bool,
    bootstrap_servers: str,
) -> None:
    """Print records of topics, from their start, until you stop it.

    TOPIC is a name, or with -g a pattern that begins with ^. Values go to stdout, one a line. A
    null key or value is printed as nothing; with `--format json` each record is an object, in which
    a null is null and bytes that are not UTF-8 are {"base64": ...}: `mainstem topic produce
    --format json` reads it back. Other settings of the consumer: `-X NAME=VALUE`, see `mainstem
    config list consumer`.

    With -g, what is committed was written: synced to a file, or read by the reader of the pipe.
    What a full disk did not take, or `head` left in the pipe, comes again.

    \b
    WHERE, of each partition:
      start      its first record          N      offset N; if there is none, see --reset
      end        records that come later   -N     the last N records
      @TIME      the first record at or after TIME
      PT1H       the same, so long ago
      A:B        from A until B, which is not printed; A: and :B leave one of them out
    TIME is 2026-01-31T12:00:00Z (UTC where no zone is named), 2026-01-31, -1h (also s, m, d, w), or
    a number since 1970: 10 digits are seconds, 13 are milliseconds. A time in the future is
    refused.

    \b
    FORMAT is text with fields, as kcat has them:
      %k  key                             %p  partition
      %v  value                           %o  offset
      %t  topic                           %h  headers, name:value,name:value
      %T  timestamp, ms since 1970        %%  a percent sign
      %v{hex} %v{base64}, also of %k      \\n \\t \\r \\0 \\\\ \\xNN  bytes
    Without an end of its own, a line feed is added.

    \b
    EXAMPLES
      mainstem topic consume orders
      mainstem topic consume orders payments -o end
      mainstem topic consume orders -o -10 -e -f '%p:%o %k = %v'
      mainstem topic consume orders -o @-1h -n 100
      mainstem topic consume orders -o @2026-01-31T12:00:@2026-01-31T13:00
      mainstem topic consume orders -p 0 -o 1234 -n 1
      mainstem topic consume orders -g billing -f '%v\\n'
      mainstem topic consume orders -e --format json > orders.ndjson
      mainstem topic consume orders -o -1 -e --pretty-print
    """
    settings, format_text = take_format(settings, format_text)
    begin, end = _parse_offset(offset)
    printer = _printer(settings, format_text, pretty_print, meta_only)
    patterns = [name for name in topics if name.startswith("^")]
    if group is not None:
        if partitions:
            raise click.UsageError("-p does not go with -g: the group shares out the partitions")
        if end is not None or (begin is not None and begin.kind not in ("start", "end")):
            raise click.UsageError(
                "with -g, -o is start or end, for partitions without a committed offset"
            )
        if patterns and len(topics) > 1:
            raise click.UsageError("give topics, or one pattern that begins with ^")
    elif patterns:
        raise click.UsageError("a pattern needs -g")
    config = _config(settings, bootstrap_servers, begin, reset, group)
    from mainstem.client import Consumer

    names = " ".join(topics)
    # Ctrl-C is how this command ends: no word is needed.
    with admin_client(bootstrap_servers) as admin, Consumer(config) as consumer:
        output = Output(sys.stdout.buffer)
        run = ConsumeRun(
            consumer, admin, output, printer, num, exit_eof, {}, group, names, settings.timeout_s
        )
        try:
            if group is None:
                known = _known(consumer, topics, settings.timeout_s)
                starts, run.ends = _places(
                    consumer, _chosen(known, partitions), begin, end, exit_eof, reset
                )
                consumer.assign(starts)
            else:
                if not patterns:
                    _known(consumer, topics, settings.timeout_s)
                consumer.subscribe(
                    patterns[0] if patterns else list(topics),
                    on_revoke=lambda *_: run.store_before_revocation(),
                    on_lost=lambda *_: None,
                )
            run.run()
        except KeyboardInterrupt:
            raise SystemExit(EXIT_INTERRUPTED) from None
    if settings.verbose:
        say(f"{run.count} {'record' if run.count == 1 else 'records'} of {names}")


def _parse_offset(text: str | None) -> tuple[Where | None, Where | None]:
    if text is None:
        return None, None
    try:
        return parse_range(text, time.time_ns() // 1_000_000)
    except FormatError as error:
        raise click.UsageError(str(error)) from None


def _printer(
    settings: Settings, format_text: str | None, pretty: bool, meta_only: bool
) -> Callable[[ConsumerRecord], bytes]:
    of_objects = pretty or meta_only
    if format_text == "json" or (format_text is None and (of_objects or settings.format == "json")):
        return partial(json_object, pretty=pretty, meta_only=meta_only) if of_objects else json_line
    if of_objects:
        raise click.UsageError("--pretty-print and --meta-only are for -f json")
    try:
        return RecordPrinter(format_text or "%v")
    except FormatError as error:
        raise click.UsageError(str(error)) from None


def _config(
    settings: Settings, servers: str, begin: Where | None, reset: str | None, group: str | None
) -> dict[str, object]:
    at_end = begin is not None and begin.kind == "end"
    timeout_ms = max(1, int(settings.timeout_s * 1000))
    config: dict[str, object] = {
        "bootstrap.servers": servers,
        "client.id": "mainstem-cli",
        "auto.offset.reset": "latest" if at_end else "earliest",
        "request.timeout.ms": timeout_ms,
        "default.api.timeout.ms": timeout_ms,
    }
    if group is None and begin is not None and begin.kind == "offset":
        config["auto.offset.reset"] = "none"
    if reset is not None:
        config["auto.offset.reset"] = _RESETS[reset]
    config |= settings.flags
    if group is not None:
        # What is committed is what `ConsumeRun` stores.
        config |= {"group.id": group, "enable.auto.offset.store": False}
    return config


def _known(consumer: Consumer, topics: Sequence[str], timeout_s: float) -> dict[str, TopicMetadata]:
    """The topics by name.

    Raises:
        UnknownTopicError: One does not exist.
        TopicAuthorizationError: One may not be seen.
    """
    from mainstem.client import TopicPartition
    from mainstem.errors import UnknownTopicError

    known = consumer.list_topics(timeout_s)
    for topic in topics:
        if topic not in known:
            with contextlib.suppress(UnknownTopicError):
                consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout_s)
            raise UnknownTopicError(
                f"there is no topic {topic!r}; see `mainstem topic list`", topic=topic
            )
    return {topic: known[topic] for topic in topics}


def _chosen(known: dict[str, TopicMetadata], partitions: Sequence[int]) -> list[TopicPartition]:
    """The partitions that are named, of each topic; all where none is."""
    from mainstem.client import TopicPartition
    from mainstem.errors import UnknownPartitionError

    for topic, one in known.items():
        for number in partitions:
            if number >= one.partition_count:
                raise UnknownPartitionError(
                    f"topic {topic} has no partition {number}; it has partitions 0 to "
                    f"{one.partition_count - 1}",
                    topic=topic,
                    partition=number,
                )
    return [
        TopicPartition(topic, number)
        for topic, one in known.items()
        for number in sorted(set(partitions)) or range(one.partition_count)
    ]


def _places(
    consumer: Consumer,
    tps: Sequence[TopicPartition],
    begin: Where | None,
    end: Where | None,
    exit_eof: bool,
    reset: str | None,
) -> tuple[list[TopicPartition], dict[TopicPartition, int]]:
    """Where each partition begins, and where it ends if it does.

    Raises:
        OffsetOutOfRangeError: A partition does not have the offset, and nothing says what then.
    """
    from mainstem.client import OFFSET_BEGINNING, OFFSET_END, TopicPartition

    begin = begin or Where("start")
    marks: dict[TopicPartition, tuple[int, int]] = {}
    if exit_eof or end is not None or begin.kind in ("last", "offset"):
        marks = {tp: consumer.get_watermark_offsets(tp) for tp in tps}
    ends = _ends(consumer, marks, end, exit_eof)
    match begin.kind:
        case "time":
            found = _at_time(consumer, tps, begin.number)
            starts = [found[tp] for tp in tps]
        case "last":
            starts = [max(low, high - begin.number) for low, high in marks.values()]
        case "offset":
            starts = [begin.number] * len(tps)
            if reset in (None, "none"):
                _check(marks, begin.number)
        case "end":
            starts = [ends.get(tp, OFFSET_END) for tp in tps]
        case _:
            starts = [OFFSET_BEGINNING] * len(tps)
    return [
        TopicPartition(tp.topic, tp.partition, start) for tp, start in zip(tps, starts, strict=True)
    ], ends


def _ends(
    consumer: Consumer,
    marks: dict[TopicPartition, tuple[int, int]],
    end: Where | None,
    exit_eof: bool,
) -> dict[TopicPartition, int]:
    """One past the last record to print, of each partition; empty: there is no end."""
    highs = {tp: high for tp, (_, high) in marks.items()}
    if end is None:
        return highs if exit_eof else {}
    match end.kind:
        case "start":
            ends = {tp: low for tp, (low, _) in marks.items()}
        case "offset":
            ends = dict.fromkeys(marks, end.number)
        case "last":
            ends = {tp: max(low, high - end.number) for tp, (low, high) in marks.items()}
        case "time":
            # No record is that late: all that are there now were before it.
            found = _at_time(consumer, list(marks), end.number)
            ends = {tp: at if at >= 0 else highs[tp] for tp, at in found.items()}
        case _:
            ends = highs
    if exit_eof:
        ends = {tp: min(at, highs[tp]) for tp, at in ends.items()}
    return ends


def _at_time(
    consumer: Consumer, tps: Sequence[TopicPartition], time_ms: int
) -> dict[TopicPartition, int]:
    from mainstem.client import TopicPartition

    asked = [TopicPartition(tp.topic, tp.partition, time_ms) for tp in tps]
    return {tp: tp.offset for tp in consumer.offsets_for_times(asked)}


def _check(marks: dict[TopicPartition, tuple[int, int]], offset: int) -> None:
    from mainstem.errors import OffsetOutOfRangeError

    for tp, (low, high) in marks.items():
        if not low <= offset <= high:
            raise OffsetOutOfRangeError(
                f"{tp.topic}-{tp.partition} has no offset {offset}: its log begins at {low} and "
                f"ends at {high}; name a partition with -p, or say where to begin then with "
                "--reset start or --reset end",
                topic=tp.topic,
                partition=tp.partition,
                offset=offset,
                log_start_offset=low,
                high_watermark=high,
            )

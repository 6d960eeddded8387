"""`mainstem topic consume`"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from mainstem.cli._context import (
    Settings,
    bootstrap_servers,
    pass_settings,
    reports_errors,
    say,
)
from mainstem.cli._help import ExampleCommand
from mainstem.cli._record_format import FormatError, unescape

if TYPE_CHECKING:
    from mainstem.client import Consumer, ConsumerRecord, TopicPartition

#: Records that are taken at a time: few enough to stay off the garbage collector.
_RECORDS_AT_ONCE: Final = 500

#: How long a wait lasts before the end is looked for again.
_WAIT_S: Final = 0.1

_Field = Callable[["ConsumerRecord"], bytes]


@click.command(cls=ExampleCommand)
@click.argument("topic")
@click.option(
    "-o",
    "--offset",
    default=None,
    metavar="WHERE",
    help="Where to begin, see above.  [default: start; with -g: what the group has committed]",
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
@click.option("-g", "--group", help="Read as a member of this group, and commit.")
@click.option(
    "-f", "--format", "format_text", metavar="FORMAT", help="How a record is printed, see above."
)
@bootstrap_servers
@pass_settings
@reports_errors
def consume(
    settings: Settings,
    topic: str,
    offset: str | None,
    num: int | None,
    exit_eof: bool,
    partitions: Sequence[int],
    group: str | None,
    format_text: str | None,
    bootstrap_servers: str,
) -> None:
    """Print records of a topic, from its start, until you stop it.

    TOPIC is a name, or with -g a pattern that begins with ^. Values go to stdout, one a line. A
    null key or value is printed as nothing; with `--format json` before `topic`, each record is an
    object, in which a null is null. Other settings of the consumer: `-X NAME=VALUE` before `topic`,
    see `mainstem config list consumer`.

    \b
    WHERE, of each partition:
      start      its first record          N      offset N
      end        records that come later   -N     the last N records
      @TIME      the first record at or after TIME: ms since 1970, or 2026-01-31T12:00:00Z

    \b
    FORMAT is text with fields:
      %k  key                        %p  partition
      %v  value                      %o  offset
      %t  timestamp, ms since 1970   %h  headers, name:value,name:value
      %T  topic                      %%  a percent sign
      \\n \\t \\r \\0 \\\\ \\xNN  bytes
    Without an end of its own, a line feed is added.

    \b
    EXAMPLES
      mainstem topic consume orders
      mainstem topic consume orders -o end
      mainstem topic consume orders -o -10 -e -f '%p:%o %k = %v'
      mainstem topic consume orders -o @2026-01-31T12:00:00Z -n 100
      mainstem topic consume orders -p 0 -o 1234 -n 1
      mainstem topic consume orders -g billing -f '%v\\n'
      mainstem --format json topic consume orders -e > orders.ndjson
    """
    try:
        where = parse_where(offset) if offset is not None else None
        printer = json_line if settings.format == "json" else RecordPrinter(format_text or "%v")
    except FormatError as error:
        raise click.UsageError(str(error)) from None
    if group is not None:
        if partitions:
            raise click.UsageError("-p does not go with -g: the group shares out the partitions")
        if where is not None and where.kind not in ("start", "end"):
            raise click.UsageError(
                "with -g, -o is start or end, for partitions without a committed offset"
            )
    elif topic.startswith("^"):
        raise click.UsageError("a pattern needs -g")
    _run(settings, bootstrap_servers, topic, where, num, exit_eof, partitions, group, printer)


def _run(
    settings: Settings,
    servers: str,
    topic: str,
    where: Where | None,
    num: int | None,
    exit_eof: bool,
    partitions: Sequence[int],
    group: str | None,
    printer: Callable[[ConsumerRecord], bytes],
) -> None:
    from mainstem.client import Consumer

    config: dict[str, object] = {
        "bootstrap.servers": servers,
        "client.id": "mainstem-cli",
        "auto.offset.reset": "latest" if where is not None and where.kind == "end" else "earliest",
        "request.timeout.ms": max(1, int(settings.timeout_s * 1000)),
        "default.api.timeout.ms": max(1, int(settings.timeout_s * 1000)),
    }
    if group is not None:
        config["group.id"] = group
    with Consumer({**config, **settings.flags}) as consumer:
        ends: dict[TopicPartition, int] = {}
        if group is not None:
            consumer.subscribe(topic)
        else:
            starts, ends = _places(consumer, settings, topic, partitions, where, exit_eof)
            consumer.assign(starts)
        count = _print(consumer, sys.stdout.buffer, printer, num, exit_eof, ends, bool(group))
    if settings.verbose:
        say(f"{count} {'record' if count == 1 else 'records'} of {topic}")


def _places(
    consumer: Consumer,
    settings: Settings,
    topic: str,
    partitions: Sequence[int],
    where: Where | None,
    exit_eof: bool,
) -> tuple[list[TopicPartition], dict[TopicPartition, int]]:
    """Where each partition begins, and with -e where it ends."""
    from mainstem.client import OFFSET_BEGINNING, OFFSET_END, TopicPartition
    from mainstem.errors import UnknownPartitionError, UnknownTopicError

    known = consumer.list_topics(settings.timeout_s).get(topic)
    if known is None:
        raise UnknownTopicError(f"topic {topic} does not exist", topic=topic)
    for number in partitions:
        if number >= known.partition_count:
            raise UnknownPartitionError(
                f"topic {topic} has no partition {number}; it has partitions 0 to "
                f"{known.partition_count - 1}",
                topic=topic,
                partition=number,
            )
    numbers = sorted(set(partitions)) or range(known.partition_count)
    tps = [TopicPartition(topic, number) for number in numbers]
    where = where or Where("start")
    marks: dict[TopicPartition, tuple[int, int]] = {}
    if exit_eof or where.kind == "last":
        marks = {tp: consumer.get_watermark_offsets(tp) for tp in tps}
    ends = {tp: high for tp, (_, high) in marks.items()} if exit_eof else {}
    match where.kind:
        case "time":
            asked = [TopicPartition(tp.topic, tp.partition, where.number) for tp in tps]
            return consumer.offsets_for_times(asked), ends
        case "last":
            starts = [max(low, high - where.number) for low, high in marks.values()]
        case "offset":
            starts = [where.number] * len(tps)
        case "end":
            starts = [ends.get(tp, OFFSET_END) for tp in tps]
        case _:
            starts = [OFFSET_BEGINNING] * len(tps)
    return [
        TopicPartition(tp.topic, tp.partition, start) for tp, start in zip(tps, starts, strict=True)
    ], ends


def _print(
    consumer: Consumer,
    stream: BinaryIO,
    printer: Callable[[ConsumerRecord], bytes],
    num: int | None,
    exit_eof: bool,
    ends: dict[TopicPartition, int],
    in_group: bool,
) -> int:
    """Prints records until the end that was asked for; returns how many."""
    count = 0
    try:
        while num is None or count < num:
            limit = _RECORDS_AT_ONCE if num is None else min(_RECORDS_AT_ONCE, num - count)
            if consumer.wait_ready(_WAIT_S):
                records = consumer.take_ready_many(limit)
                if ends:
                    records = [record for record in records if _before_end(record, ends)]
                stream.write(b"".join(map(printer, records)))
                stream.flush()
                count += len(records)
            if exit_eof and _at_end(consumer, ends, in_group):
                break
    except BrokenPipeError:
        # The reader of our output has enough. Nothing more may be written, not even at exit.
        sys.stdout = open("/dev/null", "w")  # noqa: SIM115
    return count


def _before_end(record: ConsumerRecord, ends: dict[TopicPartition, int]) -> bool:
    from mainstem.client import TopicPartition

    return record.offset < ends[TopicPartition(record.topic, record.partition)]


def _at_end(consumer: Consumer, ends: dict[TopicPartition, int], in_group: bool) -> bool:
    assigned = consumer.assignment()
    if not assigned:
        return not in_group
    if in_group:
        # What the others read is their business; this member's own partitions count.
        for tp in assigned:
            if tp not in ends:
                ends[tp] = consumer.get_watermark_offsets(tp)[1]
    return all(tp.offset >= ends[tp] for tp in consumer.position(assigned))


# -- formats ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Where:
    """What -o says. `kind`: start, end, offset, last or time; `number` of the last three."""

    kind: str
    number: int = 0


def parse_where(text: str) -> Where:
    """Reads -o.

    Raises:
        FormatError: It means nothing.
    """
    from mainstem.records import parse_timestamp_ms

    if text in ("start", "beginning", "earliest"):
        return Where("start")
    if text in ("end", "latest"):
        return Where("end")
    if re.fullmatch(r"\d+", text):
        return Where("offset", int(text))
    if re.fullmatch(r"-\d+", text):
        return Where("last", int(text[1:]))
    if text.startswith("@"):
        if re.fullmatch(r"@\d+", text):
            return Where("time", int(text[1:]))
        try:
            return Where("time", max(0, parse_timestamp_ms(text[1:])))
        except ValueError:
            pass
    raise FormatError(
        f"-o is {text!r}; it must be start, end, an offset, -N for the last N records, or @TIME "
        "(ms since 1970, or 2026-01-31T12:00:00Z)"
    )


_FIELDS: Final[dict[str, _Field]] = {
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
    "t": lambda record: b"%d" % record.timestamp,
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: record.topic.encode(),
    "h": lambda record: b",".join(
        name.encode() if value is None else name.encode() + b":" + value
        for name, value in record.headers
    ),
}


class RecordPrinter:
    """A format such as `%p:%o %v`; see `mainstem topic consume --help`.

    Raises:
        FormatError: An unknown field.
    """

    def __init__(self, text: str) -> None:
        self._parts: list[bytes | _Field] = []
        for piece in re.split(r"(%.?)", text, flags=re.DOTALL):
            if piece == "%%":
                self._parts.append(b"%")
            elif piece.startswith("%"):
                field = _FIELDS.get(piece[1:])
                if field is None:
                    raise FormatError(
                        f"{piece!r} is no field; there are %k %v %t %p %o %h %T, and %%"
                    )
                self._parts.append(field)
            elif piece:
                self._parts.append(unescape(piece))
        last = self._parts[-1] if self._parts else b""
        if not isinstance(last, bytes) or not last.endswith((b"\n", b"\r", b"\0")):
            self._parts.append(b"\n")

    def __call__(self, record: ConsumerRecord) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record) for part in self._parts)


def json_line(record: ConsumerRecord) -> bytes:
    """A record as one JSON object; what is no UTF-8 becomes replacement characters."""
    return (
        json.dumps(
            {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": _text(record.key),
                "value": _text(record.value),
                "headers": [[name, _text(value)] for name, value in record.headers],
            },
            ensure_ascii=False,
        ).encode()
        + b"\n"
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")

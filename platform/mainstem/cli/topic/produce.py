"""`mainstem topic produce`"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import click

from mainstem.cli.completion import complete_topics
from mainstem.cli.context import (
    Settings,
    bootstrap_servers,
    pass_settings,
    print_object,
    reports_errors,
    say,
)
from mainstem.cli.errors import FormatError
from mainstem.cli.help import ExampleCommand
from mainstem.cli.options import given_on_the_command_line, refuse_transactions, take_format
from mainstem.cli.output import OutputError
from mainstem.cli.topic.record_reader import (
    InputRecord,
    JsonFormat,
    KeyDelimiterFormat,
    RecordFormat,
    parse_header,
)
from mainstem.cli.without_pandas import leave_pandas_out
from mainstem.limits import MIB

if TYPE_CHECKING:
    from mainstem.client import Producer, RecordMetadata
    from mainstem.errors import MainstemError

_READ_BYTES: Final = 64 * 1024

#: An input without delimiters must not fill the memory; a request takes half of that by default.
_RECORD_BYTES_MAX: Final = 16 * MIB

#: How often reports are looked for while the input is silent.
_IDLE_S: Final = 0.1

#: Failures that are printed one by one; the rest is counted.
_FAILURES_SHOWN_MAX: Final = 10


_INPUT: Final = click.Path(exists=True, dir_okay=False, allow_dash=True)


@click.command(cls=ExampleCommand)
@click.argument("topic", shell_complete=complete_topics)
@click.argument(
    "files",
    nargs=-1,
    metavar="[FILE]...",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
)
@click.option("-k", "--key", help="The key of every record.")
@click.option(
    "-K",
    "--key-delimiter",
    metavar="DELIM",
    help="Each line is key, DELIM, value. A line without DELIM has a null key.",
)
@click.option(
    "-f",
    "--format",
    "format_text",
    metavar="FORMAT",
    help="How a record is written, see above; or json.",
)
@click.option(
    "-H",
    "--header",
    "header_texts",
    multiple=True,
    metavar="NAME:VALUE",
    help="A header of every record; may be repeated. NAME alone has a null value.",
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(min=0),
    help="Where every record goes.  [default: by key, sticky without one]",
)
@click.option("-Z", "--tombstone", is_flag=True, help="An empty value is null.")
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all", "-1"]),
    help="When a record counts as delivered.  [default: all]",
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "lz4", "zstd", "gzip"]),
    help="How requests are compressed on their way.  [default: none]",
)
@click.option("-v", "--verbose", is_flag=True, help="Print where each record went.")
@bootstrap_servers
@pass_settings
@reports_errors
def produce(
    settings: Settings,
    topic: str,
    files: Sequence[str],
    key: str | None,
    key_delimiter: str | None,
    format_text: str | None,
    header_texts: Sequence[str],
    partition: int | None,
    tombstone: bool,
    acks: str | None,
    compression: str | None,
    verbose: bool,
    bootstrap_servers: str,
) -> None:
    """Send records from files, or from stdin, to a topic, one a line.

    FILEs are read one after the other; `-` is stdin, and so is no FILE. Records are sent while the
    input is read. Every one that is not delivered within `--timeout` is a failure; then the exit
    code is 1. Other settings of the producer: `-X NAME=VALUE`, see `mainstem config list producer`.

    With `--format json` a line is an object as `topic consume --format json` prints it, with its
    key, value, headers, timestamp and partition (without "partition", the key decides).

    \b
    FORMAT is text with fields; a field ends where the text after it begins:
      %k  key                        %p  partition
      %v  value                      %h  headers, name:value,name:value
      %T  timestamp, ms since 1970   %%  a percent sign
      \\n \\t \\r \\0 \\\\ \\xNN  bytes
    What follows the last field ends a record; by default a line feed. An input of several lines in
    which it never comes is refused.

    \b
    EXAMPLES
      echo hello | mainstem topic produce greetings
      mainstem topic produce orders january.ndjson february.ndjson
      mainstem topic produce orders -k customer-7 -H source:import < orders.ndjson
      mainstem topic produce orders -K : -v < lines-of-key-colon-value.txt
      mainstem topic produce orders -f '%T %k %v\\n' < lines.txt
      printf 'a\\0b\\0' | mainstem topic produce orders -f '%v\\0'
      echo customer-7: | mainstem topic produce orders -K : -Z
      mainstem topic produce orders -X linger.ms=100 -b 10.0.0.1:9490 -z lz4 < big.txt
      mainstem topic consume orders -e --format json | mainstem topic produce copy --format json
    """
    settings, format_text = take_format(settings, format_text)
    if format_text is None and key_delimiter is None and settings.format == "json":
        # What the environment or a profile says is how the report is printed.
        format_text = "json" if given_on_the_command_line("format_") else None
    try:
        record_format = _record_format(key, key_delimiter, format_text, partition)
        headers = tuple(parse_header(text) for text in header_texts)
    except FormatError as error:
        raise click.UsageError(str(error)) from None
    config = _producer_config(settings, bootstrap_servers, acks, compression)
    given = InputRecord(
        value=None,
        key=None if key is None else key.encode(),
        partition=-1 if partition is None else partition,
        headers=headers,
    )
    report = _Report(settings, topic, verbose or settings.verbose)
    _send_all(topic, files or ["-"], config, record_format, given, tombstone, report)
    report.summarise()
    if report.failed_count:
        raise SystemExit(1)
    if report.broken is not None:
        raise report.broken


def split_records(
    stream: BinaryIO, delimiter: bytes, idle: Callable[[], object] = lambda: None
) -> Iterator[bytes]:
    """The pieces of a stream between delimiters, each as soon as it is there.

    Args:
        idle: Called now and then while the stream is silent, if it can be waited for.

    Raises:
        FormatError: A piece is too long to be a record, the input has lines but never the
            delimiter, or it cannot be read.
    """
    read = getattr(stream, "read1", stream.read)
    rest = b""
    seen = False
    while True:
        while not _becomes_readable(stream, _IDLE_S):
            idle()
        try:
            chunk = read(_READ_BYTES)
        except OSError as error:
            raise FormatError(f"the input cannot be read: {error.strerror or error}") from None
        if not chunk:
            break
        *pieces, rest = (rest + chunk).split(delimiter)
        seen = seen or bool(pieces)
        yield from pieces
        if len(rest) > _RECORD_BYTES_MAX:
            raise FormatError(
                f"{len(rest)} bytes of input have no delimiter {delimiter!r}; "
                "is it the right format?"
            )
    if not seen and rest.count(b"\n") > 1:
        raise FormatError(
            f"the input has {rest.count(chr(10).encode())} lines and never the delimiter "
            f"{delimiter!r}: all of it would be one record; is it the right format?"
        )
    if rest:
        yield rest


@dataclass(slots=True)
class _Report:
    """What became of the records, printed as it is known."""

    settings: Settings
    topic: str
    verbose: bool
    read_count: int = 0
    #: Of the record that was read last, for messages.
    place: str = ""
    delivered_count: int = 0
    failed_count: int = 0
    #: Why no more of it is printed. The records are what matters: all of them are sent still.
    broken: OutputError | None = None

    def delivered(self, error: MainstemError | None, where: RecordMetadata) -> None:
        """Called for each record that has ended."""
        if error is not None:
            self.failed(f"a record for partition {where.partition}", error.code, error.message)
            return
        self.delivered_count += 1
        if not self.verbose or self.broken is not None:
            return
        try:
            self._print(where)
        except OutputError as broken:
            self.broken = broken

    def _print(self, where: RecordMetadata) -> None:
        if self.settings.format == "json":
            print_object(self.settings, where._asdict())
        elif where.offset < 0:
            click.echo(f"partition {where.partition}  sent, not acknowledged (acks=0)")
        else:
            click.echo(
                f"partition {where.partition}  offset {where.offset}  "
                f"timestamp {where.timestamp}  table version {where.table_version}"
            )

    def failed(self, what: str, code: str, message: str) -> None:
        """Counts a failure, and prints it while there are few."""
        self.failed_count += 1
        if self.failed_count <= _FAILURES_SHOWN_MAX:
            say(f"{what}: {code}: {message}")

    def summarise(self) -> None:
        """The last words."""
        if self.failed_count > _FAILURES_SHOWN_MAX:
            say(f"... and {self.failed_count - _FAILURES_SHOWN_MAX} more failures")
        if self.settings.format == "json" and not self.verbose:
            counts = {"delivered": self.delivered_count, "failed": self.failed_count}
            print_object(self.settings, {"topic": self.topic, **counts})
        records = "record" if self.delivered_count == 1 else "records"
        failed = f", {self.failed_count} failed" if self.failed_count else ""
        say(f"{self.delivered_count} {records} to {self.topic}{failed}")


def _send_all(
    topic: str,
    files: Sequence[str],
    config: dict[str, object],
    record_format: RecordFormat | KeyDelimiterFormat | JsonFormat,
    given: InputRecord,
    tombstone: bool,
    report: _Report,
) -> None:
    leave_pandas_out()
    from mainstem.client import Producer

    with Producer(config) as producer:
        producer.partitions_for(topic)  # an unknown topic is told before any input is read
        for name in files:
            where = "record" if len(files) == 1 else f"{name}: record"
            first = report.read_count
            try:
                with click.open_file(name, "rb") as opened:
                    stream = cast("BinaryIO", opened)
                    for piece in split_records(
                        stream, record_format.delimiter, lambda: producer.poll(0)
                    ):
                        report.read_count += 1
                        report.place = f"{where} {report.read_count - first}"
                        try:
                            record = record_format.parse(piece)
                        except FormatError as error:
                            report.failed(report.place, "INVALID_RECORD", str(error))
                            continue
                        _send(producer, topic, record, given, tombstone, report)
                        producer.poll(0)
            except FormatError as error:
                where = f"{where} {report.read_count - first + 1}"
                report.failed(where, "INVALID_RECORD", str(error))
            except OSError as error:
                report.failed(name, "INVALID_RECORD", f"cannot be read: {error.strerror or error}")
        producer.flush()


def _send(
    producer: Producer,
    topic: str,
    record: InputRecord,
    given: InputRecord,
    tombstone: bool,
    report: _Report,
) -> None:
    from mainstem.errors import MainstemError, QueueFullError

    value = None if tombstone and not record.value else record.value
    while True:
        try:
            producer.produce(
                topic,
                value,
                record.key if given.key is None else given.key,
                given.partition if given.partition != -1 else record.partition,
                report.delivered,
                record.timestamp_ms,
                [*given.headers, *record.headers],
            )
        except QueueFullError as error:
            # Reports that nobody has served count as well: serving them may be all that it takes.
            if producer.poll(0) == 0:
                report.failed(report.place, error.code, error.message)
                return
        except MainstemError as error:
            report.failed(report.place, error.code, error.message)
            return
        else:
            return


def _record_format(
    key: str | None, key_delimiter: str | None, format_text: str | None, partition: int | None
) -> RecordFormat | KeyDelimiterFormat | JsonFormat:
    if key_delimiter is not None and format_text is not None:
        raise click.UsageError("-K and -f both say how a line is read; give one of them")
    record_format: RecordFormat | KeyDelimiterFormat | JsonFormat
    if key_delimiter is not None:
        record_format = KeyDelimiterFormat(key_delimiter)
    elif format_text == "json":
        record_format = JsonFormat()
    else:
        record_format = RecordFormat(format_text or "%v\\n")
    if key is not None and "key" in record_format.fields:
        raise click.UsageError("-k gives every record a key, and so does the input; give one")
    is_json = isinstance(record_format, JsonFormat)  # -p sends all of a dump to one partition
    if partition is not None and "partition" in record_format.fields and not is_json:
        raise click.UsageError("-p gives every record a partition, and so does %p; give one")
    return record_format


def _producer_config(
    settings: Settings, servers: str, acks: str | None, compression: str | None
) -> dict[str, object]:
    refuse_transactions(settings)
    timeout_ms = max(1, int(settings.timeout_s * 1000))
    linger_ms = settings.flags.get("linger.ms", "5")
    config: dict[str, object] = {
        "bootstrap.servers": servers,
        "client.id": "mainstem-cli",
        "request.timeout.ms": timeout_ms,
        "max.block.ms": timeout_ms,
    }
    with contextlib.suppress(ValueError):  # the producer says what is wrong with it
        config["delivery.timeout.ms"] = timeout_ms + int(linger_ms)
    if acks is not None:
        config["acks"] = acks
    if compression is not None:
        config["compression.type"] = compression
    return {**config, **settings.flags}


def _becomes_readable(stream: BinaryIO, timeout_s: float) -> bool:
    """Whether there is something to read, or the end; True as well where that cannot be known."""
    try:
        number = stream.fileno()
    except (OSError, AttributeError):
        return True
    return bool(select.select([number], [], [], timeout_s)[0])

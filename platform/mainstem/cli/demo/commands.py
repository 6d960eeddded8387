"""`mainstem demo`: 336,776 real flights through gateway, Delta table, Spark stream and SQL."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from mainstem.cli.context import (
    Settings,
    err,
    fail,
    out,
    pass_settings,
    print_object,
    reports_errors,
)
from mainstem.cli.help import ExampleCommand
from mainstem.cli.warehouse import warehouse_place
from mainstem.errors import MainstemError, StoreUnavailableError

if TYPE_CHECKING:
    import pyarrow as pa

    from mainstem.cli.demo.secured import SecuredDemo
    from mainstem.client import Producer, RecordMetadata, TopicDescription
    from mainstem.delta_log.store import CloudPrefix, LocalDirectory, Warehouse
    from mainstem.jobs.flights_demo import FlightsDemo

PARTITIONS: Final = 6

#: Marks a warehouse as the demo's own, which the next demo may replace.
_MARK: Final = ".mainstem-demo"

#: One in this many records is timed from `send` to its acknowledgement.
_SAMPLE_EVERY: Final = 200

#: The stream gets this long, after the last record was acknowledged, to finish what is there.
_STREAM_TIMEOUT_S: Final = 180.0


@dataclass(slots=True)
class _Report:
    """What the demo did, for the summary."""

    seconds: dict[str, float] = field(default_factory=dict)
    checks: list[tuple[str, bool, str]] = field(default_factory=list)
    record_count: int = 0
    record_bytes: int = 0
    stored_bytes: int = 0
    commit_count: int = 0
    ack_ms: list[float] = field(default_factory=list)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Times a step and says that it goes on."""
        err.print(f"[bold]•[/] {name}")
        started = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - started

    def check(self, what: str, expected: object, found: object) -> None:
        """Notes whether a check holds."""
        self.checks.append(
            (
                what,
                expected == found,
                f"{found}" if expected == found else f"{found}, not {expected}",
            )
        )


@click.command(cls=ExampleCommand)
@click.option(
    "--warehouse",
    metavar="DIR",
    default="mainstem-demo",
    help="Where the tables go, a directory or such as s3://bucket/demo; an earlier demo's are "
    "replaced.  [default: ./mainstem-demo]",
)
@click.option(
    "--secure",
    is_flag=True,
    help="With TLS, passwords and access control lists: certificates and users are made for it.",
)
@pass_settings
@reports_errors
def demo(settings: Settings, warehouse: str, *, secure: bool) -> None:
    """Send the 336,776 flights that left New York in 2013 through mainstem.

    Starts a gateway on a warehouse of its own, produces flights and weather over gRPC with acks=all
    while a Spark stream counts them, queries the topics' tables with SQL, and compares all of it
    with the file. The tables stay; Ctrl-C removes them. Exit code 1 if a check fails.

    \b
    EXAMPLES
      mainstem demo
      mainstem demo --warehouse /tmp/flights
      mainstem demo --secure
      mainstem demo --warehouse s3://lake/demo
      mainstem demo --format json
    """
    from mainstem.cli.demo.data import read_flights, read_weather
    from mainstem.delta_log.store import CloudPrefix
    from mainstem.jobs.flights_demo import FlightsDemo
    from mainstem.testing import GatewayProcess

    place = warehouse_place(settings, warehouse)
    _prepare(place)
    report = _Report()
    try:
        with contextlib.ExitStack() as stack:
            with report.step("read the files"):
                flights, weather = read_flights(), read_weather()
            with report.step("start a gateway"):
                gateway_settings: dict[str, object] = {}
                secured = _secured(stack, place) if secure else None
                if secured is not None:
                    gateway_settings |= secured.gateway_settings()
                if isinstance(place, CloudPrefix):
                    gateway_settings |= place.settings.given()
                    gateway_settings["gateway.id"] = "demo"
                gateway = stack.enter_context(GatewayProcess(place.uri, settings=gateway_settings))
            with report.step("start Spark"):
                spark = stack.enter_context(FlightsDemo(place))
            _run(report, spark, gateway.address, flights, weather, secured)
    except BaseException as error:
        _remove(place)
        if _was_interrupted(error):
            raise click.Abort from None
        raise
    _print_report(settings, report, place.uri)
    if not all(holds for _, holds, _ in report.checks):
        fail("a check failed, see above; the tables were kept for inspection")


def _secured(stack: contextlib.ExitStack, place: LocalDirectory | CloudPrefix) -> SecuredDemo:
    from mainstem.cli.demo.secured import SecuredDemo

    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mainstem-demo-"))
    return SecuredDemo.make(Path(folder), place)


def _run(
    report: _Report,
    spark: FlightsDemo,
    address: str,
    flights: pa.Table,
    weather: pa.Table,
    secured: SecuredDemo | None,
) -> None:
    from mainstem.cli.demo.data import totals_by_carrier_and_day
    from mainstem.cli.demo.secured import ADMIN, PRODUCER, producer_rules
    from mainstem.client import AdminClient, Producer

    servers: dict[str, object] = {"bootstrap.servers": address}
    administrating = producing = servers
    if secured is not None:
        administrating = servers | secured.client_settings(ADMIN)
        producing = servers | secured.client_settings(PRODUCER)
    with AdminClient(administrating) as admin, Producer(producing) as producer:
        with report.step("create the topics and start the stream"):
            admin.create_topic("flights", PARTITIONS)
            admin.create_topic("weather", PARTITIONS)
            if secured is not None:
                admin.create_acls(producer_rules(("flights", "weather")))
            spark.start_stream()
        _produce_and_stream(report, producer, spark, flights, weather)
        with report.step("compare the stream with the file"):
            equal = totals_by_carrier_and_day(flights) == spark.stream_totals()
            report.check(
                "the stream's totals per carrier and day, against the file's",
                "equal",
                "equal" if equal else "different",
            )
        with report.step("query the tables with SQL"):
            for topic, rows in (("flights", flights.num_rows), ("weather", weather.num_rows)):
                found = spark.check_topic(topic)
                report.check(f"{topic}: every record is a row", rows, found.record_count)
                report.check(f"{topic}: gaps in the offsets", 0, found.gaps)
                report.check(f"{topic}: records out of order", 0, found.disordered_records)
            top = spark.busiest_carriers()
        if secured is not None:
            with report.step("see that others are kept out"):
                _check_strangers(report, address, secured)
        _describe(report, [admin.describe_topic(topic) for topic in ("flights", "weather")])
    err.print()
    table = Table(
        "CARRIER", "FLIGHTS", "MEAN DELAY (MIN)", box=None, title="the busiest carriers, by SQL"
    )
    for carrier, count, delay in top:
        table.add_row(carrier, f"{count:,}", f"{delay:.1f}")
    err.print(table)


def _check_strangers(report: _Report, address: str, secured: SecuredDemo) -> None:
    """Without a password, with one and no rule, and with the right to write only."""
    from mainstem.cli.demo.secured import PRODUCER, STRANGER
    from mainstem.client import AdminClient

    stranger = secured.client_settings(STRANGER)
    nobody = {"security.protocol": "ssl", "ssl.ca.location": stranger["ssl.ca.location"]}
    for who, config, expected in (
        ("who has no password", nobody, "SASL_AUTHENTICATION_FAILED"),
        ("who has no rule", stranger, "TOPIC_AUTHORIZATION_FAILED"),
        (
            "who may only write",
            secured.client_settings(PRODUCER),
            "TOPIC_AUTHORIZATION_FAILED",
        ),
    ):
        found = "done"
        try:
            with AdminClient({"bootstrap.servers": address, **config}) as admin:
                admin.delete_topic("flights")
        except MainstemError as error:
            found = error.code
        report.check(f"{who} deletes a topic", expected, found)


def _produce_and_stream(
    report: _Report, producer: Producer, spark: FlightsDemo, flights: pa.Table, weather: pa.Table
) -> None:
    with _progress() as progress:
        sent_bar = progress.add_task(
            "produced and acknowledged", total=flights.num_rows + weather.num_rows
        )
        stream_bar = progress.add_task("counted by the Spark stream", total=flights.num_rows)
        with report.step("produce over gRPC, acks=all"):
            produced = 0
            for topic, table, key in (
                ("weather", weather, "origin"),
                ("flights", flights, "carrier"),
            ):
                produced = _produce(
                    report, producer, topic, table, key, progress, sent_bar, produced
                )
            if producer.flush(60.0):
                fail("60 s after the last record, not all were acknowledged")
            progress.update(sent_bar, completed=produced)
        with report.step("let the stream finish"):
            deadline = time.monotonic() + _STREAM_TIMEOUT_S
            while (streamed := spark.streamed_rows()) < flights.num_rows:
                if time.monotonic() > deadline:
                    fail(f"the stream stopped at {streamed:,} of {flights.num_rows:,} records")
                progress.update(stream_bar, completed=streamed)
                time.sleep(0.2)
            progress.update(stream_bar, completed=streamed)


def _produce(
    report: _Report,
    producer: Producer,
    topic: str,
    table: pa.Table,
    key: str,
    progress: Progress,
    bar: TaskID,
    produced: int,
) -> int:
    """Produces a table's rows; returns how many records were produced in all."""
    from mainstem.cli.demo.data import records

    for number, record in enumerate(records(table, key)):
        if number % _SAMPLE_EVERY:
            producer.produce(topic, record.value, key=record.key, timestamp=record.timestamp_ms)
        else:
            sent = producer.send(topic, record.value, key=record.key, timestamp=record.timestamp_ms)
            sent.add_done_callback(_timer(report, time.monotonic()))
            progress.update(bar, completed=produced - len(producer))
        produced += 1
        report.record_bytes += len(record.key) + len(record.value)
    report.record_count = produced
    return produced


def _timer(report: _Report, sent_at: float) -> Callable[[Future[RecordMetadata]], None]:
    def done(future: Future[RecordMetadata]) -> None:
        if future.exception() is None:
            report.ack_ms.append((time.monotonic() - sent_at) * 1000)

    return done


def _describe(report: _Report, topics: list[TopicDescription]) -> None:
    for topic in topics:
        report.stored_bytes += sum(partition.size_bytes for partition in topic.partitions)
        report.commit_count += topic.table_version


def _print_report(settings: Settings, report: _Report, warehouse: str) -> None:
    seconds = report.seconds["produce over gRPC, acks=all"]
    quantiles = statistics.quantiles(report.ack_ms, n=100)
    figures = {
        "records": report.record_count,
        "records_per_second": round(report.record_count / seconds),
        "megabytes_in": round(report.record_bytes / 1e6, 1),
        "megabytes_per_second": round(report.record_bytes / 1e6 / seconds, 1),
        "megabytes_on_disk": round(report.stored_bytes / 1e6, 1),
        "ack_p50_ms": round(quantiles[49], 1),
        "ack_p99_ms": round(quantiles[98], 1),
        "table_commits": report.commit_count,
    }
    if settings.format == "json":
        checks = {what: holds for what, holds, _ in report.checks}
        steps = {name: round(value, 2) for name, value in report.seconds.items()}
        print_object(settings, {**figures, "seconds": steps, "checks": checks})
        return
    out.print()
    summary = Table(box=None, show_header=False, pad_edge=False)
    summary.add_column(style="bold")
    summary.add_column(justify="right")
    for name, value in figures.items():
        summary.add_row(name.replace("_", " "), f"{value:,}")
    for name, value in report.seconds.items():
        summary.add_row(name, f"{value:.1f} s")
    out.print(summary)
    out.print()
    for what, holds, found in report.checks:
        out.print(f"{'[green]OK[/]    ' if holds else '[bold red]FAILED[/]'}  {what}: {found}")
    out.print()
    query = "SELECT partition, count(*), max(offset) FROM flights GROUP BY partition"
    out.print("[bold]Try next[/]")
    place = shlex.quote(warehouse)
    command = "mainstem" if shutil.which("mainstem") else shlex.quote(sys.argv[0])
    out.print(Text(f'  {command} sql --warehouse {place} "{query}"'))
    out.print(Text(f"  {command} gateway run --warehouse {place}"))
    produce = f"  echo hello | {command} topic produce weather -k me   "
    out.print(Text.assemble(produce, ("from another terminal", "dim")))


def _prepare(place: LocalDirectory | CloudPrefix) -> None:
    """An empty warehouse: an earlier demo's is removed, anything else is left alone."""
    from mainstem.delta_log.store import is_there, open_warehouse

    with contextlib.closing(open_warehouse(place, create=True)) as store:
        if store.list_files("") or store.list_directories(""):
            if not is_there(store, _MARK):
                fail(f"{place.uri} is not empty and not from a demo; name another with --warehouse")
            _remove(place)
    with contextlib.closing(open_warehouse(place, create=True)) as store:
        store.put(_MARK, b"demo")


def _remove(place: LocalDirectory | CloudPrefix) -> None:
    """All that is there; the mark last, so that what is left of it can be removed later."""
    from mainstem.delta_log.store import LocalDirectory, open_warehouse

    if isinstance(place, LocalDirectory):
        shutil.rmtree(place.path, ignore_errors=True)
        return
    with (
        contextlib.suppress(StoreUnavailableError),
        contextlib.closing(open_warehouse(place)) as store,
    ):
        _empty(store, "")
        store.delete(_MARK)


def _empty(store: Warehouse, directory: str) -> None:
    prefix = f"{directory}/" if directory else ""
    for name in store.list_directories(directory):
        _empty(store, f"{prefix}{name}")
    for info in store.list_files(directory):
        if f"{prefix}{info.name}" != _MARK:
            store.delete(f"{prefix}{info.name}")


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: the bridge to the JVM makes others of it."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _progress() -> Progress:
    return Progress(
        TextColumn("  {task.description:<28}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
    )

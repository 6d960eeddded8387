"""`mainstem sql "SELECT ..."`"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from mainstem.cli.context import Settings, fail, pass_settings, print_rows, reports_errors, say
from mainstem.cli.help import ExampleCommand
from mainstem.cli.sql.stream import run_stream_command, stream_options
from mainstem.cli.warehouse import warehouse_option, warehouse_place

if TYPE_CHECKING:
    from mainstem.delta_log.store import CloudPrefix, LocalDirectory

_NUMBERS: Final = re.compile(r"(tinyint|smallint|int|bigint|float|double|decimal.*)")


@click.command(cls=ExampleCommand)
@click.argument("statement", required=False)
@warehouse_option
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    default=1_000,
    show_default=True,
    help="Print at most so many rows; 0: all.",
)
@click.option(
    "--consistent",
    is_flag=True,
    help="Every transaction is in all topics of the statement, or in none.",
)
@click.option("--stream", is_flag=True, help="Run it on what comes, until it is stopped.")
@stream_options
@pass_settings
@reports_errors
def sql(
    settings: Settings,
    /,
    statement: str | None,
    warehouse: str | None,
    limit: int,
    consistent: bool,
    stream: bool,
    **options: Any,
) -> None:
    """Run one SQL statement with Spark; every topic is a table of its name.

    A topic's columns: partition, offset, timestamp, timestamp_type, key, value, headers,
    producer_id, sequence. Keys and values are binary; CAST(value AS STRING) makes text of them. A
    name with a dot or a dash goes into `backquotes`. The tables are read from the warehouse, no
    gateway is needed. Starting Spark takes some seconds. STATEMENT `-` is read from stdin.

    A transaction gets into its topics one after the other: with --consistent, the topics of the
    statement are read at versions in which every transaction is in all of them or in none.

    CREATE TABLE keeps a Delta table in `tables` in the warehouse, where the next statement finds it
    by its name; DROP TABLE removes it. INSERT OVERWRITE DIRECTORY writes outside the warehouse.
    What would write to a topic, or to anything else in the warehouse, is refused before it runs.

    With --stream, INSERT INTO a table or a topic SELECT ... FROM a topic goes on until Ctrl-C,
    SIGTERM or --stop, and adds to it what each new record gives, once. Topics in the SELECT are
    streams and have no producer_id and sequence; tables are as they are when a batch begins. The
    warehouse keeps the checkpoint by the stream's name: the same statement goes on where it was. A
    SELECT that groups needs a WATERMARK, and adds a group when it is past.

    A table is made where there is none. A topic has to be there, its gateway is that of -b, and the
    SELECT names what a record has: value, and if wanted key, headers, partition, timestamp.

    \b
    EXAMPLES
      mainstem sql "SELECT partition, count(*), max(offset) FROM flights GROUP BY partition"
      mainstem sql --warehouse ./warehouse "SELECT CAST(key AS STRING) k, count(*) FROM orders
          GROUP BY k ORDER BY 2 DESC"
      mainstem sql 'SELECT get_json_object(CAST(value AS STRING), "$.id") FROM `my.topic`'
      mainstem sql "CREATE TABLE daily AS SELECT date(timestamp) d, count(*) FROM orders GROUP BY d"
      mainstem sql "SELECT * FROM daily"
      mainstem sql -n 0 "SELECT * FROM orders" --format json > orders.ndjson
      mainstem sql --stream "INSERT INTO large SELECT * FROM orders WHERE length(value) > 99"
      mainstem sql --stream --every "1 minute" "INSERT INTO hourly
          SELECT window(timestamp, '1 hour').start h, count(*) n
          FROM orders WATERMARK timestamp DELAY OF INTERVAL 10 MINUTES GROUP BY 1"
      mainstem sql --stream "INSERT INTO loud SELECT key, upper(CAST(value AS STRING)) AS value
          FROM orders"
      mainstem sql --stream --list
      mainstem sql --stream --stop large
    """
    place = warehouse_place(settings, warehouse)
    if statement == "-":
        statement = sys.stdin.read()
    if stream or any(value for name, value in options.items() if name != "bootstrap_servers"):
        if consistent:
            raise click.UsageError(
                "--consistent is not for --stream: a stream reads topic by topic"
            )
        run_stream_command(settings, place, statement, stream=stream, **options)
        return
    if statement is None:
        raise click.UsageError("the statement is missing; `-` reads it from stdin")
    _run(settings, place, statement, limit, consistent)


def _run(
    settings: Settings,
    place: LocalDirectory | CloudPrefix,
    statement: str,
    limit: int,
    consistent: bool,
) -> None:
    from mainstem.jobs.sql import SqlError, run_sql

    config = settings.gateway_config()
    protected = [one for one in (config.text("wal.directory"),) if one]
    try:
        result = run_sql(
            place,
            statement,
            row_count_max=limit or None,
            protected=protected,
            consistent=consistent,
        )
    except SqlError as error:
        fail(error.message)
    rows = result.rows
    if settings.format != "json":
        rows = tuple(tuple("NULL" if v is None else v for v in row) for row in rows)
    numbers = [
        column
        for column, type_ in zip(result.columns, result.types, strict=True)
        if _NUMBERS.fullmatch(type_)
    ]
    if result.columns:
        print_rows(
            settings,
            result.columns,
            rows,
            numbers=numbers,
            titles=result.columns,
            keep_lines=True,
        )
    for note in result.notes:
        say(note)
    if result.truncated:
        say(f"there are more than {limit} rows; see --limit")

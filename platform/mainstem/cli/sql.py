"""`mainstem sql "SELECT ..."`"""

from __future__ import annotations

import re
import sys
from typing import Final

import click

from mainstem.cli.context import Settings, fail, pass_settings, print_rows, reports_errors, say
from mainstem.cli.help import ExampleCommand
from mainstem.cli.warehouse import warehouse_option, warehouse_place

_NUMBERS: Final = re.compile(r"(tinyint|smallint|int|bigint|float|double|decimal.*)")


@click.command(cls=ExampleCommand)
@click.argument("statement")
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
@pass_settings
@reports_errors
def sql(
    settings: Settings, statement: str, warehouse: str | None, limit: int, consistent: bool
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

    \b
    EXAMPLES
      mainstem sql "SELECT partition, count(*), max(offset) FROM flights GROUP BY partition"
      mainstem sql --warehouse ./warehouse "SELECT CAST(key AS STRING) k, count(*) FROM orders
          GROUP BY k ORDER BY 2 DESC"
      mainstem sql 'SELECT get_json_object(CAST(value AS STRING), "$.id") FROM `my.topic`'
      mainstem sql "CREATE TABLE daily AS SELECT date(timestamp) d, count(*) FROM orders GROUP BY d"
      mainstem sql "SELECT * FROM daily"
      mainstem sql -n 0 "SELECT * FROM orders" --format json > orders.ndjson
    """
    from mainstem.jobs.sql import SqlError, run_sql

    if statement == "-":
        statement = sys.stdin.read()
    config = settings.gateway_config()
    place = warehouse_place(settings, warehouse)
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
        print_rows(settings, result.columns, rows, numbers=numbers, titles=result.columns)
    for note in result.notes:
        say(note)
    if result.truncated:
        say(f"there are more than {limit} rows; see --limit")

"""The Spark half of the demo: a stream over the topic `flights`, and the checks of what is in the tables."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

_RESULT = "flights_by_carrier_and_day"
_FLIGHT = "carrier string, year int, month int, day int, dep_delay int"


@dataclass(frozen=True, slots=True)
class TopicCheck:
    """What SQL finds in a topic's table.

    Attributes:
        record_count: Rows.
        sparse_partitions: Partitions whose offsets are not exactly 0 to count - 1.
        disordered_records: Records whose row number is not larger than the one before in their partition.
    """

    record_count: int
    sparse_partitions: int
    disordered_records: int


def start_stream(spark: SparkSession, warehouse: str) -> StreamingQuery:
    """Counts flights and adds up delays by carrier and day, as the records arrive."""
    flights = (
        spark.readStream.format("mainstem")
        .option("mainstem.warehouse", warehouse)
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("columns", "value")
        .load()
        .select(F.from_json(F.col("value").cast("string"), _FLIGHT).alias("flight"))
        .select("flight.*")
    )
    totals = flights.groupBy("carrier", F.make_date("year", "month", "day").alias("date")).agg(
        F.count(F.lit(1)).alias("flights"),
        F.count("dep_delay").alias("delays_known"),
        F.coalesce(F.sum("dep_delay"), F.lit(0)).alias("delay_minutes"),
        F.avg("dep_delay").alias("mean_delay_minutes"),
    )
    return totals.writeStream.format("memory").queryName(_RESULT).outputMode("complete").start()


def streamed_rows(query: StreamingQuery) -> int:
    """Records that the stream has processed so far."""
    failure = query.exception()
    if failure is not None:
        raise failure
    return sum(progress.numInputRows for progress in query.recentProgress)


def stream_totals(spark: SparkSession) -> dict[tuple[str, str], tuple[int, int, int]]:
    """The stream's result: (carrier, ISO date) → flights, flights with a known delay, minutes of delay."""
    rows = spark.table(_RESULT).select(
        "carrier", F.col("date").cast("string"), "flights", "delays_known", "delay_minutes"
    )
    return {(row[0], row[1]): (row[2], row[3], row[4]) for row in rows.collect()}


def check_topic(spark: SparkSession, table_name: str) -> TopicCheck:
    """Counts, density and order of a demo topic that is registered as `table_name`."""
    density = spark.sql(
        f"""
        SELECT coalesce(sum(records), 0) AS records,
               count_if(first <> 0 OR last <> records - 1 OR records <> offsets) AS sparse
        FROM (SELECT count(*) AS records, count(DISTINCT offset) AS offsets,
                     min(offset) AS first, max(offset) AS last
              FROM {table_name} GROUP BY partition)
        """
    ).first()
    order = spark.sql(
        f"""
        SELECT count_if(row <= before) AS disordered
        FROM (SELECT row, lag(row) OVER (PARTITION BY partition ORDER BY offset) AS before
              FROM (SELECT partition, offset, CAST(get_json_object(CAST(value AS STRING), '$.row') AS BIGINT) AS row
                    FROM {table_name}))
        """
    ).first()
    assert density is not None
    assert order is not None
    return TopicCheck(density["records"], density["sparse"], order["disordered"])


def busiest_carriers(spark: SparkSession, table_name: str) -> DataFrame:
    """A query to show: the five carriers with most flights, straight from the topic's table."""
    return spark.sql(
        f"""
        SELECT CAST(key AS STRING) AS carrier, count(*) AS flights,
               round(avg(CAST(get_json_object(CAST(value AS STRING), '$.dep_delay') AS INT)), 1)
                 AS mean_delay_minutes
        FROM {table_name} GROUP BY key ORDER BY flights DESC LIMIT 5
        """
    )

"""Each flight with its airline's name: a stream joined with a compacted topic.

    python examples/streams/enrichment.py ./warehouse ./tables/named_flights

Kafka Streams: KStream.leftJoin(GlobalKTable).
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from source import append_to, arguments, stream

from mainstem.jobs.streams import latest_by_key, parse_json


def airlines(spark: SparkSession, warehouse: str) -> DataFrame:
    """The topic `airlines` as it is now, by its table: each batch of a stream that it is joined
    with looks again.
    """
    table = spark.read.format("delta").load(f"{warehouse}/topics/airlines")
    return latest_by_key(table).selectExpr(
        "CAST(key AS STRING) AS code", "CAST(value AS STRING) AS airline"
    )


def named_flights(flights: DataFrame, names: DataFrame) -> DataFrame:
    """A row for each flight; without a name where the airline is not known yet."""
    parsed = parse_json(flights, "carrier string, flight int, origin string, dest string").good
    flown = parsed.select("partition", "offset", "timestamp", "record.*")
    return flown.join(names, flown["carrier"] == names["code"], "left").drop("code")


if __name__ == "__main__":
    spark, warehouse, table = arguments()
    append_to(named_flights(stream(spark, warehouse, "flights"), airlines(spark, warehouse)), table)

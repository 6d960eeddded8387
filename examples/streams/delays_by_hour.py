"""The mean departure delay by airport and hour: windows, with records that come late.

    python examples/streams/delays_by_hour.py ./warehouse ./tables/delays_by_hour

Kafka Streams: groupBy, windowedBy(TimeWindows.ofSizeAndGrace(1 h, 2 h)), aggregate and
suppress(untilWindowCloses).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from source import append_to, arguments, stream

from mainstem.jobs.streams import parse_json


def delays_by_hour(flights: DataFrame) -> DataFrame:
    """A row for each airport and hour, once no record of the hour is expected any more: when one
    has been seen that is two hours younger than its end. What comes later still is left out.
    """
    parsed = parse_json(flights, "origin string, dep_delay double").good
    departed = parsed.select("timestamp", "record.*").where("dep_delay IS NOT NULL")
    return (
        departed.withWatermark("timestamp", "2 hours")
        .groupBy(F.window("timestamp", "1 hour").alias("hour"), "origin")
        .agg(F.count("*").alias("flights"), F.avg("dep_delay").alias("mean_delay"))
        .select(F.col("hour.start").alias("hour"), "origin", "flights", "mean_delay")
    )


if __name__ == "__main__":
    spark, warehouse, table = arguments()
    append_to(delays_by_hour(stream(spark, warehouse, "flights")), table)

"""Flights that left late, to a topic of each large airline; those of all others, to one.

    mainstem topic create late.UA late.AA late.B6 late.DL late.other -p 3
    python examples/streams/route.py ./warehouse 127.0.0.1:9490 ./checkpoints/route

Kafka Streams: filter, and to((key, value, context) -> topic), a TopicNameExtractor.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from source import arguments, send, stream

from mainstem.jobs.streams import parse_json

AIRLINES = ("UA", "AA", "B6", "DL")


def late_flights(flights: DataFrame) -> DataFrame:
    """The records as they are; where each goes is said by the column `topic`."""
    parsed = parse_json(flights, "carrier string, dep_delay double").good
    carrier = F.col("record.carrier")
    airline = F.when(carrier.isin(*AIRLINES), carrier).otherwise(F.lit("other"))
    return parsed.where("record.dep_delay > 60").select(
        F.concat(F.lit("late."), airline).alias("topic"), "key", "value", "timestamp"
    )


if __name__ == "__main__":
    spark, warehouse, servers, checkpoint = arguments("WAREHOUSE", "SERVERS", "CHECKPOINT")
    send(late_flights(stream(spark, warehouse, "flights")), servers, checkpoint).awaitTermination()

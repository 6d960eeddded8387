"""A table that is always as the change log `airlines` says: inserted, updated, deleted.

    python examples/streams/current_state.py ./warehouse ./tables/airlines

Kafka Streams: builder.table("airlines"), and somebody who queries it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from source import arguments, stream

from mainstem.jobs.streams import upsert_latest


def keep_current(changes: DataFrame, table: str, *, available_now: bool = False) -> StreamingQuery:
    """Starts the query."""
    named = changes.selectExpr(
        "CAST(key AS STRING) AS code", "CAST(value AS STRING) AS airline", "offset"
    )
    upsert = upsert_latest(table, ["code"], deleted="airline IS NULL")
    writer = named.writeStream.foreachBatch(upsert)
    writer = writer.option("checkpointLocation", f"{table}/_checkpoint")
    return (writer.trigger(availableNow=True) if available_now else writer).start()


if __name__ == "__main__":
    spark, warehouse, table = arguments()
    keep_current(stream(spark, warehouse, "airlines"), table).awaitTermination()

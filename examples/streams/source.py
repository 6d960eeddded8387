"""What the examples here have in common: a topic as a stream, and a query that goes on."""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession

from mainstem.jobs import spark_session

#: Transformations with state in Python need this store.
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def stream(spark: SparkSession, warehouse: str, topic: str) -> DataFrame:
    """The topic from its start."""
    return (
        spark.readStream.format("mainstem")
        .option("mainstem.warehouse", warehouse)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )


def arguments() -> tuple[SparkSession, str, str]:
    """A session, the warehouse, and the directory of the table."""
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} WAREHOUSE TABLE")
    conf = {"spark.sql.streaming.stateStore.providerClass": STATE_STORE}
    return spark_session("example", **conf), sys.argv[1], sys.argv[2]


def append_to(frame: DataFrame, table: str) -> None:
    """Adds the rows to a Delta table until Ctrl-C. The checkpoint lies in its directory."""
    writer = frame.writeStream.format("delta").option("checkpointLocation", f"{table}/_checkpoint")
    writer.start(table).awaitTermination()

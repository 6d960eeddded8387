"""What the examples here have in common: a topic as a stream, and a query that goes on."""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mainstem.jobs import spark_session

#: Transformations with state in Python need this store.
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def stream(spark: SparkSession, warehouse: str, topic: str, **options: str) -> DataFrame:
    """The topic, or several with commas between, from the start."""
    return (
        spark.readStream.format("mainstem")
        .option("mainstem.warehouse", warehouse)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
    )


def arguments(*names: str) -> tuple[Any, ...]:
    """A session, and what the program was given; by default the warehouse and the directory of a
    table.
    """
    names = names or ("WAREHOUSE", "TABLE")
    if len(sys.argv) != len(names) + 1:
        sys.exit(f"usage: {sys.argv[0]} {' '.join(names)}")
    conf = {"spark.sql.streaming.stateStore.providerClass": STATE_STORE}
    return (spark_session("example", **conf), *sys.argv[1:])


def append_to(frame: DataFrame, table: str) -> None:
    """Adds the rows to a Delta table until Ctrl-C. The checkpoint lies in its directory."""
    writer = frame.writeStream.format("delta").option("checkpointLocation", f"{table}/_checkpoint")
    writer.start(table).awaitTermination()


def send(
    records: DataFrame, servers: str, checkpoint: str, *, available_now: bool = False
) -> StreamingQuery:
    """Starts a query that sends the records to topics, each once; `topic` says where each goes."""
    writer = records.writeStream.format("mainstem").option("mainstem.bootstrap.servers", servers)
    writer = writer.option("checkpointLocation", checkpoint)
    return (writer.trigger(availableNow=True) if available_now else writer).start()

"""A query from the topic `in` to the topic `out`, on a cluster of two hosts.

The first attempt at partition 0 passes all its rows on, and ends when another one has; each attempt
leaves files that say how far it came. For the test of tasks that run twice at a time.

    spark-submit --conf spark.speculation=true speculative_process.py WAREHOUSE SERVERS DIRECTORY
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

#: The first attempt waits for no longer; the test then fails.
PATIENCE_S = 120.0


def main(warehouse: str, servers: str, directory: str) -> None:
    spark = SparkSession.builder.getOrCreate()

    def straggle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        mark = Path(directory) / f"{task.partitionId()}-{task.attemptNumber()}"
        mark.touch()
        yield from batches
        ends_at = time.monotonic() + PATIENCE_S
        if task.partitionId() == 0 and task.attemptNumber() == 0:
            while not mark.with_name("0-1.passed").exists() and time.monotonic() < ends_at:
                time.sleep(0.05)
            time.sleep(1.0)  # the other one has most likely told the driver
        mark.with_suffix(".passed").touch()

    query = (
        spark.readStream.format("mainstem")
        .options(
            **{"mainstem.warehouse": warehouse, "subscribe": "in", "startingOffsets": "earliest"}
        )
        .load()
        .select("key", "value")
        .mapInArrow(straggle, "key binary, value binary")
        .writeStream.format("mainstem")
        .options(**{"mainstem.bootstrap.servers": servers, "topic": "out"})
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

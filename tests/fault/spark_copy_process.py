"""A query from the topic `in` to the topic `out`, which adds `x` to each value and ends when it has
written what there is. The first attempt of every other task fails when it has passed rows on. For
tests that kill it.

    python tests/fault/spark_copy_process.py WAREHOUSE SERVERS CHECKPOINT BATCH_RECORDS
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from mainstem.jobs import spark_session


def fail_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows as they are; Spark tries a task four times."""
    task = TaskContext.get()
    assert task is not None
    for batch in batches:
        yield batch
        if task.attemptNumber() == 0 and task.partitionId() % 2 == 0:
            raise RuntimeError("the first attempt of a task")


def main(warehouse: str, servers: str, checkpoint: str, batch_records: str) -> None:
    spark = spark_session(
        "copy",
        **{
            "spark.master": "local[2,4]",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    query = (
        spark.readStream.format("mainstem")
        .options(
            **{
                "mainstem.warehouse": warehouse,
                "subscribe": "in",
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": batch_records,
            }
        )
        .load()
        .selectExpr("key", "'x' || CAST(value AS STRING) AS value")
        .mapInArrow(fail_first, "key binary, value string")
        .writeStream.format("mainstem")
        .options(
            **{
                "mainstem.bootstrap.servers": servers,
                "topic": "out",
                "checkpointLocation": checkpoint,
            }
        )
        .trigger(availableNow=True)
        .start()
    )
    print("started", flush=True)
    query.awaitTermination()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A query from the topic `in` to the topic `out`, which adds `x` to each value and ends when it has
written what there is. For tests that kill it.

    python tests/fault/spark_copy_process.py WAREHOUSE SERVERS CHECKPOINT
"""

from __future__ import annotations

import sys

from mainstem.jobs import spark_session


def main(warehouse: str, servers: str, checkpoint: str) -> None:
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
                "maxOffsetsPerTrigger": "100",
            }
        )
        .load()
        .selectExpr("key", "'x' || CAST(value AS STRING) AS value")
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

"""Read a topic with Spark: with SQL, and as a stream. No gateway is needed.

Usage: python read_spark.py WAREHOUSE TOPIC
"""

from __future__ import annotations

import sys

from mainstem.jobs import register_topics, spark_session


def main(warehouse: str, topic: str) -> None:
    spark = spark_session("read-spark")
    try:
        # SQL: a topic is a table. Keys and values are bytes.
        name = register_topics(spark, warehouse)[topic]
        rows = spark.sql(
            f"""
            SELECT partition, count(*) AS records, min(offset) AS first, max(offset) AS last
            FROM {name} GROUP BY partition ORDER BY partition
            """
        ).collect()
        for row in rows:
            print(
                f"partition {row['partition']}: {row['records']} records, "
                f"offsets {row['first']} to {row['last']}"
            )

        # A stream, with the options and columns of Spark's Kafka source. Here it ends when all that
        # is there was read; without the trigger it goes on.
        stream = (
            spark.readStream.format("mainstem")
            .option("mainstem.warehouse", warehouse)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        query = (
            stream.selectExpr("CAST(key AS STRING) AS key", "partition", "offset")
            .writeStream.format("memory")
            .queryName("seen")
            .trigger(availableNow=True)
            .start()
        )
        if not query.awaitTermination(120):
            query.stop()
            sys.exit("the stream did not end within 120 s")
        count = spark.table("seen").count()
        print(f"streamed {count} records")
    finally:
        spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])

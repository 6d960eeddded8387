"""Rows a second that Spark reads from a topic: with the source `mainstem`, and natively with Delta
for comparison.

    .venv/bin/python benchmarks/spark_source.py --records 2000000 --value-bytes 100

Fills a topic of 6 partitions through the real appender, then reads it with each method `--rounds`
times in one session (the first round warms up and is not counted) and prints the best and the
median.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from mainstem.delta_log import Appender, ByteBudget, LocalStore, Slice, Topics
from mainstem.jobs import spark_session
from mainstem.records import WIRE_SCHEMA, records_to_wire_batch

TOPIC = "benchmark"
PARTITIONS = 6
KEY_BYTES = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--records-per-file", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=4)
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mainstem-benchmark-") as directory:
        warehouse = os.path.join(directory, "warehouse")
        started = time.perf_counter()
        file_count = asyncio.run(
            fill(warehouse, settings.records, settings.value_bytes, settings.records_per_file)
        )
        print(
            f"{settings.records:,} records of {KEY_BYTES} + {settings.value_bytes} bytes in "
            f"{PARTITIONS} partitions "
            f"and {file_count} files, written in {time.perf_counter() - started:.1f} s"
        )
        spark = spark_session("benchmark")
        for name, read in methods(spark, warehouse, Path(directory), settings.records).items():
            seconds = [timed(read) for _ in range(settings.rounds)][1:]
            best, middle = min(seconds), statistics.median(seconds)
            print(
                f"{name:<52} best {settings.records / best:>11,.0f} rows/s   "
                f"median {settings.records / middle:>11,.0f} rows/s   ({middle:.2f} s)"
            )
        spark.stop()


async def fill(warehouse: str, records: int, value_bytes: int, per_file: int) -> int:
    """Appends the records, `per_file` to a partition in each commit; returns the file count."""
    topics = Topics(LocalStore(warehouse))
    topics.create(TOPIC, PARTITIONS, {"commit.interval.ms": 0})
    generator = np.random.default_rng(7)
    now_ms = time.time_ns() // 1_000_000
    with ThreadPoolExecutor(2) as pool:
        appender = await Appender.lead(
            topics.open(TOPIC), pool, queue_bytes=1 << 30, budget=ByteBudget(1 << 30)
        )
        left, file_count = records, 0
        while left:
            slices = []
            for partition in range(PARTITIONS):
                count = min(per_file, left)
                left -= count
                if count:
                    slices.append(Slice(partition, batch(generator, count, value_bytes, now_ms)))
            await appender.submit(slices, sum(one.records.nbytes for one in slices))
            file_count += len(slices)
        await appender.close(60.0)
    return file_count


def batch(
    generator: np.random.Generator, count: int, value_bytes: int, now_ms: int
) -> pa.RecordBatch:
    """Random records."""

    def column(size: int) -> pa.Array:
        data = generator.bytes(count * size)
        offsets = np.arange(0, (count + 1) * size, size, dtype=np.int32)
        return pa.Array.from_buffers(
            pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )

    like = records_to_wire_batch([b""] * count, [b""] * count, None, np.full(count, now_ms))
    return pa.RecordBatch.from_arrays(
        [column(KEY_BYTES), column(value_bytes), like.column("headers"), like.column("timestamp")],
        schema=WIRE_SCHEMA,
    )


def methods(
    spark: SparkSession, warehouse: str, directory: Path, records: int
) -> dict[str, Callable[[], None]]:
    """What is measured, by name. The sink `noop` takes every column of every row and drops it."""
    table = f"{warehouse}/topics/{TOPIC}"
    options = {"mainstem.warehouse": warehouse, "subscribe": TOPIC}
    earliest = {**options, "startingOffsets": "earliest"}

    def drop(frame: DataFrame) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def stream(reader: DataStreamReader, path: str | None = None) -> None:
        checkpoint = tempfile.mkdtemp(dir=directory)
        query = (
            reader.load(path)
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        read = sum(progress.numInputRows for progress in query.recentProgress)
        assert read == records, f"the stream read {read} rows of {records}"

    source = spark.read.format("mainstem").options(**options)
    return {
        "batch, mainstem": lambda: drop(source.load()),
        "batch, mainstem, columns=value": lambda: drop(
            spark.read.format("mainstem").options(**options, columns="value").load()
        ),
        "batch, delta": lambda: drop(spark.read.format("delta").load(table)),
        "AvailableNow, mainstem": lambda: stream(
            spark.readStream.format("mainstem").options(**earliest)
        ),
        "AvailableNow, mainstem, maxOffsetsPerTrigger=200000": lambda: stream(
            spark.readStream.format("mainstem").options(**earliest, maxOffsetsPerTrigger="200000")
        ),
        "AvailableNow, delta": lambda: stream(spark.readStream.format("delta"), table),
    }


def timed(read: Callable[[], None]) -> float:
    """Seconds that one reading takes."""
    started = time.perf_counter()
    read()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()

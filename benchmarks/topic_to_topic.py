"""What a query from topic to topic carries, and how soon what is produced comes out of it.

    python benchmarks/topic_to_topic.py [throughput] [latency] [--records N] [--rounds N]

throughput: a topic of 6 partitions is filled, then a query with a stateless transformation reads it
from its start and writes another topic, in batches of `--batch` records. The first batch, in which
Spark warms up, does not count. The processor time that each part takes is told as well: where other
work goes on beside, it says what two cores could do.
latency: the same query with the default trigger; a record every 100 ms, and when a consumer of the
output topic has it.

The gateway, Spark and its workers share the machine; nothing else should run on it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mainstem.client import AdminClient, Consumer, Producer, TopicPartition
from mainstem.jobs import spark_session
from mainstem.testing import GatewayProcess

PARTITIONS: Final = 6
KEY_BYTES: Final = 16

#: A second of a query that does nothing is a second too long.
DEADLINE_S: Final = 600.0

#: Records of 100 bytes of text; what the transformation makes of them is as long.
TRANSFORMATION: Final = ("key", "reverse(upper(CAST(value AS STRING))) AS value")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", nargs="*", default=["throughput", "latency"])
    parser.add_argument("--records", type=int, default=6_000_000)
    parser.add_argument("--batch", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="of latency")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="mainstem-benchmark-") as directory,
        GatewayProcess(Path(directory) / "warehouse") as gateway,
    ):
        spark = spark_session("benchmark", master="local[2]")
        if "throughput" in options.what:
            throughput(spark, gateway, Path(directory), options)
        if "latency" in options.what:
            for number in range(options.rounds):
                latency(spark, gateway, Path(directory) / f"latency-{number}", options.seconds)
        spark.stop()


def throughput(
    spark: SparkSession, gateway: GatewayProcess, directory: Path, options: argparse.Namespace
) -> None:
    make_topics(gateway, "full")
    started = time.perf_counter()
    fill(gateway, "full", options.records)
    print(f"{options.records:,} records written in {time.perf_counter() - started:.1f} s")
    found = []
    for number in range(options.rounds):
        out = f"out-{number}"
        make_topics(gateway, out)
        query = start(
            spark,
            gateway,
            "full",
            out,
            directory / out,
            maxOffsetsPerTrigger=str(options.batch),
        )
        wait_for(query, options.batch)
        used = cpu_seconds(gateway.pid)
        wait_for(query, options.records)
        used = {name: seconds - used[name] for name, seconds in cpu_seconds(gateway.pid).items()}
        query.stop()
        batches = [one for one in query.recentProgress if one.numInputRows]
        first, last = when(batches[1].timestamp), when(batches[-1].timestamp)
        seconds = (last - first) + batches[-1].batchDuration / 1000
        rows = sum(one.numInputRows for one in batches[1:])
        found.append(rows / seconds)
        print(
            f"round {number}: {rows / seconds:,.0f} records/s; batches of "
            + ", ".join(f"{one.batchDuration / 1000:.1f}" for one in batches)
            + f" s; {batches[-1].durationMs}"
        )
        each = {name: seconds / rows * 1e6 for name, seconds in used.items()}
        print(
            f"  processor time of a record: {sum(each.values()):.2f} us, "
            + ", ".join(f"{name} {value:.2f}" for name, value in each.items())
            + f"; two cores: {2e6 / sum(each.values()):,.0f} records/s"
        )
        written = sum(one.high_watermark for one in describe(gateway, out))
        assert written == options.records, f"{written:,} records are in {out}"
    print(f"median {statistics.median(found):,.0f} records/s, best {max(found):,.0f}")


def latency(spark: SparkSession, gateway: GatewayProcess, directory: Path, seconds: float) -> None:
    for topic in ("in", "out"):
        make_topics(gateway, topic, again=True)
    query = start(spark, gateway, "in", "out", directory)
    found: list[float] = []
    stopping = threading.Event()
    servers = {"bootstrap.servers": gateway.address}

    def read() -> None:
        with Consumer(servers) as consumer:
            consumer.assign([TopicPartition("out", number, 0) for number in range(PARTITIONS)])
            while not stopping.is_set():
                for record in consumer.consume(1000, timeout=0.1):
                    assert record.key is not None
                    found.append((time.time_ns() - int(record.key)) / 1e6)

    reader = threading.Thread(target=read)
    reader.start()
    with Producer(servers) as producer:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            producer.produce("in", b"v" * 100, str(time.time_ns()))
            time.sleep(0.1)
    time.sleep(10)
    stopping.set()
    reader.join()
    query.stop()
    settled = sorted(found[len(found) // 4 :])
    triggers = [one.batchDuration for one in query.recentProgress if one.numInputRows]
    print(
        f"{len(settled)} records: p50 {statistics.median(settled):,.0f} ms, p99 "
        f"{settled[int(len(settled) * 0.99)]:,.0f} ms; a batch takes "
        f"{statistics.median(triggers):,.0f} ms: {query.recentProgress[-2].durationMs}"
    )


def make_topics(gateway: GatewayProcess, topic: str, *, again: bool = False) -> None:
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        if again and any(one.topic == topic for one in admin.list_topics()):
            admin.delete_topic(topic)
        admin.create_topic(topic, PARTITIONS)


def describe(gateway: GatewayProcess, topic: str) -> tuple:  # type: ignore[type-arg]
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        return admin.describe_topic(topic).partitions


def fill(gateway: GatewayProcess, topic: str, records: int) -> None:
    """Keys of 16 random bytes, values of 100 random letters."""
    generator = np.random.default_rng(7)
    count = 20_000
    with Producer({"bootstrap.servers": gateway.address, "linger.ms": 20}) as producer:
        for _ in range(records // count):
            values = generator.integers(97, 123, count * 100, dtype=np.uint8).tobytes()
            batch = pa.record_batch(
                {
                    "key": column(generator.bytes(count * KEY_BYTES), KEY_BYTES),
                    "value": column(values, 100),
                }
            )
            producer.produce_batch(topic, batch)
        producer.flush()


def column(data: bytes, size: int) -> pa.Array:
    offsets = np.arange(0, len(data) + 1, size, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(data) // size, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def start(
    spark: SparkSession,
    gateway: GatewayProcess,
    source: str,
    target: str,
    checkpoint: Path,
    **options: str,
) -> StreamingQuery:
    """From topic to topic, with the default trigger."""
    return (
        spark.readStream.format("mainstem")
        .options(
            **{"mainstem.warehouse": str(gateway.warehouse), "subscribe": source},
            startingOffsets="earliest",
            columns="key,value",
            **options,
        )
        .load()
        .selectExpr(*TRANSFORMATION)
        .writeStream.format("mainstem")
        .options(**{"mainstem.bootstrap.servers": gateway.address, "topic": target})
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


def wait_for(query: StreamingQuery, records: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while sum(one.numInputRows for one in query.recentProgress) < records:
        if query.exception() is not None:
            raise query.exception()  # type: ignore[misc]
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.2)


def cpu_seconds(gateway_pid: int) -> dict[str, float]:
    """What this process and its descendants have used, by what they are."""
    stats = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = file.read_text().partition("(")[2].rpartition(")")
            fields = rest.split()
            ticks = sum(map(int, fields[11:15]))  # its own, and that of children that have ended
            stats[int(file.parent.name)] = (int(fields[1]), name, ticks)
    found = {"gateway": 0.0, "JVM": 0.0, "Python workers": 0.0, "benchmark": 0.0}
    for pid, (parent, name, ticks) in stats.items():
        line = {pid}
        while parent in stats and parent not in line:
            line.add(parent)
            parent = stats[parent][0]
        if os.getpid() not in line:
            continue
        kind = "benchmark" if pid == os.getpid() else "Python workers"
        kind = "gateway" if gateway_pid in line else "JVM" if name == "java" else kind
        found[kind] += ticks / os.sysconf("SC_CLK_TCK")
    return found


def when(timestamp: str) -> float:
    """Seconds since 1970."""
    return datetime.fromisoformat(timestamp).timestamp()


if __name__ == "__main__":
    main()

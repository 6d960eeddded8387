"""One measurement of Spark with a topic, in a process of its own: spark_rows.py starts it.

Reads a `SparkTask` as JSON from its only argument, prints its `Outcome` as JSON. Both systems' rows
go through the same session and the same aggregation, which needs key, value and offset of each
record, and whose count and bytes are checked.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
from benchmarks.kafka.client import Client, Task
from benchmarks.kafka.processes import cpu_s, peak_bytes, tree_cpu_s, tree_peak_bytes
from benchmarks.kafka.row import KAFKA, MAINSTEM, Outcome
from benchmarks.kafka.table_reader import TableReader
from benchmarks.kafka.worker import client_of, sending
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mainstem.jobs import spark_session
from mainstem.jobs._delta_jars import JarSet, fetched_jars
from mainstem.jobs.session import end_session

_KAFKA_JARS: Final = JarSet(
    what="Spark's jars for Kafka",
    size="6 MB",
    packages=("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",),
    # What pyspark has already.
    excludes=(
        "at.yawk.lz4:lz4-java",
        "com.google.code.findbugs:jsr305",
        "org.apache.hadoop:hadoop-client-api",
        "org.apache.hadoop:hadoop-client-runtime",
        "org.scala-lang.modules:scala-parallel-collections_2.13",
        "org.slf4j:slf4j-api",
        "org.xerial.snappy:snappy-java",
    ),
    jars=(
        "org.apache.spark_spark-sql-kafka-0-10_2.13-4.2.0.jar",
        "org.apache.spark_spark-token-provider-kafka-0-10_2.13-4.2.0.jar",
        "org.apache.kafka_kafka-clients-3.9.2.jar",
        "org.apache.commons_commons-pool2-2.13.1.jar",
    ),
)

#: Processor time, of either system, in which the small topic is read again and again, twice at
#: least: what a JVM compiles goes by that, however busy the machine is.
_WARM_UP_CPU_S: Final = 20.0

_DEADLINE_S: Final = 300
_POLL_S: Final = 0.01


@dataclass(slots=True)
class SparkTask:
    """What is measured.

    Attributes:
        system: `mainstem` or `kafka`, which is the name of Spark's source as well.
        row: The name of a function of `ROWS`.
        warehouse: Where the topics' tables are; empty for Kafka.
        directory: For tables and checkpoints of this measurement.
        small_topic: It warms up. Empty where the topic is not filled before.
        count: Records that are measured: all that the topic has, or that are produced.
        warm_up: The small topic's records, or those that are produced before.
        config: `spark.*` are settings of the session, others options of the source.
    """

    system: str
    row: str
    address: str
    warehouse: str
    directory: str
    topic: str
    small_topic: str
    server_pid: int
    count: int
    warm_up: int
    value_bytes: int = 100
    rate: float = 200.0
    config: dict[str, Any] = field(default_factory=dict)


#: One reading of a whole topic.
Reading = Callable[[SparkSession, SparkTask, str], DataFrame]


def _by_source(spark: SparkSession, task: SparkTask, topic: str) -> DataFrame:
    return spark.read.format(task.system).options(**_source(task, topic)).load()


def _by_sql(spark: SparkSession, task: SparkTask, topic: str) -> DataFrame:
    """The topic's table itself; Kafka has none, and its source has to do."""
    if task.system == KAFKA:
        return _by_source(spark, task, topic)
    return spark.sql(f"SELECT key, value, offset FROM delta.`{_table(task, topic)}`")


def _scan(task: SparkTask, read: Reading) -> Outcome:
    """A batch query over all of the topic."""

    def query(spark: SparkSession, topic: str) -> tuple[int, int]:
        (row,) = _aggregated(read(spark, task, topic)).collect()
        return row["records"], row["value_bytes"]

    return _measured(task, query)


def _stream(task: SparkTask) -> Outcome:
    """A streaming query over all of the topic, from its start to its end by itself."""

    def query(spark: SparkSession, topic: str) -> tuple[int, int]:
        found: list[tuple[int, int]] = []

        def take(batch: DataFrame, _: int) -> None:
            (row,) = _aggregated(batch).collect()
            found.append((row["records"], row["value_bytes"]))

        running = (
            spark.readStream.format(task.system)
            .options(**_source(task, topic), startingOffsets="earliest")
            .load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", tempfile.mkdtemp(dir=task.directory))
            .trigger(availableNow=True)
            .start()
        )
        if not running.awaitTermination(_DEADLINE_S):
            raise RuntimeError(f"the stream has not ended: {running.lastProgress}")
        return sum(count for count, _ in found), sum(size for _, size in found)

    return _measured(task, query)


def _aggregated(records: DataFrame) -> DataFrame:
    """One row, for which key, value and offset of all records are needed."""
    return records.agg(
        F.count("*").alias("records"),
        F.sum(F.length("value")).alias("value_bytes"),
        F.max("offset"),
        F.sum(F.hash("key")),
    )


def _measured(task: SparkTask, query: Callable[[SparkSession, str], tuple[int, int]]) -> Outcome:
    """Rows a second of a query that gives the number of records and the bytes of their values.

    Of its second run over the topic: in the first, which `more` tells of, Spark also gets to know
    the topic, its table's log for example.
    """

    def rate() -> float:
        started = time.perf_counter()
        found = query(spark, task.topic)
        seconds = time.perf_counter() - started
        if found != (task.count, task.count * task.value_bytes):
            raise RuntimeError(f"{task.topic} has {task.count} records, the query found {found}")
        return round(task.count / seconds)

    with _session(task) as spark:
        _warm_up(task, lambda: query(spark, task.small_topic))
        first = rate()
        server_before, before = cpu_s(task.server_pid), tree_cpu_s(os.getpid())
        return Outcome(
            rate(),
            round(tree_cpu_s(os.getpid()) - before, 3),
            round(cpu_s(task.server_pid) - server_before, 3),
            tree_peak_bytes(os.getpid()),
            peak_bytes(task.server_pid),
            {"first": first},
        )


def _warm_up(task: SparkTask, query: Callable[[], tuple[int, int]]) -> None:
    enough = tree_cpu_s(os.getpid()) + _WARM_UP_CPU_S
    passes = 0
    while passes < 2 or tree_cpu_s(os.getpid()) < enough:
        if query() != (task.warm_up, task.warm_up * task.value_bytes):
            raise RuntimeError(f"{task.small_topic} has not {task.warm_up} records")
        passes += 1


def _visible(task: SparkTask) -> Outcome:
    """From `produce()` to the record's row in a Delta table, at a steady rate."""
    with contextlib.ExitStack() as stack:
        table = _table(task, task.topic)
        if task.system == KAFKA:
            table = f"{task.directory}/{task.topic}"
            stack.enter_context(_into_delta(task, table))
        client = _client(task)
        stack.callback(client.close)
        reader = TableReader(table)
        _send_and_see(client, reader, 0, task.warm_up, task)
        server_before, before = cpu_s(task.server_pid), tree_cpu_s(os.getpid())
        latencies = _send_and_see(client, reader, task.warm_up, task.count, task)
        p50, p99 = np.percentile(latencies * 1000, [50, 99])
        return Outcome(
            round(float(p50), 1),
            round(tree_cpu_s(os.getpid()) - before, 3),
            round(cpu_s(task.server_pid) - server_before, 3),
            tree_peak_bytes(os.getpid()),
            peak_bytes(task.server_pid),
            {"p99": round(float(p99), 1)},
        )


def _send_and_see(
    client: Client, reader: TableReader, first: int, count: int, task: SparkTask
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Seconds from sending to seeing of `count` records, on a timetable that waits for nobody."""
    seen = np.zeros(count)
    ends_at = time.monotonic() + count / task.rate + _DEADLINE_S
    with sending(client, count, task.rate, task.value_bytes, first) as sent:
        while not seen.all():
            if time.monotonic() > ends_at:
                raise RuntimeError(f"{np.count_nonzero(seen == 0)} records are not in the table")
            numbers = np.array(reader.poll(), dtype=np.int64) - first
            now = time.perf_counter()
            new = numbers[(numbers >= 0) & (numbers < count)]
            seen[new[seen[new] == 0]] = now
            time.sleep(_POLL_S)
    return seen - sent


@contextlib.contextmanager
def _into_delta(task: SparkTask, table: str) -> Iterator[None]:
    """While the block lasts Spark takes a topic of Kafka into a Delta table, as fast as it can."""
    with _session(task) as spark:
        running = (
            spark.readStream.format(KAFKA)
            .options(**_source(task, task.topic), startingOffsets="earliest")
            .load()
            .writeStream.format("delta")
            .option("checkpointLocation", tempfile.mkdtemp(dir=task.directory))
            .start(table)
        )
        try:
            yield
        finally:
            running.stop()


def _client(task: SparkTask) -> Client:
    """Of the system, a producer that does not wait for more."""
    own = Task(
        system=task.system,
        row="produce",
        address=task.address,
        topic=task.topic,
        partitions=0,
        server_pid=task.server_pid,
        count=0,
        warm_up=0,
        config={"linger.ms": 0},
    )
    client: Client = client_of(own)
    return client


@contextlib.contextmanager
def _session(task: SparkTask) -> Iterator[SparkSession]:
    settings = {"spark.driver.memory": "2g"}
    if task.system == KAFKA:
        settings["spark.jars"] = ",".join(fetched_jars({}, _KAFKA_JARS))
    settings |= {name: text for name, text in task.config.items() if name.startswith("spark.")}
    try:
        yield spark_session("benchmark", master="local[2]", **settings)
    finally:
        end_session()


def _source(task: SparkTask, topic: str) -> dict[str, str]:
    """Options of Spark's source."""
    place = (
        {"mainstem.warehouse": task.warehouse}
        if task.system == MAINSTEM
        else {"kafka.bootstrap.servers": task.address}
    )
    options = {name: text for name, text in task.config.items() if not name.startswith("spark.")}
    return {**place, "subscribe": topic, **options}


def _table(task: SparkTask, topic: str) -> str:
    return f"{task.warehouse}/topics/{topic}"


ROWS: Final[dict[str, Callable[[SparkTask], Outcome]]] = {
    "scan": lambda task: _scan(task, _by_source),
    "sql": lambda task: _scan(task, _by_sql),
    "stream": _stream,
    "visible": _visible,
}


def main() -> None:
    """Measures, and prints the outcome."""
    task = SparkTask(**json.loads(sys.argv[1]))
    print(json.dumps(asdict(ROWS[task.row](task))))


if __name__ == "__main__":
    main()

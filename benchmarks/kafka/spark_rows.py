"""Rows that Spark measures: spark_worker.py. Each turn has a session of its own, of two cores."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import Final

from benchmarks.kafka.client_rows import filled_topic, run_worker
from benchmarks.kafka.row import KAFKA, MAINSTEM, Outcome, Row, Variant
from benchmarks.kafka.spark_worker import SparkTask
from benchmarks.kafka.systems import Systems

_WORKER: Final = "benchmarks.kafka.spark_worker"

#: Of the topic that warms up.
_SMALL: Final = 200_000

#: `spark_session` has settings for a small machine; these are Spark's and Delta's own.
_DEFAULTS: Final = {
    "spark.sql.shuffle.partitions": "200",
    "spark.databricks.delta.snapshotPartitions": "50",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "10000",
}

#: More records a call of the consumer, and more bytes a request. `minPartitions` does not help:
#: six partitions keep both cores busy, and each further one seeks and fetches for itself.
_TUNED: Final = {
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": "10485760",
    "kafka.receive.buffer.bytes": "1048576",
}


@dataclass(frozen=True, slots=True)
class Scan:
    """Spark reads all records of a topic that was filled before.

    Attributes:
        row: The worker's name for it.
        count: Of the records, for `--scale` 1.
    """

    row: str
    count: int = 8_000_000

    def __call__(self, systems: Systems, variant: Variant, scale: float) -> Outcome:
        """One turn."""
        count = max(round(self.count * scale / _SMALL), 1) * _SMALL
        topic = filled_topic(systems, variant.system, count, compacted=variant.compacted)
        small_topic = filled_topic(systems, variant.system, _SMALL)
        return _measure(systems, variant, self.row, topic, small_topic, count, _SMALL)


@dataclass(frozen=True, slots=True)
class Visible:
    """A producer sends at a steady rate, a reader polls the Delta table.

    Attributes:
        count: Records that are measured, for `--scale` 1.
        warm_up: Records before.
    """

    count: int
    warm_up: int

    def __call__(self, systems: Systems, variant: Variant, scale: float) -> Outcome:
        """One turn."""
        topic = systems.new_topic(variant.system)
        count = max(round(self.count * scale), 1_000)
        return _measure(systems, variant, "visible", topic, "", count, self.warm_up)


def _measure(
    systems: Systems,
    variant: Variant,
    row: str,
    topic: str,
    small_topic: str,
    count: int,
    warm_up: int,
) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="spark-", dir=systems.directory) as directory:
        task = SparkTask(
            system=variant.system,
            row=row,
            address=systems.address(variant.system),
            warehouse=str(systems.gateway.warehouse) if variant.system == MAINSTEM else "",
            directory=directory,
            topic=topic,
            small_topic=small_topic,
            server_pid=systems.server_pid(variant.system),
            count=count,
            warm_up=warm_up,
            config=dict(variant.config),
        )
        return run_worker(task, systems.environment, module=_WORKER)


_READING: Final = (
    Variant("mainstem", MAINSTEM),
    Variant("mainstem, columns", MAINSTEM, {"columns": "key,value,offset"}),
    Variant("Kafka, default", KAFKA),
    Variant("Kafka, tuned", KAFKA, dict(_TUNED)),
)

ROWS: Final = (
    Row("Spark batch scan", "records/s", _READING, Scan("scan")),
    Row(
        "SQL over the topic table",
        "records/s",
        (
            Variant("mainstem, compacted table", MAINSTEM, compacted=True),
            Variant("mainstem, Delta table", MAINSTEM),
            Variant("Kafka, default", KAFKA),
            Variant("Kafka, tuned", KAFKA, dict(_TUNED)),
        ),
        Scan("sql"),
        8.0,
    ),
    Row("Spark AvailableNow stream", "records/s", _READING, Scan("stream"), 4.0),
    Row(
        "visible in a Delta table",
        "ms",
        (
            Variant("mainstem", MAINSTEM),
            Variant("Kafka, Spark and Delta's defaults", KAFKA, dict(_DEFAULTS)),
            Variant(
                "Kafka, snapshotPartitions=2",
                KAFKA,
                {**_DEFAULTS, "spark.databricks.delta.snapshotPartitions": "2"},
            ),
        ),
        Visible(8_000, 6_000),
        15.0,
        lower_is_better=True,
    ),
)

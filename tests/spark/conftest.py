"""What the tests with Spark share: a warehouse that is filled through the real appender, and
streams to run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

# Last in the path, so that nothing of the checkout's root hides an installed module.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from tests.unit.pyspark_mainstem.topic_log import TopicLog

#: A loaded machine plans and commits a micro-batch in a second or two; a wait this long has failed.
WAIT_S = 60


@pytest.fixture
def topic_log(tmp_path: Path) -> Iterator[TopicLog]:
    """An empty warehouse."""
    log = TopicLog(tmp_path / "warehouse")
    yield log
    log.close()


@dataclass
class Streams:
    """Streaming queries over one warehouse with one checkpoint: each run goes on where the last one
    ended.
    """

    spark: SparkSession
    warehouse: str
    checkpoint: Path
    #: The rows of each batch of all runs, by batch id.
    batches: dict[int, list[Row]] = field(default_factory=dict)
    #: How many tasks read each batch, where `count_tasks` asks for it.
    task_counts: list[int] = field(default_factory=list)
    count_tasks: bool = False

    def start(self, *, available_now: bool = False, **options: str) -> StreamingQuery:
        """Starts a query."""
        frame = (
            self.spark.readStream.format("mainstem")
            .option("mainstem.warehouse", self.warehouse)
            .options(**options)
            .load()
        )
        writer = frame.writeStream.foreachBatch(self._take).option(
            "checkpointLocation", str(self.checkpoint)
        )
        if available_now:
            writer = writer.trigger(availableNow=True)
        return writer.start()

    def run(self, **options: str) -> list[list[Row]]:
        """Reads what is there now, and ends. Returns the rows of each batch of this run."""
        known = set(self.batches)
        query = self.start(available_now=True, **options)
        try:
            assert query.awaitTermination(WAIT_S)
        finally:
            query.stop()
        return [rows for number, rows in sorted(self.batches.items()) if number not in known]

    def rows(self) -> list[Row]:
        """The rows of all batches."""
        return [row for _, rows in sorted(self.batches.items()) for row in rows]

    def offsets(self) -> list[dict[str, dict[str, int]]]:
        """The end of each batch, from the checkpoint's own files."""
        files = sorted(
            (self.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)
        )
        return [json.loads(path.read_text().splitlines()[2]) for path in files]

    def _take(self, frame: DataFrame, batch_id: int) -> None:
        if self.count_tasks:
            self.task_counts.append(frame.rdd.getNumPartitions())
        self.batches[batch_id] = frame.collect()


@pytest.fixture
def streams(spark: SparkSession, topic_log: TopicLog, tmp_path: Path) -> Iterator[Streams]:
    """Streams over the warehouse of `topic_log`."""
    yield Streams(spark, topic_log.uri, tmp_path / "checkpoint")
    for query in spark.streams.active:
        query.stop()

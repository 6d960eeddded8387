"""The real job on Spark: what streams, batches and plain Delta readers see of a compacted topic,
and workers that die."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import WAIT_S, Streams
from tests.spark.worker_deaths import (
    ALWAYS,
    ATTEMPTS,
    ONCE,
    OTHER,
    VICTIM,
    DeadlyTasks,
    WorkerDeaths,
    check_log,
    records,
    run_deadly,
)
from tests.unit.jobs.topic_tables import check_verified
from tests.unit.pyspark_mainstem.topic_log import START_MS, Record, TopicLog

from mainstem.delta_log.store import StoreFolder
from mainstem.delta_log.topics import TOPICS
from mainstem.delta_log.upkeep import write_checkpoint
from mainstem.jobs.job import OutcomeKind
from mainstem.jobs.keyed_compaction import KeyedCompaction
from mainstem.jobs.runner import run_job
from mainstem.jobs.task_pool import SparkPool

EAGER = {
    "cleanup.policy": "compact",
    "compaction.min.age.ms": 0,
    "min.cleanable.dirty.ratio": 0,
    "delete.retention.ms": 0,
    "commit.interval.ms": 0,
}


def _compact(spark: SparkSession, log: TopicLog) -> dict[str, OutcomeKind]:
    runs = run_job(log.uri, KeyedCompaction(), pool=lambda: SparkPool(lambda: spark))
    assert not [run for run in runs if run.outcome.error]
    return {run.topic: run.outcome.kind for run in runs}


def _rows(first: int, count: int) -> list[Record]:
    """Records of the keys 0 to 4 in turn; every seventh is a tombstone."""
    return [
        Record(None if number % 7 == 4 else b"%d" % number, b"%d" % (number % 5))
        for number in range(first, first + count)
    ]


def test_streams_batches_and_sql_go_on_over_the_holes(
    spark: SparkSession, topic_log: TopicLog, streams: Streams, tmp_path: Path
) -> None:
    for topic in ("t", "other"):
        topic_log.topics.create(topic, 2, EAGER)
    topic_log.create("kept")
    topic_log.count_up("kept", 0, 3)
    plain: list[tuple[int, int]] = []

    def plain_stream() -> None:
        """Delta's own stream, which sees what is removed only as commits to skip."""

        def take(frame: DataFrame, _: int) -> None:
            plain.extend((row.partition, row.offset) for row in frame.collect())

        query = (
            spark.readStream.format("delta")
            .option("skipChangeCommits", "true")
            .load(topic_log.topics.uri("t"))
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "plain"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S)

    ours = {"subscribe": "t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
    for partition in (0, 1):
        topic_log.append("t", *((partition, _rows(start, 10)) for start in range(0, 40, 10)))
    topic_log.append("other", (0, _rows(0, 10)))
    plain_stream()
    ok, nothing = OutcomeKind.OK, OutcomeKind.NOTHING
    assert _compact(spark, topic_log) == {"t": ok, "other": ok, "kept": nothing}
    assert _compact(spark, topic_log) == {"t": nothing, "other": nothing, "kept": nothing}

    # The last of each key by offset, without those that are tombstones (39, of key 4).
    left = [35, 36, 37, 38]
    batch = (
        spark.read.format("mainstem")
        .option("mainstem.warehouse", topic_log.uri)
        .option("minPartitions", "4")
    )
    found = batch.option("subscribe", "t").load().collect()
    assert sorted((row.partition, row.offset) for row in found) == [
        (partition, offset) for partition in (0, 1) for offset in left
    ]
    assert {bytes(row.key): bytes(row.value) for row in found} == {
        b"%d" % (offset % 5): b"%d" % offset for offset in left
    }
    table = spark.read.format("delta").load(topic_log.topics.uri("t"))
    assert table.count() == 2 * len(left)
    assert table.where("partition = 1 AND offset > 36").count() == 2

    batches = streams.run(**ours)
    assert sorted((row.partition, row.offset) for rows in batches for row in rows) == [
        (partition, offset) for partition in (0, 1) for offset in left
    ]
    assert streams.offsets()[-1] == {"t": {"0": 40, "1": 40}}, "the holes at the end are read too"

    store = StoreFolder(topic_log.store, f"{TOPICS}/t")
    write_checkpoint(store)
    check_verified(store)
    topic_log.append("t", (0, _rows(40, 5)))
    assert _compact(spark, topic_log)["t"] == ok
    assert [row.offset for rows in streams.run(**ours) for row in rows] == [40, 41, 42, 43, 44]
    plain_stream()
    assert sorted(plain) == sorted(
        [(partition, offset) for partition in (0, 1) for offset in range(40)]
        + [(0, offset) for offset in range(40, 45)]
    )
    check_verified(store)


class _Deadly(DeadlyTasks, KeyedCompaction):
    pass


@pytest.mark.fault
@pytest.mark.parametrize("count", [ONCE, ALWAYS])
def test_a_python_worker_that_is_killed_takes_no_record_that_must_stay(
    spark: SparkSession, topic_log: TopicLog, tmp_path: Path, count: int
) -> None:
    # New files have records of one second each: a task writes two.
    config = {**EAGER, "cleanup.policy": "compact,delete", "retention.ms": 8_000}
    for topic in (VICTIM, OTHER):
        topic_log.topics.create(topic, 1, config)
        for start in range(0, 30, 5):
            rows = [
                Record(b"%d" % n, b"odd" if n % 2 else b"%d" % n, START_MS + n // 15 * 1000)
                for n in range(start, start + 5)
            ]
            topic_log.append(topic, (0, rows))
    before = records(topic_log, VICTIM)
    compacted = {0: [one for one in before[0] if one.offset % 2 == 0 or one.offset == 29]}
    # One of the two is written.
    deaths = WorkerDeaths(tmp_path, count, "put", 1)
    run_deadly(spark, topic_log, _Deadly(), deaths)
    left = check_log(topic_log, compacted if count == ONCE else before)
    assert len(left) == (1 + 6 if count == ONCE else ATTEMPTS), "orphans are left for vacuum"
    assert _compact(spark, topic_log)[VICTIM] == (
        OutcomeKind.NOTHING if count == ONCE else OutcomeKind.OK
    )
    check_log(topic_log, compacted)
    opened = topic_log.topics.open(VICTIM)
    assert (opened.state.cleaned_offset(0), opened.state.log_end_offset(0)) == (30, 30)

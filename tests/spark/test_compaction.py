"""The real job on Spark: what streams, SQL and time travel see of it, and workers that die."""

from __future__ import annotations

from collections.abc import Callable
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
from tests.unit.pyspark_mainstem.topic_log import TopicLog

from mainstem.delta_log.store import StoreFolder
from mainstem.delta_log.topics import TOPICS
from mainstem.jobs.compaction import Compaction
from mainstem.jobs.job import OutcomeKind
from mainstem.jobs.job_history import JobRun, read_history
from mainstem.jobs.runner import Progress, run_job
from mainstem.jobs.task_pool import SparkPool


def _compact(
    spark: SparkSession,
    log: TopicLog,
    job: Compaction | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> dict[str, JobRun]:
    rows = run_job(
        log.uri,
        job or Compaction(min_age_ms=0),
        pool=lambda: SparkPool(lambda: spark),
        on_progress=on_progress,
    )
    return {row.topic: row for row in rows}


def test_many_topics_are_compacted_in_one_run_and_each_record_stays_as_it_was(
    spark: SparkSession, topic_log: TopicLog
) -> None:
    for topic in ("a", "b", "c"):
        topic_log.create(topic, 2)
        for partition in (0, 1):
            topic_log.count_up(topic, partition, 60, file_count=12)
    topic_log.create("idle")
    before = {topic: records(topic_log, topic) for topic in ("a", "b", "c")}
    told: list[Progress] = []
    runs = _compact(spark, topic_log, on_progress=told.append)
    assert {topic: run.outcome.kind for topic, run in runs.items()} == {
        "a": OutcomeKind.OK,
        "b": OutcomeKind.OK,
        "c": OutcomeKind.OK,
        "idle": OutcomeKind.NOTHING,
    }
    assert (told[-1].bytes_done, told[-1].tables_done) == (told[-1].bytes_total, 3)
    assert (runs["c"].outcome.before.files, runs["c"].outcome.after.files) == (24, 2)
    assert {row.topic: row for row in read_history(topic_log.store)} == {
        topic: runs[topic] for topic in before
    }
    for topic, expected in before.items():
        assert records(topic_log, topic) == expected
        store = StoreFolder(topic_log.store, f"{TOPICS}/{topic}")
        check_verified(store, topic)


def test_streams_sql_and_time_travel_see_each_record_once_across_compactions(
    spark: SparkSession, topic_log: TopicLog, streams: Streams, tmp_path: Path
) -> None:
    topic_log.create("orders", 2)
    for partition in (0, 1):
        topic_log.count_up("orders", partition, 60, file_count=6)
    uri = topic_log.topics.uri("orders")
    before_version = topic_log.version("orders")
    plain: list[tuple[int, int]] = []

    def plain_stream() -> None:
        """Delta's own stream over the table, from its checkpoint to what is there now."""

        def take(frame: DataFrame, _: int) -> None:
            plain.extend((row.partition, row.offset) for row in frame.collect())

        query = (
            spark.readStream.format("delta")
            .load(uri)
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "plain"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S)

    ours = {"subscribe": "orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "80"}
    streams.run(**ours)
    plain_stream()
    _compact(spark, topic_log)
    topic_log.count_up("orders", 0, 10, file_count=2)
    _compact(spark, topic_log)
    topic_log.count_up("orders", 1, 5)
    expected = sorted([(0, n) for n in range(70)] + [(1, n) for n in range(65)])
    streams.run(**ours)
    assert sorted((row.partition, row.offset) for row in streams.rows()) == expected
    plain_stream()
    assert sorted(plain) == expected
    now = spark.read.format("delta").load(uri)
    assert sorted((row.partition, row.offset) for row in now.collect()) == expected
    then = spark.read.format("delta").option("versionAsOf", before_version).load(uri)
    assert then.count() == 120


class _Deadly(DeadlyTasks, Compaction):
    pass


@pytest.mark.fault
@pytest.mark.parametrize("count", [ONCE, ALWAYS])
def test_a_python_worker_that_is_killed_loses_nothing_and_no_other_table(
    spark: SparkSession, topic_log: TopicLog, tmp_path: Path, count: int
) -> None:
    for topic in (VICTIM, OTHER):
        topic_log.create(topic, 1)
        topic_log.count_up(topic, 0, 20, file_count=5)
    expected = records(topic_log, VICTIM)
    # The merged file is written, and its task does not come back to tell.
    deaths = WorkerDeaths(tmp_path, count, "put", 1)
    run_deadly(spark, topic_log, _Deadly(min_age_ms=0), deaths)
    left = check_log(topic_log, expected)
    assert len(left) == (1 + 5 if count == ONCE else ATTEMPTS), "orphans are left for vacuum"
    assert _compact(spark, topic_log)[VICTIM].outcome.kind == (
        OutcomeKind.NOTHING if count == ONCE else OutcomeKind.OK
    )
    check_log(topic_log, expected)

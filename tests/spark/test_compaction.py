"""The real job on Spark: what streams, SQL and time travel see of it, and workers that die."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import WAIT_S, Streams
from tests.unit.jobs.topic_tables import all_records, check_verified
from tests.unit.pyspark_mainstem.topic_log import TopicLog

from mainstem.delta_log import Store, load_table
from mainstem.delta_log.topics import TOPICS
from mainstem.jobs.compaction import Compaction, Merge, Merged
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
    records = {topic: _records(topic_log, topic) for topic in ("a", "b", "c")}
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
        topic: runs[topic] for topic in records
    }
    for topic, expected in records.items():
        assert _records(topic_log, topic) == expected
        store = topic_log.store.bind(f"{TOPICS}/{topic}")
        check_verified(store, topic)
        store.close()


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


class _Deadly(Compaction):
    """Kills the Python worker that it runs in, `deaths` times for each partition of `victim`."""

    victim: ClassVar[str] = "victim"

    def __init__(self, marks: Path, deaths: int) -> None:
        super().__init__(min_age_ms=0)
        self._marks = marks
        self._deaths = deaths

    def run_task(self, store: Store, task: Merge) -> Merged:
        done = super().run_task(store, task)
        mark = self._marks / f"{task.files[0].partition}"
        deaths = len(mark.read_text()) if mark.exists() else 0
        if store.uri.endswith(self.victim) and deaths < self._deaths:
            mark.write_text("x" * (deaths + 1))
            os.kill(os.getpid(), signal.SIGKILL)
        return done


@pytest.mark.fault
@pytest.mark.parametrize("deaths", [1, 100])
def test_a_python_worker_that_is_killed_loses_nothing_and_no_other_table(
    spark: SparkSession, topic_log: TopicLog, tmp_path: Path, deaths: int
) -> None:
    for topic in ("victim", "other"):
        topic_log.create(topic, 1)
        topic_log.count_up(topic, 0, 20, file_count=5)
    records = _records(topic_log, "victim")
    # A share of its own for each topic: they do not die together.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mainstem.jobs.runner._SHARE_BYTES_MIN", 1)
        runs = _compact(spark, topic_log, _Deadly(tmp_path, deaths))
    assert runs["other"].outcome.kind == OutcomeKind.OK
    expected = OutcomeKind.OK if deaths == 1 else OutcomeKind.FAILED
    assert runs["victim"].outcome.kind == expected
    if deaths > 1:
        assert runs["victim"].outcome.error.startswith("INTERNAL: the task was lost")
    assert _records(topic_log, "victim") == records
    store = topic_log.store.bind(f"{TOPICS}/victim")
    check_verified(store, "victim")
    active = {file.path for file in load_table(store)}
    listed = {f"partition=0/{info.name}" for info in store.list_files("partition=0")}
    assert active <= listed
    assert len(listed - active) == (1 + 5 if deaths == 1 else 3), "orphans are left for vacuum"
    store.close()
    assert _compact(spark, topic_log)["victim"].outcome.kind == (
        OutcomeKind.NOTHING if deaths == 1 else OutcomeKind.OK
    )


def _records(log: TopicLog, topic: str) -> object:
    store = log.store.bind(f"{TOPICS}/{topic}")
    try:
        return all_records(store)
    finally:
        store.close()

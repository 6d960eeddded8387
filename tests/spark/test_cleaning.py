"""Retention and vacuum on Spark: what streams, batches and SQL see of them; workers that die."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import WAIT_S, Streams
from tests.spark.worker_deaths import (
    ALWAYS,
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
from tests.unit.pyspark_mainstem.topic_log import START_MS, TopicLog

from mainstem.delta_log import load_table
from mainstem.delta_log.store import StoreFolder, wall_clock_ms
from mainstem.delta_log.topics import TOPICS, altered_config
from mainstem.jobs import file_deletion as file_deletion_module
from mainstem.jobs.catalogue import make_job
from mainstem.jobs.job import OutcomeKind
from mainstem.jobs.runner import run_job
from mainstem.jobs.task_pool import SparkPool
from mainstem.jobs.vacuum import Vacuum
from mainstem.jobs.vacuum_orphans import VacuumOrphans

HOUR = 3_600_000


def _run(spark: SparkSession, log: TopicLog, name: str, now_ms: int, **options: int) -> int:
    """Runs a job on the topic `t`; returns how many files it removed or deleted."""
    job = make_job(name, {key.replace("_", "."): value for key, value in options.items()})
    (row,) = run_job(
        log.uri, job, ["t"], pool=lambda: SparkPool(lambda: spark), clock_ms=lambda: now_ms
    )
    assert row.outcome.kind is not OutcomeKind.FAILED, row.outcome.error
    return row.outcome.before.files


def _clean(spark: SparkSession, log: TopicLog, last_second: int) -> None:
    """Removes the records up to a timestamp, and deletes their files at once."""
    opened = log.topics.open("t")
    retention_ms = wall_clock_ms() - (START_MS + 1000 * last_second + 1)
    log._commit(opened, "SET", [altered_config(opened.state, {"retention.ms": retention_ms}, [])])
    _run(spark, log, "retention", wall_clock_ms())
    assert _run(spark, log, "vacuum", wall_clock_ms() + 1, vacuum_min_age_ms=0) > 0


def _plain_stream(spark: SparkSession, log: TopicLog, checkpoint: Path, seen: list[int]) -> None:
    """Delta's own stream over the table, from its checkpoint to what is there now."""

    def take(frame: DataFrame, _: int) -> None:
        seen.extend(row.offset for row in frame.collect())

    query = (
        spark.readStream.format("delta")
        .option("skipChangeCommits", "true")
        .load(log.topics.uri("t"))
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_S)


def test_streams_batches_and_sql_go_on_through_retention_and_vacuum_or_are_told_what_is_gone(
    spark: SparkSession,
    topic_log: TopicLog,
    streams: Streams,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_deletion_module, "DRIVER_FILES_MAX", 1)  # tasks on Spark delete
    monkeypatch.setattr(file_deletion_module, "_TASK_FILES", 2)
    topic_log.create("t")
    topic_log.count_up("t", 0, 40, file_count=8)
    plain: list[int] = []
    ours = {"subscribe": "t", "startingOffsets": "earliest"}
    assert sum(map(len, streams.run(**ours))) == 40
    _plain_stream(spark, topic_log, tmp_path / "plain", plain)
    batch = (
        spark.read.format("mainstem")
        .option("mainstem.warehouse", topic_log.uri)
        .options(**ours)
        .load()
    )
    lenient = (
        spark.read.format("mainstem")
        .option("mainstem.warehouse", topic_log.uri)
        .option("failOnDataLoss", "false")
        .options(**ours)
        .load()
    )
    assert (batch.count(), lenient.count()) == (40, 40)

    _clean(spark, topic_log, 20)  # the records up to that of offset 20, by whole files
    store = StoreFolder(topic_log.store, f"{TOPICS}/t")
    state = load_table(store)
    assert (state.log_start_offset(0), state.log_end_offset(0)) == (20, 40)
    stored = {info.name for info in store.list_files("partition=0")}
    assert stored == {Path(file.path).name for file in state}
    check_verified(store, "t")

    # Planned before, executed after: what is gone is said to be gone, or passed over.
    with pytest.raises(PythonException, match="offset 0 of topic 't', partition 0, was removed"):
        batch.collect()
    assert [row.offset for row in lenient.collect()] == list(range(20, 40))

    topic_log.count_up("t", 0, 10, file_count=2)
    assert [row.offset for rows in streams.run(**ours) for row in rows] == list(range(40, 50))
    _plain_stream(spark, topic_log, tmp_path / "plain", plain)
    assert sorted(plain) == list(range(50))
    table = f"delta.`{topic_log.topics.uri('t')}`"
    (counted,) = spark.sql(f"SELECT min(offset) AS first, count(*) AS n FROM {table}").collect()
    assert (counted.first, counted.n) == (20, 30)


def test_a_stream_goes_on_over_an_emptied_partition_and_fails_where_it_had_not_read_all(
    spark: SparkSession, topic_log: TopicLog, streams: Streams
) -> None:
    topic_log.create("t")
    topic_log.count_up("t", 0, 10, file_count=2)
    ours = {"subscribe": "t", "startingOffsets": "earliest"}
    assert sum(map(len, streams.run(**ours))) == 10
    _clean(spark, topic_log, 100)
    topic_log.count_up("t", 0, 3)
    assert [row.offset for rows in streams.run(**ours) for row in rows] == [10, 11, 12]
    topic_log.count_up("t", 0, 4, file_count=2)
    _clean(spark, topic_log, 14)
    with pytest.raises(StreamingQueryException, match="13 of t-0, but its log now starts at 15"):
        streams.run(**ours)
    left = streams.run(failOnDataLoss="false", **ours)
    assert [row.offset for rows in left for row in rows] == [15, 16]


class _DeadlyVacuum(DeadlyTasks, Vacuum):
    pass


class _DeadlyVacuumOrphans(DeadlyTasks, VacuumOrphans):
    pass


@pytest.mark.fault
@pytest.mark.parametrize("count", [ONCE, ALWAYS])
@pytest.mark.parametrize(
    "deadly", [_DeadlyVacuum(min_age_ms=0), _DeadlyVacuumOrphans()], ids=lambda job: job.name
)
def test_a_python_worker_that_is_killed_between_two_deletions_takes_no_live_file(
    spark: SparkSession,
    topic_log: TopicLog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    deadly: DeadlyTasks,
    count: int,
) -> None:
    monkeypatch.setattr(file_deletion_module, "DRIVER_FILES_MAX", 1)  # a task on Spark deletes
    orphans = {f"partition=0/{base:020d}-{'c' * 32}.parquet" for base in range(4)}
    for topic in (VICTIM, OTHER):
        topic_log.create(topic)
        topic_log.count_up(topic, 0, 16, file_count=8)
        topic_log.trim(topic, 0, 8)
        for path in orphans:
            topic_log.store.put(f"{TOPICS}/{topic}/{path}", b"left behind")
    expected = records(topic_log, VICTIM)
    assert [one.offset for one in expected[0]] == list(range(8, 16))
    garbage = check_log(topic_log, expected)
    assert len(garbage) == 4 + 4
    doomed = garbage - orphans if isinstance(deadly, Vacuum) else orphans

    now_ms = wall_clock_ms() + 48 * HOUR  # nothing is too young for either of them
    deaths = WorkerDeaths(tmp_path, count, "delete", 2)
    run_deadly(spark, topic_log, deadly, deaths, lambda: now_ms)
    left = check_log(topic_log, expected)
    gone = sorted(doomed)[: None if count == ONCE else 2]
    assert left == garbage - set(gone)

    (row,) = run_job(
        topic_log.uri,
        make_job(deadly.name, {}),
        [VICTIM],
        pool=lambda: SparkPool(lambda: spark),
        clock_ms=lambda: now_ms,
    )
    assert row.outcome.kind is (OutcomeKind.NOTHING if count == ONCE else OutcomeKind.OK)
    assert check_log(topic_log, expected) == garbage - doomed

"""The session that `spark_session` gives."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mainstem.jobs import spark_session
from mainstem.jobs._delta_jars import DELTA_JARS
from mainstem.jobs._s3 import S3_JARS


def test_a_second_call_gives_the_session_that_runs_with_the_callers_settings(
    spark: SparkSession,
) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    again = spark_session(**{"spark.sql.shuffle.partitions": "7", "spark.driver.memory": "9g"})
    try:
        assert again.conf.get("spark.sql.shuffle.partitions") == "7"
        assert again.sparkContext is spark.sparkContext
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before or "2")


def test_another_thread_gets_the_same_session(spark: SparkSession) -> None:
    with ThreadPoolExecutor(1) as pool:
        there = pool.submit(spark_session).result()
    assert there.sparkContext is spark.sparkContext
    assert there._jsparkSession.equals(spark._jsparkSession)


def test_it_is_set_up_for_delta_and_small_machines(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.databricks.delta.vacuum.logging.enabled") == "false"
    assert spark.sparkContext.uiWebUrl is None
    jars = (spark.conf.get("spark.jars") or "").split(",")
    assert sorted(Path(jar).name for jar in jars) == sorted([*DELTA_JARS, *S3_JARS.jars])


def test_the_source_is_registered_by_its_name_alone(spark: SparkSession) -> None:
    with pytest.raises(Exception, match=r"mainstem\.warehouse is missing"):
        spark.read.format("mainstem").load()


def test_a_failed_statement_prints_no_stack_trace(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM nowhere")
    captured = capfd.readouterr()
    assert captured.err == ""
    assert not logging.getLogger("SQLQueryContextLogger").isEnabledFor(logging.CRITICAL)


_PROGRAM = """
import sys
from mainstem.jobs import spark_session
spark_session(master="local[1]")
print("started", flush=True)
sys.stdin.read()
"""


@pytest.mark.spark
def test_a_program_that_is_terminated_leaves_no_directory_behind(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "started\n"
        assert list(tmp_path.glob("mainstem-spark-*"))
        program.terminate()
        assert program.stdout.read() == "", "the JVM has it as well: it has ended too"
    assert list(tmp_path.glob("mainstem-spark-*")) == []

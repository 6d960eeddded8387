"""Spark on a warehouse in S3: SQL, the source and its secrets."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.s3_server import S3Server
from tests.unit.pyspark_mainstem.topic_log import Record, TopicLog

from mainstem.config import StoreSettings
from mainstem.delta_log.store import CloudPrefix, CloudStore
from mainstem.jobs import SqlError, run_sql
from mainstem.jobs.session import spark_session
from mainstem.jobs.tables import register_topics

KEY_ID, SECRET, TOKEN = "AKIA-never-seen", "secret-never-seen", "token-never-seen"


@dataclass(frozen=True)
class Lake:
    """A warehouse in S3, with a topic `orders` of two records."""

    place: CloudPrefix

    @property
    def options(self) -> dict[str, str]:
        given = self.place.settings.given()
        return {"mainstem.warehouse": self.place.uri, **{n: str(v) for n, v in given.items()}}


@pytest.fixture
def lake(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    for name in s3_server.options:
        monkeypatch.delenv(name, raising=False)
    settings = StoreSettings(
        endpoint=s3_server.url,
        access_key_id=KEY_ID,
        secret_access_key=SECRET,
        session_token=TOKEN,
    )
    place = CloudPrefix(f"s3://{s3_server.make_bucket()}/lake", settings)
    log = TopicLog(tmp_path / "warehouse")
    log.create("orders")
    log.append("orders", (0, [Record(b"v0", b"k"), Record(b"v1", b"k")]))
    log.close()
    # What the gateway writes has no paths of its own in it: a copy is a warehouse, too.
    store = CloudStore(place.uri, settings=settings)
    for path in sorted((tmp_path / "warehouse").rglob("*")):
        if path.is_file():
            store.put(str(path.relative_to(tmp_path / "warehouse")), path.read_bytes())
    store.close()
    return Lake(place)


def test_sql_reads_topics_in_s3_and_harms_none(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    place = lake.place
    result = run_sql(place, "SELECT offset, value FROM orders ORDER BY offset", spark=spark)
    assert result.rows == ((0, "v0"), (1, "v1"))
    assert ("", "orders", True) in run_sql(place, "SHOW VIEWS", spark=spark).rows
    for statement, words in (
        ("CREATE TABLE t AS SELECT 1 AS a", "keeps no tables in an object storage service"),
        ("DROP TABLE nothing", "keeps no tables"),
        ("INSERT INTO orders SELECT * FROM orders", "is a topic, which SQL does not change"),
        *(
            (f"INSERT OVERWRITE DIRECTORY '{where}' USING json SELECT 1 AS a", "in the warehouse")
            for where in (
                f"{place.uri}/topics/orders",
                f"{place.uri.replace('s3:', 's3a:')}/x",
                place.uri.rpartition("/")[0].replace("s3:", "s3a:"),
                place.uri + "//topics/../topics",
            )
        ),
    ):
        with pytest.raises(SqlError, match=words):
            run_sql(place, statement, spark=spark)
    outside = (tmp_path / "out").as_uri()
    run_sql(
        place,
        f"INSERT OVERWRITE DIRECTORY '{outside}' USING json SELECT * FROM orders",
        spark=spark,
    )
    assert list((tmp_path / "out").glob("*.json"))
    assert run_sql(place, "SELECT count(*) FROM orders", spark=spark).rows == ((2,),)


def test_topics_in_s3_are_tables_of_a_session(spark: SparkSession, lake: Lake) -> None:
    session = spark_session(warehouse=lake.place)
    assert register_topics(session, lake.place) == {"orders": "orders"}
    assert spark.sql("SELECT count(*) FROM orders").collect()[0][0] == 2


def test_the_source_reads_s3_with_its_options_and_shows_no_secret(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    frame = spark.read.format("mainstem").options(**lake.options, subscribe="orders").load()
    assert [bytes(row.value) for row in frame.sort("offset").collect()] == [b"v0", b"v1"]
    seen = frame._jdf.queryExecution().toString()
    stream = (
        spark.readStream.format("mainstem")
        .options(**lake.options, subscribe="orders", startingOffsets="earliest")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert stream.awaitTermination(60)
    assert sum(progress.numInputRows for progress in stream.recentProgress) == 2
    seen += repr(stream.recentProgress) + repr(stream.status)
    seen += "".join(
        path.read_text(errors="replace")
        for path in (tmp_path / "checkpoint").rglob("*")
        if path.is_file()
    )
    run_sql(lake.place, "SELECT count(*) FROM orders", spark=spark)
    seen += repr(run_sql(lake.place, "SET -v", spark=spark).rows)
    # What the pages Environment and SQL of Spark's own UI show.
    seen += repr(spark.sparkContext.getConf().getAll())
    context: Any = spark.sparkContext._jsc
    info = context.sc().statusStore().environmentInfo()
    for properties in (info.sparkProperties, info.hadoopProperties, info.systemProperties):
        seen += properties().toString()
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    for index in range(executions.size()):
        one = executions.apply(index)
        seen += one.toString() + one.physicalPlanDescription()
        seen += str(one.modifiedConfigs().toString())
    listed = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True).stdout
    assert "spark" in listed
    for secret in (KEY_ID, SECRET, TOKEN):
        assert secret not in seen
        assert secret not in listed

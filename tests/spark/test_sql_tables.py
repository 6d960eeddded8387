"""What SQL creates stays; what it would do to the warehouse is refused before it runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.unit.pyspark_mainstem.topic_log import Record, TopicLog

from mainstem.errors import LogDamagedError
from mainstem.jobs import SqlError, SqlResult, register_topics, run_sql
from mainstem.jobs.sql_guard import overlap


@pytest.fixture
def orders(topic_log: TopicLog) -> TopicLog:
    topic_log.create("orders")
    topic_log.append("orders", (0, [Record(b"a", b"k"), Record(b"b", b"k")]))
    return topic_log


def files(root: str | Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in Path(root).rglob("*")
        if path.is_file()
    }


def test_a_table_that_is_created_is_there_for_the_next_statement(
    spark: SparkSession, orders: TopicLog
) -> None:
    def sql(statement: str) -> SqlResult:
        # A session of its own for each statement, as each call of the command line has.
        return run_sql(orders.uri, statement, spark=spark.newSession())

    made = sql(
        "CREATE TABLE Daily AS SELECT CAST(key AS STRING) k, count(*) n FROM orders GROUP BY 1"
    )
    directory = Path(orders.uri) / "tables" / "daily"
    assert (directory / "_delta_log").is_dir()
    assert made.notes == (f"table Daily is kept in {directory}",)
    assert sql("SELECT * FROM daily").rows == (("k", 2),)
    sql("INSERT INTO daily VALUES ('x', 7)")
    sql("UPDATE daily SET n = 8 WHERE k = 'x'")
    sql("DELETE FROM daily WHERE k = 'k'")
    assert sql("SELECT d.n FROM daily d WHERE k IN (SELECT 'x' FROM orders)").rows == ((8,),)
    assert {"daily", "orders"} <= {row[1] for row in sql("SHOW TABLES").rows}
    with pytest.raises(SqlError, match="already exists"):
        sql("CREATE TABLE daily (a INT)")
    sql("CREATE TABLE IF NOT EXISTS daily (a INT)")
    sql("CREATE OR REPLACE TABLE daily USING delta AS SELECT 1 AS one")
    assert sql("SELECT * FROM daily").rows == ((1,),)
    sql("CREATE TABLE empty (a INT, b STRING)")
    assert sql("SELECT * FROM empty").columns == ("a", "b")
    sql("DROP TABLE daily")
    assert not directory.exists()
    assert not list(directory.parent.glob(".dropped*"))
    with pytest.raises(SqlError, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql("SELECT * FROM daily")
    sql("DROP TABLE IF EXISTS daily")
    with pytest.raises(SqlError, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql("DROP TABLE daily")


def test_a_creation_that_fails_leaves_nothing_in_the_way(
    spark: SparkSession, orders: TopicLog
) -> None:
    with pytest.raises(SqlError):
        run_sql(orders.uri, "CREATE TABLE t AS SELECT raise_error('no') x FROM orders", spark=spark)
    assert run_sql(orders.uri, "SELECT 1 AS one", spark=spark).rows == ((1,),)
    run_sql(orders.uri, "CREATE TABLE t AS SELECT 2 AS two", spark=spark)
    assert run_sql(orders.uri, "SELECT * FROM t", spark=spark).rows == ((2,),)
    other = Path(orders.uri) / "tables" / "u" / "notes.txt"
    other.parent.mkdir()
    other.write_text("somebody's")
    with pytest.raises(SqlError):
        run_sql(orders.uri, "CREATE TABLE u AS SELECT 1 AS a", spark=spark)
    assert other.read_text() == "somebody's"


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OVERWRITE DIRECTORY '{w}/topics/orders' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY '{w}/topics' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY '{w}/system/new' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY '{w}/wal' USING csv SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY '{w}/tables' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY '{w}' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY '{w}/..' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY '{w}/../warehouse/topics' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY 'file:{w}/topics' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY 'file://{w}/topics' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY 'file:///{w}/topics' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY '///{w}/./topics//' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY '//{w}/topics' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY 'FILE:{w}/topics' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY '{relative}/topics' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY '{link}' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY '{link}/orders' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY '{elsewhere}' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY '{wal}/x' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE LOCAL DIRECTORY '{w}/topics' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE LOCAL DIRECTORY '{w}/topics/orders' SELECT 1 AS a",
        "INSERT OVERWRITE LOCAL DIRECTORY 'file:{w}/topics' STORED AS textfile SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY USING parquet OPTIONS (path '{w}/topics') SELECT 1 AS a",
        "INSERT OVERWRITE DIRECTORY USING parquet OPTIONS (PATH '{w}/topics') SELECT 1 AS a",
        "WITH x AS (SELECT 1) INSERT OVERWRITE DIRECTORY '{w}/topics' USING csv SELECT * FROM x",
        "/* SELECT */ insert overwrite -- SELECT\n directory '{w}/topics' using csv select 1 as a",
        "FROM orders INSERT INTO a SELECT 1 INSERT OVERWRITE DIRECTORY '{w}' USING csv SELECT 2",
        "CREATE TABLE t USING delta LOCATION '{w}/topics/new' AS SELECT 1 AS a",
        "CREATE TABLE t (a INT) USING delta LOCATION '{w}/topics/orders'",
        "CREATE TABLE t USING delta OPTIONS (path '{w}/topics/new') AS SELECT 1 AS a",
        "CREATE EXTERNAL TABLE t (a INT) LOCATION '{w}/topics/new'",
        "CREATE OR REPLACE TABLE t USING delta LOCATION '{w}/topics/orders' AS SELECT 1 AS a",
        "CREATE TABLE delta.`{w}/topics/new` (a INT) USING delta",
        "CREATE OR REPLACE TABLE delta.`{w}/topics/orders` AS SELECT 1 AS a",
        "CREATE TABLE t SHALLOW CLONE delta.`{w}/topics/orders`",
        "CREATE TABLE t LIKE orders",
        "CREATE TABLE t USING parquet AS SELECT 1 AS a",
        "CREATE TABLE t STORED AS parquet AS SELECT 1 AS a",
        "CREATE TABLE orders (a INT)",
        "CREATE TABLE ORDERS AS SELECT 1 AS a",
        "CREATE TABLE `../topics` AS SELECT 1 AS a",
        "CREATE TABLE `..` (a INT)",
        "DROP TABLE IF EXISTS `../topics`",
        "DROP TABLE IF EXISTS `../topics/orders`",
        "INSERT INTO `../topics/orders` VALUES (1)",
        "CREATE TABLE default.t AS SELECT 1 AS a",
        "CREATE VIEW v AS SELECT 1 AS a",
        "CREATE TEMPORARY VIEW v AS SELECT 1 AS a",
        "CREATE TEMPORARY VIEW v USING parquet OPTIONS (path '{w}/topics')",
        "CREATE DATABASE d",
        "CREATE DATABASE d LOCATION '{w}/topics'",
        "DROP TABLE orders",
        "DROP TABLE IF EXISTS orders",
        "DROP TABLE delta.`{w}/topics/orders`",
        "DROP VIEW orders",
        "DROP DATABASE default CASCADE",
        "INSERT INTO orders VALUES (1)",
        "INSERT INTO delta.`{w}/topics/orders` SELECT * FROM orders",
        "INSERT INTO parquet.`{w}/topics/orders` SELECT * FROM orders",
        "INSERT OVERWRITE spark_catalog.delta.`{link}/orders` SELECT * FROM orders",
        "INSERT INTO IDENTIFIER('orders') SELECT * FROM orders",
        "INSERT INTO delta.`{w}/topics/orders` REPLACE WHERE offset = 0 SELECT * FROM orders",
        "DELETE FROM delta.`{w}/topics/orders`",
        "DELETE FROM orders",
        "UPDATE delta.`{w}/topics/orders` SET value = null",
        "MERGE INTO delta.`{w}/topics/orders` t USING orders ON true WHEN MATCHED THEN DELETE",
        "TRUNCATE TABLE delta.`{w}/topics/orders`",
        "VACUUM delta.`{w}/topics/orders`",
        "VACUUM '{w}/topics/orders'",
        "OPTIMIZE delta.`{w}/topics/orders`",
        "OPTIMIZE orders",
        "RESTORE TABLE delta.`{w}/topics/orders` TO VERSION AS OF 0",
        "REORG TABLE delta.`{w}/topics/orders` APPLY (PURGE)",
        "GENERATE symlink_format_manifest FOR TABLE delta.`{w}/topics/orders`",
        "CONVERT TO DELTA parquet.`{w}/topics/orders`",
        "ALTER TABLE delta.`{w}/topics/orders` ADD COLUMNS (x INT)",
        "ALTER TABLE delta.`{w}/topics/orders` SET TBLPROPERTIES ('a' = 'b')",
        "ALTER TABLE orders SET LOCATION '/tmp'",
        "ALTER TABLE orders RENAME TO others",
        "LOAD DATA INPATH '{w}/topics/orders' INTO TABLE t",
        "ANALYZE TABLE orders COMPUTE STATISTICS",
        "MSCK REPAIR TABLE orders",
        "CACHE TABLE orders",
        "ADD JAR '/tmp/x.jar'",
        "ADD FILE '/tmp/x'",
        "CREATE FUNCTION f AS 'java.lang.Object'",
        "CREATE TEMPORARY FUNCTION f AS 'java.lang.Object' USING JAR '/tmp/x.jar'",
        "SET spark.sql.warehouse.dir={w}/topics",
        "SELECT TRANSFORM (offset) USING 'rm -r {w}/topics' AS (a) FROM orders",
        "EXECUTE IMMEDIATE 'INSERT OVERWRITE DIRECTORY \\'{w}/topics\\' USING parquet SELECT 1'",
        "BEGIN INSERT OVERWRITE DIRECTORY '{w}/topics' USING parquet SELECT 1 AS a; END",
        "EXPORT TABLE orders TO '{w}/topics/x'",
        "COPY INTO orders FROM '/tmp'",
    ],
)
def test_what_would_write_to_the_warehouse_or_vanish_is_refused(
    spark: SparkSession, orders: TopicLog, tmp_path: Path, statement: str
) -> None:
    warehouse = Path(orders.uri)
    (tmp_path / "link").symlink_to(warehouse / "topics")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (warehouse / "topics" / "moved").symlink_to(elsewhere)
    (warehouse / "tables").mkdir()
    before = files(warehouse)
    text = statement.format(
        w=warehouse,
        relative=os.path.relpath(warehouse),
        link=tmp_path / "link",
        elsewhere=elsewhere,
        wal=tmp_path / "wal",
    )
    with pytest.raises(SqlError) as refusal:
        run_sql(orders.uri, text, spark=spark, protected=[str(tmp_path / "wal")])
    assert "\tat " not in refusal.value.message
    assert files(warehouse) == before
    assert not (tmp_path / "wal").exists()


def test_a_link_from_the_tables_to_a_topic_is_no_table(
    spark: SparkSession, orders: TopicLog, tmp_path: Path
) -> None:
    warehouse = Path(orders.uri)
    (warehouse / "tables").mkdir()
    (warehouse / "tables" / "mine").symlink_to(warehouse / "topics" / "orders")
    before = files(warehouse / "topics")
    for statement in ("SELECT * FROM mine", "DELETE FROM mine", "DROP TABLE mine"):
        with pytest.raises(SqlError, match="TABLE_OR_VIEW_NOT_FOUND"):
            run_sql(orders.uri, statement, spark=spark)
    with pytest.raises(SqlError):
        run_sql(orders.uri, "CREATE TABLE mine AS SELECT 1 AS a", spark=spark)
    assert files(warehouse / "topics") == before
    (warehouse / "tables" / "mine").unlink()
    (warehouse / "tables").rmdir()
    (warehouse / "tables").symlink_to("topics")
    for statement in ("CREATE TABLE t AS SELECT 1 AS a", "CREATE TABLE IF NOT EXISTS t (a INT)"):
        with pytest.raises(SqlError, match="is a link into"):
            run_sql(orders.uri, statement, spark=spark)
    assert files(warehouse / "topics") == before


def test_a_directory_around_the_warehouse_is_one_of_it(tmp_path: Path) -> None:
    warehouse = tmp_path / "w"
    for place in ("/", tmp_path, warehouse, warehouse / "topics" / "new", f"{warehouse}/a/../b"):
        assert overlap(str(place), str(warehouse))
    for place in (tmp_path / "w2", tmp_path / "w2" / "w", f"{warehouse}/../x"):
        assert not overlap(str(place), str(warehouse))


def test_another_directory_can_be_written_to(
    spark: SparkSession, orders: TopicLog, tmp_path: Path
) -> None:
    out = tmp_path / "warehouse-2"
    run_sql(
        orders.uri,
        f"INSERT OVERWRITE DIRECTORY '{out}' USING json SELECT offset FROM orders",
        spark=spark,
    )
    assert run_sql(orders.uri, f"SELECT count(*) FROM json.`{out}`", spark=spark).rows == ((2,),)


def test_one_broken_topic_stops_only_what_names_it(spark: SparkSession, orders: TopicLog) -> None:
    topic_log = orders
    for name in ("order", "count"):
        topic_log.create(name)
        log = max((Path(topic_log.uri) / "topics" / name / "_delta_log").glob("*.json"))
        log.write_bytes(log.read_bytes()[:-200])
    assert run_sql(topic_log.uri, "SELECT 1 AS one", spark=spark).rows == ((1,),)
    counted = run_sql(topic_log.uri, "SELECT count(*) FROM orders ORDER BY 1", spark=spark)
    assert counted.rows == ((2,),)
    listed = run_sql(topic_log.uri, "SHOW TABLES", spark=spark)
    assert "orders" in {row[1] for row in listed.rows}
    assert [note.split(":")[:2] for note in listed.notes] == [
        ["topic count is left out", " LOG_DAMAGED"],
        ["topic order is left out", " LOG_DAMAGED"],
    ]
    with pytest.raises(LogDamagedError):
        run_sql(topic_log.uri, "SELECT * FROM `order`", spark=spark)
    assert register_topics(spark, topic_log.uri) == {"orders": "orders"}
    with pytest.raises(LogDamagedError):
        register_topics(spark, topic_log.uri, ["order"])

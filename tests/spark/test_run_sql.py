"""`run_sql`: one statement, as the command line gives it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.unit.pyspark_mainstem.topic_log import START_MS, Record, TopicLog

from mainstem.errors import StoreUnavailableError
from mainstem.jobs import SqlError, run_sql


@pytest.fixture
def orders(topic_log: TopicLog) -> TopicLog:
    topic_log.create("orders")
    topic_log.append(
        "orders",
        (0, [Record("grün".encode(), b"k", headers=[("h", b"\xff\x00")]), Record(None, b"")]),
    )
    return topic_log


def test_bytes_are_shown_as_text_where_they_are_text(spark: SparkSession, orders: TopicLog) -> None:
    result = run_sql(
        orders.uri,
        "SELECT offset, key, value, headers, timestamp, key FROM Orders ORDER BY offset",
        spark=spark,
    )
    assert result.columns == ("offset", "key", "value", "headers", "timestamp", "key")
    assert result.types[:4] == (
        "bigint",
        "binary",
        "binary",
        "array<struct<key:string,value:binary>>",
    )
    at = dt.datetime.fromtimestamp(START_MS / 1000, dt.UTC)
    assert result.rows == (
        (0, "k", "grün", [{"key": "h", "value": "0xff00"}], at, "k"),
        (1, "", None, None, at, ""),
    )
    assert not result.truncated


def test_rows_can_be_limited(spark: SparkSession, orders: TopicLog) -> None:
    statement = "SELECT offset FROM orders ORDER BY offset"
    limited = run_sql(orders.uri, statement, spark=spark, row_count_max=1)
    assert (limited.rows, limited.truncated) == (((0,),), True)
    exact = run_sql(orders.uri, statement, spark=spark, row_count_max=2)
    assert (exact.rows, exact.truncated) == (((0,), (1,)), False)


def test_a_statement_that_names_no_topic_sees_all_of_them(
    spark: SparkSession, orders: TopicLog
) -> None:
    result = run_sql(orders.uri, "SHOW VIEWS", spark=spark)
    assert ("", "orders", True) in result.rows
    assert run_sql(orders.uri, "SELECT 1 AS one WHERE false", spark=spark).rows == ()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELEC 1", "Syntax error at or near 'SELEC'"),
        ("SELECT nothing FROM orders", "nothing"),
        ("SELECT * FROM missing", "TABLE_OR_VIEW_NOT_FOUND"),
        ("INSERT INTO orders VALUES (1)", "orders"),
        ("DELETE FROM orders WHERE offset = 0", "orders is a topic"),
    ],
)
def test_what_spark_refuses_is_one_error_without_a_stack_trace(
    spark: SparkSession, orders: TopicLog, statement: str, words: str
) -> None:
    with pytest.raises(SqlError, match=words) as caught:
        run_sql(orders.uri, statement.format(uri=orders.topics.uri("orders")), spark=spark)
    assert "\tat " not in caught.value.message


def test_results_of_deltas_own_commands_are_shown(spark: SparkSession, orders: TopicLog) -> None:
    uri = orders.topics.uri("orders")
    history = run_sql(orders.uri, f"DESCRIBE HISTORY delta.`{uri}`", spark=spark)
    assert "APPEND" in {row[history.columns.index("operation")] for row in history.rows}
    run_sql(orders.uri, "CREATE TABLE small AS SELECT 1 AS one", spark=spark)
    nothing_to_do = run_sql(orders.uri, "OPTIMIZE small", spark=spark)
    assert nothing_to_do.columns == ("path", "metrics")


def test_a_mistyped_warehouse_is_an_error_before_spark_starts(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="there is no warehouse"):
        run_sql(tmp_path / "typo", "SELECT 1")

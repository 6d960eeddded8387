"""`run_sql_stream`: INSERT INTO a table SELECT ... FROM a topic, going on where it was."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.spark.conftest import WAIT_S
from tests.unit.pyspark_mainstem.topic_log import Record, TopicLog

from mainstem.jobs import SqlError, run_sql, sql_streams
from mainstem.jobs.kept_streams import (
    ENDED,
    FAILED,
    RUNNING,
    STOPPED,
    KeptStream,
    KeptStreams,
    StreamError,
)
from mainstem.jobs.sql_stream_targets import TableTarget
from mainstem.jobs.sql_streams import run_sql_stream

LONG = (
    "INSERT INTO Long SELECT o.offset, CAST(o.value AS STRING) AS v, n.name FROM orders o "
    "LEFT JOIN names n ON n.k = CAST(o.key AS STRING) WHERE length(o.value) > 1"
)


@pytest.fixture
def orders(topic_log: TopicLog) -> TopicLog:
    topic_log.create("orders")
    topic_log.append("orders", (0, [Record(b"a", b"x"), Record(b"bb", b"x"), Record(None, b"y")]))
    return topic_log


def once(spark: SparkSession, log: TopicLog, statement: str, name: str | None = None) -> KeptStream:
    # A session of its own for each run, as each call of the command line has.
    return run_sql_stream(
        log.uri, statement, name=name, spark=spark.newSession(), available_now=True
    )


def test_a_stream_adds_to_its_table_what_each_record_gives_once_and_goes_on(
    spark: SparkSession, orders: TopicLog
) -> None:
    def rows() -> list[tuple[object, ...]]:
        return sorted(run_sql(orders.uri, "SELECT * FROM long", spark=spark.newSession()).rows)

    run_sql(orders.uri, "CREATE TABLE names AS SELECT 'x' k, 'Ex' name", spark=spark.newSession())
    ended = once(spark, orders, LONG)
    assert (ended.name, ended.table, ended.state) == ("Long", "long", ENDED)
    assert rows() == [(1, "bb", "Ex")]
    orders.append("orders", (0, [Record(b"cc", b"y"), Record(b"d", b"y")]))
    again = once(spark, orders, LONG)
    assert again.table_id == ended.table_id
    assert rows() == [(1, "bb", "Ex"), (3, "cc", None)]
    # A table of the same name that is another one does not have what was written before.
    run_sql(orders.uri, "DROP TABLE long", spark=spark.newSession())
    with pytest.raises(StreamError, match="is gone: `mainstem sql --stream --forget Long`"):
        once(spark, orders, LONG)
    run_sql(
        orders.uri, "CREATE TABLE long (a BIGINT, b STRING, c STRING)", spark=spark.newSession()
    )
    with pytest.raises(StreamError, match="is another one"):
        once(spark, orders, LONG)


def test_a_stream_runs_until_somebody_stops_it_and_nobody_takes_its_table_away(
    spark: SparkSession, orders: TopicLog
) -> None:
    streams = KeptStreams(Path(orders.uri))
    seen: list[str] = []

    def look(stream: KeptStream) -> None:
        seen.append(streams.read("mine").state)
        with pytest.raises(SqlError, match="stream mine writes to copy: stop it first"):
            run_sql(orders.uri, "DROP TABLE copy", spark=spark.newSession())
        with pytest.raises(StreamError, match="runs already"):
            once(spark, orders, "INSERT INTO copy SELECT offset FROM orders", name="mine")
        stopper.start()

    stopper = threading.Thread(target=lambda: seen.append(str(streams.stop("mine", WAIT_S))))
    stopped = run_sql_stream(
        orders.uri,
        "INSERT INTO copy SELECT offset FROM orders",
        name="mine",
        spark=spark.newSession(),
        on_start=look,
    )
    stopper.join(WAIT_S)
    assert (stopped.state, seen) == (STOPPED, [RUNNING, "True"])
    assert streams.read("mine").state == STOPPED


def test_ctrl_c_while_a_stream_starts_leaves_no_query_that_goes_on_without_its_lock(
    spark: SparkSession, orders: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(TableTarget):
        def start(self, writer: DataStreamWriter) -> StreamingQuery:
            query = super().start(writer)
            signal.raise_signal(signal.SIGINT)
            return query

    monkeypatch.setattr(sql_streams, "TableTarget", Interrupted)
    session = spark.newSession()
    with pytest.raises(KeyboardInterrupt):
        run_sql_stream(orders.uri, "INSERT INTO copy SELECT offset FROM orders", spark=session)
    assert [query.name for query in session.streams.active] == []
    assert KeptStreams(Path(orders.uri)).read("copy").state == STOPPED


def test_a_stream_that_fails_says_why_and_goes_on_when_it_can(
    spark: SparkSession, orders: TopicLog
) -> None:
    statement = "INSERT INTO numbers SELECT CAST(CAST(value AS STRING) AS INT) n FROM orders"
    with pytest.raises(SqlError, match=r"stream numbers has failed: \[CAST_INVALID_INPUT\]"):
        once(spark, orders, statement)
    kept = KeptStreams(Path(orders.uri)).read("numbers")
    assert (kept.state, kept.error[:20]) == (FAILED, "[CAST_INVALID_INPUT]")


def test_columns_are_those_of_the_table_by_position_or_by_name(
    spark: SparkSession, orders: TopicLog
) -> None:
    session = spark.newSession()
    run_sql(orders.uri, "CREATE TABLE pairs (a BIGINT, b STRING)", spark=session)
    for columns, select, expected in (
        ("", "partition, 'x'", (0, "x")),
        ("(b, a)", "'y', offset", (0, "y")),
        ("BY NAME", "'z' AS b", (None, "z")),
    ):
        name = f"s{len(select)}"
        statement = f"INSERT INTO pairs {columns} SELECT {select} FROM orders WHERE offset = 0"
        once(spark, orders, statement, name=name)
        found = run_sql(
            orders.uri, f"SELECT a, b FROM pairs WHERE b = '{expected[1]}'", spark=session
        )
        assert found.rows == (expected,)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT * FROM orders", "a stream is INSERT INTO"),
        ("WITH o AS (SELECT 1) INSERT INTO t SELECT * FROM o", "behind the table"),
        ("INSERT OVERWRITE t SELECT * FROM orders", "a stream adds rows"),
        ("INSERT INTO orders SELECT * FROM orders", "what it writes to orders, and have no end"),
        ("INSERT INTO `my.loud` SELECT * FROM orders", "no topic `my.loud` either"),
        ("INSERT INTO t SELECT 1 AS one", "reads no topic"),
        ("INSERT INTO t SELECT 1, 1 FROM orders", "two columns"),
        ("INSERT INTO t SELECT missing FROM orders", "missing"),
        ("INSERT INTO t SELECT * FROM nowhere", "TABLE_OR_VIEW_NOT_FOUND"),
        ("INSERT INTO t (a) SELECT 1, 2 FROM orders", "names 1 columns"),
        ("INSERT INTO delta.`/tmp/elsewhere` SELECT * FROM orders", "a stream is INSERT INTO"),
        ("INSERT INTO t SELECT count(*) n FROM orders", "watermark"),
    ],
)
def test_a_statement_that_cannot_be_a_stream_is_refused_and_nothing_runs(
    spark: SparkSession, orders: TopicLog, statement: str, words: str
) -> None:
    with pytest.raises(SqlError, match=words):
        once(spark, orders, statement)
    assert [one.state for one in KeptStreams(Path(orders.uri)).all()] in ([], [FAILED])


def test_what_the_table_has_no_room_for_is_refused_before_the_first_record(
    spark: SparkSession, orders: TopicLog
) -> None:
    session = spark.newSession()
    run_sql(orders.uri, "CREATE TABLE t (a INT)", spark=session)
    for select, words in (("key", "use CAST"), ("1, 2", "the SELECT has 2 columns")):
        with pytest.raises(SqlError, match=words):
            once(spark, orders, f"INSERT INTO t SELECT {select} FROM orders")
    with pytest.raises(SqlError, match="has no column b"):
        once(spark, orders, "INSERT INTO t (b) SELECT 1 FROM orders")

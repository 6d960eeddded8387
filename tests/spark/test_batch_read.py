"""`spark.read.format("mainstem")`."""

from __future__ import annotations

import datetime as dt

import pytest
from chispa import assert_df_equality
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.unit.pyspark_mainstem.topic_log import START_MS, Record, TopicLog


def _read(spark: SparkSession, topic_log: TopicLog, **options: str) -> DataFrame:
    return (
        spark.read.format("mainstem")
        .option("mainstem.warehouse", topic_log.uri)
        .options(**{"subscribe": "orders", **options})
        .load()
    )


def test_the_columns_are_those_of_kafkas_source(spark: SparkSession, topic_log: TopicLog) -> None:
    topic_log.create("orders")
    kafka = (
        "key binary, value binary, topic string, partition int, offset bigint, "
        "timestamp timestamp, timestampType int"
    )
    assert _read(spark, topic_log).schema == spark.createDataFrame([], kafka).schema
    assert (
        _read(spark, topic_log, includeHeaders="true").schema
        == spark.createDataFrame(
            [], f"{kafka}, headers array<struct<key string, value binary>>"
        ).schema
    )
    assert _read(spark, topic_log, columns="value,key").columns == ["value", "key"]
    assert _read(spark, topic_log).count() == 0


def test_records_come_as_they_were_sent(spark: SparkSession, topic_log: TopicLog) -> None:
    topic_log.create("orders", 2)
    headers = [("b", b"1"), ("a", None), ("b", b"")]
    topic_log.append(
        "orders",
        (0, [Record(b"", None, headers=headers), Record(None, b"")]),
        (1, [Record(b"\xff", b"k", START_MS + 1)]),
    )
    rows = _read(spark, topic_log, includeHeaders="true").sort("partition", "offset").collect()
    assert [(r.topic, r.partition, r.offset, r.key, r.value) for r in rows] == [
        ("orders", 0, 0, None, b""),
        ("orders", 0, 1, b"", None),
        ("orders", 1, 0, b"k", b"\xff"),
    ]
    assert [tuple(header) for header in rows[0].headers] == headers
    assert rows[1].headers is None
    assert {row.timestampType for row in rows} == {0}
    assert rows[2].timestamp.astimezone(dt.UTC) == dt.datetime.fromtimestamp(
        (START_MS + 1) / 1000, dt.UTC
    )


def test_it_gives_the_rows_that_delta_gives(spark: SparkSession, topic_log: TopicLog) -> None:
    topic_log.create("orders", 3)
    for partition in range(3):
        topic_log.count_up("orders", partition, 50, file_count=4)
    columns = ["key", "value", "partition", "offset", "timestamp"]
    assert_df_equality(
        _read(spark, topic_log).select(columns),
        spark.read.format("delta").load(topic_log.topics.uri("orders")).select(columns),
        ignore_row_order=True,
        ignore_nullable=True,
    )


def test_each_partition_is_one_task_in_offset_order_and_more_on_request(
    spark: SparkSession, topic_log: TopicLog
) -> None:
    topic_log.create("orders", 2)
    topic_log.count_up("orders", 0, 100, file_count=10)
    topic_log.count_up("orders", 1, 7)

    def tasks(**options: str) -> list[list[tuple[int, int]]]:
        frame = _read(spark, topic_log, **options).select("partition", "offset")
        return [[(r.partition, r.offset) for r in rows] for rows in frame.rdd.glom().collect()]

    whole = [[(0, offset) for offset in range(100)], [(1, offset) for offset in range(7)]]
    assert tasks() == whole
    pieces = tasks(minPartitions="5")
    assert len(pieces) == 5
    assert [row for piece in pieces for row in piece] == [row for one in whole for row in one]
    # The rest of the large partition and the small one share a task.
    pieces = tasks(maxRecordsPerPartition="60")
    assert [len(piece) for piece in pieces] == [50, 57]
    assert [row for piece in pieces for row in piece] == [row for one in whole for row in one]


def test_positions_bound_what_is_read(spark: SparkSession, topic_log: TopicLog) -> None:
    topic_log.create("orders", 2)
    topic_log.count_up("orders", 0, 10, file_count=3)
    topic_log.count_up("orders", 1, 10)

    def offsets(**options: str) -> list[list[int]]:
        rows = _read(spark, topic_log, **options).sort("offset").collect()
        return [[r.offset for r in rows if r.partition == partition] for partition in (0, 1)]

    assert offsets(
        startingOffsets='{"orders":{"0":7,"1":-2}}', endingOffsets='{"orders":{"0":-1,"1":2}}'
    ) == [[7, 8, 9], [0, 1]]
    assert offsets(
        startingTimestamp=str(START_MS + 3000),
        endingOffsetsByTimestamp=f'{{"orders":{{"0":{START_MS + 5000},"1":{START_MS}}}}}',
    ) == [[3, 4], []]
    assert offsets(
        startingOffsetsByTimestamp=f'{{"orders":{{"0":{2**50},"1":{START_MS + 8000}}}}}',
        startingOffsetsByTimestampStrategy="latest",
    ) == [[], [8, 9]]


def test_topics_are_chosen_by_list_pattern_and_partition(
    spark: SparkSession, topic_log: TopicLog
) -> None:
    for topic in ("orders", "orders.eu", "returns"):
        topic_log.create(topic, 2)
        topic_log.count_up(topic, 0, 1)
        topic_log.count_up(topic, 1, 2)

    def counts(**selection: str) -> dict[str, int]:
        frame = (
            spark.read.format("mainstem")
            .option("mainstem.warehouse", f"file://{topic_log.uri}")
            .options(**selection)
            .load()
        )
        return {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()}

    assert counts(subscribe="orders, returns") == {"orders": 3, "returns": 3}
    assert counts(subscribePattern="orders.*") == {"orders": 3, "orders.eu": 3}
    assert counts(assign='{"orders":[1],"returns":[0]}') == {"orders": 2, "returns": 1}
    assert counts(subscribePattern="none") == {}


def test_a_dataframe_is_planned_at_its_first_action_and_reads_the_same_ever_after(
    spark: SparkSession, topic_log: TopicLog
) -> None:
    topic_log.create("orders")
    frame = _read(spark, topic_log)
    topic_log.count_up("orders", 0, 2)
    assert frame.count() == 2
    topic_log.count_up("orders", 0, 3)
    assert frame.count() == 2
    assert len(frame.filter("offset >= 0").collect()) == 2
    assert _read(spark, topic_log).count() == 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"startingOfsets": "earliest"},
            "no option 'startingofsets'; did you mean startingOffsets",
        ),
        ({"kafka.bootstrap.servers": "x:9092"}, "kafka.bootstrap.servers is not supported"),
        ({"subscribePattern": "x"}, "only one of the following options can be specified"),
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest in a batch query"),
        ({"subscribe": "missing"}, "there is no topic 'missing' in the warehouse"),
        ({"mainstem.warehouse": "/no/such/place"}, "there is no warehouse at /no/such/place"),
        ({"mainstem.warehouse": "hdfs://name/x"}, "a store that is not supported"),
    ],
)
def test_what_is_wrong_is_said_in_the_exception(
    spark: SparkSession, topic_log: TopicLog, options: dict[str, str], words: str
) -> None:
    topic_log.create("orders")
    with pytest.raises(AnalysisException, match=words):
        _read(spark, topic_log, **options).collect()


def test_a_schema_chooses_columns_and_no_others(spark: SparkSession, topic_log: TopicLog) -> None:
    topic_log.create("orders")
    topic_log.append("orders", (0, [Record(b"v", headers=[("h", b"1")])]))
    reader = spark.read.format("mainstem").options(
        **{"mainstem.warehouse": topic_log.uri, "subscribe": "orders"}
    )
    header = "headers array<struct<key string, value binary>>"
    chosen = reader.schema(f"value binary, partition int, {header}").load()
    assert [tuple(row) for row in chosen.collect()] == [(b"v", 0, [("h", b"1")])]
    with pytest.raises(AnalysisException, match="has the column 'value', string; a schema"):
        reader.schema("value string").load().collect()


def test_filters_leave_out_files_where_spark_pushes_them_down(
    spark: SparkSession, topic_log: TopicLog
) -> None:
    topic_log.create("orders", 2)
    topic_log.count_up("orders", 0, 20, file_count=4)
    topic_log.count_up("orders", 1, 20, file_count=4)
    first, last = (f"timestamp_millis({START_MS + 1000 * offset})" for offset in (7, 12))
    conditions = ("offset > 6 AND offset <= 12", f"timestamp BETWEEN {first} AND {last}")
    frame = _read(spark, topic_log).where("partition = 0").select("offset")

    def answers() -> list[list[int]]:
        return [[r.offset for r in frame.where(one).collect()] for one in conditions]

    assert answers() == [list(range(7, 13))] * 2
    # Who reads one of these says that it is missing.
    for path in (*topic_log.data_files("orders", 0)[::3], *topic_log.data_files("orders", 1)):
        path.unlink()
    with pytest.raises(PySparkException, match="is missing"):
        answers()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert answers() == [list(range(7, 13))] * 2
        with pytest.raises(PySparkException, match="offsets 0 to 4"):
            frame.collect()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_missing_data_file_is_an_error_not_a_shorter_answer(
    spark: SparkSession, topic_log: TopicLog
) -> None:
    topic_log.create("orders", 2)
    topic_log.count_up("orders", 0, 9, file_count=3)
    topic_log.count_up("orders", 1, 9)
    topic_log.data_files("orders", 0)[1].unlink()
    with pytest.raises(PySparkException, match="offsets 3 to 5"):
        _read(spark, topic_log).collect()
    with pytest.raises(PySparkException, match="offsets 3 to 5"):
        _read(spark, topic_log, failOnDataLoss="false").collect()
    rest = _read(spark, topic_log, startingOffsets='{"orders":{"0":6,"1":0}}')
    assert rest.count() == 12

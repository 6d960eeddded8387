"""One table, many readers, one writer: who sees what, and who is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import WAIT_S, Streams
from tests.unit.pyspark_mainstem.interop import (
    LAYOUTS,
    RECORDS,
    TOPIC,
    expected,
    fill,
    rows_of,
)
from tests.unit.pyspark_mainstem.topic_log import TopicLog


@pytest.fixture
def orders(topic_log: TopicLog) -> str:
    """The URI of a topic with records in two of three partitions and files of many kinds."""
    return fill(topic_log)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_spark_sees_every_row_however_the_files_are_laid_out(
    spark: SparkSession, topic_log: TopicLog, layout: str
) -> None:
    """Readers without Spark are in the unit tests of `pyspark_mainstem`."""
    uri = fill(topic_log, layout)
    source = (
        spark.read.format("mainstem")
        .options(**{"mainstem.warehouse": topic_log.uri, "subscribe": TOPIC})
        .option("includeHeaders", "true")
        .load()
    )
    table = f"delta.`{uri}`"
    assert rows_of(source.toArrow()) == expected()
    assert rows_of(spark.sql(f"SELECT * FROM {table}").toArrow()) == expected()
    for partition in range(3):
        where = f"SELECT * FROM {table} WHERE partition = {partition}"
        assert rows_of(spark.sql(where).toArrow()) == expected(partition)
    counted = spark.sql(f"SELECT partition, count(*) FROM {table} GROUP BY partition").collect()
    assert {row[0]: row[1] for row in counted} == {0: 20, 2: 5}
    paths = [str(path) for path in topic_log.data_files(TOPIC, 0)]
    assert rows_of(spark.read.parquet(*paths).toArrow()) == expected(0), "as plain Parquet"


def test_a_changed_value_is_an_error_of_sql_in_our_sessions(
    spark: SparkSession, orders: str, topic_log: TopicLog
) -> None:
    path = topic_log.data_files(TOPIC, 2)[0]
    with pq.ParquetFile(path) as parquet:
        column = parquet.metadata.row_group(0).column(5)
    assert column.path_in_schema == "value"
    data = bytearray(path.read_bytes())
    # In the bytes of the last value, which end the column.
    data[column.data_page_offset + column.total_compressed_size - 9] ^= 8
    path.write_bytes(data)
    with pytest.raises(Exception, match="could not verify page integrity"):
        spark.sql(f"SELECT value FROM delta.`{orders}` WHERE partition = 2").collect()
    left = spark.sql(f"SELECT * FROM delta.`{orders}` WHERE partition = 0").toArrow()
    assert rows_of(left) == expected(0), "the partitions beside it go on"


def test_a_filter_on_offset_and_partition_gives_the_right_rows(
    spark: SparkSession, orders: str
) -> None:
    frame = spark.sql(f"SELECT * FROM delta.`{orders}` WHERE partition = 0 AND offset >= 7")
    assert [row[1] for row in rows_of(frame.toArrow())] == list(range(7, 20))
    early = spark.sql(f"SELECT * FROM delta.`{orders}` WHERE timestamp < '1980-01-01'")
    found = [row[:2] for row in rows_of(early.toArrow())]
    assert found == [(0, 3), (0, 8), (0, 13), (0, 18), (2, 3)]


def test_sparks_own_delta_stream_sees_every_record_once(
    spark: SparkSession, orders: str, topic_log: TopicLog, tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []

    def take(frame: DataFrame, batch_id: int) -> None:
        seen.extend((row.partition, row.offset) for row in frame.collect())

    for _ in range(2):
        query = (
            spark.readStream.format("delta")
            .load(orders)
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "delta-stream"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S)
        topic_log.append("orders", (1, RECORDS))
    assert sorted(seen) == [
        *((0, offset) for offset in range(20)),
        *((1, offset) for offset in range(5)),
        *((2, offset) for offset in range(5)),
    ]


def test_spark_cannot_write_to_a_topic(
    spark: SparkSession, orders: str, topic_log: TopicLog
) -> None:
    version = topic_log.version("orders")
    for statement in (
        "INSERT INTO {table} SELECT * FROM {table}",
        "DELETE FROM {table} WHERE offset = 0",
        "UPDATE {table} SET value = NULL",
        "OPTIMIZE {table}",
        "ALTER TABLE {table} ADD COLUMNS (mine int)",
        "ALTER TABLE {table} SET TBLPROPERTIES ('mainstem.partitions' = '9')",
    ):
        # Delta's exception has no class in pyspark, so it comes as a Py4JJavaError.
        with pytest.raises(Exception, match=r"(?s)FEATURES_FOR_WRITE.*mainstemLog"):
            spark.sql(statement.format(table=f"delta.`{orders}`")).collect()
        assert topic_log.version("orders") == version, statement


def test_a_spark_dataframe_cannot_be_written_to_a_topic(
    spark: SparkSession, orders: str, topic_log: TopicLog
) -> None:
    version = topic_log.version("orders")
    frame = spark.read.format("delta").load(orders)
    with pytest.raises(Exception, match="mainstemLog"):
        frame.write.format("delta").mode("append").save(orders)
    assert topic_log.version("orders") == version


@pytest.mark.parametrize(
    "write",
    [
        lambda uri: write_deltalake(uri, DeltaTable(uri).to_pyarrow_table(), mode="append"),
        lambda uri: DeltaTable(uri).delete("offset = 0"),
        lambda uri: DeltaTable(uri).optimize.compact(),
    ],
    ids=["append", "delete", "compact"],
)
def test_delta_rs_cannot_write_to_a_topic(
    orders: str, topic_log: TopicLog, write: Callable[[str], object]
) -> None:
    version = topic_log.version("orders")
    with pytest.raises(DeltaError, match=r"(?i)feature"):
        write(orders)
    assert topic_log.version("orders") == version


def test_a_stream_of_ours_and_deltas_end_with_the_same_rows(
    spark: SparkSession, orders: str, streams: Streams
) -> None:
    streams.run(subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger="4")
    by_stream = sorted((row.partition, row.offset, row.value) for row in streams.rows())
    by_delta = spark.read.format("delta").load(orders).collect()
    assert by_stream == sorted((row.partition, row.offset, row.value) for row in by_delta)

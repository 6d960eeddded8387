"""One table, many readers, one writer: who sees what, and who is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import WAIT_S, Streams
from tests.unit.pyspark_mainstem.topic_log import START_MS, Record, TopicLog

from mainstem.delta_log.table import write_checkpoint

Row = tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]

RECORDS = [
    Record(b"value", b"key", START_MS, [("h", b"1"), ("h", None), ("", b"")]),
    Record(b"", b"", START_MS + 1),
    Record(None, None, START_MS + 999),
    Record(bytes(range(256)), "ключ".encode(), 0),
    Record(b"x" * 5000, b"far", START_MS - 10**11),
]
COLUMNS = ["partition", "offset", "timestamp", "key", "value", "headers"]


@pytest.fixture
def orders(topic_log: TopicLog) -> str:
    """The URI of a topic with records in three partitions and several files, some behind a
    checkpoint.
    """
    topic_log.create("orders", 3)
    topic_log.append("orders", *((partition, RECORDS) for partition in (0, 2)))
    opened = topic_log.topics.open("orders")
    write_checkpoint(opened.store)
    opened.store.close()
    topic_log.append("orders", (0, RECORDS[:2]), (0, RECORDS[2:]))
    return topic_log.topics.uri("orders")


def _rows(table: pa.Table) -> list[Row]:
    found: list[Row] = []
    for row in table.select(COLUMNS).to_pylist():
        headers = row["headers"]
        found.append(
            (
                row["partition"],
                row["offset"],
                round(row["timestamp"].timestamp() * 1000),
                row["key"],
                row["value"],
                None if headers is None else [(one["key"], one["value"]) for one in headers],
            )
        )
    return sorted(found, key=lambda row: row[:2])


def _expected() -> list[Row]:
    def rows(partition: int, records: list[Record]) -> Iterator[Row]:
        for offset, one in enumerate(records):
            headers = None if one.headers is None else list(one.headers)
            yield (partition, offset, one.timestamp_ms, one.key, one.value, headers)

    return [*rows(0, RECORDS * 2), *rows(2, RECORDS)]


def test_every_reader_sees_the_same_rows(
    spark: SparkSession, orders: str, topic_log: TopicLog
) -> None:
    source = (
        spark.read.format("mainstem")
        .options(**{"mainstem.warehouse": topic_log.uri, "subscribe": "orders"})
        .option("includeHeaders", "true")
        .load()
    )
    readers = {
        "Spark, source": source.toArrow(),
        "Spark, SQL": spark.sql(f"SELECT * FROM delta.`{orders}`").toArrow(),
        "delta-rs": DeltaTable(orders).to_pyarrow_table(),
        "Polars": polars.read_delta(orders).to_arrow(),
        "DuckDB": _by_duckdb(DeltaTable(orders).to_pyarrow_dataset()),
    }
    for reader, table in readers.items():
        assert _rows(table) == _expected(), reader


def _by_duckdb(topic: object) -> pa.Table:
    with duckdb.connect() as connection:
        connection.register("topic", topic)
        return connection.sql("SET TimeZone = 'UTC'; SELECT * FROM topic").to_arrow_table()


def test_a_filter_on_offset_and_partition_gives_the_right_rows(
    spark: SparkSession, orders: str
) -> None:
    frame = spark.sql(f"SELECT * FROM delta.`{orders}` WHERE partition = 0 AND offset >= 7")
    assert [row[1] for row in _rows(frame.toArrow())] == [7, 8, 9]
    early = spark.sql(f"SELECT * FROM delta.`{orders}` WHERE timestamp < '1980-01-01'")
    assert [row[:2] for row in _rows(early.toArrow())] == [(0, 3), (0, 8), (2, 3)]


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
        *((0, offset) for offset in range(10)),
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

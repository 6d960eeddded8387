"""A topic's files for those who read them without us and without Spark: the same rows for all.

Readers of Delta tables find the files by the log. Those that do not know Delta are given the paths
of the active files, and find in these alone what they need: the partition, too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from tests.unit.pyspark_mainstem.interop import LAYOUTS, TOPIC, Row, expected, fill, rows_of
from tests.unit.pyspark_mainstem.topic_log import TopicLog

from mainstem.records import FILE_SCHEMA

BY_PARTITION = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "partition"))


@pytest.fixture(params=LAYOUTS)
def orders(request: pytest.FixtureRequest, topic_log: TopicLog) -> str:
    """The URI of the topic's table."""
    return fill(topic_log, request.param)


def _active(topic_log: TopicLog) -> list[str]:
    return [str(path) for partition in range(3) for path in topic_log.data_files(TOPIC, partition)]


def _by_duckdb(query: str, **tables: object) -> pa.Table:
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(f"SET TimeZone = 'UTC'; {query}").to_arrow_table()


@pytest.mark.parametrize(
    "read",
    [
        lambda uri: DeltaTable(uri).to_pyarrow_table(),
        lambda uri: pa.Table.from_pandas(DeltaTable(uri).to_pandas()),
        lambda uri: polars.read_delta(uri).to_arrow(),
        lambda uri: _by_duckdb("FROM topic", topic=DeltaTable(uri).to_pyarrow_dataset()),
    ],
    ids=["delta-rs", "pandas", "Polars", "DuckDB"],
)
def test_a_reader_of_delta_tables_sees_every_row(
    orders: str, read: Callable[[str], pa.Table]
) -> None:
    assert rows_of(read(orders)) == expected()


@pytest.mark.parametrize("partition", [0, 1, 2])
def test_a_reader_of_delta_tables_sees_the_rows_of_a_partition(orders: str, partition: int) -> None:
    wanted = expected(partition)
    table = DeltaTable(orders)
    assert rows_of(table.to_pyarrow_table(filters=[("partition", "=", partition)])) == wanted
    by_polars = polars.scan_delta(orders).filter(polars.col("partition") == partition).collect()
    assert rows_of(by_polars.to_arrow()) == wanted
    query = f"FROM topic WHERE partition = {partition}"
    assert rows_of(_by_duckdb(query, topic=table.to_pyarrow_dataset())) == wanted


@pytest.mark.parametrize(
    "read",
    [
        lambda paths: pyarrow.dataset.dataset(paths).to_table(),
        lambda paths: polars.read_parquet(paths, hive_partitioning=False).to_arrow(),
        lambda paths: _by_duckdb(f"FROM read_parquet({paths}, hive_partitioning = false)"),
    ],
    ids=["pyarrow", "Polars", "DuckDB"],
)
def test_a_reader_of_parquet_sees_every_row_and_its_partition(
    orders: str, topic_log: TopicLog, read: Callable[[list[str]], pa.Table]
) -> None:
    assert rows_of(read(_active(topic_log))) == expected()


def test_a_dataset_of_the_active_files_is_filtered_by_partition_and_offset(
    orders: str, topic_log: TopicLog
) -> None:
    column = pyarrow.dataset.field
    files = pyarrow.dataset.dataset(_active(topic_log))
    assert files.schema.equals(FILE_SCHEMA)
    for partition in range(3):
        found = files.to_table(filter=column("partition") == partition)
        assert rows_of(found) == expected(partition)
    found = files.to_table(filter=(column("partition") == 0) & (column("offset") >= 7))
    assert rows_of(found) == expected(0)[7:]


@pytest.mark.parametrize("spec", [PartitionSpec(), BY_PARTITION], ids=["whole", "by partition"])
def test_iceberg_takes_the_files_as_they_are(
    orders: str, topic_log: TopicLog, tmp_path: Path, spec: PartitionSpec
) -> None:
    paths = _active(topic_log)
    before = {path: Path(path).read_bytes() for path in paths}
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/ice")
    try:
        catalog.create_namespace("n")
        table = catalog.create_table("n.orders", schema=_schema(), partition_spec=spec)
        table.add_files(paths)
        assert rows_of(table.scan().to_arrow()) == _by_iceberg(expected())
        for partition in range(3):
            wanted = _by_iceberg(expected(partition))
            assert rows_of(_scan(table, f"partition = {partition}")) == wanted
        wanted = _by_iceberg(expected(0)[7:])
        assert rows_of(_scan(table, "partition = 0 and offset >= 7")) == wanted
        read = [task.file.file_path for task in table.scan("partition = 2").plan_files()]
        assert len(read) == 1, "the files of other partitions are not looked at"
    finally:
        catalog.close()
    assert {path: Path(path).read_bytes() for path in paths} == before


def test_iceberg_gives_its_columns_the_ids_that_the_files_have() -> None:
    schema = _schema()
    assert [field.field_id for field in schema.fields] == list(range(1, 10))
    assert [field.name for field in schema.fields] == FILE_SCHEMA.names
    assert schema.find_column_name(10) == "headers.element"
    assert schema.find_column_name(12) == "headers.element.value"


def test_every_active_file_says_the_same_of_itself(orders: str, topic_log: TopicLog) -> None:
    schemas = {str(pq.ParquetFile(path).schema) for path in _active(topic_log)}
    texts = {text.split("\n", 1)[1] for text in schemas}  # without the address of the object
    assert len(texts) == 1


def _by_iceberg(rows: list[Row]) -> list[Row]:
    """PyIceberg reads a list of structs that is null as an empty one, in tables of its own too."""
    return [(*row[:5], row[5] or []) for row in rows]


def _scan(table: Table, row_filter: str) -> pa.Table:
    return table.scan(row_filter=row_filter).to_arrow()


def _schema() -> Schema:
    """The columns of a topic, in the order and with the ids of the table format."""
    header = StructType(
        NestedField(11, "key", StringType()), NestedField(12, "value", BinaryType())
    )
    return Schema(
        NestedField(1, "partition", IntegerType()),
        NestedField(2, "offset", LongType()),
        NestedField(3, "timestamp", TimestamptzType()),
        NestedField(4, "timestamp_type", IntegerType()),
        NestedField(5, "key", BinaryType()),
        NestedField(6, "value", BinaryType()),
        NestedField(7, "headers", ListType(10, header, element_required=False)),
        NestedField(8, "producer_id", LongType()),
        NestedField(9, "sequence", LongType()),
    )

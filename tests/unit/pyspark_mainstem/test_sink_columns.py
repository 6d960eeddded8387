"""Which DataFrames the sink takes, and what it makes of their rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from mainstem.errors import InvalidConfigError, InvalidRecordError
from pyspark_mainstem import _sink_columns
from pyspark_mainstem._sink_columns import by_topic, check_schema


def _schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, type_) for name, type_ in columns.items()])


def _headers(value: DataType) -> DataType:
    return ArrayType(StructType([StructField("key", StringType()), StructField("value", value)]))


@pytest.mark.parametrize("text", [StringType(), BinaryType()])
def test_text_and_binary_are_taken_and_columns_of_the_source_beside_them(text: DataType) -> None:
    check_schema(_schema(value=text), "orders")
    check_schema(
        _schema(
            key=text,
            value=text,
            topic=StringType(),
            partition=IntegerType(),
            offset=LongType(),
            timestamp=TimestampType(),
            timestampType=IntegerType(),
            headers=_headers(text),
        ),
        "",
    )


@pytest.mark.parametrize(
    ("columns", "topic", "words"),
    [
        ({"key": StringType()}, "t", "has no column 'value'; it has key"),
        ({"value": StringType()}, "", "'topic', and the option 'topic' is not set"),
        ({"value": DoubleType()}, "t", "'value' is double; it must be string or binary: cast it"),
        ({"value": StringType(), "key": LongType()}, "t", "'key' is bigint"),
        (
            {"value": StringType(), "topic": BinaryType()},
            "",
            "'topic' is binary; it must be string",
        ),
        ({"value": StringType(), "partition": LongType()}, "t", "'partition' is bigint; .* int"),
        ({"value": StringType(), "timestamp": LongType()}, "t", "it must be timestamp"),
        ({"value": StringType(), "headers": StringType()}, "t", "array<struct<key string, value"),
        ({"value": StringType(), "headers": _headers(LongType())}, "t", "'headers' is array"),
    ],
)
def test_what_cannot_be_written_is_refused_with_the_reason(
    columns: dict[str, DataType], topic: str, words: str
) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        check_schema(_schema(**columns), topic)


def test_a_column_that_is_there_twice_is_refused() -> None:
    twice = StructType([StructField("value", StringType()), StructField("value", StringType())])
    with pytest.raises(InvalidConfigError, match="'value' twice"):
        check_schema(twice, "t")


def _batch(**columns: list[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_with_the_option_every_row_goes_to_its_topic() -> None:
    batch = _batch(value=["a", "b"], topic=["x", None], offset=[1, 2])
    ((topic, rows),) = by_topic(batch, "orders")
    assert topic == "orders"
    assert rows.to_pydict() == {"value": ["a", "b"]}


def test_rows_go_to_the_topics_of_their_column_in_order() -> None:
    batch = _batch(value=list("abcde"), topic=["x", "y", "x", "x", "y"], key=list("12345"))
    assert {topic: rows.to_pydict() for topic, rows in by_topic(batch, "")} == {
        "x": {"key": ["1", "3", "4"], "value": ["a", "c", "d"]},
        "y": {"key": ["2", "5"], "value": ["b", "e"]},
    }


def test_a_row_without_a_topic_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="null in the column 'topic'"):
        list(by_topic(_batch(value=["a", "b"], topic=["x", None]), ""))


def test_large_batches_are_cut_and_empty_ones_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sink_columns, "_BATCH_BYTES_MAX", 64)
    batch = _batch(value=[f"{number:>20}" for number in range(10)])
    parts = [rows for _, rows in by_topic(batch, "t")]
    assert len(parts) > 4
    assert [value for rows in parts for value in rows.column("value").to_pylist()] == (
        batch.column("value").to_pylist()
    )
    assert list(by_topic(batch.slice(0, 0), "t")) == []

"""The columns that the sink takes, which are those of Spark's Kafka sink and `timestamp`; and rows
as batches for the producer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from mainstem.errors import InvalidConfigError, InvalidRecordError

_TEXT_OR_BINARY: Final = "string or binary"
_HEADERS: Final = "array<struct<key string, value binary>>"

#: The columns of a record, and what each may be in words.
_RECORD: Final = {
    "key": _TEXT_OR_BINARY,
    "value": _TEXT_OR_BINARY,
    "headers": _HEADERS,
    "timestamp": "timestamp",
    "partition": "int",
}

#: Bytes that the producer is given at once: much less than its buffer.
_BATCH_BYTES_MAX: Final = 8 * 1024 * 1024


def check_schema(schema: StructType, topic: str) -> None:
    """Refuses a DataFrame that the sink cannot write; columns that it does not know it leaves out,
    as Kafka's does.

    Args:
        topic: Of the options; empty: the DataFrame must have a column `topic`.

    Raises:
        InvalidConfigError: A column is missing, twice there, or has another type.
    """
    kinds = _RECORD | {"topic": "string"}
    for name in kinds:
        if schema.names.count(name) > 1:
            raise InvalidConfigError(f"the DataFrame has the column {name!r} twice", name=name)
    for name in ("value", *(() if topic else ("topic",))):
        if name not in schema.names:
            hint = "" if name == "value" else ", and the option 'topic' is not set: set one of them"
            raise InvalidConfigError(
                f"the DataFrame has no column {name!r}{hint}; it has "
                f"{', '.join(schema.names) or 'none'}",
                name=name,
            )
    for field in schema.fields:
        if field.name in kinds and not _fits(field.name, field.dataType):
            raise InvalidConfigError(
                f"the column {field.name!r} is {field.dataType.simpleString()}; it must be "
                f"{kinds[field.name]}: cast it",
                name=field.name,
            )


def _fits(name: str, given: DataType) -> bool:
    if name in ("key", "value"):
        return isinstance(given, (StringType, BinaryType))
    if name == "topic":
        return isinstance(given, StringType)
    if name == "partition":
        return isinstance(given, IntegerType)
    if name == "timestamp":
        return isinstance(given, TimestampType)
    inner = given.elementType if isinstance(given, ArrayType) else None
    return (
        isinstance(inner, StructType)
        and inner.names == ["key", "value"]
        and isinstance(inner.fields[0].dataType, StringType)
        and isinstance(inner.fields[1].dataType, (StringType, BinaryType))
    )


def by_topic(batch: pa.RecordBatch, topic: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows as batches for `Producer.produce_batch`, each with its topic. Rows of a topic keep
    their order.

    Args:
        topic: Of the options, and then the column `topic` does not count; or empty.

    Raises:
        InvalidRecordError: A row has no topic.
    """
    records = batch.select([name for name in _RECORD if name in batch.schema.names])
    if topic:
        yield from ((topic, part) for part in _cut(records))
        return
    topics = batch.column("topic")
    if topics.null_count:
        raise InvalidRecordError(
            "a row has null in the column 'topic'; the option 'topic' sends every row to one",
            column="topic",
        )
    names = pc.unique(topics)
    for name in names:
        rows = records if len(names) == 1 else records.filter(pc.equal(topics, name))
        yield from ((name.as_py(), part) for part in _cut(rows))


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halves, and halves of those, until each is small enough. Copies nothing."""
    if batch.nbytes <= _BATCH_BYTES_MAX or batch.num_rows <= 1:
        if batch.num_rows:
            yield batch
        return
    middle = batch.num_rows // 2
    yield from _cut(batch.slice(0, middle))
    yield from _cut(batch.slice(middle))

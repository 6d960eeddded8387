"""The columns of the source, which are those of Spark's Kafka source, as Spark types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from mainstem.errors import InvalidConfigError

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

#: Types, not a DDL string: under `spark.sql.timestampType` a DDL's TIMESTAMP can mean one without a
#: zone.
_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}


def spark_schema(columns: Sequence[str]) -> StructType:
    """The schema with these columns, in this order."""
    return StructType([StructField(name, _TYPES[name]) for name in columns])


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns of a schema that the caller may have given.

    Raises:
        InvalidConfigError: It has other columns than the source, or other types.
    """
    for field in schema.fields:
        own = _TYPES.get(field.name)
        if field.dataType != own or not field.nullable:
            what = "NOT NULL" if field.dataType == own else field.dataType.simpleString()
            has = ", ".join(f"{name} {type_.simpleString()}" for name, type_ in _TYPES.items())
            raise InvalidConfigError(
                f"the schema has the column {field.name!r}, {what}; a schema for this source names "
                f"some of its own columns, with their types: {has}. Cast with select"
            )
    if not schema.fields:
        raise InvalidConfigError("the schema has no column")
    return tuple(schema.names)

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


def check_schema(schema: StructType, columns: Sequence[str]) -> None:
    """Refuses a schema that the caller gave and that is not the source's own."""
    if schema != spark_schema(columns):
        raise InvalidConfigError(
            f"the source has the columns {', '.join(columns)} and takes no schema; choose columns "
            "with the option "
            "'columns', and cast with select"
        )

"""Values that are JSON."""

from __future__ import annotations

import json
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

from mainstem.errors import InvalidConfigError
from mainstem.jobs.streams.framing import HEADER_BYTES
from mainstem.jobs.streams.parsed import PROBLEM, Parsed, check_columns, is_of_a_pipeline, split

EXCEPTION: Final = "InvalidJson"

#: Of the struct around the value. Spark reads the first value of a text and looks at nothing behind
#: it; inside an object, what does not belong there is seen.
_VALUE: Final = "value"
_CORRUPT: Final = "corrupt"

_SAMPLE_ROWS: Final = 1_000


def parse_json(
    records: DataFrame,
    schema: StructType | str,
    *,
    column: str = "value",
    into: str = "record",
    framed: bool = False,
) -> Parsed:
    """Parses values that are JSON objects.

    Bad is what is empty, is not UTF-8, is not one JSON object, has a field whose value is of
    another type than the schema's, or lacks one (or has null in it) that the schema says is not
    null. Fields that the schema does not have are passed over. A null value is good.

    Args:
        records: Rows with the columns of the source.
        schema: Spark's type of the object, or its DDL (`"carrier string, dep_delay int"`), which
            Spark does not read in the function of a pipeline.
        column: The column to parse.
        into: The column for the object.
        framed: The values begin as those of Confluent's serialisers do: a zero byte, and four
            bytes with the id of a schema, which is not looked at.

    Raises:
        InvalidConfigError: A column is missing, or `into` is taken.
        PySparkException: The schema cannot be parsed.
    """
    check_columns(records, [column])
    wanted = _struct(schema)
    value = F.col(column).cast("binary")
    text = (F.substring(value, HEADER_BYTES + 1, 2**31 - 1) if framed else value).cast("string")
    around = StructType([StructField(_VALUE, wanted), StructField(_CORRUPT, StringType())])
    read = F.from_json(
        F.concat(F.lit(f'{{"{_VALUE}":'), text, F.lit("}")),
        around,
        {"columnNameOfCorruptRecord": _CORRUPT},
    )
    record = read[_VALUE]
    why = (
        F.when(value.isNull(), F.lit(None))
        .when(F.octet_length(value) == 0, F.lit("the value is empty"))
        .when(~F.is_valid_utf8(text), F.lit("the value is not UTF-8"))
        .when(record.isNull(), F.lit("the value is not a JSON object"))
        .when(read[_CORRUPT].isNotNull(), _wrong_fields(wanted, text, record))
    )
    if framed:
        is_framed = (F.octet_length(value) >= HEADER_BYTES) & (
            F.substring(value, 1, 1) == F.lit(b"\0")
        )
        why = F.when(value.isNotNull() & ~is_framed, F.lit(_NO_FRAME)).otherwise(why)
    required = [field.name for field in wanted.fields if not field.nullable]
    for name in required:
        lacks = value.isNotNull() & why.isNull() & record[name].isNull()
        why = F.when(lacks, F.lit(f"the field {name} is missing or null")).otherwise(why)
    problem = F.when(why.isNotNull(), F.struct(F.lit(EXCEPTION), why).cast(PROBLEM))
    return split(records, F.struct(record.alias("record"), problem.alias("problem")), into=into)


def infer_json_schema(
    sample: DataFrame, *, column: str = "value", row_count_max: int = _SAMPLE_ROWS
) -> StructType:
    """The type that holds all JSON objects of a sample. Runs a query; look at what it gives, and
    write it down: a pipeline that infers anew each day has another table each day.

    Numbers are `long` or `double`, a field that is missing in some is in all, and one that is of
    several types becomes `string`.

    Args:
        sample: A batch (`spark.read`), not a stream.
        row_count_max: Values that are looked at.

    Raises:
        InvalidConfigError: No value in the sample is a JSON object, or it is a stream.
    """
    check_columns(sample, [column])
    if sample.isStreaming:
        raise InvalidConfigError(
            "a schema is inferred from a batch: read the sample with spark.read, not with "
            "spark.readStream"
        )
    rows = sample.select(F.col(column).cast("binary")).limit(row_count_max).collect()
    objects = []
    for row in rows:
        try:
            found = json.loads(bytes(row[0] or b""))
        except ValueError:  # not JSON, or not UTF-8
            continue
        if isinstance(found, dict):
            objects.append(found)
    if not objects:
        raise InvalidConfigError(
            f"none of the {len(rows)} values in the sample is a JSON object; there is no schema"
        )
    session = sample.sparkSession
    told = session.range(1).select(F.schema_of_json(F.lit(json.dumps(objects)))).first()
    assert told is not None
    inferred = DataType.fromDDL(told[0])
    element = getattr(inferred, "elementType", None)
    assert isinstance(element, StructType), told[0]
    return element


_NO_FRAME: Final = "the value does not begin as Confluent's serialisers do: a zero byte, four more"


def _struct(schema: StructType | str) -> StructType:
    if isinstance(schema, StructType):
        return schema
    try:
        found = DataType.fromDDL(schema)
    except PySparkException as error:
        if not is_of_a_pipeline(error):
            raise
        raise InvalidConfigError(
            f"the schema {schema!r} is text, which Spark does not read in the function of a "
            "pipeline: give a StructType"
        ) from error
    if not isinstance(found, StructType):
        raise InvalidConfigError(
            f"the schema {schema!r} is {found.simpleString()}; a value is an object, so it must be "
            "a struct"
        )
    return found


def _wrong_fields(schema: StructType, text: Column, record: Column) -> Column:
    """Which fields are of another type: those that the text has and the record has not."""
    wrong = [
        F.when(
            record[field.name].isNull() & F.get_json_object(text, f"$['{field.name}']").isNotNull(),
            F.lit(f"{field.name} is not {field.dataType.simpleString()}"),
        )
        for field in schema.fields
        if not {"'", "\\", "]"} & set(field.name)
    ]
    told = F.concat_ws("; ", *wrong) if wrong else F.lit("")
    return F.when(told == "", F.lit("a field in a field is of another type")).otherwise(told)

"""Values that are decoded in Python, one by one, so that a bad one is known by itself.

Spark's own `from_avro` is not used: eight bytes that say how long a string is make it take two
gigabytes, of which the JVM dies, and the query with it each time that it is started again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from mainstem.jobs.streams.parsed import PROBLEM

#: Makes a record of a value, or raises.
Decode = Callable[[bytes], Any]

#: Of an exception's text, as in the client's dead letters.
_REASON_LENGTH_MAX: Final = 1_000


def decoded(
    value: Column, record_type: DataType, exception: str, make: Callable[[], Decode]
) -> Column:
    """A struct of `record` and `problem`, as `parsed.split` takes it.

    Args:
        value: Binary.
        exception: What a failure is called.
        make: Makes the decoder; pickled, and called once a task.
    """
    returned = StructType([StructField("record", record_type), StructField("problem", PROBLEM)])

    def run(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        decode = make()
        for batch in batches:
            yield decode_batch(batch.to_pylist(), record_type, exception, decode)

    # Else Spark would decode once to filter, and once more for the result.
    make_udf: Any = arrow_udf  # its types know no struct
    column: Column = make_udf(run, returned).asNondeterministic()(value)
    return column


def decode_batch(
    values: Sequence[bytes | None], record_type: DataType, exception: str, decode: Decode
) -> pa.StructArray:
    """The records and problems of some values."""
    arrow_type = to_arrow_type(record_type, timezone="UTC")
    shape = _shaper(record_type)
    records: list[Any] = []
    problems: list[dict[str, str] | None] = []
    for value in values:
        record, problem = None, None
        if value is not None:
            try:
                record = decode(value)
                if shape is not None:
                    record = shape(record)
            except Exception as error:  # whatever a value does to a decoder, it is its own fault
                record, problem = None, _problem(exception, error)
        records.append(record)
        problems.append(problem)
    try:
        column = pa.array(records, arrow_type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        column = pa.array(_one_by_one(records, problems, arrow_type, exception), arrow_type)
    problem_type = to_arrow_type(PROBLEM)
    return pa.StructArray.from_arrays(
        [column, pa.array(problems, problem_type)],
        fields=[pa.field("record", arrow_type), pa.field("problem", problem_type)],
    )


def _one_by_one(
    records: Sequence[Any],
    problems: list[dict[str, str] | None],
    arrow_type: pa.DataType,
    exception: str,
) -> Iterator[Any]:
    """The records that the type has room for; of the others the problem is noted."""
    for index, record in enumerate(records):
        try:
            pa.array([record], arrow_type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            problems[index] = _problem(exception, error)
            yield None
        else:
            yield record


def _problem(exception: str, error: Exception) -> dict[str, str]:
    told = str(error) or type(error).__qualname__
    return {"exception": exception, "reason": told[:_REASON_LENGTH_MAX]}


def _shaper(kind: DataType) -> Callable[[Any], Any] | None:
    """Makes of a decoder's values what Arrow takes for the type: maps are pairs there, and text is
    text. None: they are so already.
    """
    if isinstance(kind, StringType):
        return lambda value: str(value) if isinstance(value, uuid.UUID) else value
    if isinstance(kind, ArrayType):
        inner = _shaper(kind.elementType)
        return inner and (lambda value: None if value is None else [inner(one) for one in value])
    if isinstance(kind, MapType):
        of_value = _shaper(kind.valueType) or (lambda value: value)
        return lambda value: (
            None if value is None else [(key, of_value(one)) for key, one in value.items()]
        )
    if isinstance(kind, StructType):
        shapers = {field.name: _shaper(field.dataType) for field in kind.fields}
        inside = {name: shaper for name, shaper in shapers.items() if shaper is not None}
        if not inside:
            return None
        return lambda value: (
            None
            if value is None
            else {**value, **{name: shaper(value.get(name)) for name, shaper in inside.items()}}
        )
    return None

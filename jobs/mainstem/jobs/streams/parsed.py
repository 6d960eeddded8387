"""Records whose values were parsed, and apart from them those that could not be: as dead letters,
in the form that `mainstem.client.recipes.DeadLetterHandler` gives them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from mainstem.client.recipes.dead_letters import (
    DEAD_LETTER_FACTS,
    DEAD_LETTER_SUFFIX,
    HEADER_PREFIX,
    LEFT_OUT_HEADER,
)
from mainstem.errors import InvalidConfigError
from mainstem.limits import MIB

#: What a parser says of a record that it refuses: dlt-exception and dlt-reason.
PROBLEM: Final = StructType(
    [StructField("exception", StringType()), StructField("reason", StringType())]
)

#: What a dead letter has to say of its record.
_NEEDED: Final = ("topic", "partition", "offset", "timestamp", "key", "value")

#: Columns that only live between a parser and `split`.
_PARSED: Final = "__mainstem_parsed"

#: The default of a topic's `max.message.bytes`.
RECORD_BYTES_MAX: Final = MIB

#: A pipeline's functions describe a DataFrame, and may not look at one.
_NOT_IN_A_PIPELINE: Final = "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION"

#: What a record's headers count beside their names and values, at most.
_HEADERS_OVERHEAD_BYTES: Final = 2_048


@dataclass(frozen=True, slots=True)
class Parsed:
    """What became of a DataFrame of records: each row is in one of the two.

    Of a stream these are two streams. Each has a query and a checkpoint of its own, and reads and
    parses by itself; in the function of `foreachBatch` both come from one batch.

    Attributes:
        good: The rows with one column more, the parsed value. It is null where the value is null,
            as a tombstone's is.
        dead_letters: The others as records to write: `topic` (the record's, and `.dlt`), `key`,
            `value`, `headers`. The headers are those of the record, where there is such a column,
            and `dlt-topic`, `dlt-partition`, `dlt-offset`, `dlt-timestamp`, `dlt-exception`,
            `dlt-reason`, `dlt-attempts`, so `mainstem topic redrive` puts them back.
    """

    good: DataFrame
    dead_letters: DataFrame


def split(
    records: DataFrame,
    parsed: Column,
    *,
    into: str,
    record_bytes_max: int = RECORD_BYTES_MAX,
) -> Parsed:
    """Takes rows apart by what a parser says of them.

    Args:
        parsed: A struct of `record`, and `problem`, which is null where there is none.
        into: The column of `good` for the record.
        record_bytes_max: The topic's of dead letters `max.message.bytes`. A dead letter that would
            be larger has an empty value, then no headers of its record, and `dlt-left-out` says so.

    Raises:
        InvalidConfigError: A column is missing that dead letters need, or `into` is there already.
    """
    columns = columns_of(records)
    missing = [name for name in _NEEDED if columns is not None and name not in columns]
    if missing:
        raise InvalidConfigError(
            f"the DataFrame has no column {', '.join(missing)}: a record that cannot be parsed is "
            "set aside with its place, key and value, so parse before columns are left out"
        )
    if columns is not None and into in columns:
        raise InvalidConfigError(
            f"the DataFrame has a column {into!r} already; name another with into=..."
        )
    both = records.withColumn(_PARSED, parsed)
    problem = F.col(_PARSED)["problem"]
    good = both.where(problem.isNull()).withColumn(into, F.col(_PARSED)["record"]).drop(_PARSED)
    bad = both.where(problem.isNotNull())
    has_headers = columns is None or "headers" in columns
    return Parsed(good, _dead_letters(bad, record_bytes_max, has_headers=has_headers))


def columns_of(records: DataFrame) -> list[str] | None:
    """The names of its columns; None: nobody can tell yet, in the functions of a pipeline."""
    try:
        return records.columns
    except PySparkException as error:
        if not is_of_a_pipeline(error):
            raise
        return None


def is_of_a_pipeline(error: PySparkException) -> bool:
    """Whether Spark refuses to look at something because a pipeline's function asks."""
    return error.getCondition() == _NOT_IN_A_PIPELINE


def check_columns(records: DataFrame, columns: Sequence[str]) -> None:
    """Refuses a DataFrame without these columns.

    Raises:
        InvalidConfigError: One is missing.
    """
    found = columns_of(records)
    missing = [name for name in columns if found is not None and name not in found]
    if found is not None and missing:
        raise InvalidConfigError(
            f"the DataFrame has no column {', '.join(missing)}; it has {', '.join(found)}"
        )


def _dead_letters(bad: DataFrame, record_bytes_max: int, *, has_headers: bool) -> DataFrame:
    problem = F.col(_PARSED)["problem"]
    facts = {
        "topic": F.col("topic"),
        "partition": F.col("partition").cast("string"),
        "offset": F.col("offset").cast("string"),
        "timestamp": F.unix_millis("timestamp").cast("string"),
        "exception": problem["exception"],
        "reason": problem["reason"],
        "attempts": F.lit("1"),
    }
    assert tuple(facts) == DEAD_LETTER_FACTS
    ours = F.array(*(_header(HEADER_PREFIX + name, fact) for name, fact in facts.items()))
    key, value = F.col("key").cast("binary"), F.col("value").cast("binary")
    nothing = F.array().cast("array<struct<key:string,value:binary>>")
    own = nothing
    if has_headers:
        own = F.coalesce(F.col("headers").cast("array<struct<key:string,value:binary>>"), nothing)
    own_bytes = F.aggregate(
        own,
        F.lit(0).cast("long"),
        lambda total, header: (
            total
            + F.coalesce(F.octet_length(header["key"]), F.lit(0))
            # A null value counts nothing.
            + F.coalesce(F.octet_length(header["value"]), F.lit(0))
        ),
    )
    least = F.coalesce(F.octet_length(key), F.lit(0)) + F.lit(_HEADERS_OVERHEAD_BYTES)
    with_headers = least + own_bytes
    whole = with_headers + F.coalesce(F.octet_length(value), F.lit(0))
    fits_whole, fits_headers = whole <= record_bytes_max, with_headers <= record_bytes_max
    left_out = F.when(fits_headers, F.lit("value")).otherwise(F.lit("value,headers"))
    return bad.select(
        F.concat("topic", F.lit(DEAD_LETTER_SUFFIX)).alias("topic"),
        key.alias("key"),
        F.when(fits_whole, value).otherwise(F.lit(b"")).alias("value"),
        F.when(fits_whole, F.concat(own, ours))
        .otherwise(
            F.concat(
                F.when(fits_headers, own).otherwise(nothing),
                ours,
                F.array(_header(LEFT_OUT_HEADER, left_out)),
            )
        )
        .alias("headers"),
    )


def _header(name: str, text: Column) -> Column:
    return F.struct(
        F.lit(name).alias("key"), F.coalesce(text, F.lit("")).cast("binary").alias("value")
    )

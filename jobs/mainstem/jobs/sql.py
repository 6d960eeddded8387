"""One SQL statement over the topics of a warehouse."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mainstem.delta_log.store import open_warehouse
from mainstem.delta_log.topics import Topics
from mainstem.errors import ConfigError
from mainstem.jobs.session import spark_session
from mainstem.jobs.tables import register_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STACK_TRACE: Final = "\n\nJVM stacktrace:"

#: A JVM that runs one statement: compiling it well takes longer than running it, by 4 s of 12 for a
#: count, and is not made good by an aggregation of two million records.
_ONE_STATEMENT: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
}


class SqlError(ConfigError):
    """Spark refused the statement, or failed at it. The message is Spark's."""


@dataclass(frozen=True, slots=True)
class SqlResult:
    """What a statement gave.

    Attributes:
        columns: Names, in order; one may be there twice.
        types: Spark's names of their types, as `bigint` or
            `array<struct<key:string,value:binary>>`.
        rows: Python values. Binary ones, also inside others, are text where they are UTF-8, else
            `0x...`.
        truncated: There were more rows than asked for.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    truncated: bool = False


def run_sql(
    warehouse: str | os.PathLike[str],
    statement: str,
    *,
    spark: SparkSession | None = None,
    row_count_max: int | None = None,
) -> SqlResult:
    """Runs the statement with every topic as a table of its name (see `register_topics`).

    Any Spark SQL will do. Topics cannot be changed by it: their tables refuse every writer but
    mainstem.

    Args:
        spark: Default: `spark_session()`; where none runs, it is started for one statement.
        row_count_max: Take no more rows than this. Default: all; they have to fit into memory.

    Raises:
        SqlError: Spark refused the statement, or failed at it.
        SparkUnavailableError, StoreUnavailableError: There is no Spark, or no such warehouse.
    """
    open_warehouse(
        warehouse
    ).close()  # before Spark starts: a mistyped path should not take so long
    session = spark or spark_session(**_ONE_STATEMENT)
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        register_topics(session, warehouse, _mentioned(warehouse, statement))
        frame = session.sql(statement)
        types = tuple(field.dataType.simpleString() for field in frame.schema.fields)
        if row_count_max is not None:
            frame = frame.limit(row_count_max + 1)
        columns = _columns(frame)
    except PySparkException as error:
        raise SqlError(str(error).split(_STACK_TRACE)[0].strip()) from error
    except Py4JJavaError as error:  # pyspark has no class for Delta's exceptions
        raise SqlError(str(error.java_exception.getMessage())) from error
    rows = tuple(zip(*map(_shown, columns), strict=True))
    return SqlResult(
        columns=tuple(frame.columns),
        types=types,
        rows=rows[:row_count_max],
        truncated=row_count_max is not None and len(rows) > row_count_max,
    )


def _columns(frame: DataFrame) -> list[list[Any]]:
    """The values of each column. Through Arrow, since it keeps timestamps in UTC."""
    import pyarrow as pa

    try:
        return [column.to_pylist() for column in frame.toArrow().columns]
    except pa.ArrowInvalid:
        # Results of Delta's own commands have nulls where their schema denies it.
        rows = frame.collect()
        return [[row[index] for row in rows] for index in range(len(frame.columns))]


def _mentioned(warehouse: str | os.PathLike[str], statement: str) -> list[str] | None:
    """The topics that the statement can mean; None for all. A view takes a tenth of a second to
    make.
    """
    store = open_warehouse(warehouse)
    try:
        text = statement.lower()
        found = [topic for topic in Topics(store).names() if topic.lower() in text]
    finally:
        store.close()
    return found or None


def _shown(values: list[Any]) -> list[Any]:
    return [value if _is_plain(value) else _show(value) for value in values]


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (int, float, str))


def _show(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return bytes_as_text(bytes(value))
    if isinstance(value, dict):
        return {key: _show(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return tuple(_show(inner) for inner in value)
    if isinstance(value, list):
        return [_show(inner) for inner in value]
    return value


def bytes_as_text(data: bytes) -> str:
    """The text where `data` is UTF-8, else `0x` and hexadecimal digits."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "0x" + data.hex()

"""One SQL statement over the topics of a warehouse."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mainstem.delta_log.store_uri import open_store
from mainstem.delta_log.topics import Topics
from mainstem.errors import ConfigError
from mainstem.jobs.session import spark_session
from mainstem.jobs.tables import register_topics

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_STACK_TRACE: Final = "\n\nJVM stacktrace:"


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
        spark: Default: `spark_session()`, which starts one where none runs, in 5 to 20 s.
        row_count_max: Take no more rows than this. Default: all; they have to fit into memory.

    Raises:
        SqlError: Spark refused the statement, or failed at it.
        SparkUnavailableError, StoreUnavailableError: There is no Spark, or no such warehouse.
    """
    open_store(warehouse).close()  # before Spark starts: a mistyped path should not take so long
    session = spark or spark_session()
    from pyspark.errors import PySparkException

    try:
        register_topics(session, warehouse, _mentioned(warehouse, statement))
        frame = session.sql(statement)
        types = tuple(field.dataType.simpleString() for field in frame.schema.fields)
        if row_count_max is not None:
            frame = frame.limit(row_count_max + 1)
        table: pa.Table = frame.toArrow()
    except PySparkException as error:
        raise SqlError(str(error).split(_STACK_TRACE)[0].strip()) from error
    rows = [_shown(column.to_pylist()) for column in table.columns]
    count = table.num_rows if row_count_max is None else min(table.num_rows, row_count_max)
    return SqlResult(
        columns=tuple(table.column_names),
        types=types,
        rows=tuple(zip(*rows, strict=True))[:count] if rows else (),
        truncated=count < table.num_rows,
    )


def _mentioned(warehouse: str | os.PathLike[str], statement: str) -> list[str] | None:
    """The topics that the statement can mean; None for all. A view takes a tenth of a second to
    make.
    """
    store = open_store(warehouse)
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

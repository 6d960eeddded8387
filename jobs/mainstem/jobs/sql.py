"""One SQL statement over the topics of a warehouse."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mainstem.delta_log.store import CloudPrefix, Place, open_warehouse, parse_warehouse
from mainstem.jobs._s3 import is_s3, use_bucket
from mainstem.jobs.kept_streams import KeptStreams
from mainstem.jobs.session import spark_session
from mainstem.jobs.sql_guard import SqlError, Statement, analyse, check_directory, read_statement
from mainstem.jobs.sql_tables import SqlTables
from mainstem.jobs.tables import TopicViews

__all__ = ["SqlError", "SqlResult", "bytes_as_text", "run_sql", "spark_errors"]

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STACK_TRACE: Final = "\n\nJVM stacktrace:"

#: A JVM that runs one statement: compiling it well takes longer than running it, by 4 s of 12 for a
#: count, and is not made good by an aggregation of two million records.
_ONE_STATEMENT: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
}


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
        notes: For people: what was left out, or where a table is kept.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    truncated: bool = False
    notes: tuple[str, ...] = ()


def run_sql(
    warehouse: Place,
    statement: str,
    *,
    spark: SparkSession | None = None,
    row_count_max: int | None = None,
    protected: Iterable[str] = (),
    consistent: bool = False,
) -> SqlResult:
    """Runs the statement with every topic as a table of its name (see `register_topics`).

    A table that it creates is a Delta table below `<warehouse>/tables`, and is there for the next
    statement; a warehouse in an object storage service has none. What would write into the
    warehouse in any other way is refused before it runs: by what Spark parses, not by its text. A
    topic that cannot be read stops only a statement that names it. Where a topic and a table have
    the same name, the topic is meant.

    Args:
        spark: Default: `spark_session()`; where none runs, it is started for one statement.
        row_count_max: Take no more rows than this. Default: all; they have to fit into memory.
        protected: Directories outside the warehouse in which nothing may be written either.
        consistent: Every transaction is in all topics that the statement reads, or in none; see
            `register_topics`.

    Raises:
        SqlError: Spark refused the statement or failed at it, or it is refused before.
        MainstemError: A topic that it names cannot be read; the code says why.
        SparkUnavailableError, StoreUnavailableError: There is no Spark, or no such warehouse.
    """
    place = parse_warehouse(warehouse)
    store = open_warehouse(place)  # before Spark starts: a mistyped path should not take long
    try:
        session = spark or spark_session(reads=place, **_ONE_STATEMENT)
        if spark is not None and isinstance(place, CloudPrefix) and is_s3(place):
            use_bucket(spark, place)
        with spark_errors():
            tables = SqlTables(session, place, TopicViews(session, store))
            what = read_statement(session, statement, tables.database, tables.is_topic)
            for directory in what.directories:
                check_directory(session, directory, place.uri, protected)
            _check_target(tables, what)
            return _run(session, tables, what, statement, row_count_max, consistent=consistent)
    finally:
        store.close()


def _run(
    session: SparkSession,
    tables: SqlTables,
    what: Statement,
    text: str,
    row_count_max: int | None,
    *,
    consistent: bool,
) -> SqlResult:
    notes: list[str] = []
    with tables.in_use(create=what.creates is not None):
        if what.target is not None:
            tables.forget_missing(what.target)
            tables.attach(what.target)
        if what.reads_all:
            notes = tables.attach_all()
        _resolve(session, tables, what, text)
        if consistent:
            tables.pin_topics()
        is_new = what.creates is not None and not tables.is_taken(what.creates)
        try:
            frame = session.sql(text)
            types = tuple(field.dataType.simpleString() for field in frame.schema.fields)
            if row_count_max is not None:
                frame = frame.limit(row_count_max + 1)
            columns = _columns(frame)
        except BaseException:
            if what.creates is not None and is_new:
                tables.remove_unfinished(what.creates)
            raise
        if what.drops is not None:
            tables.remove(what.drops)
    if what.creates is not None and tables.directory is not None:
        notes.append(f"table {what.creates} is kept in {tables.directory / what.creates.lower()}")
    rows = tuple(zip(*map(_shown, columns), strict=True))
    return SqlResult(
        columns=tuple(frame.columns),
        types=types,
        rows=rows[:row_count_max],
        truncated=row_count_max is not None and len(rows) > row_count_max,
        notes=tuple(notes),
    )


def _resolve(session: SparkSession, tables: SqlTables, what: Statement, text: str) -> None:
    """Makes the names known that the statement uses; nothing is run yet."""
    from pyspark.errors import AnalysisException

    known: set[str] = set()
    while True:
        try:
            return analyse(session, text, what)
        except AnalysisException as error:
            # Spark tells which names it needs, one after the other.
            name = tables.attach_missing(error)
            if name is None or name in known:
                raise
            known.add(name)


def _check_target(tables: SqlTables, what: Statement) -> None:
    name = what.target
    if name is None:
        return
    if (what.creates or what.drops) and tables.directory is not None:
        writer = KeptStreams(tables.directory.parent).writer_of(name)
        if writer is not None:
            raise SqlError(
                f"stream {writer.name} writes to {name}: stop it first, with "
                f"`mainstem sql --stream --stop {writer.name}`"
            )
    if tables.directory is None and not tables.is_topic(name):
        raise SqlError(
            "SQL keeps no tables in an object storage service: there are SELECT, SHOW, DESCRIBE "
            "and EXPLAIN, and INSERT OVERWRITE DIRECTORY outside the warehouse keeps a result"
        )
    if not tables.is_topic(name):
        return
    if what.drops is not None:
        instead = f"`mainstem topic delete {name}` deletes it"
    elif what.creates is not None:
        instead = "give the table another name"
    else:
        instead = (
            "its records come through a gateway, as with `mainstem topic produce`, or "
            "`mainstem sql --stream` for what this statement inserts"
        )
    raise SqlError(f"{name} is a topic, which SQL does not change: {instead}")


@contextlib.contextmanager
def spark_errors() -> Iterator[None]:
    """Spark's exceptions as `SqlError`, without Java's stack trace."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise SqlError(str(error).split(_STACK_TRACE)[0].strip()) from error
    except Py4JJavaError as error:  # pyspark has no class for Delta's exceptions
        raise SqlError(str(error.java_exception.getMessage())) from error


def _columns(frame: DataFrame) -> list[list[Any]]:
    """The values of each column. Through Arrow, since it keeps timestamps in UTC."""
    import pyarrow as pa

    try:
        return [column.to_pylist() for column in frame.toArrow().columns]
    except pa.ArrowInvalid:
        # Results of Delta's own commands have nulls where their schema denies it.
        rows = frame.collect()
        return [[row[index] for row in rows] for index in range(len(frame.columns))]


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

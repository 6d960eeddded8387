"""One SQL statement as a streaming query: `INSERT INTO table or topic SELECT ... FROM topic`."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mainstem.client.interrupts import held_back
from mainstem.delta_log.store import (
    LocalDirectory,
    ObjectStore,
    Place,
    open_warehouse,
    parse_warehouse,
    wall_clock_ms,
)
from mainstem.jobs.kept_streams import (
    ENDED,
    FAILED,
    RUNNING,
    STOPPED,
    KeptStream,
    KeptStreams,
    StreamError,
)
from mainstem.jobs.session import spark_session
from mainstem.jobs.sql import spark_errors
from mainstem.jobs.sql_guard import Insert, SqlError, read_insert
from mainstem.jobs.sql_stream_targets import TableTarget, TopicTarget
from mainstem.jobs.sql_tables import SqlTables
from mainstem.jobs.tables import TopicViews

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: How often a request to stop is looked for.
_LOOK_S: Final = 1

#: A task that a gateway's restart has failed is tried again, which `local[*]` alone does not.
_MASTER: Final = "local[*,4]"

#: A topic's columns as in other SQL. A stream has no provenance: the source does not give it.
_COLUMNS: Final = (
    "partition",
    "offset",
    "timestamp",
    "timestampType AS timestamp_type",
    "key",
    "value",
    "headers",
)


def run_sql_stream(
    warehouse: Place,
    statement: str,
    *,
    name: str | None = None,
    starting_offsets: str = "earliest",
    every: str | None = None,
    available_now: bool = False,
    producer: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    on_start: Callable[[KeptStream], None] = lambda _: None,
) -> KeptStream:
    """Runs `INSERT INTO <table or topic> SELECT ... FROM <topic> ...` on what is in the topic and
    comes. Blocks until somebody stops it.

    A topic in the SELECT is a stream, a table that SQL created is as it is when a batch begins.
    Where the name behind INTO is no topic's, it is a table's, which is made where there is none,
    with the columns of the SELECT. For a topic the SELECT names `value`, and what else a record
    has: `key`, `headers`, `partition`, `timestamp`. Each record has its effect on the target once.
    What the stream is and how far it has come is kept in the warehouse by its name: the same
    statement under the same name goes on there, also after `kill -9`.

    Args:
        name: Of the stream. Default: the target's.
        starting_offsets: `earliest` or `latest`; counts when the stream begins, not when it goes
            on.
        every: A batch so often, as `10 seconds`. Default: as soon as there is something.
        available_now: End when everything that is there when it begins has been read.
        producer: Where a topic's records are sent: settings of a producer, `bootstrap.servers`
            among them, but none of those that the Spark sink sets itself. For a topic only.
        spark: Default: `spark_session()`.
        should_stop: Asked once a second.
        on_start: Called when the query runs.

    Returns:
        What is kept of it: it was stopped, or has ended.

    Raises:
        SqlError: Spark refused the statement, the query failed, or the statement is refused.
        StreamError: It runs already, is another statement, or its target is another one than
            before.
        MainstemError: A topic that it names cannot be read, or the gateway does not have the one
            that it writes to.
        SparkUnavailableError, StoreUnavailableError: There is no Spark, or no such warehouse.
    """
    place = parse_warehouse(warehouse)
    if not isinstance(place, LocalDirectory):
        raise SqlError(
            "a stream of SQL is kept in a directory, and this warehouse is in an object storage "
            "service: write a program, with spark.readStream (docs/guides/pipelines.md)"
        )
    store = open_warehouse(place)
    try:
        session = spark or spark_session("mainstem sql --stream", master=_MASTER)
        with spark_errors():
            topics = _TopicStreams(session, store, place, starting_offsets)
            tables = SqlTables(session, place, topics)
            insert = read_insert(session, statement, tables.database, tables.is_topic)
            topic = tables.topic(insert.table)
            streams = KeptStreams(Path(place.path))
            kept = streams.prepare(
                name or topic or insert.table,
                statement,
                table=insert.table if topic is None else "",
                topic=topic or "",
            )
            target: TableTarget | TopicTarget = (
                TableTarget(session, tables, insert)
                if topic is None
                else TopicTarget(session, topics, insert, topic, dict(producer or {}))
            )
            run = _Run(session, tables, streams, kept, target)
            return run.run(insert, every, available_now, should_stop, on_start)
    finally:
        store.close()


class _TopicStreams(TopicViews):
    """Topics as streams under the names that they have in SQL."""

    def __init__(
        self,
        spark: SparkSession,
        store: ObjectStore,
        place: LocalDirectory,
        starting_offsets: str,
    ) -> None:
        super().__init__(spark, store)
        self._place = place
        self._starting = starting_offsets

    def make_view(self, topic: str, view: str, version: int | None) -> None:
        stream = (
            self._spark.readStream.format("mainstem")
            .option("mainstem.warehouse", str(self._place.path))
            .option("subscribe", topic)
            .option("startingOffsets", self._starting)
            .option("includeHeaders", "true")
            .load()
        )
        stream.selectExpr(*_COLUMNS).createOrReplaceTempView(f"`{view}`")


class _Run:
    """One run of a stream."""

    def __init__(
        self,
        session: SparkSession,
        tables: SqlTables,
        streams: KeptStreams,
        kept: KeptStream,
        target: TableTarget | TopicTarget,
    ) -> None:
        self._session = session
        self._tables = tables
        self._streams = streams
        self._kept = kept
        self._target = target

    def run(
        self,
        insert: Insert,
        every: str | None,
        available_now: bool,
        should_stop: Callable[[], bool],
        on_start: Callable[[KeptStream], None],
    ) -> KeptStream:
        name = self._kept.name
        unlock = lock(self._session, self._streams.lock_file(name))
        if unlock is None:
            raise StreamError(f"stream {name} was started by somebody else a moment ago")
        try:
            self._streams.forget_request(name)
            with self._tables.in_use(create=True):
                frame = self._resolve(insert)
                if not frame.isStreaming:
                    raise SqlError(
                        "the statement reads no topic, so nothing would ever come: without "
                        "--stream it runs once"
                    )
                rows, table_id = self._target.fit(frame, self._kept)
                self._kept = replace(self._kept, table_id=table_id)
                query = self._start(rows, every, available_now)
            # In a database that is the session's for now, the query would look for its tables.
            return self._watch(query, should_stop, on_start)
        except BaseException:  # Ctrl-C may come anywhere
            self._leave_nothing_running()
            raise
        finally:
            unlock()
            self._streams.forget_request(name)

    def _resolve(self, insert: Insert) -> DataFrame:
        """The rows of the SELECT."""
        from pyspark.errors import AnalysisException
        from pyspark.sql import DataFrame

        jvm: Any = self._session._jvm
        dataset = getattr(jvm, "org.apache.spark.sql.classic.Dataset")
        known: set[str] = set()
        while True:
            try:
                return DataFrame(
                    dataset.ofRows(self._session._jsparkSession, insert.parse()), self._session
                )
            except AnalysisException as error:
                missing = self._tables.attach_missing(error)
                if missing is None or missing in known:
                    raise
                known.add(missing)

    def _start(self, rows: DataFrame, every: str | None, available_now: bool) -> StreamingQuery:
        writer = (
            rows.writeStream.outputMode("append")
            .queryName(self._kept.name)
            .option("checkpointLocation", str(self._streams.checkpoint(self._kept.name)))
        )
        if available_now:
            writer = writer.trigger(availableNow=True)
        elif every is not None:
            writer = writer.trigger(processingTime=every)
        self._kept = replace(
            self._kept,
            state=RUNNING,
            error="",
            host=socket.gethostname(),
            pid=os.getpid(),
            started_ms=wall_clock_ms(),
            ended_ms=0,
        )
        # Before the first batch: what is kept of it knows the table from then on.
        self._streams.write(self._kept)
        try:
            # Ctrl-C would end our waiting, and not what the JVM is at: the query would begin when
            # nobody has its lock any more.
            with held_back():
                return self._target.start(writer)
        except Exception as error:
            self._end(FAILED, _why(error))
            raise

    def _watch(
        self,
        query: StreamingQuery,
        should_stop: Callable[[], bool],
        on_start: Callable[[KeptStream], None],
    ) -> KeptStream:
        try:
            on_start(self._kept)
            while not query.awaitTermination(_LOOK_S):
                if should_stop() or self._streams.is_asked_to_stop(self._kept.name):
                    query.stop()
                    return self._end(STOPPED)
        except Exception as error:
            self._stop(query)
            why = _why(error)
            self._end(FAILED, why)
            raise SqlError(f"stream {self._kept.name} has failed: {why}") from error
        return self._end(ENDED)

    def _leave_nothing_running(self) -> None:
        with contextlib.suppress(Exception):  # the JVM may be gone, and the query with it
            for query in self._session.streams.active:
                if query.name == self._kept.name:
                    self._stop(query)
        if self._kept.state == RUNNING:
            with contextlib.suppress(StreamError):  # what has happened is to be told
                self._end(STOPPED)

    def _stop(self, query: StreamingQuery) -> None:
        with contextlib.suppress(Exception):
            query.stop()

    def _end(self, state: str, error: str = "") -> KeptStream:
        self._kept = replace(self._kept, state=state, error=error, ended_ms=wall_clock_ms())
        self._streams.write(self._kept)
        return self._kept


def lock(session: SparkSession, file: Path) -> Callable[[], None] | None:
    """Locks the file, by the JVM that the session is in, until the function that is returned is
    called or the JVM ends. None: somebody else has it.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    gateway: Any = session.sparkContext._gateway
    java = gateway.jvm.java
    path = java.nio.file.Paths.get(str(file), gateway.new_array(java.lang.String, 0))
    options = gateway.new_array(java.nio.file.OpenOption, 1)
    options[0] = java.nio.file.StandardOpenOption.WRITE
    channel = java.nio.channels.FileChannel.open(path, options)
    try:
        held = channel.tryLock()
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() != "OverlappingFileLockException":
            channel.close()
            raise
        held = None  # this same JVM has it
    if held is None:
        channel.close()
        return None

    def unlock() -> None:
        with contextlib.suppress(Exception):  # the JVM may be gone, and the lock with it
            channel.close()

    return unlock


def _why(error: Exception) -> str:
    """What is at the bottom of it: Spark's words around that are of tasks and stages."""
    told = str(error)
    with contextlib.suppress(Exception):  # the JVM may be gone
        cause: Any = getattr(error, "_origin", None)
        while cause is not None:
            told = cause.getMessage() or told
            cause = cause.getCause()
    return next(iter(told.splitlines()), type(error).__name__)

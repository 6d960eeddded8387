"""`df.write.format("mainstem")` and `df.writeStream.format("mainstem")`: Spark's calls, translated.

Each task writes in a transaction of its own and hands the driver its token; the driver commits all
of them at once, as the epoch of the query. An epoch is committed once, however often it is run.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from mainstem.errors import InternalError, MainstemError
from pyspark_mainstem._sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

#: Spark tells its tasks so, as properties of the job that they are of. A stream's id is in its
#: checkpoint: the same after a restart, another one with another checkpoint.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"

#: Seconds for an abort, which is a courtesy: what nobody commits is aborted in the end.
_ABORT_S: Final = 10.0


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """What a task tells the driver.

    Attributes:
        name: Of the query, as a transactional id.
        epoch: Which of its batches this is.
        token: Of what the task has prepared; empty: it had no row.
    """

    name: str
    epoch: int
    token: str


class StreamWriter(DataSourceStreamArrowWriter):
    """Spark makes one for each epoch, in the tasks, and others where it commits and aborts."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _task()
        query, batch = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
        if query is None or batch is None:
            raise InternalError(
                f"Spark does not say in {_QUERY_ID} and {_BATCH_ID} which batch of which query a "
                "task is of; this version of it cannot be written from"
            )
        name = f"spark-{query}"
        token = _write(iterator, self._options, f"{name}-{batch}", task)
        return TaskWritten(name, int(batch), token)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = _written(messages)
        if any(one.epoch != batchId for one in written):
            raise InternalError(f"epoch {batchId} got tasks of other ones: {written}")
        _commit(written, self._options, one_off=False)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _abort(_written(messages), self._options)


class BatchWriter(DataSourceArrowWriter):
    """Spark makes one where it plans the query, and copies of it go to the tasks and to where it
    commits."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._name = (
            f"spark-app-{options.app_id}" if options.app_id else f"spark-write-{uuid.uuid4()}"
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        epoch = self._options.version
        token = _write(iterator, self._options, f"{self._name}-{epoch}", _task())
        return TaskWritten(self._name, epoch, token)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(_written(messages), self._options, one_off=not self._options.app_id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(_written(messages), self._options)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "a writer writes in a task"
    return task


def _write(
    rows: Iterable[pa.RecordBatch], options: SinkOptions, name: str, task: TaskContext
) -> str:
    from pyspark_mainstem._sink_task import write_task

    return write_task(rows, options, f"{name}-{task.partitionId()}")


def _written(messages: Iterable[WriterCommitMessage | None]) -> list[TaskWritten]:
    """What tasks have told, in their order; those that failed have not."""
    return [one for one in messages if isinstance(one, TaskWritten)]


def _commit(written: Sequence[TaskWritten], options: SinkOptions, *, one_off: bool) -> None:
    from pyspark_mainstem._sink_commit import complete

    tokens = [one.token for one in written if one.token]
    if not tokens:
        return  # nothing was written, and what is run again writes nothing either
    timeout_s = options.delivery_timeout_ms / 1000
    name, epoch = written[0].name, written[0].epoch
    if complete(options, name, epoch, tokens, commit=True, one_off=one_off, timeout_s=timeout_s):
        log.info("epoch %d of %s was written before: it is not written again", epoch, name)


def _abort(written: Sequence[TaskWritten], options: SinkOptions) -> None:
    from pyspark_mainstem._sink_commit import complete

    tokens = [one.token for one in written if one.token]
    if not tokens:
        return
    name, epoch = written[0].name, written[0].epoch
    try:
        complete(options, name, epoch, tokens, commit=False, one_off=False, timeout_s=_ABORT_S)
    except MainstemError as error:
        log.warning(
            "what epoch %d of %s has prepared waits for %d ms before it is aborted: %s",
            epoch,
            name,
            options.commit_timeout_ms,
            error.message,
        )

"""`spark.readStream.format("mainstem")`: Spark's calls, translated for the planner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_mainstem._input_partition import input_partitions, read_partition
from pyspark_mainstem._offsets import from_checkpoint, to_checkpoint
from pyspark_mainstem._options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_mainstem._group_progress import GroupProgress
    from pyspark_mainstem._planner import Planner


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One lives in the query's planning process; copies of it go to the tasks, which only call
    `read`.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._planner_made: Planner | None = None
        self._progress: GroupProgress | None = None

    @property
    def _planner(self) -> Planner:
        if self._planner_made is None:
            from pyspark_mainstem._planner import Planner

            if self._options.group_id:
                self._progress = _started(self._options)
            self._planner_made = Planner(self._options)
        return self._planner_made

    def initialOffset(self) -> dict[str, Any]:
        return to_checkpoint(self._planner.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.offsets_per_trigger_max
        # Without a limit the engine may still be told to wait: any number that no log reaches.
        if limit is None and self._options.offsets_per_trigger_min is not None:
            return ReadMaxRows(_NO_LIMIT)
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        # With ReadAllAvailable the trigger wants everything, whatever the options say.
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        begin = from_checkpoint(start)
        end = self._planner.latest(
            begin, limit=None if rows == _NO_LIMIT else rows, may_wait=rows is not None
        )
        if self._progress is not None:
            # Spark asks for the next batch when the one before is done with, and calls `commit`
            # only once there is a next one.
            self._progress.reached(begin)
            if end == begin:
                self._progress.settle(_IDLE_COMMIT_S)
        return to_checkpoint(end)

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.prepare_available_now()

    def reportLatestOffset(self) -> dict[str, Any]:
        return to_checkpoint(self._planner.ends())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        plans = self._planner.plan(from_checkpoint(start), from_checkpoint(end))
        return input_partitions(plans, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        if self._progress is not None:
            self._progress.reached(from_checkpoint(end))

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.close()
            self._progress = None
        if self._planner_made is not None:
            self._planner_made.close()
            self._planner_made = None


def _started(options: SourceOptions) -> GroupProgress:
    from pyspark_mainstem._group_progress import GroupProgress

    progress = GroupProgress(options.connection, options.group_id)
    try:
        progress.start()
    except BaseException:
        progress.close()
        raise
    return progress


#: How long a query that has nothing to read waits for the commit of what it has read: one that ends
#: then has committed all of it.
_IDLE_COMMIT_S = 2.0

#: Stands for "no limit" on its way through the engine, which knows a limit or none, but no minimum
#: with one.
_NO_LIMIT = 2**63 - 1

"""`spark.read.format("mainstem")`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pyspark_mainstem._filters import Wanted
from pyspark_mainstem._input_partition import input_partitions, read_partition
from pyspark_mainstem._options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Planned once for a DataFrame, at its first action: later actions read the same records."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._wanted = Wanted()

    def partitions(self) -> Sequence[InputPartition]:
        from pyspark_mainstem._planner import Planner

        planner = Planner(self._options)
        try:
            return input_partitions(planner.plan_batch(self._wanted), self._options)
        finally:
            planner.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options)


class FilteredBatchReader(BatchReader):
    """Reads no data file that the query's filters rule out."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._wanted = Wanted.of(filters)
        # None of them is done with: what is left out here is whole files, never single records.
        return filters

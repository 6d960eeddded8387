"""`spark.read.format("mainstem")`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_mainstem._input_partition import RangePartition
from pyspark_mainstem._options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Planned once for a DataFrame, at its first action: later actions read the same records."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        from pyspark_mainstem._planner import Planner

        planner = Planner(self._options)
        try:
            return [RangePartition(plan) for plan in planner.plan_batch()]
        finally:
            planner.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark_mainstem._range_reader import read_range

        # Spark makes up an empty partition where there is none to read.
        if not isinstance(partition, RangePartition):
            return iter(())
        return read_range(
            partition.plan,
            self._options.columns,
            fail_on_data_loss=self._options.fail_on_data_loss,
            settings=self._options.store,
        )

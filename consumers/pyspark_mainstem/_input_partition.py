"""What Spark carries from the planner to a task, and what the task makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pyspark_mainstem._options import SourceOptions
from pyspark_mainstem._range_plan import RangePlan
from pyspark_mainstem._tasks import share_tasks

if TYPE_CHECKING:
    import pyarrow as pa


class RangePartition(InputPartition):
    """Ranges of topic-partitions: one task reads them one after the other, each in offset order."""

    def __init__(self, plans: tuple[RangePlan, ...]) -> None:
        super().__init__(plans)
        self.plans = plans


def input_partitions(plans: Sequence[RangePlan], options: SourceOptions) -> list[InputPartition]:
    """The plans, each with those that share a task with it."""
    return [
        RangePartition(task)
        for task in share_tasks(
            plans, options.partition_count_min, options.records_per_partition_max
        )
    ]


def read_partition(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The records of a task."""
    from pyspark_mainstem._range_reader import read_range

    # Spark makes up an empty partition where there is none to read.
    if not isinstance(partition, RangePartition):
        return
    for plan in partition.plans:
        yield from read_range(
            plan,
            options.columns,
            fail_on_data_loss=options.fail_on_data_loss,
            settings=options.store,
        )

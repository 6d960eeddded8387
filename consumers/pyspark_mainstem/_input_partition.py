"""What Spark carries from the planner to a task."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from pyspark_mainstem._range_plan import RangePlan


class RangePartition(InputPartition):
    """A range of one topic-partition: one task reads it, in offset order."""

    def __init__(self, plan: RangePlan) -> None:
        super().__init__(plan)
        self.plan = plan

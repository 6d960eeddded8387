"""What one task reads: large ranges in pieces, and of small ones several. Pure.

Source: `KafkaOffsetRangeCalculator` of Spark's Kafka source. There, small ranges share no task.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise

from pyspark_mainstem._offsets import OffsetRange, TopicPartition
from pyspark_mainstem._range_plan import RangePlan

#: The base offsets of each partition's data files, in order.
Boundaries = Mapping[TopicPartition, Sequence[int]]


def split_ranges(
    ranges: Sequence[OffsetRange],
    count_min: int | None,
    records_max: int | None,
    boundaries: Boundaries,
) -> list[OffsetRange]:
    """The ranges in order, without empty ones, and the large ones in pieces.

    First each is cut into pieces of at most `records_max`; where that makes fewer than `count_min`,
    those are cut into about so many, in proportion to their size. A cut goes to the beginning of a
    data file where one is near, so that no two tasks read one file.

    Args:
        count_min: About how many pieces at least; None: no matter how many.
        records_max: Offsets of one piece at most; None: no limit.
    """
    pieces = [one for one in ranges if one.size > 0]
    if records_max is not None:
        pieces = [
            piece
            for one in pieces
            for piece in _cut_to(one, records_max, boundaries.get(one.topic_partition, ()))
        ]
    if count_min is None or count_min <= len(pieces):
        return pieces
    total = sum(one.size for one in pieces)
    small = {one for one in pieces if _share(one.size, total, count_min) == 1}
    large_total = total - sum(one.size for one in small)
    for_large = max(count_min - len(small), 1)
    cut: list[OffsetRange] = []
    for one in pieces:
        parts = 1 if one in small else _share(one.size, large_total, for_large)
        cut += _cut(one, parts, boundaries.get(one.topic_partition, ()))
    return cut


def share_tasks(
    plans: Sequence[RangePlan], count_min: int | None, records_max: int | None
) -> list[tuple[RangePlan, ...]]:
    """The plans in order, by task: each has one, or with `records_max` as many in a row as have no
    more records together.

    Args:
        count_min: About how many tasks at least: fewer share one then.
        records_max: Offsets of one task, unless one plan alone has more; None: nothing is shared.
    """
    if records_max is None:
        return [(plan,) for plan in plans]
    if count_min is not None:
        records_max = min(records_max, sum(plan.size for plan in plans) // count_min)
    tasks: list[tuple[RangePlan, ...]] = []
    records = 0
    for plan in plans:
        if tasks and records + plan.size <= records_max:
            tasks[-1] += (plan,)
            records += plan.size
        else:
            tasks.append((plan,))
            records = plan.size
    return tasks


def _share(size: int, total: int, parts: int) -> int:
    return max(round(size / total * parts), 1)


def _cut(whole: OffsetRange, parts: int, boundaries: Sequence[int]) -> list[OffsetRange]:
    """About so many pieces of the same size, none of them empty."""
    parts = min(parts, whole.size)
    step = whole.size / parts
    cuts = {whole.start, whole.end}
    for index in range(1, parts):
        cut = _near(whole.start + round(index * step), step, boundaries)
        if whole.start < cut < whole.end:
            cuts.add(cut)
    ordered = sorted(cuts)
    return [OffsetRange(whole.topic_partition, start, end) for start, end in pairwise(ordered)]


def _cut_to(whole: OffsetRange, records_max: int, boundaries: Sequence[int]) -> list[OffsetRange]:
    """Pieces of about the same size, none of them above `records_max`."""
    pieces = []
    start = whole.start
    while start < whole.end:
        left = whole.end - start
        step = math.ceil(left / math.ceil(left / records_max))
        end = start + step
        if end < whole.end:
            near = _near(end, step, boundaries)
            end = near if start < near <= start + records_max and near < whole.end else end
        pieces.append(OffsetRange(whole.topic_partition, start, end))
        start = end
    return pieces


def _near(wanted: int, step: float, boundaries: Sequence[int]) -> int:
    """The beginning of a data file within a quarter of a step; `wanted` where there is none."""
    after = bisect_left(boundaries, wanted)
    near = min(
        boundaries[max(after - 1, 0) : after + 1],
        key=lambda boundary: abs(boundary - wanted),
        default=wanted,
    )
    return near if abs(near - wanted) * 4 <= step else wanted

"""The plan of one task: which data files hold the offsets of its range. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mainstem.delta_log import TableState
from mainstem.errors import LogDamagedError
from pyspark_mainstem._filters import Wanted
from pyspark_mainstem._offsets import OffsetRange


class FilePart(NamedTuple):
    """A data file that holds a part of a range."""

    path: str
    base_offset: int
    last_offset: int
    record_count: int
    size_bytes: int
    tail_crc32c: int | None
    #: Row groups of it may be left out: the query wants records of some times only.
    partly: bool = False

    @property
    def dense(self) -> bool:
        """Whether it has every offset from base to last."""
        return self.record_count == self.last_offset - self.base_offset + 1


@dataclass(frozen=True, slots=True)
class RangePlan:
    """All that reading the offsets [start, end) of a partition takes: small, since every task
    carries one.

    Attributes:
        files: Those that hold [start, end), but for such as have no record of the wanted times.
        timestamps_ms: The wanted times, both inclusive; None: all. What else is read does no harm.
    """

    table_uri: str
    topic_id: str
    topic: str
    partition: int
    start: int
    end: int
    files: tuple[FilePart, ...]
    timestamps_ms: tuple[int, int] | None = None

    @property
    def size(self) -> int:
        """Offsets in it; keyed compaction may have left fewer records."""
        return self.end - self.start


def plan_range(state: TableState, one: OffsetRange, wanted: Wanted | None = None) -> RangePlan:
    """The files of a range.

    Args:
        wanted: Files without records of these times are left out.

    Raises:
        LogDamagedError: They do not hold every offset of it exactly once. Offsets that keyed
            compaction has seen may be missing.
    """
    (topic, partition), start, end = one
    files = state.files(partition).between(start, end)
    # Not by cleanup.policy: what was compacted has gaps whatever the topic's settings say now.
    cleaned = state.cleaned_offset(partition)
    next_offset = start
    for index, file in enumerate(files):
        if file.base_offset > max(next_offset, cleaned):
            break
        if index > 0 and file.base_offset < next_offset:
            raise LogDamagedError(
                f"offset {file.base_offset} of topic {topic!r}, partition {partition}, is in two "
                "data files of version "
                f"{state.version}; one is {state.table}/{file.path}",
                file=file.path,
                topic=topic,
                partition=partition,
                offset=file.base_offset,
            )
        next_offset = file.last_offset + 1
    next_offset = max(next_offset, min(cleaned, end))
    if next_offset < end:
        raise LogDamagedError(
            f"offset {next_offset} of topic {topic!r}, partition {partition}, is in no data file "
            "of version "
            f"{state.version} of {state.table}, which should have the offsets {start} to {end} "
            "(exclusive)",
            topic=topic,
            partition=partition,
            offset=next_offset,
        )
    wanted = wanted or Wanted()
    parts = []
    partly = False
    for file in files:
        least, most = file.timestamp_ms_min, file.timestamp_ms_max
        if not wanted.takes_times(least, most):
            continue
        some = least < wanted.timestamp_ms_min or most > wanted.timestamp_ms_max
        partly |= some
        parts.append(
            FilePart(
                file.path,
                file.base_offset,
                file.last_offset,
                file.record_count,
                file.size_bytes,
                file.tail_crc32c,
                some,
            )
        )
    return RangePlan(
        table_uri=state.table,
        topic_id=state.topic_id,
        topic=topic,
        partition=partition,
        start=start,
        end=end,
        files=tuple(parts),
        timestamps_ms=(wanted.timestamp_ms_min, wanted.timestamp_ms_max) if partly else None,
    )

"""Removing records from the front of partitions: log start offsets and the files before them. Pure.

Both change in one table commit, so that no reader finds a log start offset whose records are gone,
nor records that are no longer to be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mainstem.delta_log.format import Action, DataFile, Register, Remove, registers
from mainstem.delta_log.store import clock_lead_ms
from mainstem.delta_log.table.state import TableState
from mainstem.errors import OffsetOutOfRangeError, PolicyViolationError, UnknownPartitionError

#: Stands for the high watermark in `trim_targets`. Kafka: DeleteRecordsRequest.HIGH_WATERMARK.
HIGH_WATERMARK: Final = -1

#: Files that one commit removes. A leader takes each commit into its state in one step of its event
#: loop: 20 ms with a partition of 100,000 files.
FILES_PER_COMMIT_MAX: Final = 2_000


def file_time_ms(file: DataFile) -> int:
    """When a file's retention begins: at its newest record, or when its records were written if a
    record is dated later than that.

    So a record that is dated in the future does not keep what follows it in its partition: it
    expires as if it had been dated when it came.
    """
    return min(file.timestamp_ms_max, file.modified_ms)


def believed_ms(state: TableState, now_ms: int, alive_ms: int, kept_ms: int) -> int:
    """The time of day by which records are old enough to go.

    A clock alone is no reason to delete: one that is a year ahead would take everything. So it is
    believed for some time after the newest sign of life: see `clock_lead_ms`.

    Args:
        alive_ms: When a gateway of the warehouse was heard of last, by its own clock.
        kept_ms: For how long records are kept.
    """
    return min(now_ms, max(_newest_append_ms(state), alive_ms) + clock_lead_ms(kept_ms))


def trim_targets(state: TableState, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
    """The log start offset that each partition gets; one that is further already keeps its own.

    Args:
        offsets: By partition, the first offset to keep; `HIGH_WATERMARK` removes every record.

    Raises:
        UnknownPartitionError: The topic has no such partition.
        OffsetOutOfRangeError: An offset is negative or beyond the high watermark.
        PolicyViolationError: The topic is compacted only: the newest record of a key stays.
    """
    if not state.config.deletes:
        raise PolicyViolationError(
            f"topic {topic!r} has cleanup.policy={state.config.get('cleanup.policy')}: the newest "
            "record of each key stays; add delete to the policy to remove records from the front",
            topic=topic,
        )
    targets: dict[int, int] = {}
    for partition, offset in sorted(offsets.items()):
        if not 0 <= partition < state.partition_count:
            raise UnknownPartitionError(
                f"topic {topic!r} has no partition {partition}; it has {state.partition_count}",
                topic=topic,
                partition=partition,
            )
        start, end = state.log_start_offset(partition), state.log_end_offset(partition)
        wanted = end if offset == HIGH_WATERMARK else offset
        if not 0 <= wanted <= end:
            raise OffsetOutOfRangeError(
                f"partition {partition} of topic {topic!r} cannot begin at offset {offset}: its "
                f"high watermark is {end}; {HIGH_WATERMARK} stands for it",
                topic=topic,
                partition=partition,
                offset=offset,
                log_start_offset=start,
                high_watermark=end,
            )
        targets[partition] = max(start, wanted)
    return targets


def trim_step(
    state: TableState,
    starts: Mapping[int, int],
    now_ms: int,
    files_max: int = FILES_PER_COMMIT_MAX,
) -> list[Action]:
    """The actions of the next commit on the way to these log start offsets; empty: arrived.

    Files that lie wholly before an offset are removed. One that has it inside stays whole, and its
    records before the offset are not read any more. A log start offset moves no further than the
    files of its commit, and never back.

    Args:
        starts: Log start offset by partition, each at most the partition's end.
        now_ms: Wall clock; the removed files' time until vacuum counts from it.
        files_max: Files that one commit removes.
    """
    actions: list[Action] = []
    left = files_max
    for partition, wanted in sorted(starts.items()):
        start = state.log_start_offset(partition)
        wanted = max(wanted, start)
        assert wanted <= state.log_end_offset(partition), "a log start offset beyond the end"
        reached = wanted
        for file in state.files(partition):
            if file.last_offset >= wanted:
                break
            if left == 0:
                reached = max(start, min(file.base_offset, wanted))
                break
            left -= 1
            actions.append(Remove(file.path, partition, file.size_bytes, now_ms, data_change=True))
        if reached > start:
            actions.append(Register(registers.lso(partition), reached))
    return actions


def _newest_append_ms(state: TableState) -> int:
    """When the newest data file was written, by the clock of the leader that wrote it; 0: there is
    none. What jobs make of files keeps their time."""
    newest = (state.files(partition).last() for partition in range(state.partition_count))
    return max((file.modified_ms for file in newest if file is not None), default=0)

"""How far a group is in a partition, by what it has committed and what the log has. Pure."""

from __future__ import annotations

from mainstem.consumers.offset_rows import StoredOffset
from mainstem.delta_log import TableState


def truncated_to(
    state: TableState, committed: StoredOffset, accepted_end: int | None
) -> int | None:
    """Where the group goes on in a log that was put back from an older copy since it committed;
    None: the log has all that the group has read, as far as is known here. See
    `TableState.truncated_to`.

    Args:
        accepted_end: Where the partition ends for its leader, which has accepted more than the
            table has: a group that reads to the durable mark may be there already. None: it is led
            elsewhere, or by nobody. Then what the group has read may be in a write-ahead log, until
            a later leader has brought all of them into the table; fetches from the leader tell.
    """
    cut = state.truncated_to(committed.partition, committed.offset, committed.leader_epoch)
    if cut is not None and committed.offset > state.log_end_offset(committed.partition):
        if accepted_end is None:
            certain = state.settled > committed.leader_epoch
        else:
            certain = committed.offset > accepted_end
        if not certain:
            return None
    return None if cut is None else max(cut, state.log_start_offset(committed.partition))


def next_offset(state: TableState, committed: StoredOffset) -> int:
    """The first offset that the group reads when it goes on; at most the high watermark.

    Retention may have passed the committed offset, or the log may have become shorter. An offset
    beyond the log's end of which nobody knows where it was read is in no log: a group with
    auto.offset.reset=earliest reads everything.
    """
    cut = state.truncated_to(committed.partition, committed.offset, committed.leader_epoch)
    if cut is not None:
        return max(cut, state.log_start_offset(committed.partition))
    start_offset = state.log_start_offset(committed.partition)
    if committed.offset > state.log_end_offset(committed.partition):
        return start_offset
    return max(committed.offset, start_offset)

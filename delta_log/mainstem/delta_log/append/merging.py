"""What a leader does with another writer's commit: take it into its state, or stop. Pure."""

from __future__ import annotations

from mainstem.delta_log.append.leadership import deleted
from mainstem.delta_log.table import Conflict, TableState, same_table
from mainstem.errors import FencedError, LogDamagedError, UnsupportedTableError


def merge_winner(state: TableState, topic: str, epoch: int, winner: Conflict) -> None:
    """Takes another writer's commit into the leader's state.

    Raises:
        UnknownTopicError: The topic was deleted.
        FencedError: Another gateway leads it, with a higher epoch than `epoch`.
        UnsupportedTableError, LogDamagedError: The commit is none that may be beside a leader's.
    """
    before = state.metadata
    ends = {
        partition: state.log_end_offset(partition) for partition in range(state.partition_count)
    }
    state.apply(winner.version, winner.actions)
    if state.deleted:
        raise deleted(topic)
    if state.epoch > epoch:
        raise FencedError(
            f"another gateway leads topic {topic!r} with epoch {state.epoch}; ours was {epoch}",
            topic=topic,
            epoch=state.epoch,
        )
    assert before is not None
    assert state.metadata is not None
    if not same_table(before, state.metadata):
        raise UnsupportedTableError(
            f"version {winner.version} of topic {topic!r} changed its id, schema or "
            "partitioning; the gateway has stopped writing to it",
            topic=topic,
            table_version=winner.version,
        )
    for partition, end in ends.items():
        if state.log_end_offset(partition) != end:
            raise LogDamagedError(
                f"version {winner.version} of topic {topic!r} moved the end of partition "
                f"{partition} from {end} to {state.log_end_offset(partition)} without a new "
                "leader epoch; "
                "the gateway has stopped writing to it",
                topic=topic,
                table_version=winner.version,
            )

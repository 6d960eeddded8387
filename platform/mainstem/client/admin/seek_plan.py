"""Where a group's offsets would go: pure, so that a plan can be shown before anything moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mainstem.client.positions import TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """One partition's committed offset, before and after.

    Attributes:
        before: None: nothing is committed.
        wanted: What was asked for.
        after: That, brought into [log_start_offset, high_watermark] as Kafka's tool does.
    """

    topic: str
    partition: int
    before: int | None
    wanted: int
    after: int
    log_start_offset: int
    high_watermark: int

    @property
    def is_clamped(self) -> bool:
        """What was asked for is not in the log."""
        return self.wanted != self.after

    @property
    def moves(self) -> bool:
        """Something changes."""
        return self.before != self.after

    def target(self) -> TopicPartition:
        """For `AdminClient.alter_consumer_group_offsets`."""
        return TopicPartition(self.topic, self.partition, self.after)


def plan_seek(
    wanted: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, tuple[int, int]],
) -> list[OffsetMove]:
    """The moves, by topic and partition.

    Args:
        wanted: The offset that is asked for, of every partition that shall move.
        committed: What the group has now; partitions without an offset are not in it.
        bounds: Log start offset and high watermark of every partition in `wanted`.
    """
    moves = []
    for tp in sorted(wanted, key=lambda tp: (tp.topic, tp.partition)):
        low, high = bounds[tp]
        after = min(max(wanted[tp], low), high)
        moves.append(
            OffsetMove(tp.topic, tp.partition, committed.get(tp), wanted[tp], after, low, high)
        )
    return moves

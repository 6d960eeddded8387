"""What programs name: partitions with offsets, and the members of groups that commit them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

#: Kafka's words for offsets that are no number; confluent-kafka has the same values.
OFFSET_BEGINNING: Final = -2
OFFSET_END: Final = -1
OFFSET_STORED: Final = -1000
OFFSET_INVALID: Final = -1001


@dataclass(frozen=True, slots=True)
class TopicPartition:
    """A partition, and where it matters an offset. Equal when topic and partition are.

    Attributes:
        offset: The next offset to read; or OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED (the
            committed one) or OFFSET_INVALID (not said: the committed one, or auto.offset.reset).
        metadata: A text that is committed with the offset.
    """

    topic: str
    partition: int = 0
    offset: int = field(default=OFFSET_INVALID, compare=False)
    metadata: str = field(default="", compare=False)


class LogIdentity(NamedTuple):
    """Which log an offset is of: what tells it from another of the same name.

    Attributes:
        topic_id: Empty: not known.
        leader_epoch: In which the record before it was appended; -1: nobody has read up to the
            offset, so it may be none of the log's.
    """

    topic_id: str
    leader_epoch: int


class ReadLog(NamedTuple):
    """A log that a consumer reads.

    Attributes:
        topic_id: Empty: not known.
        leader_epoch: In which the record before `position` was appended; 0: not known.
        position: The next offset that the application gets; below 0: not known.
    """

    topic_id: str
    leader_epoch: int
    position: int

    def identity_at(self, offset: int) -> LogIdentity:
        """Which log an offset that is to be committed is of."""
        read = self.leader_epoch and offset <= self.position
        return LogIdentity(self.topic_id, self.leader_epoch if read else -1)


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """A member of a group at one moment, for `send_offsets_to_transaction`. Kafka: KIP-447.

    Attributes:
        group_id: group.id.
        member_id: Empty, with epoch -1: the consumer is no member, as with assign().
        member_epoch: 0: what it reads is of a membership that has ended, so that nothing may be
            committed by it.
        group_instance_id: group.instance.id; empty: not set.
        logs: The logs that the consumer reads, by partition.
    """

    group_id: str
    member_id: str = ""
    member_epoch: int = -1
    group_instance_id: str = ""
    logs: Mapping[TopicPartition, ReadLog] = field(default_factory=dict, compare=False, repr=False)

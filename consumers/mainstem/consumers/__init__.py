"""Consumer groups: the coordinator, the assignors, and the table of committed offsets."""

from mainstem.consumers.assignors import (
    ASSIGNORS,
    Partition,
    TopicInfo,
    assign_range,
    assign_uniform,
)
from mainstem.consumers.coordinator import (
    JOIN_EPOCH,
    NO_MEMBER_EPOCH,
    Beat,
    Coordinator,
    CoordinatorRules,
    Heartbeat,
)
from mainstem.consumers.group import EMPTY, RECONCILING, STABLE, Group, Member, partitions_by_topic

__all__ = [
    "ASSIGNORS",
    "EMPTY",
    "JOIN_EPOCH",
    "NO_MEMBER_EPOCH",
    "RECONCILING",
    "STABLE",
    "Beat",
    "Coordinator",
    "CoordinatorRules",
    "Group",
    "Heartbeat",
    "Member",
    "Partition",
    "TopicInfo",
    "assign_range",
    "assign_uniform",
    "partitions_by_topic",
]

"""Consumer groups: the coordinator, the assignors, and the table of committed offsets."""

from mainstem.consumers.assignors import (
    ASSIGNORS,
    Partition,
    TopicInfo,
    assign_range,
    assign_uniform,
)
from mainstem.consumers.coordinator import NO_MEMBER_EPOCH, Coordinator, CoordinatorRules
from mainstem.consumers.group import EMPTY, RECONCILING, STABLE, Group, Member, partitions_by_topic
from mainstem.consumers.heartbeat import JOIN_EPOCH, Beat, Heartbeat

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

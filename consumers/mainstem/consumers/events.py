"""What happens to the members of groups, for a log. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from mainstem.consumers.group import Group, Member

JOINED: Final = "member joined"
LEFT: Final = "member left"
EVICTED: Final = "member evicted"
REBALANCED: Final = "group rebalanced"
OFFSETS_MOVED: Final = "offsets moved from outside the group"

#: Events that nobody has taken; the oldest go.
_EVENTS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """Something that happened to a group.

    Attributes:
        kind: One of the constants above.
        facts: `group`, `reason`, and what there is of `member_id`, `instance_id`, `client_id`,
            `peer`, `member_epoch`, `group_epoch`, `member_count`, `partition_count`.
    """

    kind: str
    facts: dict[str, object]


class GroupEvents:
    """Collects them until they are taken."""

    def __init__(self) -> None:
        self._events: deque[GroupEvent] = deque(maxlen=_EVENTS_MAX)

    def member(self, kind: str, group: Group, member: Member, reason: str) -> None:
        """Notes what happened to a member, which is as it was before or is now."""
        facts: dict[str, object] = {
            "group": group.name,
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": member.client_id,
            "peer": member.peer,
        }
        self._events.append(
            GroupEvent(
                kind,
                {name: value for name, value in facts.items() if value}
                | {
                    "member_epoch": member.epoch,
                    "member_count": len(group.members),
                    "reason": reason,
                },
            )
        )

    def rebalanced(self, group: Group) -> None:
        """Notes that the group has another target."""
        self._events.append(
            GroupEvent(
                REBALANCED,
                {
                    "group": group.name,
                    "group_epoch": group.epoch,
                    "member_count": len(group.members),
                    "partition_count": sum(map(len, group.target.values())),
                    "assignor": group.assignor,
                },
            )
        )

    def take(self) -> list[GroupEvent]:
        """The events since the last call, the oldest first."""
        taken = list(self._events)
        self._events.clear()
        return taken


def eviction_reason(member: Member, now_ms: int) -> str:
    """Why a member is put out."""
    if member.away:
        return "a static member did not come back within session.timeout.ms"
    if member.session_ends_ms <= now_ms:
        return f"no heartbeat for session.timeout.ms ({member.session_timeout_ms} ms)"
    return (
        "it did not give up partitions that it was told to within max.poll.interval.ms "
        f"({member.rebalance_timeout_ms} ms)"
    )

"""What a member says and hears, and what it may ask for. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.consumers.assignors import ASSIGNORS, Partition
from mainstem.errors import InvalidConfigError
from mainstem.limits import (
    GROUP_NAME_BYTES_MAX,
    GROUP_TEXT_BYTES_MAX,
    SESSION_TIMEOUT_MS_MAX,
    SESSION_TIMEOUT_MS_MIN,
    SUBSCRIBED_TOPICS_MAX,
)

#: A member that joins has this epoch.
JOIN_EPOCH: Final = 0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a member says of itself; see `HeartbeatRequest`.

    With an epoch other than 0, what is empty or 0 is as it was before, except `owned`.
    """

    group: str
    member_id: str = ""
    member_epoch: int = JOIN_EPOCH
    instance_id: str = ""
    client_id: str = ""
    rack: str = ""
    topics: frozenset[str] = frozenset()
    topic_pattern: str = ""
    assignor: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = 0
    owned: frozenset[Partition] = frozenset()
    #: The address that it came from.
    peer: str = ""
    #: Which of the topics that its pattern fits the member may have; None: all of them. It answers
    #: as before as long as it is the same object.
    may_read: Callable[[str], bool] | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """The answer to a heartbeat.

    Attributes:
        added_later: Of the assignment, what came to its topic after the group subscribed to it.
        settled: The member has its whole target; else it should come back soon.
        missing_topics: Topics that the member names and that are not known, or some of them.
    """

    member_id: str
    member_epoch: int
    assignment: frozenset[Partition]
    added_later: frozenset[Partition]
    settled: bool
    missing_topics: tuple[str, ...] = ()


def check_group_name(group_name: str) -> None:
    """Raises InvalidConfigError if no group may be called that."""
    if not 0 < len(group_name.encode()) <= GROUP_NAME_BYTES_MAX:
        raise InvalidConfigError(
            f"group.id is {group_name[:50]!r}; it must have 1 to {GROUP_NAME_BYTES_MAX} bytes",
            name="group.id",
            value=group_name[:50],
        )


def check_member_id(member_id: str) -> None:
    """Raises InvalidConfigError if no member may be called that."""
    _check_text("member id", member_id)


def check_heartbeat(beat: Heartbeat) -> None:
    """Raises InvalidConfigError, naming what the member asks for and may not."""
    check_group_name(beat.group)
    for name, text in (
        ("member id", beat.member_id),
        ("group.instance.id", beat.instance_id),
        ("client.id", beat.client_id),
        ("client.rack", beat.rack),
        ("topic pattern", beat.topic_pattern),
    ):
        _check_text(name, text)
    if len(beat.topics) > SUBSCRIBED_TOPICS_MAX:
        raise InvalidConfigError(
            f"a member subscribes to {len(beat.topics)} topics; "
            f"it may be {SUBSCRIBED_TOPICS_MAX} at most: use a pattern",
            limit_topics=SUBSCRIBED_TOPICS_MAX,
        )
    if beat.assignor and beat.assignor not in ASSIGNORS:
        raise InvalidConfigError(
            f"partition.assignment.strategy is {beat.assignor!r}; "
            f"it must be one of {', '.join(ASSIGNORS)}",
            name="partition.assignment.strategy",
            value=beat.assignor,
        )
    for name, value in (
        ("session.timeout.ms", beat.session_timeout_ms),
        ("max.poll.interval.ms", beat.rebalance_timeout_ms),
    ):
        low = SESSION_TIMEOUT_MS_MIN
        if value and not low <= value <= SESSION_TIMEOUT_MS_MAX:
            raise InvalidConfigError(
                f"{name} is {value} ms; it must be {low} to {SESSION_TIMEOUT_MS_MAX} ms",
                name=name,
                value=value,
            )
    if beat.topic_pattern:
        try:
            pc.match_substring_regex(pa.array(["t"]), pattern=beat.topic_pattern)
        except pa.ArrowInvalid as error:
            raise InvalidConfigError(
                f"the topic pattern {beat.topic_pattern!r} is not a regular expression: {error}",
                name="topic pattern",
                value=beat.topic_pattern,
            ) from None


def _check_text(name: str, text: str) -> None:
    if len(text.encode()) > GROUP_TEXT_BYTES_MAX:
        raise InvalidConfigError(
            f"the {name} has {len(text.encode())} bytes; "
            f"it may have {GROUP_TEXT_BYTES_MAX} at most",
            name=name,
            limit_bytes=GROUP_TEXT_BYTES_MAX,
        )

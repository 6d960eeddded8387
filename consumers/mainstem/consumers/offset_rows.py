"""Rows of the table `system/consumer_offsets`, their JSON, and how long they are kept. Pure.

| key | value |
|---|---|
| `group`, `topic_id`, `partition` | `group`, `topic`, `topic_id`, `partition`, `offset`, `leader_epoch`, `metadata`, `commit_timestamp_ms` |
| `group` | `group`, `epoch_floor`, `empty_since_ms`, `heartbeat_ms` |

A null value takes the key away.
"""  # noqa: E501 (a table)

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from json.encoder import encode_basestring as _quoted
from sys import intern
from typing import Any, NamedTuple


class OffsetKey(NamedTuple):
    """Whose offset it is, in one group."""

    topic_id: str
    partition: int


#: A group, and one of its offsets or None for its own row.
Place = tuple[str, OffsetKey | None]


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """What a group has committed of one partition.

    Attributes:
        offset: The next one to read.
        leader_epoch: As the consumer gave it; -1: it did not.
    """

    topic: str
    topic_id: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class GroupRow:
    """What must survive of a group beside its offsets.

    Attributes:
        epoch_floor: No epoch above it was ever answered.
        empty_since_ms: When its last member went, by the wall clock; None: it has members.
        heartbeat_ms: No member was told to be silent for longer.
    """

    epoch_floor: int = 0
    empty_since_ms: int | None = None
    heartbeat_ms: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One row to write: an offset, a group's own row, or a key that goes.

    Attributes:
        key: None: the group's own row.
        value: None: the key goes.
    """

    group: str
    key: OffsetKey | None
    value: StoredOffset | GroupRow | None

    @property
    def place(self) -> Place:
        return self.group, self.key

    @property
    def takes_away(self) -> bool:
        return self.value is None

    def encode(self) -> tuple[bytes, bytes | None]:
        """Key and value as JSON. A tenth of the time that `json.dumps` takes: a commit may have
        some ten thousand rows, and they are encoded on the event loop."""
        group = _quoted(self.group)
        key = f'{{"group":{group}}}'
        if self.key is not None:
            key = (
                f'{{"group":{group},"topic_id":{_quoted(self.key.topic_id)},'
                f'"partition":{self.key.partition}}}'
            )
        match self.value:
            case None:
                return key.encode(), None
            case StoredOffset() as one:
                value = (
                    f'{{"group":{group},"topic":{_quoted(one.topic)},'
                    f'"topic_id":{_quoted(one.topic_id)},"partition":{one.partition},'
                    f'"offset":{one.offset},"leader_epoch":{one.leader_epoch},'
                    f'"metadata":{_quoted(one.metadata)},'
                    f'"commit_timestamp_ms":{one.commit_timestamp_ms}}}'
                )
            case GroupRow() as row:
                since = "null" if row.empty_since_ms is None else row.empty_since_ms
                value = (
                    f'{{"group":{group},"epoch_floor":{row.epoch_floor},'
                    f'"empty_since_ms":{since},"heartbeat_ms":{row.heartbeat_ms}}}'
                )
        return key.encode(), value.encode()

    @classmethod
    def decode(cls, key: bytes, value: bytes | None) -> Row:
        """The way back. A value says itself whose it is."""
        body: dict[str, Any] = json.loads(key if value is None else value)
        # All rows of a group have the same few strings.
        group = intern(body.pop("group"))
        if value is None:
            goes = OffsetKey(body["topic_id"], body["partition"]) if "partition" in body else None
            return cls(group, goes, None)
        if "partition" not in body:
            return cls(group, None, GroupRow(**body))
        body["topic"] = intern(body["topic"])
        body["topic_id"] = intern(body["topic_id"])
        return offset_row(group, StoredOffset(**body))


def offset_row(group: str, offset: StoredOffset) -> Row:
    """The row of an offset."""
    return Row(group, OffsetKey(offset.topic_id, offset.partition), offset)


def expired(
    group_row: GroupRow | None,
    offsets: Iterable[StoredOffset],
    *,
    has_members: bool,
    now_ms: int,
    retention_ms: int,
) -> list[StoredOffset]:
    """The offsets of a group whose time is over: it counts from when the group became empty, or
    from the commit if that came later. A group with members keeps all. Kafka: KIP-211."""
    if has_members:
        return []
    empty_since = 0  # a group that never had members
    if group_row is not None:
        if group_row.empty_since_ms is None:
            return []  # it had members a moment ago: its time begins when the row says so
        empty_since = group_row.empty_since_ms
    return [
        one for one in offsets if max(empty_since, one.commit_timestamp_ms) + retention_ms <= now_ms
    ]

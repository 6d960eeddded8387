"""Why a fetch, or one partition of it, is refused."""

from __future__ import annotations

from typing import Any

from mainstem.delta_log import TableState
from mainstem.errors import (
    LogTruncatedError,
    MainstemError,
    OffsetOutOfRangeError,
    RequestTooLargeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from mainstem.ingest_gateway.topics import GatewayTopic
from mainstem.limits import FETCH_PARTITIONS_MAX


def partition_refusal(
    state: TableState, reader: GatewayTopic, partition: int, topic_id: str
) -> MainstemError | None:
    """Why nothing of this partition can be read."""
    topic = reader.topic
    if topic_id and topic_id != state.topic_id:
        return UnknownTopicError(
            f"topic {topic!r} has the id {state.topic_id}, not {topic_id}: it was deleted and "
            "created again",
            topic=topic,
            topic_id=state.topic_id,
        )
    if not 0 <= partition < state.partition_count:
        return UnknownPartitionError(
            f"topic {topic!r} has no partition {partition}; it has {state.partition_count}",
            topic=topic,
            partition=partition,
        )
    return None


def offset_refusal(
    state: TableState,
    topic: str,
    partition: int,
    offset: int,
    leader_epoch: int,
    accepted_end: int = 0,
) -> OffsetOutOfRangeError | None:
    """Why nothing can be read of a partition at this offset, after `leader_epoch`.

    Args:
        accepted_end: Up to here the leader has accepted records, if it is here: whether they are
            those that a reader of the durable mark has read, the table tells once it has them.
    """
    if state.log_end_offset(partition) < offset <= accepted_end:
        return None
    start, end = state.log_start_offset(partition), state.log_end_offset(partition)
    facts: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "log_start_offset": start,
        "high_watermark": end,
    }
    cut = state.truncated_to(partition, offset, leader_epoch)
    if cut is not None:
        cut = max(cut, start)
        return LogTruncatedError(
            f"partition {partition} of topic {topic!r} was put back from an older copy: from "
            f"offset {cut} on it does not have the records that were read up to {offset}, but "
            f"others, or none; its high watermark is {end}. Seek to {cut} to read what is there",
            **facts,
            truncated_to=cut,
        )
    if not start <= offset <= end:
        return OffsetOutOfRangeError(
            f"offset {offset} of partition {partition} of topic {topic!r} is not in "
            f"[{start}, {end}], from the log start offset to the high watermark",
            **facts,
        )
    return None


def check_count(what: str, count: int) -> None:
    """Raises RequestTooLargeError for more partitions than one request may name."""
    if count > FETCH_PARTITIONS_MAX:
        raise RequestTooLargeError(
            f"the request has {count} {what}; the limit is {FETCH_PARTITIONS_MAX}",
            limit=FETCH_PARTITIONS_MAX,
        )

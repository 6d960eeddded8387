"""Why a fetch, or one partition of it, is refused."""

from __future__ import annotations

from mainstem.delta_log import TableState
from mainstem.errors import (
    MainstemError,
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


def check_count(what: str, count: int) -> None:
    """Raises RequestTooLargeError for more partitions than one request may name."""
    if count > FETCH_PARTITIONS_MAX:
        raise RequestTooLargeError(
            f"the request has {count} {what}; the limit is {FETCH_PARTITIONS_MAX}",
            limit=FETCH_PARTITIONS_MAX,
        )

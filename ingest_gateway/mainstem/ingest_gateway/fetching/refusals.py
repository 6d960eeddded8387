"""Why a fetch, or one partition of it, is refused."""

from __future__ import annotations

import structlog

from mainstem.delta_log import TableState
from mainstem.delta_log.store import NotFound
from mainstem.errors import (
    InternalError,
    LogDamagedError,
    MainstemError,
    RequestTooLargeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from mainstem.ingest_gateway.topics import GatewayTopic
from mainstem.limits import FETCH_PARTITIONS_MAX

log = structlog.get_logger()


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


def as_ours(failure: BaseException) -> MainstemError:
    """The failure as one of our errors; one that is not ours is logged as a fault."""
    if isinstance(failure, MainstemError):
        return failure
    if isinstance(failure, NotFound):
        return LogDamagedError(f"a file of the table is missing: {failure}")
    if not isinstance(failure, Exception):
        raise failure
    log.error("fetch failed", exc_info=failure)
    return InternalError(f"the gateway failed on this fetch: {failure!r}")

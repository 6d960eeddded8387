"""Whether offsets that come to be committed lie in their logs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from mainstem.errors import OffsetOutOfRangeError
from mainstem.ingest_gateway.topics import GatewayTopics
from mainstem.protocol.v1 import groups_pb2

#: Looks at a topic before it is certain that an offset is beyond its end: the first may have begun
#: before the offset came.
_LOOKS_SURE: Final = 2


async def beyond_ends(
    topics: GatewayTopics, offsets: Iterable[groups_pb2.CommittedOffset]
) -> dict[tuple[str, int], OffsetOutOfRangeError]:
    """Which of the offsets are beyond the ends of their logs, by topic and partition.

    A group with such an offset would have no lag, and skip the records that get the offsets before
    it. An offset with a leader epoch is one that somebody has read up to, so it is not looked at. A
    record that anybody has read was in the table before its offset could come here: an offset that
    is beyond the end in a look that began after it came is not one that was read. A log that cannot
    be looked at says nothing against an offset.
    """
    unread = [one for one in offsets if one.leader_epoch <= 0 and one.offset > 0]
    for looks in range(_LOOKS_SURE + 1):
        refused: dict[tuple[str, int], OffsetOutOfRangeError] = {}
        doubtful: set[str] = set()
        for one in unread:
            found = topics.current(one.topic, any_age=True)
            if found is None:
                doubtful.add(one.topic)
                continue
            state, _, _ = found
            start = state.log_start_offset(one.partition)
            end = state.log_end_offset(one.partition)
            is_this_log = not one.topic_id or one.topic_id == state.topic_id
            if one.offset > end and is_this_log and 0 <= one.partition < state.partition_count:
                doubtful.add(one.topic)
                refused[one.topic, one.partition] = OffsetOutOfRangeError(
                    f"offset {one.offset} of partition {one.partition} of topic {one.topic!r} is "
                    f"not in [{start}, {end}], from the log start offset to the high watermark: "
                    "nobody can have read up to there; commit the next offset to read",
                    topic=one.topic,
                    partition=one.partition,
                    offset=one.offset,
                    log_start_offset=start,
                    high_watermark=end,
                )
        if not doubtful or looks == _LOOKS_SURE:
            break
        await asyncio.gather(*(topics.look(name) for name in doubtful), return_exceptions=True)
    return refused

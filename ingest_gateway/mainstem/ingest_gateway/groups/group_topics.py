"""What the topics that groups read are now, and whether offsets lie in their logs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import chain
from typing import Final

from mainstem.consumers import TopicInfo
from mainstem.consumers.offset_rows import StoredOffset
from mainstem.consumers.progress import truncated_to
from mainstem.delta_log import Appender, TableState
from mainstem.errors import OffsetOutOfRangeError, UnknownTopicError
from mainstem.ingest_gateway.several import one_for_each
from mainstem.ingest_gateway.topics import GatewayTopics
from mainstem.protocol.v1 import groups_pb2
from mainstem.records import check_topic_name

#: Looks at a topic before it is certain that an offset is beyond its end: the first may have begun
#: before the offset came.
_LOOKS_SURE: Final = 2


class GroupTopics:
    """On the event loop."""

    def __init__(self, topics: GatewayTopics) -> None:
        self._topics = topics

    async def topic(self, name: str) -> TopicInfo | None:
        """What a topic is now; None: there is none."""

        def view(state: TableState, _: Appender | None) -> TopicInfo:
            return TopicInfo(state.topic_id, state.partition_count)

        try:
            check_topic_name(name)
            return await self._topics.describe(name, view)
        except UnknownTopicError:
            return None

    def led(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """What those are that are led here, as far as their leaders know."""
        found: dict[str, TopicInfo] = {}
        for name in names:
            if self._topics.is_leader(name):
                topic = self._topics.leading(name)
                if topic is not None and topic.leader is not None:
                    state = topic.leader.state
                    found[name] = TopicInfo(state.topic_id, state.partition_count)
        return found

    async def topics(self, names: Iterable[str]) -> dict[str, TopicInfo | None]:
        """What topics are now, some of them looked at at a time."""
        each = list(dict.fromkeys(names))
        return dict(zip(each, await one_for_each(each, self.topic), strict=True))

    async def beyond_ends(
        self, offsets: Iterable[groups_pb2.CommittedOffset]
    ) -> dict[tuple[str, int], OffsetOutOfRangeError]:
        """Which of the offsets are beyond the ends of their logs, by topic and partition.

        A group with such an offset would have no lag, and skip the records that get the offsets
        before it. An offset with a leader epoch is one that somebody has read up to, so it is not
        looked at. A record that anybody has read was in the table before its offset could come
        here, or accepted by its leader: an offset that is beyond the end in a look that began after
        it came was read by nobody. A log that cannot be looked at says nothing against an offset.
        """
        unread = [one for one in offsets if one.leader_epoch <= 0 and one.offset > 0]
        refused: dict[tuple[str, int], OffsetOutOfRangeError] = {}
        for looks in range(_LOOKS_SURE + 1):
            refused.clear()
            doubtful: set[str] = set()
            for one in unread:
                found = self._topics.current(one.topic, any_age=True)
                if found is None:
                    doubtful.add(one.topic)
                    continue
                state, topic, led = found
                start = state.log_start_offset(one.partition)
                end = state.log_end_offset(one.partition)
                if led and topic.leader is not None:
                    end = max(end, topic.leader.log_end_offset(one.partition))
                is_this_log = not one.topic_id or one.topic_id == state.topic_id
                if one.offset > end and is_this_log and 0 <= one.partition < state.partition_count:
                    doubtful.add(one.topic)
                    refused[one.topic, one.partition] = OffsetOutOfRangeError(
                        f"offset {one.offset} of partition {one.partition} of topic {one.topic!r} "
                        f"is not in [{start}, {end}], from the log start offset to the end "
                        "of the log: nobody can have read up to there; commit the next offset to "
                        "read",
                        topic=one.topic,
                        partition=one.partition,
                        offset=one.offset,
                        log_start_offset=start,
                        high_watermark=end,
                    )
            if not doubtful or looks == _LOOKS_SURE:
                break
            await asyncio.gather(
                *(self._topics.look(name) for name in doubtful), return_exceptions=True
            )
        return refused

    async def current_offsets(
        self, stored: Iterable[StoredOffset]
    ) -> list[tuple[StoredOffset, int | None]]:
        """Those that are of topics as they are now, each with where its group goes on if the log
        was put back from an older copy (`progress.truncated_to`)."""
        by_topic: dict[str, list[StoredOffset]] = {}
        for one in stored:
            by_topic.setdefault(one.topic, []).append(one)

        async def look(name: str) -> list[tuple[StoredOffset, int | None]]:
            def view(
                state: TableState, leader: Appender | None
            ) -> list[tuple[StoredOffset, int | None]]:
                return [
                    (
                        one,
                        truncated_to(
                            state,
                            one,
                            None if leader is None else leader.log_end_offset(one.partition),
                        ),
                    )
                    for one in by_topic[name]
                    if one.topic_id == state.topic_id
                ]

            try:
                check_topic_name(name)
                return await self._topics.describe(name, view)
            except UnknownTopicError:
                return []

        return list(chain.from_iterable(await one_for_each(list(by_topic), look)))

"""Offsets that somebody commits, checked, as rows of the offsets table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mainstem.config import GatewayConfig
from mainstem.consumers import Partition, TopicInfo
from mainstem.consumers.offset_rows import Row, StoredOffset, offset_row
from mainstem.errors import (
    InvalidOffsetError,
    MainstemError,
    UnknownPartitionError,
    UnknownTopicError,
)
from mainstem.ingest_gateway.groups.coordination import GroupCoordination
from mainstem.ingest_gateway.groups.running import Running
from mainstem.limits import OFFSETS_PER_COMMIT_MAX
from mainstem.protocol import error_to_message
from mainstem.protocol.v1 import groups_pb2

#: Commits this offset, from outside the group: the group has none any more.
NO_OFFSET: Final = -1


class OffsetCommits:
    """Looks at what is to be committed. On the event loop."""

    def __init__(self, coordination: GroupCoordination, config: GatewayConfig) -> None:
        self._coordination = coordination
        self._metadata_bytes_max = config.number("offset.metadata.max.bytes")

    async def take(
        self, running: Running, request: groups_pb2.CommitOffsetsRequest
    ) -> tuple[groups_pb2.CommitOffsetsResponse, list[Row]]:
        """What the request is answered, and the rows of the offsets that are not refused.

        From the last check to the return nothing waits: what is checked is what the caller stores,
        if it does so at once, and commits take effect in the order in which they arrive.

        Raises:
            InvalidOffsetError: There are too many.
            MainstemError: The caller may not commit for the group; see `Coordinator.check_commit`.
        """
        if len(request.offsets) > OFFSETS_PER_COMMIT_MAX:
            raise InvalidOffsetError(
                f"a commit has {len(request.offsets)} offsets; "
                f"it may have {OFFSETS_PER_COMMIT_MAX} at most",
                limit_offsets=OFFSETS_PER_COMMIT_MAX,
            )
        refused = await self._coordination.topics.beyond_ends(request.offsets)
        topics: dict[str, TopicInfo | None] = {}
        if not request.member_id:
            topics = await self.topics(one.topic for one in request.offsets)
        running.coordinator.check_commit(
            request.group, request.member_id, request.member_epoch, request.sequence
        )
        response = groups_pb2.CommitOffsetsResponse()
        rows: list[Row] = []
        for one in request.offsets:
            answer = response.offsets.add()
            answer.CopyFrom(one)
            answer.ClearField("error")
            try:
                beyond = refused.get((one.topic, one.partition))
                if beyond is not None:
                    raise beyond
                row = self._row(running, request, one, topics)
            except MainstemError as error:
                answer.error.CopyFrom(error_to_message(error))
                continue
            assert row.key is not None
            answer.topic_id = row.key.topic_id
            if isinstance(row.value, StoredOffset):
                answer.commit_timestamp_ms = row.value.commit_timestamp_ms
            rows.append(row)
        return response, rows

    async def topics(self, names: Iterable[str]) -> dict[str, TopicInfo | None]:
        """What topics are now; None: there is none of that name."""
        return await self._coordination.topics.topics(names)

    def _row(
        self,
        running: Running,
        request: groups_pb2.CommitOffsetsRequest,
        one: groups_pb2.CommittedOffset,
        topics: dict[str, TopicInfo | None],
    ) -> Row:
        """The row of one offset, or why it is refused."""
        size_bytes = len(one.metadata.encode())
        if size_bytes > self._metadata_bytes_max:
            raise InvalidOffsetError(
                f"the metadata of an offset has {size_bytes} bytes; "
                f"offset.metadata.max.bytes allows {self._metadata_bytes_max}",
                metadata_bytes=size_bytes,
                limit_bytes=self._metadata_bytes_max,
            )
        forget = not request.member_id and one.offset == NO_OFFSET
        if one.offset < 0 and not forget:
            raise InvalidOffsetError(
                f"offset {one.offset} of partition {one.partition} of topic {one.topic!r} is "
                "negative",
                topic=one.topic,
                partition=one.partition,
                offset=one.offset,
            )
        if request.member_id:
            partition = running.coordinator.committable(
                request.group, request.member_id, one.topic, one.topic_id, one.partition
            )
        else:
            partition = _existing(one, topics[one.topic], forget=forget)
        stored = StoredOffset(
            partition.topic,
            partition.topic_id,
            partition.partition,
            one.offset,
            one.leader_epoch,
            one.metadata,
            running.table.now_ms(),
        )
        row = offset_row(request.group, stored)
        return Row(row.group, row.key, None) if forget else row


def _existing(
    one: groups_pb2.CommittedOffset, info: TopicInfo | None, *, forget: bool
) -> Partition:
    """The partition that an offset from outside the group is of."""
    if forget and one.topic_id:
        return Partition(one.topic, one.topic_id, one.partition)
    if info is None or (one.topic_id and one.topic_id != info.topic_id):
        raise _unknown(one.topic, one.topic_id)
    if not 0 <= one.partition < info.partition_count:
        raise UnknownPartitionError(
            f"topic {one.topic!r} has {info.partition_count} partitions; there is no partition "
            f"{one.partition}",
            topic=one.topic,
            partition=one.partition,
            partition_count=info.partition_count,
        )
    return Partition(one.topic, info.topic_id, one.partition)


def _unknown(topic: str, topic_id: str) -> UnknownTopicError:
    which = f" with the id {topic_id}" if topic_id else ""
    return UnknownTopicError(f"there is no topic {topic!r}{which}", topic=topic)

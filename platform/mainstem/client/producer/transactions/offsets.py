"""Offsets that are committed with a transaction, as a program gives them and as they are sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mainstem.client.arguments import offsets_of
from mainstem.client.coordinator_calls import offset_message, request_parts
from mainstem.client.positions import OFFSET_INVALID, ConsumerGroupMetadata, TopicPartition
from mainstem.limits import OFFSETS_PER_COMMIT_MAX
from mainstem.protocol.v1 import groups_pb2


def offset_requests(
    offsets: Iterable[TopicPartition], member: ConsumerGroupMetadata
) -> Iterator[groups_pb2.CommitOffsetsRequest]:
    """The offsets in as many parts as one message holds. Those that are OFFSET_INVALID are left
    out: nothing was read of them.

    Raises:
        TypeError: They are no list of TopicPartitions, or the member is none.
        ValueError: An offset is negative.
    """
    if not isinstance(member, ConsumerGroupMetadata):
        raise TypeError(
            f"group_metadata is a {type(member).__name__}; it must be what "
            "consumer_group_metadata() of the consumer returns"
        )
    given = offsets_of(offsets, "send_offsets_to_transaction")
    messages = [_message(one, member) for one in given if one.offset != OFFSET_INVALID]
    for part in request_parts(messages, OFFSETS_PER_COMMIT_MAX):
        yield groups_pb2.CommitOffsetsRequest(
            group=member.group_id,
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            offsets=part,
        )


def _message(one: TopicPartition, member: ConsumerGroupMetadata) -> groups_pb2.CommittedOffset:
    if one.offset < 0:
        raise ValueError(
            f"the offset of {one.topic}-{one.partition} is {one.offset}; it must be 0 or more: the "
            "next one to read"
        )
    log = member.logs.get(one)
    identity = None if log is None else log.identity_at(one.offset)
    return offset_message(one, one.offset, one.metadata, identity)

"""Groups seen from outside: list, describe and delete them, and move their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mainstem.client.arguments import check_mapping, names_of, offsets_of, partitions_of
from mainstem.client.coordinator_calls import CoordinatorCalls, request_parts
from mainstem.client.gateways import Gateways
from mainstem.client.positions import OFFSET_BEGINNING, OFFSET_END, TopicPartition
from mainstem.errors import InternalError, MainstemError
from mainstem.limits import FETCH_PARTITIONS_MAX, OFFSETS_PER_COMMIT_MAX
from mainstem.protocol import error_from_message
from mainstem.protocol.v1 import groups_pb2, log_pb2, log_pb2_grpc

#: Seconds that a call may take when nothing else is said.
TIMEOUT_S: Final = 30.0

#: Commits this offset, from outside the group: the group has none any more.
_FORGET: Final = -1


@dataclass(frozen=True, slots=True)
class ConsumerGroupListing:
    """A group in a list. `state`: EMPTY, STABLE, or RECONCILING while partitions move."""

    group_id: str
    state: str
    member_count: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group.

    Attributes:
        group_instance_id: Empty: it is no static member.
        assignment: What it may read now.
        target: What it shall read, once others have given it up.
    """

    member_id: str
    client_id: str
    group_instance_id: str
    member_epoch: int
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """What a group has committed of one partition. `offset` is the next one to read.

    Attributes:
        leader_epoch: In which it had read up to there; 0 or less: not known.
        truncated_to: Where it goes on instead, as the log was put back from an older copy since;
            None: it was not, or nobody has looked (`list_consumer_group_offsets` of partitions).
    """

    topic: str
    topic_id: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    truncated_to: int | None = None

    def lag_records(self, log_start_offset: int, high_watermark: int) -> int:
        """Offsets that the group has yet to read, of a log with these bounds.

        Counted from the log start offset where that is higher, and where the offset is beyond the
        high watermark and nobody has read up to it: no log has such an offset, and a group that
        begins anew reads everything. A group that reads to the durable mark may be ahead of the
        high watermark, and then has none.
        """
        offset = self.offset if self.truncated_to is None else self.truncated_to
        if offset > high_watermark and self.leader_epoch <= 0:
            offset = log_start_offset
        return max(0, high_watermark - max(offset, log_start_offset))


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """A group at one moment. `state` as in `ConsumerGroupListing`."""

    group_id: str
    state: str
    group_epoch: int
    partition_assignor: str
    members: tuple[GroupMember, ...]
    offsets: tuple[GroupOffset, ...]


class GroupAdmin:
    """The part of `AdminClient` that is about groups."""

    def __init__(self, gateways: Gateways) -> None:
        self._gateways = gateways
        self._groups = CoordinatorCalls(gateways, repeats=False, waits=True)
        # Of calls that change nothing.
        self._group_facts = CoordinatorCalls(gateways, repeats=True, waits=True)

    def list_consumer_groups(self, timeout: float = TIMEOUT_S) -> tuple[ConsumerGroupListing, ...]:
        """Every group with members or offsets, by name."""
        request = groups_pb2.ListGroupsRequest()
        answer: groups_pb2.ListGroupsResponse = self._group_facts.call(
            "ListGroups", request, timeout
        )
        return tuple(
            ConsumerGroupListing(one.group, one.state, one.member_count) for one in answer.groups
        )

    def describe_consumer_groups(
        self, group_ids: Iterable[str], timeout: float = TIMEOUT_S
    ) -> dict[str, ConsumerGroupDescription | MainstemError]:
        """State, members and committed offsets of groups, each as of one moment.

        Returns:
            A description, or why there is none, for each group; UnknownGroupError where there is
            no such group, InvalidConfigError where there can be none of that name.
        """
        found: dict[str, ConsumerGroupDescription | MainstemError] = {}
        for group_id in names_of(group_ids, "group_ids"):
            request = groups_pb2.DescribeGroupRequest(group=group_id)
            try:
                found[group_id] = _description(
                    self._group_facts.call("DescribeGroup", request, timeout)
                )
            except MainstemError as error:
                found[group_id] = error
        return found

    def list_consumer_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        timeout: float = TIMEOUT_S,
    ) -> dict[TopicPartition, GroupOffset]:
        """What a group has committed; nothing for a group that does not exist, as in Kafka.

        Args:
            partitions: Only these; None: all. One without a committed offset is left out.

        Raises:
            UnknownTopicError: One of `partitions` is of a topic that does not exist.
        """
        request = groups_pb2.FetchOffsetsRequest(group=group_id)
        if partitions is not None:
            request.partitions.extend(
                groups_pb2.TopicPartitions(topic=topic, partitions=numbers)
                for topic, numbers in _by_topic(partitions).items()
            )
            if not request.partitions:
                return {}  # an empty request means all
        answer: groups_pb2.FetchOffsetsResponse = self._group_facts.call(
            "FetchOffsets", request, timeout
        )
        found: dict[TopicPartition, GroupOffset] = {}
        for one in answer.offsets:
            if one.HasField("error"):
                raise error_from_message(one.error)
            if one.offset >= 0:
                found[TopicPartition(one.topic, one.partition, one.offset)] = _offset(one)
        return found

    def alter_consumer_group_offsets(
        self, group_id: str, offsets: Iterable[TopicPartition], timeout: float = TIMEOUT_S
    ) -> dict[TopicPartition, MainstemError | None]:
        """Sets committed offsets of a group without members; made if it does not exist.

        What is not refused is stored in one table commit: all of it, or nothing. More than 1,000
        offsets, or a MiB of them, are stored in parts, one after the other.

        Args:
            offsets: The next offset to read of each partition, with its metadata.

        Returns:
            For each partition None, or why it was refused: OffsetOutOfRangeError for an offset
            beyond the high watermark. What is stored is durable.

        Raises:
            GroupNotEmptyError: The group has members; nothing was changed, or of several parts
                only the first ones.
            ValueError: An offset is negative.
        """
        wanted = offsets_of(offsets, "alter_consumer_group_offsets")
        for tp in wanted:
            if tp.offset < 0:
                raise ValueError(
                    f"offset {tp.offset} of {tp.topic}-{tp.partition} is negative; give the next "
                    "offset to read (delete_consumer_group_offsets forgets one)"
                )
        return self._commit(group_id, wanted, timeout)

    def delete_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], timeout: float = TIMEOUT_S
    ) -> dict[TopicPartition, MainstemError | None]:
        """Forgets committed offsets of a group without members.

        Returns:
            For each partition None, also where nothing was committed, or why it was refused.

        Raises:
            GroupNotEmptyError: The group has members; nothing was changed.
        """
        return self._commit(
            group_id,
            [
                TopicPartition(tp.topic, tp.partition, _FORGET)
                for tp in partitions_of(partitions, "delete_consumer_group_offsets")
            ],
            timeout,
        )

    def delete_consumer_groups(
        self, group_ids: Iterable[str], timeout: float = TIMEOUT_S
    ) -> dict[str, MainstemError | None]:
        """Deletes groups without members, with their offsets.

        Returns:
            For each group None, or why it is still there: GroupNotEmptyError, UnknownGroupError.
        """
        found: dict[str, MainstemError | None] = {}
        for group_id in names_of(group_ids, "group_ids"):
            request = groups_pb2.DeleteGroupRequest(group=group_id)
            try:
                self._groups.call("DeleteGroup", request, timeout)
                found[group_id] = None
            except MainstemError as error:
                found[group_id] = error
        return found

    def list_offsets(
        self, queries: Mapping[TopicPartition, int], timeout: float = TIMEOUT_S
    ) -> dict[TopicPartition, int | MainstemError]:
        """Offsets by place or time.

        Args:
            queries: OFFSET_BEGINNING asks for the log start offset, OFFSET_END for the high
                watermark, any other number for the first offset whose record has a timestamp at or
                after so many ms since 1970.

        Returns:
            For each partition the offset, OFFSET_END where no record is that late; or an error.
        """
        check_mapping(queries, "queries", "{TopicPartition(topic, partition): OFFSET_END}")
        if not queries:
            return {}
        asked = [_query(tp, at) for tp, at in queries.items()]
        answers = [
            answer
            for part in request_parts(asked, FETCH_PARTITIONS_MAX)
            for answer in self._ask_offsets(part, timeout)
        ]
        return {
            tp: error_from_message(one.error) if one.HasField("error") else one.offset
            for tp, one in zip(queries, answers, strict=True)
        }

    def _ask_offsets(
        self, queries: Sequence[log_pb2.OffsetQuery], timeout_s: float
    ) -> Sequence[log_pb2.OffsetAnswer]:
        """One request, to the first gateway that answers."""
        answer = self._gateways.ask_again(
            lambda channel: log_pb2_grpc.LogStub(channel).ListOffsets,
            log_pb2.ListOffsetsRequest(queries=queries),
            timeout_s,
        )
        _check_complete(len(answer.answers), len(queries))
        found: Sequence[log_pb2.OffsetAnswer] = answer.answers
        return found

    def _commit(
        self, group_id: str, offsets: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, MainstemError | None]:
        wanted = [
            groups_pb2.CommittedOffset(
                topic=tp.topic,
                partition=tp.partition,
                offset=tp.offset,
                leader_epoch=-1,
                metadata=tp.metadata,
            )
            for tp in offsets
        ]
        answers: list[groups_pb2.CommittedOffset] = []
        for part in request_parts(wanted, OFFSETS_PER_COMMIT_MAX):
            request = groups_pb2.CommitOffsetsRequest(group=group_id, member_epoch=-1, offsets=part)
            answer: groups_pb2.CommitOffsetsResponse = self._groups.call(
                "CommitOffsets", request, timeout_s
            )
            _check_complete(len(answer.offsets), len(part))
            answers += answer.offsets
        return {
            tp: error_from_message(one.error) if one.HasField("error") else None
            for tp, one in zip(offsets, answers, strict=True)
        }


def _check_complete(answered: int, asked: int) -> None:
    if answered != asked:
        raise InternalError(
            f"the gateway answered for {answered} of {asked} partitions; look before you repeat it"
        )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for tp in partitions:
        found.setdefault(tp.topic, []).append(tp.partition)
    return found


def _query(tp: TopicPartition, at: int) -> log_pb2.OffsetQuery:
    if at == OFFSET_BEGINNING:
        return log_pb2.OffsetQuery(topic=tp.topic, partition=tp.partition, earliest=True)
    if at == OFFSET_END:
        return log_pb2.OffsetQuery(topic=tp.topic, partition=tp.partition, latest=True)
    return log_pb2.OffsetQuery(topic=tp.topic, partition=tp.partition, timestamp_ms=at)


def _description(answer: groups_pb2.DescribeGroupResponse) -> ConsumerGroupDescription:
    return ConsumerGroupDescription(
        answer.group,
        answer.state,
        answer.group_epoch,
        answer.assignor,
        tuple(
            GroupMember(
                one.member_id,
                one.client_id,
                one.instance_id,
                one.member_epoch,
                _partitions(one.assignment),
                _partitions(one.target),
            )
            for one in answer.members
        ),
        tuple(map(_offset, answer.offsets)),
    )


def _partitions(messages: Iterable[groups_pb2.TopicPartitions]) -> tuple[TopicPartition, ...]:
    found = [TopicPartition(one.topic, number) for one in messages for number in one.partitions]
    return tuple(sorted(found, key=lambda tp: (tp.topic, tp.partition)))


def _offset(one: groups_pb2.CommittedOffset) -> GroupOffset:
    return GroupOffset(
        one.topic,
        one.topic_id,
        one.partition,
        one.offset,
        one.leader_epoch,
        one.metadata,
        one.commit_timestamp_ms,
        one.truncated_to if one.HasField("truncated_to") else None,
    )

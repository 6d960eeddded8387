"""AdminClient's calls about consumer groups."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Final

from mainstem import client
from mainstem.compat.confluent.admin.calls import TIMEOUT_S, Calls, list_of, options, value
from mainstem.compat.confluent.admin.model import (
    ConsumerGroupDescription,
    ConsumerGroupListing,
    ListConsumerGroupsResult,
    MemberAssignment,
    MemberDescription,
)
from mainstem.compat.confluent.configuration import kafka_exceptions
from mainstem.compat.confluent.error import exception_from
from mainstem.compat.confluent.metadata import GroupMember, GroupMetadata
from mainstem.compat.confluent.model import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    TopicPartition,
    to_ours,
)
from mainstem.errors import MainstemError

_STATES: Final = {
    "EMPTY": ConsumerGroupState.EMPTY,
    "STABLE": ConsumerGroupState.STABLE,
    "RECONCILING": ConsumerGroupState.PREPARING_REBALANCING,
}


class GroupCalls(Calls):
    """Consumer groups, and what they have committed."""

    def list_consumer_groups(self, **kwargs: Any) -> Future[ListConsumerGroupsResult]:
        """Every group, or those with one of `states`."""
        states = kwargs.pop("states", None)
        if states is not None and not isinstance(states, (set, frozenset)):
            raise TypeError(f"states is a {type(states).__name__}; it must be a set")
        kwargs.pop("types", None)
        timeout_s, _ = options(kwargs)

        def find() -> ListConsumerGroupsResult:
            found = [
                ConsumerGroupListing(
                    one.group_id, False, _state(one.state), ConsumerGroupType.CONSUMER
                )
                for one in self._admin.list_consumer_groups(timeout_s)
            ]
            return ListConsumerGroupsResult(
                [one for one in found if not states or one.state in states]
            )

        return self._start(find)

    def list_groups(self, group: str | None = None, timeout: float = -1) -> list[GroupMetadata]:
        """Every group, or the one of that name, without waiting for a future."""
        timeout_s = TIMEOUT_S if timeout < 0 else timeout
        with kafka_exceptions():
            listed = self._admin.list_consumer_groups(timeout_s)
            names = [one.group_id for one in listed if group in (None, one.group_id)]
            described = self._admin.describe_consumer_groups(names, timeout_s)
        found = []
        for name, one in described.items():
            if isinstance(one, MainstemError):
                continue  # it went between the two calls
            metadata = GroupMetadata()
            metadata.id, metadata.state = name, one.state.capitalize()
            metadata.protocol_type, metadata.protocol = "consumer", one.partition_assignor
            for member in one.members:
                seen = GroupMember()
                seen.id, seen.client_id = member.member_id, member.client_id
                metadata.members.append(seen)
            found.append(metadata)
        return found

    def describe_consumer_groups(
        self, group_ids: Sequence[str], **kwargs: Any
    ) -> dict[str, Future[ConsumerGroupDescription]]:
        """State and members of groups."""
        list_of(group_ids, str)
        timeout_s, _ = options(kwargs)

        def describe(group_id: str) -> ConsumerGroupDescription:
            found = self._admin.describe_consumer_groups([group_id], timeout_s)
            return _description(value(found[group_id]))

        return {group_id: self._start(describe, group_id) for group_id in group_ids}

    def delete_consumer_groups(
        self, group_ids: Sequence[str], **kwargs: Any
    ) -> dict[str, Future[None]]:
        """Deletes groups without members, with their offsets."""
        list_of(group_ids, str)
        timeout_s, _ = options(kwargs)

        def delete(group_id: str) -> None:
            value(self._admin.delete_consumer_groups([group_id], timeout_s)[group_id])

        return {group_id: self._start(delete, group_id) for group_id in group_ids}

    def list_consumer_group_offsets(
        self,
        list_consumer_group_offsets_request: Sequence[ConsumerGroupTopicPartitions],
        **kwargs: Any,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """What groups have committed."""
        list_of(list_consumer_group_offsets_request, ConsumerGroupTopicPartitions)
        timeout_s, _ = options(kwargs)

        def find(asked: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
            wanted = None if asked.topic_partitions is None else to_ours(asked.topic_partitions)
            found = self._admin.list_consumer_group_offsets(asked.group_id, wanted, timeout_s)
            return ConsumerGroupTopicPartitions(
                asked.group_id,
                [
                    TopicPartition(one.topic, one.partition, one.offset, one.metadata or None)
                    for one in found.values()
                ],
            )

        return {one.group_id: self._start(find, one) for one in list_consumer_group_offsets_request}

    def alter_consumer_group_offsets(
        self,
        alter_consumer_group_offsets_request: Sequence[ConsumerGroupTopicPartitions],
        **kwargs: Any,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Moves the offsets of groups without members."""
        list_of(alter_consumer_group_offsets_request, ConsumerGroupTopicPartitions)
        timeout_s, _ = options(kwargs)

        def alter(asked: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
            partitions = asked.topic_partitions or []
            done = self._admin.alter_consumer_group_offsets(
                asked.group_id, to_ours(partitions), timeout_s
            )
            answers = []
            for tp, error in zip(partitions, done.values(), strict=True):
                answer = TopicPartition(tp.topic, tp.partition, tp.offset, tp.metadata)
                answer.error = None if error is None else exception_from(error).args[0]
                answers.append(answer)
            return ConsumerGroupTopicPartitions(asked.group_id, answers)

        asked = alter_consumer_group_offsets_request
        return {one.group_id: self._start(alter, one) for one in asked}


def _state(text: str) -> ConsumerGroupState:
    return _STATES.get(text, ConsumerGroupState.UNKNOWN)


def _description(found: client.ConsumerGroupDescription) -> ConsumerGroupDescription:
    members = [
        MemberDescription(
            one.member_id,
            one.client_id,
            "",
            MemberAssignment([TopicPartition(tp.topic, tp.partition) for tp in one.assignment]),
            one.group_instance_id or None,
            MemberAssignment([TopicPartition(tp.topic, tp.partition) for tp in one.target]),
        )
        for one in found.members
    ]
    return ConsumerGroupDescription(
        found.group_id,
        False,
        members,
        found.partition_assignor,
        _state(found.state),
        None,
        type=ConsumerGroupType.CONSUMER,
    )

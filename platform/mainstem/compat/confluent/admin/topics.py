"""AdminClient's calls about topics, their partitions and offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from mainstem import client
from mainstem.compat.confluent.admin.calls import TIMEOUT_S, Calls, list_of, options, value
from mainstem.compat.confluent.admin.model import (
    DeletedRecords,
    ListOffsetsResultInfo,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicDescription,
)
from mainstem.compat.confluent.configuration import kafka_exceptions
from mainstem.compat.confluent.error import from_mainstem, refused
from mainstem.compat.confluent.metadata import ClusterMetadata, cluster_metadata, split_address
from mainstem.compat.confluent.model import (
    Node,
    TopicCollection,
    TopicPartition,
    TopicPartitionInfo,
    to_ours,
)
from mainstem.compat.topic_settings import taken


class TopicCalls(Calls):
    """Topics, their partitions and offsets."""

    def create_topics(
        self, new_topics: Sequence[NewTopic], **kwargs: Any
    ) -> dict[str, Future[None]]:
        """Makes topics; each future gives None. `validate_only`: checks, makes nothing."""
        list_of(new_topics, NewTopic)
        timeout_s, only = options(kwargs)

        def create(new: NewTopic) -> None:
            self._admin.create_topic(
                new.topic, max(0, new.num_partitions), taken(new.config), only, timeout_s
            )

        return {new.topic: self._start(create, new) for new in new_topics}

    def delete_topics(self, topics: Sequence[str], **kwargs: Any) -> dict[str, Future[None]]:
        """Removes topics with their records."""
        list_of(topics, str)
        timeout_s, _ = options(kwargs)

        def delete(topic: str) -> None:
            self._admin.delete_topic(topic, timeout_s)

        return {topic: self._start(delete, topic) for topic in topics}

    def create_partitions(
        self, new_partitions: Sequence[NewPartitions], **kwargs: Any
    ) -> dict[str, Future[None]]:
        """Raises the number of partitions of topics."""
        list_of(new_partitions, NewPartitions)
        timeout_s, only = options(kwargs)
        if only:
            raise refused("_NOT_IMPLEMENTED", "create_partitions has no validate_only here")

        def add(new: NewPartitions) -> None:
            self._admin.add_partitions(new.topic, new.new_total_count, timeout_s)

        return {new.topic: self._start(add, new) for new in new_partitions}

    def describe_topics(
        self, topics: TopicCollection, **kwargs: Any
    ) -> dict[str, Future[TopicDescription]]:
        """Partitions of topics, and who leads them."""
        if not isinstance(topics, TopicCollection):
            raise TypeError("expected a TopicCollection")
        timeout_s, _ = options(kwargs)

        def describe(name: str) -> TopicDescription:
            found = self._admin.describe_topic(name, timeout_s)
            host, port = split_address(found.leader)
            leader = Node(1, host, port)
            return TopicDescription(
                found.topic,
                found.topic_id,
                False,
                [
                    TopicPartitionInfo(one.partition, leader, [leader], [leader])
                    for one in found.partitions
                ],
            )

        return {name: self._start(describe, name) for name in topics.topic_names}

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Topics, partitions and gateways; with `topic` only that one."""
        timeout_s = TIMEOUT_S if timeout < 0 else timeout
        with kafka_exceptions():
            gateways = [one.address for one in self._admin.describe_cluster(timeout_s).gateways]
            listings = self._admin.list_topics(timeout_s)
        found = {
            one.topic: client.TopicMetadata(
                one.topic, one.topic_id, one.partition_count, min(gateways)
            )
            for one in listings
        }
        answer = cluster_metadata(found, gateways, topic)
        for one in listings:
            if one.error is not None and one.topic in answer.topics:
                answer.topics[one.topic].error = from_mainstem(one.error)
        return answer

    def delete_records(
        self, topic_partition_offsets: Sequence[TopicPartition], **kwargs: Any
    ) -> dict[TopicPartition, Future[DeletedRecords]]:
        """Removes what is before `offset` of each partition; OFFSET_END: all."""
        list_of(topic_partition_offsets, TopicPartition)
        timeout_s, _ = options(kwargs)

        def delete(tp: TopicPartition) -> DeletedRecords:
            offsets = {tp.partition: tp.offset}
            done = self._admin.delete_records(tp.topic, offsets, timeout=timeout_s)
            return DeletedRecords(done[tp.partition].log_start_offset)

        return {tp: self._start(delete, tp) for tp in topic_partition_offsets}

    def list_offsets(
        self, topic_partition_offsets: Mapping[TopicPartition, OffsetSpec], **kwargs: Any
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        """Offsets by place or time."""
        if not isinstance(topic_partition_offsets, Mapping):
            raise TypeError("expected a dictionary of TopicPartition and OffsetSpec")
        for spec in topic_partition_offsets.values():
            if not isinstance(spec, OffsetSpec):
                raise TypeError(f"expected an OffsetSpec, not {type(spec).__name__}")
        timeout_s, _ = options(kwargs)
        keys = list(topic_partition_offsets)
        asked = dict(zip(to_ours(keys), topic_partition_offsets.values(), strict=True))

        def find() -> dict[client.TopicPartition, Any]:
            return self._admin.list_offsets({tp: spec.at for tp, spec in asked.items()}, timeout_s)

        def one(found: Mapping[client.TopicPartition, Any], key: TopicPartition) -> Any:
            offset = value(found[to_ours([key])[0]])
            return ListOffsetsResultInfo(offset, -1, -1)

        return self._start_together(find, keys, one)

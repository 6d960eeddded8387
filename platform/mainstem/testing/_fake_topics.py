"""The topics of a fake gateway, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from mainstem.errors import MainstemError, UnknownTopicError
from mainstem.protocol import error_to_message
from mainstem.protocol.v1 import log_pb2
from mainstem.testing._fake_topic import FakeTopic


class FakeTopics(dict[str, FakeTopic]):
    """The gateway and its services share one; tests may change it."""

    @classmethod
    def of(cls, partition_counts: Mapping[str, int]) -> Self:
        """New topics, by name."""
        return cls((name, FakeTopic(name, count)) for name, count in partition_counts.items())

    def find(self, name: str) -> FakeTopic:
        """The topic.

        Raises:
            UnknownTopicError: There is none.
        """
        found = self.get(name)
        if found is None:
            raise UnknownTopicError(f"topic {name} does not exist; create it", topic=name)
        return found

    def metadata(self, names: Iterable[str], address: str) -> log_pb2.MetadataResponse:
        """The answer to a Metadata call.

        Args:
            names: None at all: every topic.
            address: host:port of the gateway, which leads what has no other leader.
        """
        answer = log_pb2.MetadataResponse(gateways=[address])
        for name in names or sorted(self):
            try:
                topic = self.find(name)
            except MainstemError as error:
                answer.topics.add(topic=name, error=error_to_message(error))
                continue
            answer.topics.add(
                topic=name,
                topic_id=topic.topic_id,
                partition_count=topic.partition_count,
                leader=topic.leader or address,
            )
        return answer

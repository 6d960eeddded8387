"""Which topics are followed, and which of them give way to others. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from mainstem.ingest_gateway.topics.gateway_topic import GatewayTopic
from mainstem.limits import FETCH_PARTITIONS_MAX, TOPICS_OPEN_MAX

#: Topics that are followed because somebody described them. The next description of one costs
#: little; a listing of ten thousand must not keep them all.
DESCRIBED_MAX = 128

#: Topics that are followed for readers, and for how long after the last one.
READ_MAX = TOPICS_OPEN_MAX
UNREAD_S_MAX = 600.0

assert FETCH_PARTITIONS_MAX <= READ_MAX, "one request's topics would push each other out"


class FollowedTopics:
    """The topics that are followed, those that nobody has used for longest first.

    Args:
        elapsed_s: The clock.
    """

    def __init__(self, elapsed_s: Callable[[], float]) -> None:
        self._elapsed_s = elapsed_s
        self._described: OrderedDict[str, GatewayTopic] = OrderedDict()
        #: With the time of the last reader.
        self._read: OrderedDict[str, tuple[GatewayTopic, float]] = OrderedDict()

    @property
    def read_count(self) -> int:
        """How many of them have readers."""
        return len(self._read)

    def __contains__(self, name: str) -> bool:
        return name in self._read or name in self._described

    def has_readers(self, name: str) -> bool:
        return name in self._read

    def described(self, topic: GatewayTopic) -> list[GatewayTopic]:
        """Notes that a topic was described; returns those that give way. One that somebody uses
        stays."""
        if topic.topic in self._read:
            return []
        self._described[topic.topic] = topic
        self._described.move_to_end(topic.topic)
        oldest = list(self._described.values())[: max(len(self._described) - DESCRIBED_MAX, 0)]
        return [one for one in oldest if not one.users]

    def read(self, topic: GatewayTopic) -> list[GatewayTopic]:
        """Notes that a topic was read; returns those that give way."""
        now_s = self._elapsed_s()
        self._described.pop(topic.topic, None)
        self._read[topic.topic] = (topic, now_s)
        self._read.move_to_end(topic.topic)
        gone = []
        for number, (one, read_at) in enumerate(self._read.values()):
            if len(self._read) - number <= READ_MAX and now_s - read_at < UNREAD_S_MAX:
                break
            gone.append(one)
        return gone

    def remove(self, name: str) -> None:
        """It is not followed any more."""
        self._described.pop(name, None)
        self._read.pop(name, None)

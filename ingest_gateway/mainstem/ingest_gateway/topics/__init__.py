"""The topics of a gateway: led, followed and closed, changed and looked after.

The one room that opens tables of topics. Services and groups ask it for a topic's state, for its
lead, or for a change.
"""

from mainstem.ingest_gateway.topics.changes import TopicChanges
from mainstem.ingest_gateway.topics.maintainer import Maintainer
from mainstem.ingest_gateway.topics.open_topics import KnownTopic
from mainstem.ingest_gateway.topics.read_topics import (
    FOLLOW_INTERVAL_S,
    LED_CATCH_UP_INTERVAL_S,
    ReadTopic,
    ReadTopics,
)
from mainstem.ingest_gateway.topics.registry import TopicRegistry
from mainstem.ingest_gateway.topics.trim_prefix import trim_prefix

__all__ = [
    "FOLLOW_INTERVAL_S",
    "LED_CATCH_UP_INTERVAL_S",
    "KnownTopic",
    "Maintainer",
    "ReadTopic",
    "ReadTopics",
    "TopicChanges",
    "TopicRegistry",
    "trim_prefix",
]

"""The topics of a gateway: led, followed and closed, changed and looked after.

The one room that opens tables of topics. Services and groups ask it for a topic's state, for its
lead, or for a change.
"""

from mainstem.ingest_gateway.topics.appenders import Appenders
from mainstem.ingest_gateway.topics.gateway_topic import (
    FOLLOW_INTERVAL_S,
    LED_CATCH_UP_INTERVAL_S,
    GatewayTopic,
    TopicState,
)
from mainstem.ingest_gateway.topics.gateway_topics import GatewayTopics
from mainstem.ingest_gateway.topics.maintainer import Maintainer
from mainstem.ingest_gateway.topics.operations import Operations
from mainstem.ingest_gateway.topics.recovery import WalRecovery
from mainstem.ingest_gateway.topics.topics_in_memory import CLOSE_TIMEOUT_S
from mainstem.ingest_gateway.topics.trim_prefix import trim_prefix

__all__ = [
    "CLOSE_TIMEOUT_S",
    "FOLLOW_INTERVAL_S",
    "LED_CATCH_UP_INTERVAL_S",
    "Appenders",
    "GatewayTopic",
    "GatewayTopics",
    "Maintainer",
    "Operations",
    "TopicState",
    "WalRecovery",
    "trim_prefix",
]

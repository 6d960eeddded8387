"""Consuming: partitions and their positions, the threads that fetch, and membership of a group.

The application's calls go to `consumer` → `engine`; `worker` finds leaders and starting offsets,
`fetcher` fills the buffer (`partitions`), `reader` takes from it. `membership` is a member of a
group (pure), `group` its heartbeats, `commits` and `group_commits` its offsets.
"""

from mainstem.client.consumer.async_consumer import AsyncConsumer
from mainstem.client.consumer.consumer import Consumer, OnPartitions
from mainstem.client.consumer.records import ConsumerRecord
from mainstem.client.consumer.settings import (
    CONSUMER_KEYS,
    ConsumerSettings,
)

__all__ = [
    "CONSUMER_KEYS",
    "AsyncConsumer",
    "Consumer",
    "ConsumerRecord",
    "ConsumerSettings",
    "OnPartitions",
]

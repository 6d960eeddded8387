"""Producing: from `produce()` to the stream of requests to each leader, and back to the caller.

A record's way: `producer` → `engine` → `accumulator` (columns of a topic's open buffer) → `pieces`
(one Arrow batch, ordered by partition) → `queue` (what a topic has in flight, pure) → `sender`
(which request goes where) → `connection` (the stream). Its answer comes back through `sender` and
`delivery`.
"""

from mainstem.client.producer.append import BytesLike, HeadersLike
from mainstem.client.producer.async_producer import AsyncProducer
from mainstem.client.producer.delivery import DeliveryCallback
from mainstem.client.producer.producer import Producer
from mainstem.client.producer.settings import (
    PRODUCER_KEYS,
    Partitioner,
    ProducerSettings,
)

__all__ = [
    "PRODUCER_KEYS",
    "AsyncProducer",
    "BytesLike",
    "DeliveryCallback",
    "HeadersLike",
    "Partitioner",
    "Producer",
    "ProducerSettings",
]

"""Producing: from `produce()` to the stream of requests to each leader, and back to the caller.

A record's way down: `producer` and `append` (what may be produced), `accumulator` (the columns of a
topic's open buffer), `engine` (when a buffer is full or old enough), `pieces` (one Arrow batch,
ordered by partition), `sender` (which request goes where, when), `queue` (what a topic has in
flight, pure), `connection` and `requests` (the stream and its bytes). The way back: `sender`,
`delivery`. docs/internals/architecture.md walks it step by step.
"""

from mainstem.client.producer.append import BytesLike, HeadersLike
from mainstem.client.producer.async_producer import AsyncProducer
from mainstem.client.producer.pieces import DeliveryCallback
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

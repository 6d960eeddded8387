"""The client: producers and topic administration.

from mainstem.client import Producer, AsyncProducer, AdminClient
"""

from mainstem.client._admin import (
    ADMIN_KEYS,
    AdminClient,
    ClusterDescription,
    CreatedTopic,
    GatewayDescription,
    PartitionDescription,
    TopicConfigEntry,
    TopicDescription,
    TopicListing,
)
from mainstem.client._async_producer import AsyncProducer
from mainstem.client._delivery import DeliveryCallback
from mainstem.client._producer import BytesLike, HeadersLike, Producer
from mainstem.client._results import (
    BatchMetadata,
    PartitionOffsets,
    RecordMetadata,
    TopicMetadata,
)
from mainstem.client._settings import (
    PRODUCER_KEYS,
    PRODUCER_KEYS_UNSUPPORTED,
    Partitioner,
    ProducerSettings,
)

__all__ = [
    "ADMIN_KEYS",
    "PRODUCER_KEYS",
    "PRODUCER_KEYS_UNSUPPORTED",
    "AdminClient",
    "AsyncProducer",
    "BatchMetadata",
    "BytesLike",
    "ClusterDescription",
    "CreatedTopic",
    "DeliveryCallback",
    "GatewayDescription",
    "HeadersLike",
    "PartitionDescription",
    "PartitionOffsets",
    "Partitioner",
    "Producer",
    "ProducerSettings",
    "RecordMetadata",
    "TopicConfigEntry",
    "TopicDescription",
    "TopicListing",
    "TopicMetadata",
]

"""The client: producers, consumers and topic administration.

from mainstem.client import Producer, AsyncProducer, Consumer, AdminClient
"""

from mainstem.client._admin import (
    ADMIN_KEYS,
    AdminClient,
    ClusterDescription,
    CreatedTopic,
    DeletedRecords,
    GatewayDescription,
    PartitionDescription,
    TopicConfigEntry,
    TopicDescription,
    TopicListing,
)
from mainstem.client._async_consumer import AsyncConsumer
from mainstem.client._async_producer import AsyncProducer
from mainstem.client._consumer import Consumer, OnPartitions
from mainstem.client._consumer_records import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    ConsumerGroupMetadata,
    ConsumerRecord,
    TopicPartition,
)
from mainstem.client._consumer_settings import (
    CONSUMER_KEYS,
    CONSUMER_KEYS_UNSUPPORTED,
    ConsumerSettings,
)
from mainstem.client._dead_letters import DEAD_LETTER_SUFFIX, DeadLetterHandler, RetryPolicy
from mainstem.client._delivery import DeliveryCallback
from mainstem.client._group_admin import (
    ConsumerGroupDescription,
    ConsumerGroupListing,
    GroupMember,
    GroupOffset,
)
from mainstem.client._leader_election import LeaderElection
from mainstem.client._producer import BytesLike, HeadersLike, Producer
from mainstem.client._redrive import REDRIVE_COUNT_HEADER, DeadLetter, Redrive
from mainstem.client._results import (
    BatchMetadata,
    PartitionOffsets,
    RecordMetadata,
    TopicMetadata,
)
from mainstem.client._seek_plan import OffsetMove, plan_seek
from mainstem.client._settings import (
    PRODUCER_KEYS,
    PRODUCER_KEYS_UNSUPPORTED,
    Partitioner,
    ProducerSettings,
)

__all__ = [
    "ADMIN_KEYS",
    "CONSUMER_KEYS",
    "CONSUMER_KEYS_UNSUPPORTED",
    "DEAD_LETTER_SUFFIX",
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "PRODUCER_KEYS",
    "PRODUCER_KEYS_UNSUPPORTED",
    "REDRIVE_COUNT_HEADER",
    "AdminClient",
    "AsyncConsumer",
    "AsyncProducer",
    "BatchMetadata",
    "BytesLike",
    "ClusterDescription",
    "Consumer",
    "ConsumerGroupDescription",
    "ConsumerGroupListing",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "ConsumerSettings",
    "CreatedTopic",
    "DeadLetter",
    "DeadLetterHandler",
    "DeletedRecords",
    "DeliveryCallback",
    "GatewayDescription",
    "GroupMember",
    "GroupOffset",
    "HeadersLike",
    "LeaderElection",
    "OffsetMove",
    "OnPartitions",
    "PartitionDescription",
    "PartitionOffsets",
    "Partitioner",
    "Producer",
    "ProducerSettings",
    "RecordMetadata",
    "Redrive",
    "RetryPolicy",
    "TopicConfigEntry",
    "TopicDescription",
    "TopicListing",
    "TopicMetadata",
    "TopicPartition",
    "plan_seek",
]

"""aiokafka's names: change the import, keep the program.

Call shapes and defaults are those of aiokafka 0.14. Transactions and SASL are refused with a
sentence.
"""

from mainstem.compat.aiokafka.abc import ConsumerRebalanceListener
from mainstem.compat.aiokafka.consumer import AIOKafkaConsumer
from mainstem.compat.aiokafka.errors import ConsumerStoppedError, IllegalOperation
from mainstem.compat.aiokafka.producer import AIOKafkaProducer
from mainstem.compat.aiokafka.structs import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RecordMetadata,
    TopicPartition,
)

__all__ = [
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "IllegalOperation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordMetadata",
    "TopicPartition",
]

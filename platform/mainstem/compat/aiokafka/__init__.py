"""aiokafka's names: change the import, keep the program.

Call shapes and defaults are those of aiokafka 0.14. Transactions and SASL are refused with a
sentence.
"""

from typing import Final, NoReturn

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

#: Names of aiokafka that cannot be imported, and why.
REFUSED: Final = {
    "AIOKafkaClient": "use mainstem.client.AdminClient for what lies below the clients",
}


def __getattr__(name: str) -> NoReturn:
    if name in REFUSED:
        raise ImportError(f"{name} does not exist here: {REFUSED[name]}", name=__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""What becomes of each setting of Kafka's Java client and of librdkafka: used, accepted, refused.

A table, read by `mainstem.client.settings`; docs/reference/kafka-settings.md is made of it.
Sources of the names: librdkafka's CONFIGURATION.md (2.16), Apache Kafka's ProducerConfig,
ConsumerConfig and AdminClientConfig (4.x), and what confluent-kafka-python adds.
"""

from typing import Final

from mainstem.client.fates.consumer import CONSUMER
from mainstem.client.fates.fate import ROLES, Fate, Role
from mainstem.client.fates.producer import PRODUCER
from mainstem.client.fates.shared import NESTED, REFUSED_PREFIXES, SHARED

#: Every row of the table.
FATES: Final[tuple[Fate, ...]] = (*PRODUCER, *CONSUMER, *SHARED)


def fates_of(role: Role) -> dict[str, Fate]:
    """The rows of one role, by name."""
    table: dict[str, Fate] = {}
    for fate in FATES:
        if role in fate.roles:
            assert fate.name not in table, f"{fate.name} of a {role} has two fates"
            table[fate.name] = fate
    return table


__all__ = ["FATES", "NESTED", "REFUSED_PREFIXES", "ROLES", "Fate", "Role", "fates_of"]

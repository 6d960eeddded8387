"""aiokafka.partitioner: where its default places keys, which is where mainstem places them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from mainstem.records import murmur2


class DefaultPartitioner:
    """Places a record with a key by murmur2, as Kafka's Java client does; others at random.

    Leave it out where you can: the client's own way is the same, many times as fast, and gives
    records without keys to one partition after the other.
    """

    @classmethod
    def __call__(
        cls, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]
    ) -> int:
        """The partition."""
        if key is None:
            return random.choice(available or all_partitions)
        return all_partitions[(murmur2(key) & 0x7FFFFFFF) % len(all_partitions)]

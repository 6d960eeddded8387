"""What programs derive from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from mainstem.compat.aiokafka.structs import TopicPartition


class ConsumerRebalanceListener(ABC):
    """Told of partitions that come and go, inside getone() and getmany().

    Its methods may be plain functions or coroutine functions, and may seek and commit. They get
    the partitions that move, not all of them: rebalances are incremental.
    """

    @abstractmethod
    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> Any:
        """Partitions are about to be given up."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> Any:
        """Partitions have come, and are not read yet."""

"""What programs derive from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Final, NoReturn

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


#: Names of aiokafka.abc that cannot be imported, and why.
REFUSED: Final = {
    "AbstractTokenProvider": "there is no authentication yet; keep the gateway in a trusted network"
}


def __getattr__(name: str) -> NoReturn:
    if name in REFUSED:
        raise ImportError(f"{name} does not exist here: {REFUSED[name]}", name=__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

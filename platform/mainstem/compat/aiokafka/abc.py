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


class AbstractTokenProvider(ABC):
    """Finds the tokens of a client that signs in with `sasl_mechanism="OAUTHBEARER"`."""

    @abstractmethod
    async def token(self) -> str:
        """A token, which says itself until when it is good. Awaited in the client's event loop, as
        soon as a token is needed and again at 80 % of its lifetime."""

    def extensions(self) -> dict[str, str]:
        """Not used: the token says who it is of."""
        return {}

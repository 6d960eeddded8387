"""Brings a transaction's records into topics, here or at the gateways that lead them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import Final, TypeVar

import structlog

from mainstem.delta_log import Appended, Appender, Slice
from mainstem.delta_log.append import TransactionMark
from mainstem.delta_log.staging import StagedTopic, StagingArea
from mainstem.errors import (
    AuthenticationError,
    MainstemError,
    NotLeaderError,
    TransactionAbortedError,
    UnknownTopicError,
)
from mainstem.ingest_gateway.topics import GatewayTopics
from mainstem.ingest_gateway.transactions.peers import Peers
from mainstem.ingest_gateway.transactions.rows import TopicPart
from mainstem.protocol.v1 import transactions_pb2

log = structlog.get_logger()

T = TypeVar("T")

#: Between two attempts at a topic, which grow; a leader that is gone is replaced within seconds.
_RETRY_S_MIN: Final = 0.05
_RETRY_S_MAX: Final = 2.0

#: So often a topic has to be missing before it counts as deleted.
_MISSING_LOOKS: Final = 3

#: After so many attempts the log says what a transaction waits for, and then each time as many.
_TOLD_EACH: Final = 10


class TopicAppends:
    """On the event loop.

    Args:
        area: Where staged records are; read in `pool`.
    """

    def __init__(
        self, topics: GatewayTopics, peers: Peers, area: StagingArea, pool: Executor
    ) -> None:
        self._topics = topics
        self._peers = peers
        self._area = area
        self._pool = pool

    async def append(
        self, mark: TransactionMark, part: TopicPart, slices: Sequence[Slice] | None = None
    ) -> tuple[list[transactions_pb2.TransactionResult], int]:
        """Appends a topic's records of a decided transaction. Takes as long as it takes: whatever
        fails is tried again, and the topic has them once.

        Args:
            slices: The records, where they are in memory.

        Returns:
            Where they are, and a version of the topic's table that has them; without offsets where
            they were appended before, and with version -1 where the topic was deleted: then they
            are gone with it.
        """

        async def here(
            appender: Appender,
        ) -> tuple[list[transactions_pb2.TransactionResult], int]:
            return await self._append_to(appender, mark, part.topic, part.staged, slices)

        async def there(address: str) -> tuple[list[transactions_pb2.TransactionResult], int]:
            return await self._peers.append(address, mark, part.topic, part.topic_id, part.staged)

        found: list[transactions_pb2.TransactionResult] = []
        version = -1

        try:
            found, version = await self._until_done(mark, part.topic, part.topic_id, here, there)
        except TransactionAbortedError:
            # A later one of the same id is there, which was decided after this one had ended.
            version = self.version_here(part.topic)
        except UnknownTopicError:
            log.warning(
                "a topic was deleted before a transaction could be appended to it",
                topic=part.topic,
                transactional_id=mark.transactional_id,
                record_count=sum(part.counts.values()),
            )
        return found or unplaced(part), version

    async def append_here(
        self, mark: TransactionMark, topic: str, topic_id: str, staged: Sequence[str]
    ) -> tuple[list[transactions_pb2.TransactionResult], int]:
        """The same for a coordinator elsewhere, once.

        Raises:
            NotLeaderError: The topic is led elsewhere.
            MainstemError: Whether it is appended is not known; the coordinator asks again.
        """
        appender = await self.leader_here(topic, topic_id)
        return await self._append_to(appender, mark, topic, staged)

    async def _append_to(
        self,
        appender: Appender,
        mark: TransactionMark,
        topic: str,
        staged: Sequence[str],
        slices: Sequence[Slice] | None = None,
    ) -> tuple[list[transactions_pb2.TransactionResult], int]:
        records = slices or await self._staged_records(topic, staged)
        found = results(topic, await appender.append_transaction(mark, records))
        return found, appender.state.version

    async def _staged_records(self, topic: str, staged: Sequence[str]) -> StagedTopic:
        """What was staged for a topic, which was looked at: an appender that finds it damaged on
        the way into the log would lose its lead."""

        def read() -> StagedTopic:
            found = self._area.read(staged, topic)
            found.check()
            return found

        return await asyncio.get_running_loop().run_in_executor(self._pool, read)

    async def settle(self, mark: TransactionMark, topic: str, topic_id: str) -> bool:
        """Whether the topic has a transaction; if not, it never will. Takes as long as it takes."""

        async def here(appender: Appender) -> bool:
            return await appender.settle_transaction(mark)

        async def there(address: str) -> bool:
            return await self._peers.settle(address, mark, topic, topic_id)

        try:
            return await self._until_done(mark, topic, topic_id, here, there)
        except UnknownTopicError:
            return False

    def version_here(self, topic: str) -> int:
        """The newest version of a topic that is led here; -1 of any other."""
        found = self._topics.leading(topic)
        appender = None if found is None else found.appender
        return -1 if appender is None else appender.state.version

    def is_led_here(self, topic: str, topic_id: str) -> bool:
        """Whether the topic is led by this gateway now."""
        found = self._topics.leading(topic)
        appender = None if found is None else found.appender
        return appender is not None and appender.state.topic_id == topic_id

    async def leader_here(self, topic: str, topic_id: str) -> Appender:
        """The topic's appender, taking the topic over as needed.

        Raises:
            NotLeaderError: Another gateway leads it.
            UnknownTopicError: It was deleted.
        """
        found = self._topics.leading(topic) or await self._topics.lead(topic)
        appender = found.appender
        assert appender is not None
        if appender.state.topic_id != topic_id:
            raise UnknownTopicError(
                f"topic {topic!r} was deleted and created again: there is none with the id "
                f"{topic_id}",
                topic=topic,
            )
        return appender

    async def _until_done(
        self,
        mark: TransactionMark,
        topic: str,
        topic_id: str,
        here: Callable[[Appender], Awaitable[T]],
        there: Callable[[str], Awaitable[T]],
    ) -> T:
        attempts = missing = 0
        while True:
            try:
                try:
                    appender = await self.leader_here(topic, topic_id)
                except NotLeaderError as error:
                    leader = error.facts.get("leader", "")
                    if not leader:
                        raise
                    return await there(leader)
                return await here(appender)
            except TransactionAbortedError:
                raise
            except UnknownTopicError:
                missing += 1
                if missing >= _MISSING_LOOKS:
                    raise
            except MainstemError as error:
                missing = 0
                failure = error
                refused = isinstance(error, AuthenticationError) and not attempts
                if refused or attempts % _TOLD_EACH == _TOLD_EACH - 1:
                    log.warning(
                        "a transaction waits for a topic",
                        topic=topic,
                        transactional_id=mark.transactional_id,
                        code=failure.code,
                        error=failure.message,
                    )
            wait_s = min(_RETRY_S_MIN * 2 ** min(attempts, 10), _RETRY_S_MAX)
            attempts += 1
            await asyncio.sleep(wait_s * (0.5 + random.random() / 2))


def results(topic: str, appended: Appended) -> list[transactions_pb2.TransactionResult]:
    """What a topic's commit has of a transaction, by partition."""
    return [
        transactions_pb2.TransactionResult(
            topic=topic,
            partition=batch.partition,
            base_offset=batch.base_offset,
            record_count=batch.record_count,
            table_version=appended.table_version,
        )
        for batch in appended.batches
    ]


def unplaced(part: TopicPart) -> list[transactions_pb2.TransactionResult]:
    """The same, where nobody remembers the places."""
    return [
        transactions_pb2.TransactionResult(
            topic=part.topic,
            partition=partition,
            base_offset=-1,
            record_count=count,
            table_version=-1,
        )
        for partition, count in sorted(part.counts.items())
    ]

"""Changes of topics: creating and deleting them, and commits of something else than records."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import structlog

from mainstem.config import GatewayConfig, TopicConfig
from mainstem.delta_log import Appender, Store, TableState, Topics
from mainstem.delta_log.table import (
    Action,
    Metadata,
    TableCommit,
    commit_beside_leader,
    wall_clock_ms,
)
from mainstem.errors import InvalidConfigError, NotLeaderError
from mainstem.ingest_gateway.topic_registry import TopicRegistry

log = structlog.get_logger()


class TopicChanges:
    """Changes topics of the warehouse, whoever leads them."""

    def __init__(self, store: Store, registry: TopicRegistry, config: GatewayConfig) -> None:
        self._topics = Topics(store)
        self._registry = registry
        self._open_topics = registry.open_topics
        self._config = config

    async def create(
        self, topic: str, partition_count: int, config: Mapping[str, str], *, validate_only: bool
    ) -> Metadata:
        """Creates a topic; see `Topics.create`."""
        self._open_topics.check_running()
        self._check_message_bytes(TopicConfig.parse(config))
        return await self._open_topics.run(
            partial(
                self._topics.create,
                topic,
                partition_count or self._config.number("num.partitions"),
                config,
                validate_only=validate_only,
            )
        )

    async def delete(self, topic: str) -> str:
        """Deletes a topic: what was accepted is committed and answered, then the table goes."""
        self._open_topics.check_running()
        return await self._open_topics.finish(self._delete(topic))

    async def _delete(self, topic: str) -> str:
        async with self._open_topics.holding(topic) as slot:
            self._open_topics.check_running()
            await self._open_topics.close(slot)
            topic_id = await self._open_topics.run(self._topics.delete, topic)
            self._registry.forget(topic, topic_id)
        log.info("topic deleted", topic=topic, topic_id=topic_id)
        return topic_id

    async def change(
        self,
        topic: str,
        operation: str,
        change: Callable[[TableState], Metadata],
        *,
        validate_only: bool,
    ) -> int:
        """Changes a topic's metadata; returns the table version that has it."""

        def checked(state: TableState) -> Metadata:
            metadata = change(state)
            self._check_message_bytes(TopicConfig.from_properties(metadata.configuration))
            return metadata

        def validated(state: TableState, _: Appender | None) -> int:
            checked(state)
            return state.version

        if validate_only:
            return await self._registry.describe(topic, validated)
        with contextlib.suppress(NotLeaderError):
            await self._registry.lead(topic)
        return await self.commit(topic, operation, lambda state: [checked(state)])

    async def commit(
        self, topic: str, operation: str, build: Callable[[TableState], Sequence[Action]]
    ) -> int:
        """Commits something else than records to a topic, whoever leads it.

        A leader elsewhere takes it into its state with its next commit or look.

        Args:
            build: The actions, from the newest state; none: there is nothing to do. Called on the
                loop or in a thread, again after each conflict.

        Returns:
            The table version that has it; today's if there was nothing to do.

        Raises:
            UnknownTopicError: There is none.
            MainstemError: `build` refused, or the store failed.
        """
        self._open_topics.check_running()
        known = self._registry.leading(topic)
        if known is not None and known.appender is not None:
            return await self._open_topics.finish(known.appender.change(operation, build))
        return await self._open_topics.finish(self._commit_beside(topic, operation, build))

    async def _commit_beside(
        self, topic: str, operation: str, build: Callable[[TableState], Sequence[Action]]
    ) -> int:
        def commit(state: TableState) -> TableCommit | None:
            actions = build(state)
            if not actions:
                return None
            return TableCommit.of(operation, actions, timestamp_ms=wall_clock_ms())

        async with self._open_topics.holding(topic) as slot:
            self._open_topics.check_running()
            known = await self._open_topics.open(topic, slot)
            appender = known.appender
            if appender is not None and appender.failure is None:
                return await appender.change(operation, build)  # led here meanwhile
            landed = await self._open_topics.run(commit_beside_leader, known.opened, commit)
            return known.opened.state.version if landed is None else landed.version

    def _check_message_bytes(self, config: TopicConfig) -> None:
        limit = self._config.number("message.max.bytes")
        asked = config.overrides.get("max.message.bytes")
        if isinstance(asked, int) and asked > limit:
            raise InvalidConfigError(
                f"max.message.bytes is {asked} bytes; "
                f"this gateway's message.max.bytes allows {limit}",
                name="max.message.bytes",
                value=asked,
                limit_bytes=limit,
            )

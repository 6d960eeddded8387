"""Changes of topics: creating and deleting them, and commits of something else than records."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import structlog

from mainstem.config import GatewayConfig, TopicConfig
from mainstem.delta_log import Appender, TableState, Topics
from mainstem.delta_log.format import Action, Metadata
from mainstem.delta_log.store import Warehouse, wall_clock_ms
from mainstem.delta_log.table import Build, TableCommit, commit_beside_leader
from mainstem.errors import (
    InvalidConfigError,
    MainstemError,
    NotLeaderError,
    StoreUnavailableError,
)
from mainstem.ingest_gateway.topics.gateway_topics import GatewayTopics
from mainstem.ingest_gateway.topics.operations import Operations

log = structlog.get_logger()


class TopicChanges:
    """Changes topics of the warehouse, whichever gateway leads them."""

    def __init__(
        self,
        store: Warehouse,
        topics: GatewayTopics,
        operations: Operations,
        config: GatewayConfig,
    ) -> None:
        self._store = store
        self._tables = Topics(store)
        self._topics = topics
        self._operations = operations
        self._config = config

    async def create(
        self, topic: str, partition_count: int, config: Mapping[str, str], *, validate_only: bool
    ) -> Metadata:
        """Creates a topic; see `Topics.create`."""
        self._operations.check_running()
        self._check_message_bytes(TopicConfig.parse(config))
        return await self._operations.run(
            partial(
                self._tables.create,
                topic,
                partition_count or self._config.number("num.partitions"),
                config,
                validate_only=validate_only,
            )
        )

    async def delete(self, topic: str) -> str:
        """Deletes a topic: what was accepted is committed and answered, then the table goes.

        What waits for a store that does not take it, as a full one, is not waited for.
        """
        self._operations.check_running()
        return await self._operations.finish(self._delete(topic))

    async def finish_deletions(self) -> None:
        """Removes what is left of topics whose deletion was interrupted, as when a gateway was
        killed in the middle of it."""
        try:
            for topic in await self._operations.run(self._tables.half_deleted):
                await self._operations.run(self._tables.finish_deletion, topic)
                log.info("interrupted deletion finished", topic=topic)
        except MainstemError as error:
            log.warning("interrupted deletions wait for the next start", error=error.message)

    async def _delete(self, topic: str) -> str:
        async with self._topics.holding(topic) as held:
            self._operations.check_running()
            if held.appender is None or held.appender.trouble is None:
                await self._topics.close(held)
            topic_id = await self._operations.run(self._tables.delete, topic)
            await self._topics.close(held, 0.0)
            self._topics.forget(topic, topic_id)
        await self._fill_reserve()
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
            return await self._topics.describe(topic, validated)
        with contextlib.suppress(NotLeaderError):
            await self._topics.lead(topic)
        return await self.commit(topic, operation, lambda state: [checked(state)])

    async def commit(
        self,
        topic: str,
        operation: str,
        build: Callable[[TableState], Sequence[Action]],
        *,
        frees_space: bool = False,
    ) -> int:
        """Commits something else than records to a topic, whichever gateway leads it.

        A leader elsewhere takes it into its state with its next commit or look.

        Args:
            build: The actions, from the newest state; none: there is nothing to do. Called on the
                loop or in a thread, again after each conflict.
            frees_space: See `TableCommit`.

        Returns:
            The table version that has it; today's if there was nothing to do.

        Raises:
            UnknownTopicError: There is none.
            MainstemError: `build` refused, or the store failed.
        """
        self._operations.check_running()
        led = self._topics.leading(topic)
        if led is not None and led.leader is not None:
            if led.leader.trouble is not None:
                # Its appends are tried until they are stored, which a change must not wait for.
                work = self._commit_apart(topic, operation, build, frees_space)
            else:
                work = led.leader.change(operation, build, frees_space=frees_space)
        else:
            work = self._commit_beside(topic, operation, build, frees_space)
        version = await self._operations.finish(work)
        if frees_space:
            await self._fill_reserve()
        return version

    async def _fill_reserve(self) -> None:
        """Makes good what a change has used of the reserve. Where there is still too little space,
        the next change tries again."""
        with contextlib.suppress(StoreUnavailableError):
            await self._operations.run(self._store.fill_reserve)

    async def _commit_apart(
        self,
        topic: str,
        operation: str,
        build: Callable[[TableState], Sequence[Action]],
        frees_space: bool,
    ) -> int:
        """Commits beside our own leader, which takes it as another's."""

        def work() -> int:
            opened = self._tables.open(topic)
            landed = commit_beside_leader(opened, _commit(operation, build, frees_space))
            return opened.state.version if landed is None else landed.version

        return await self._operations.run(work)

    async def _commit_beside(
        self,
        topic: str,
        operation: str,
        build: Callable[[TableState], Sequence[Action]],
        frees_space: bool,
    ) -> int:
        async with self._topics.holding(topic) as held:
            self._operations.check_running()
            if held.leader is not None:
                # Led here meanwhile.
                return await held.leader.change(operation, build, frees_space=frees_space)
            table = await self._topics.table_of(held)
            landed = await self._operations.run(
                commit_beside_leader, table, _commit(operation, build, frees_space)
            )
            version = table.state.version if landed is None else landed.version
            self._topics.give_back(held, table)
            return version

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


def _commit(
    operation: str, build: Callable[[TableState], Sequence[Action]], frees_space: bool
) -> Build:
    def commit(state: TableState) -> TableCommit | None:
        actions = build(state)
        if not actions:
            return None
        return TableCommit.of(
            operation, actions, timestamp_ms=wall_clock_ms(), frees_space=frees_space
        )

    return commit

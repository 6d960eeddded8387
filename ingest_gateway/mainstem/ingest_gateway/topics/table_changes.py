"""Commits to a topic's table of something else than records, by a gateway that does not lead it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from mainstem.config import TopicConfig
from mainstem.delta_log import TableState, Topics
from mainstem.delta_log.format import Action
from mainstem.delta_log.store import Warehouse, wall_clock_ms
from mainstem.delta_log.table import Build, TableCommit, commit_beside_leader
from mainstem.errors import InvalidConfigError, StoreUnavailableError
from mainstem.ingest_gateway.topics.operations import Operations
from mainstem.ingest_gateway.topics.topics_in_memory import TopicsInMemory


class TableChanges:
    """On the event loop. A commit returns the table version that has it, today's if there was
    nothing to do; see `GatewayTopics.commit` for its arguments."""

    def __init__(
        self, store: Warehouse, tables: Topics, operations: Operations, memory: TopicsInMemory
    ) -> None:
        self._store = store
        self._tables = tables
        self._operations = operations
        self._memory = memory

    async def commit_apart(
        self,
        topic: str,
        operation: str,
        build: Callable[[TableState], Sequence[Action]],
        frees_space: bool,
    ) -> int:
        """Commits beside our own leader, whose store has trouble; it takes it as another's."""

        def work() -> int:
            opened = self._tables.open(topic)
            landed = commit_beside_leader(opened, _commit(operation, build, frees_space))
            return opened.state.version if landed is None else landed.version

        return await self._operations.run(work)

    async def commit_beside(
        self,
        topic: str,
        operation: str,
        build: Callable[[TableState], Sequence[Action]],
        frees_space: bool,
    ) -> int:
        """Commits to a topic that is led elsewhere, or by nobody."""
        async with self._memory.holding(topic) as held:
            self._operations.check_running()
            if held.leader is not None:
                # Led here meanwhile.
                return await held.leader.change(operation, build, frees_space=frees_space)
            table = await self._memory.table_of(held)
            landed = await self._operations.run(
                commit_beside_leader, table, _commit(operation, build, frees_space)
            )
            version = table.state.version if landed is None else landed.version
            self._memory.give_back(held, table)
            return version

    async def fill_reserve(self) -> None:
        """Makes good what a change has used of the reserve. Where there is still too little space,
        the next change tries again."""
        with contextlib.suppress(StoreUnavailableError):
            await self._operations.run(self._store.fill_reserve)


def check_message_bytes(config: TopicConfig, limit: int) -> None:
    """Raises InvalidConfigError where a topic's max.message.bytes is above the gateway's limit."""
    asked = config.overrides.get("max.message.bytes")
    if isinstance(asked, int) and asked > limit:
        raise InvalidConfigError(
            f"max.message.bytes is {asked} bytes; this gateway's message.max.bytes allows {limit}",
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

"""Brings what a write-ahead log has into the topics that it belongs to."""

from __future__ import annotations

import asyncio
import sys

import structlog

from mainstem.delta_log import Topics
from mainstem.delta_log.store import Warehouse
from mainstem.delta_log.system import read_warehouse_id
from mainstem.delta_log.wal import OtherLogs, Wal
from mainstem.errors import (
    MainstemError,
    NotLeaderError,
    StoreUnavailableError,
    UnknownTopicError,
)
from mainstem.ingest_gateway.cluster import Cluster
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.topics.gateway_topics import GatewayTopics
from mainstem.ingest_gateway.topics.operations import Operations
from mainstem.ingest_gateway.topics.orphans import settle

log = structlog.get_logger()

#: How often what the write-ahead log has of topics that were not found, or not led, is tried again.
RECOVER_AGAIN_S = 10.0


class WalRecovery:
    """On the event loop: `recover` before anything is served, then `go_on` without end."""

    def __init__(
        self,
        store: Warehouse,
        wal: Wal,
        others: OtherLogs,
        cluster: Cluster,
        topics: GatewayTopics,
        operations: Operations,
        metrics: GatewayMetrics,
    ) -> None:
        self._store = store
        self._tables = Topics(store)
        self._wal = wal
        self._others = others
        self._cluster = cluster
        self._topics = topics
        self._operations = operations
        self._metrics = metrics
        #: Why entries of a log, of a topic with this id, could not be brought into it, or kept as
        #: orphans.
        self._waits: dict[tuple[str, str, str], str] = {}

    async def recover(self) -> None:
        """Brings what the write-ahead log has into its topics.

        What has to wait for its topic is kept, and tried again by `go_on`.
        """
        await self._recover_log(self._wal)
        self._note_waiting()

    async def go_on(self) -> None:
        """Tries again, without end, what had to wait for its topic; and brings into their topics
        what gateways have left that are gone."""
        while True:
            await asyncio.sleep(RECOVER_AGAIN_S)
            await self.recover()
            await self._recover_others()

    async def _recover_others(self) -> None:
        """Takes over the topics that gateways which are gone have left acknowledged records of:
        nobody may produce to them for long."""
        alive = [beat.gateway_id for beat in self._cluster.gateways()]
        try:
            logs = await self._others.of(await self._others.with_segments(but=alive))
        except MainstemError as error:
            log.error("the log of a gateway that is gone cannot be read", error=error.message)
            return
        for other in logs:
            await self._recover_log(other)
        await self._others.drop_folded(but=alive)

    async def _recover_log(self, wal: Wal) -> None:
        for topic, topic_id in wal.topics():
            led = self._topics.leading(topic)
            leader = None if led is None else led.leader
            if wal is self._wal and leader is not None and leader.state.topic_id == topic_id:
                continue  # in its queue
            why = ""
            try:
                why = await self._operations.finish(self._recover(wal, topic, topic_id))
            except MainstemError as error:
                why = error.message
            except Exception:
                log.exception("recovery failed", topic=topic)
                why = "of a fault in the gateway"
            key = (wal.gateway_id, topic, topic_id)
            if why and self._waits.get(key) != why:  # once, not at each attempt
                log.error("the write-ahead log waits for a topic", topic=topic, reason=why)
            self._waits[key] = why

    async def _recover(self, wal: Wal, topic: str, topic_id: str) -> str:
        """Returns why entries of the topic have to wait; empty: they do not."""
        if await self._is_ended(topic, topic_id):
            await self._operations.run(self._check_warehouse)
            count = wal.forget(topic, topic_id)
            log.warning("requests given up: their topic is deleted", topic=topic, count=count)
            return ""
        try:
            led = await self._topics.lead(topic)
        except NotLeaderError:
            waiting_count = await self._meet_other_leader(wal, topic)
            return "it is led elsewhere" if waiting_count else ""
        if wal is not self._wal and led.leader is not None and led.leader.queued_bytes == 0:
            # What the leader found in the log is in the table; and what was there before it led.
            await settle(wal, self._metrics, topic, led.leader.state)
        return ""

    async def _is_ended(self, topic: str, topic_id: str) -> bool:
        """Whether the topic with that id is proven to be deleted.

        Raises:
            UnknownTopicError: There is none of that name, which proves nothing.
        """
        # Nobody creates it: an empty one would look as if the old one had been deleted.
        async with self._topics.holding(topic, waiters_max=sys.maxsize):
            try:
                table = await self._operations.run(self._tables.open, topic)
            except UnknownTopicError:
                if await self._operations.run(self._tables.is_ended, topic, topic_id):
                    return True
                raise
        return table.state.topic_id != topic_id

    async def _meet_other_leader(self, wal: Wal, topic: str) -> int:
        """When another gateway has a topic that the write-ahead log has records of. They are
        orphans once it has appended to their partitions, and wait until then.

        Returns:
            How many records wait.
        """
        async with self._topics.holding(topic, waiters_max=sys.maxsize) as found:
            if found.leader is not None:
                return 0  # led here meanwhile
            table = await self._operations.run(self._tables.open, topic)
            return await settle(wal, self._metrics, topic, table.state)

    def _check_warehouse(self) -> None:
        """Raises StoreUnavailableError unless the warehouse that the log belongs to is there: else
        nothing that is found in it, or not, is proof of anything. Blocks."""
        wal_of = self._wal.warehouse_id
        if wal_of and read_warehouse_id(self._store) != wal_of:
            raise StoreUnavailableError(
                f"{self._store.uri} is not warehouse {wal_of} any more; mount its volume again"
            )

    def _note_waiting(self) -> None:
        """Counts what waits for its topic, and forgets why other entries did."""
        own = self._wal.gateway_id
        there = {(own, *key) for key in self._wal.topics()}
        self._waits = {
            key: why for key, why in self._waits.items() if why and (key[0] != own or key in there)
        }
        waits = [key[1:] for key in self._waits if key[0] == own]
        self._metrics.wal_waiting.set(sum(self._wal.entry_count(*key) for key in waits))

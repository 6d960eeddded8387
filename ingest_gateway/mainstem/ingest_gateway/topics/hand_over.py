"""A topic that is led here moves to another gateway: what was accepted is committed, then the
topic's log names its next leader, in one commit."""

from __future__ import annotations

import sys
import time
from functools import partial

import structlog

from mainstem.delta_log import Topics
from mainstem.delta_log.append import hand_over
from mainstem.delta_log.system import GatewayBeat
from mainstem.errors import MainstemError
from mainstem.ingest_gateway.cluster import Cluster
from mainstem.ingest_gateway.topics.operations import Operations
from mainstem.ingest_gateway.topics.topics_in_memory import TopicsInMemory

log = structlog.get_logger()


class TopicHandOver:
    """On the event loop. Who asks for the topic meanwhile waits, and is then sent on."""

    def __init__(
        self, tables: Topics, operations: Operations, memory: TopicsInMemory, cluster: Cluster
    ) -> None:
        self._tables = tables
        self._operations = operations
        self._memory = memory
        self._cluster = cluster

    async def hand_over(self, name: str, target: GatewayBeat, timeout_s: float) -> bool:
        """Runs to its end, also when the caller goes away.

        Args:
            timeout_s: For committing what was accepted. What is not committed in that time fails as
                unknown, and the topic stays free for whichever gateway is asked next.

        Returns:
            Whether the log names the other gateway now. Not where the topic is not led here, or its
            store has trouble: then it stays.
        """
        return await self._operations.finish(self._hand_over(name, target, timeout_s))

    async def _hand_over(self, name: str, target: GatewayBeat, timeout_s: float) -> bool:
        async with self._memory.holding(name, waiters_max=sys.maxsize) as topic:
            leader = topic.leader
            if leader is None or leader.trouble is not None:
                return False
            ends_at = time.monotonic() + timeout_s
            await self._memory.close(topic, timeout_s)
            self._cluster.released(name)
            if time.monotonic() >= ends_at:
                return False
            try:
                table = await self._operations.run(self._tables.open, name)
                moved = await self._operations.run(
                    partial(hand_over, is_settled=leader.is_settled),
                    table,
                    leader.epoch,
                    target.incarnation,
                )
            except MainstemError as error:
                # It is led again by whichever gateway is asked, this one at first.
                log.warning("topic not handed over", topic=name, error=error.message)
                return False
            self._memory.give_back(topic, table)
        if moved:
            log.info("topic handed over", topic=name, gateway_id=target.gateway_id)
        return moved

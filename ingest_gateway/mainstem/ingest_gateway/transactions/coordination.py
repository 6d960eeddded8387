"""The coordinator of transactions with its I/O: on the gateway that coordinates the groups."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from functools import partial
from typing import Final

import structlog

from mainstem.config import GatewayConfig
from mainstem.delta_log import ByteBudget, OpenTopic
from mainstem.delta_log.latest import LatestTable, RowsByPlace
from mainstem.delta_log.staging import StagingArea
from mainstem.delta_log.store import Warehouse, time_elapsed_s
from mainstem.errors import MainstemError, NotLeaderError
from mainstem.ingest_gateway.groups import GroupCoordination, Running
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.producer_id_source import ProducerIdSource
from mainstem.ingest_gateway.supervised import SupervisedTask
from mainstem.ingest_gateway.topics import GatewayTopics, Maintainer
from mainstem.ingest_gateway.transactions.committing import Committing
from mainstem.ingest_gateway.transactions.peers import Peers
from mainstem.ingest_gateway.transactions.rows import KIND, IdRow, LookRow, TransactionRow
from mainstem.ingest_gateway.transactions.staging import Staging
from mainstem.ingest_gateway.transactions.term import Term, TransactionRules
from mainstem.ingest_gateway.transactions.topic_appends import TopicAppends

log = structlog.get_logger()

#: How often it is looked for transactions that are open for too long.
TICK_S: Final = 0.25


class TransactionCoordination:
    """Begins a term when the coordination of groups begins here, and ends it with that.

    On the event loop; calls of the store run in `pool`.

    Attributes:
        appends: Of topics that are led here, also for coordinators elsewhere.
        ended: Transactions that are over, by how they ended.
    """

    def __init__(
        self,
        topics: GatewayTopics,
        groups: GroupCoordination,
        maintainer: Maintainer,
        producer_ids: ProducerIdSource,
        store: Warehouse,
        config: GatewayConfig,
        metrics: GatewayMetrics,
        pool: Executor,
        peers: Peers,
    ) -> None:
        self._groups = groups
        self._maintainer = maintainer
        self._producer_ids = producer_ids
        self._store = store
        self._metrics = metrics
        self._pool = pool
        self._memory_bytes = config.number("transaction.memory.bytes")
        self._rules = TransactionRules(
            timeout_ms_max=config.number("transaction.max.timeout.ms"),
            ids_max=config.number("transactional.id.max.count"),
            expiration_ms=config.number("transactional.id.expiration.ms"),
        )
        self._peers = peers
        self._area = StagingArea(store)
        self.appends = TopicAppends(topics, self._peers, self._area, pool)
        self.ended = {"committed": 0, "aborted": 0}
        self._term: Term | None = None
        self._table: LatestTable[TransactionRow] | None = None
        self._ticking: SupervisedTask | None = None
        groups.accompany(self._begin, self._end, self._is_busy)

    @property
    def term(self) -> Term | None:
        """For the metrics: None while another gateway, or none, coordinates."""
        return self._term

    async def started(self) -> Term:
        """Coordinates, having begun to if need be.

        Raises:
            NotLeaderError: Another gateway does; its address is in the facts.
            MainstemError: The tables cannot be led.
        """
        await self._groups.started()
        term = self._term
        if term is None:
            raise NotLeaderError("the coordination of transactions moves; ask again", leader="")
        return term

    def now(self) -> Term | None:
        """What runs, without waiting; None: call `started`."""
        return None if self._groups.now() is None else self._term

    async def _begin(self, running: Running) -> None:
        """With the coordination of groups, before anybody is answered."""
        view: RowsByPlace[TransactionRow] = RowsByPlace()
        table = await LatestTable.lead(
            self._store,
            self._pool,
            KIND,
            view,
            budget=ByteBudget(KIND.queue_bytes),
            kept_ms=self._rules.expiration_ms,
            metrics=self._metrics,
            on_commit=self._committed,
            on_failure=self._lost,
        )
        try:
            values = [row.value for row in view.rows.values()]
            look = next((one for one in values if isinstance(one, LookRow)), LookRow({}))
            staging = Staging(self._area.of_epoch(table.epoch), self._pool, self._memory_bytes)
            committing = Committing(
                table, running, self.appends, staging, look.pins, time_elapsed_s
            )
            term = Term(
                [one for one in values if isinstance(one, IdRow)],
                committing,
                self.appends,
                staging,
                self._rules,
                self._producer_ids.next,
                self._note_ended,
                time_elapsed_s,
            )
            self._table, self._term = table, term
            await term.recover()
        except BaseException:
            await self._end(0.0)
            raise
        self._ticking = SupervisedTask(
            "look after transactions", partial(_tick, term), self._metrics
        )

    def _is_busy(self) -> bool:
        return self._term is not None and self._term.open_count > 0

    async def _end(self, timeout_s: float) -> None:
        """With the coordination of groups."""
        ticking, self._ticking = self._ticking, None
        if ticking is not None:
            await ticking.stop()
        term, self._term = self._term, None
        if term is not None:
            await term.finish(timeout_s)
            term.close()
        table, self._table = self._table, None
        if table is not None:
            await table.close(timeout_s)

    def _note_ended(self, outcome: str) -> None:
        self.ended[outcome] += 1

    async def close(self) -> None:
        """Ends the connections to other gateways; the term ends with the groups' coordination."""
        await self._peers.close()

    def _committed(self, opened: OpenTopic) -> None:
        self._maintainer.committed_own(opened)

    def _lost(self, error: MainstemError) -> None:
        log.error("the table of transactions is lost", code=error.code, error=error.message)


async def _tick(term: Term) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        term.tick()

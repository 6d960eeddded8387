"""Makes the appenders of a gateway, with what they share: budgets, turns, memories, the cluster."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from mainstem.config import GatewayConfig
from mainstem.delta_log import Appender, ByteBudget, CommittedRecords, OpenTopic, RollUpMemory
from mainstem.delta_log.append import CommitTurns, ProducerIds, ProducerMemory
from mainstem.delta_log.wal import OtherLogs, Wal
from mainstem.errors import MainstemError
from mainstem.ingest_gateway.cluster import Cluster
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.topics.maintainer import Maintainer


class Appenders:
    """On the event loop; the appenders' calls of the store run in `pool`.

    Args:
        on_records: Told of the records of each commit.
        on_durable: Told of records that are to be committed for certain; see `Appender`.
    """

    def __init__(
        self,
        config: GatewayConfig,
        metrics: GatewayMetrics,
        pool: Executor,
        *,
        cluster: Cluster,
        maintainer: Maintainer,
        wal: Wal,
        other_logs: OtherLogs,
        producer_ids: ProducerIds | None,
        on_records: Callable[[CommittedRecords], None],
        on_durable: Callable[[CommittedRecords], None] | None,
    ) -> None:
        self._metrics = metrics
        self._pool = pool
        self._cluster = cluster
        self._maintainer = maintainer
        self._wal = wal
        self._producer_ids = producer_ids
        self._on_records = on_records
        self._on_durable = on_durable
        self._other_logs = other_logs
        self._queue_bytes = config.number("topic.queue.bytes")
        self._producer_expiration_ms = config.number("producer.id.expiration.ms")
        self._transactional_id_expiration_ms = config.number("transactional.id.expiration.ms")
        self._budget = ByteBudget(config.number("queued.max.bytes"))
        self._roll_up_memory = RollUpMemory(config.number("rollup.memory.bytes"))
        self._turns = CommitTurns(
            config.number("commit.rate"),
            config.number("commit.concurrency"),
            config.number("commit.interval.max.ms"),
            unawaited_rate=config.number("commit.unawaited.rate"),
            unawaited_interval_max_ms=config.number("commit.unawaited.interval.max.ms"),
        )
        self._producer_memory = ProducerMemory(config.number("producer.state.max.bytes"), metrics)
        metrics.queued_bytes.set_function(lambda: self._budget.used_bytes)
        metrics.roll_up_bytes.set_function(lambda: self._roll_up_memory.used_bytes)
        metrics.topics_waiting.set_function(lambda: self._turns.waiting_count)
        metrics.producer_bytes.set_function(lambda: self._producer_memory.used_bytes)

    async def lead(self, table: OpenTopic, on_lost: Callable[[MainstemError], None]) -> Appender:
        """An appender of the topic; see `Appender.lead`.

        Args:
            on_lost: Told once, when it can append no more.

        Raises:
            NotLeaderError: Another gateway that is there leads the topic.
        """
        return await Appender.lead(
            table,
            self._pool,
            queue_bytes=self._queue_bytes,
            budget=self._budget,
            metrics=self._metrics,
            on_commit=self._committed,
            on_records=self._on_records,
            on_durable=self._on_durable,
            on_failure=on_lost,
            wal=self._wal,
            other_logs=self._other_logs.of,
            # A gateway that was stopped for longer than its session may have lost the topic, and
            # what it logs would be orphans.
            may_acknowledge=partial(self._cluster.may_acknowledge, table.topic),
            roll_up_memory=self._roll_up_memory,
            turns=self._turns,
            producer_expiration_ms=self._producer_expiration_ms,
            transactional_id_expiration_ms=self._transactional_id_expiration_ms,
            producer_memory=self._producer_memory,
            producer_ids=self._producer_ids,
            leader=self._cluster.incarnation,
            may_claim=partial(self._cluster.check_free, table.topic),
        )

    def _committed(self, table: OpenTopic) -> None:
        self._cluster.committed(table.topic)
        self._maintainer.committed(table)

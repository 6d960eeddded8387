"""The topics of a gateway: led from the first produce, described from their newest state."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import structlog

from mainstem.config import GatewayConfig
from mainstem.delta_log import (
    Appender,
    ByteBudget,
    CommittedRecords,
    ObjectStore,
    OpenTopic,
    RollUpMemory,
    TableState,
    Topics,
)
from mainstem.delta_log.append import CommitTurns, ProducerIds, ProducerMemory, recover_topic
from mainstem.delta_log.system import GatewayRow, read_warehouse_id
from mainstem.delta_log.table import LogOvertakenError
from mainstem.delta_log.wal import Wal
from mainstem.errors import (
    FencedError,
    MainstemError,
    NotLeaderError,
    StoreUnavailableError,
    TopicExistsError,
    UnknownTopicError,
)
from mainstem.ingest_gateway.leases import Leases
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.topics.maintainer import Maintainer
from mainstem.ingest_gateway.topics.open_topics import KnownTopic, OpenTopics
from mainstem.limits import CHECKPOINT_INTERVAL_COMMITS

log = structlog.get_logger()

T = TypeVar("T")

#: A topic that was lost to another leader, or is damaged, is not tried again before this has
#: passed: two gateways must not take it from each other at every request.
REOPEN_AFTER_S = 6.0

#: How often what the write-ahead log has of topics that were not found, or not led, is tried again.
RECOVER_AGAIN_S = 10.0

#: How old the state of a topic that is led here may be when it is described: jobs commit beside the
#: leader, and the operator who ran one looks at what it did.
DESCRIBED_AGE_S_MAX = 0.1

#: How long a description or a fetch waits for a leader that is to take what others committed.
CATCH_UP_TIMEOUT_S = 5.0


class TopicRegistry:
    """The gateway's view of the warehouse.

    Lives on one event loop; the store's calls run in `pool`.

    Attributes:
        open_topics: What is open, led or not; a change of a topic holds its slot there.
        wal: The write-ahead log for acks=1; None: acks=1 waits for the table commit.
        producer_ids: Which producer ids were given out; None: all of them.
        leases: The leases of topics; None: every topic is ours.
        on_records: Told of the records of each commit; None: nobody is.
    """

    def __init__(
        self,
        store: ObjectStore,
        config: GatewayConfig,
        metrics: GatewayMetrics,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._topics = Topics(store)
        self._config = config
        self._metrics = metrics
        self._pool = pool
        self._budget = ByteBudget(config.number("queued.max.bytes"))
        self._roll_up_memory = RollUpMemory(config.number("rollup.memory.bytes"))
        self._turns = CommitTurns(
            config.number("commit.rate"),
            config.number("commit.concurrency"),
            config.number("commit.interval.max.ms"),
        )
        self._producer_memory = ProducerMemory(config.number("producer.state.max.bytes"), metrics)
        self.open_topics = OpenTopics(self._topics, pool)
        self._maintainer = Maintainer(config.number("checkpoint.interval.commits"), metrics)
        self.wal: Wal | None = None
        #: Why entries of a topic with this id could not be brought into it, or kept as orphans.
        self._waits: dict[tuple[str, str], str] = {}
        self.producer_ids: ProducerIds | None = None
        self.leases: Leases | None = None
        self.on_records: Callable[[CommittedRecords], None] | None = None
        #: All who want a topic led while that is under way wait for the same task.
        self._leading: dict[str, asyncio.Task[KnownTopic]] = {}
        metrics.queued_bytes.set_function(lambda: self._budget.used_bytes)
        metrics.roll_up_bytes.set_function(lambda: self._roll_up_memory.used_bytes)
        metrics.topics_waiting.set_function(lambda: self._turns.waiting_count)
        metrics.producer_bytes.set_function(lambda: self._producer_memory.used_bytes)
        metrics.watch_topics(self.open_topics.led)

    @property
    def topics_led(self) -> int:
        """How many topics this gateway leads now."""
        return sum(1 for _ in self.open_topics.led())

    def leading(self, topic: str) -> KnownTopic | None:
        """The topic if it is led and healthy right now, without waiting: the hot path."""
        known = self.open_topics.find(topic)
        if known is None or known.appender is None or known.appender.failure is not None:
            return None
        return known

    def is_leader(self, topic: str) -> bool:
        """Whether the topic is led here and, as far as is known, nowhere else: a gateway that
        stalled for longer than its session may have lost it and not have tried a commit since."""
        return self.leading(topic) is not None and (self.leases is None or self.leases.holds(topic))

    async def lead(self, topic: str) -> KnownTopic:
        """The topic, led by this gateway: opened, and taken over as needed.

        Raises:
            UnknownTopicError: There is none.
            NotLeaderError: It was lost to another gateway a moment ago.
            LogDamagedError: Its table cannot be written; the message says why.
            ShuttingDownError: The gateway is draining.
        """
        self.open_topics.check_running()
        task = self._leading.get(topic)
        if task is None:
            task = self._leading[topic] = self.open_topics.begin(self._lead(topic))
            task.add_done_callback(lambda _: self._leading.pop(topic, None))
        return await asyncio.shield(task)

    async def lead_or_create(self, topic: str) -> KnownTopic:
        """`lead`, for a producer: a topic that does not exist is created if the gateway may."""
        try:
            return await self.lead(topic)
        except UnknownTopicError:
            if not self._config.flag("auto.create.topics.enable"):
                raise
        await self.open_topics.finish(self._create(topic))
        return await self.lead(topic)

    async def _lead(self, topic: str) -> KnownTopic:
        async with self.open_topics.holding(topic) as slot:
            self.open_topics.check_running()
            known = await self.open_topics.open(topic, slot)
            appender = known.appender
            if appender is not None and appender.failure is not None:
                if time.monotonic() - known.failed_at < REOPEN_AFTER_S:
                    # Raised again and again, it must not keep the frames of all who saw it.
                    raise appender.failure.with_traceback(None)
                await self.open_topics.close(slot)
                known = await self.open_topics.open(topic, slot)
                appender = None
            if appender is None:
                if self.leases is not None:
                    await self.leases.acquire(topic)
                    # What others committed before they lost the lease.
                    await self.open_topics.run(known.opened.refresh)
                self.open_topics.keep_open(topic)
                known.appender = await Appender.lead(
                    known.opened,
                    self._pool,
                    queue_bytes=self._config.number("topic.queue.bytes"),
                    budget=self._budget,
                    metrics=self._metrics,
                    on_commit=self._committed,
                    on_records=self.on_records,
                    on_failure=partial(self._failed, topic),
                    wal=self.wal,
                    may_acknowledge=partial(self._may_acknowledge, topic),
                    roll_up_memory=self._roll_up_memory,
                    turns=self._turns,
                    producer_expiration_ms=self._config.number("producer.id.expiration.ms"),
                    producer_memory=self._producer_memory,
                    producer_ids=self.producer_ids,
                )
                log.info("topic led", topic=topic, epoch=known.appender.epoch)
            return known

    def _committed(self, opened: OpenTopic) -> None:
        if self.leases is not None:
            self.leases.committed(opened.topic)
        self._maintainer.committed(opened)

    def _may_acknowledge(self, topic: str) -> bool:
        """Whether acks=1 may be answered from the write-ahead log: a gateway that was stopped for
        longer than its session may have lost the topic, and what it logs would be orphans."""
        return self.leases is None or self.leases.may_acknowledge(topic)

    async def _create(self, topic: str) -> None:
        async with self.open_topics.holding(topic):
            self.open_topics.check_running()
            with contextlib.suppress(TopicExistsError):
                partition_count = self._config.number("num.partitions")
                await self.open_topics.run(self._topics.create, topic, partition_count, {})
                log.info("topic created automatically", topic=topic)

    async def describe(
        self,
        topic: str,
        view: Callable[[TableState, Appender | None], T],
        *,
        may_create: bool = False,
    ) -> T:
        """What `view` makes of the topic's newest state, and of its appender if it is led here.

        Args:
            view: Called on the loop, and does not keep the state: it changes with the next commit.
            may_create: Creates a topic that does not exist if the gateway may: for a producer.

        Raises:
            UnknownTopicError: There is none.
        """
        known = self.leading(topic)
        if known is not None and known.appender is not None:
            if known.appender.state_age_s > DESCRIBED_AGE_S_MAX:
                await self.catch_up(topic)
            if known.appender.failure is None:
                return view(known.appender.state, known.appender)
        try:
            return await self.open_topics.finish(self._describe(topic, view))
        except UnknownTopicError:
            if not may_create:
                raise
        known = await self.lead_or_create(topic)
        assert known.appender is not None
        return view(known.appender.state, known.appender)

    async def catch_up(self, topic: str) -> None:
        """Has the topic's leader, if it is here, take what others have committed. Whatever fails is
        found out by the next caller that uses the topic."""
        known = self.leading(topic)
        if known is None or known.appender is None:
            return
        with contextlib.suppress(MainstemError, TimeoutError):
            # A commit may be under way to a store that fails.
            async with asyncio.timeout(CATCH_UP_TIMEOUT_S):
                await known.appender.catch_up()

    async def _describe(self, topic: str, view: Callable[[TableState, Appender | None], T]) -> T:
        async with self.open_topics.holding(topic) as slot:
            known = await self.open_topics.open(topic, slot)
            appender = known.appender
            if appender is not None and appender.failure is None:
                return view(appender.state, appender)
            try:
                await self.open_topics.run(known.opened.refresh)
            except MainstemError:
                await self.open_topics.close(slot)
                known = await self.open_topics.open(topic, slot)
            try:
                return view(known.opened.state, None)
            finally:
                await self.open_topics.used(topic, slot)

    async def recover(self) -> None:
        """Brings what the write-ahead log has into its topics; before anything else is served.

        What has to wait for its topic is kept, and tried again by `go_on_recovering`.
        """
        for topic, topic_id in self.wal.topics() if self.wal is not None else ():
            assert self.wal is not None
            known = self.leading(topic)
            if known is not None and known.opened.state.topic_id == topic_id:
                continue  # in its queue
            why = ""
            try:
                why = await self.open_topics.finish(self._recover_topic(self.wal, topic, topic_id))
            except MainstemError as error:
                why = error.message
            except Exception:
                log.exception("recovery failed", topic=topic)
                why = "of a fault in the gateway"
            if why and self._waits.get((topic, topic_id)) != why:  # once, not at each attempt
                log.error("the write-ahead log waits for a topic", topic=topic, reason=why)
            self._waits[topic, topic_id] = why
        self._note_waiting()

    async def go_on_recovering(self) -> None:
        """Tries again, without end, what had to wait for its topic."""
        while True:
            await asyncio.sleep(RECOVER_AGAIN_S)
            await self.recover()

    async def _recover_topic(self, wal: Wal, topic: str, topic_id: str) -> str:
        """Returns why entries of the topic have to wait; empty: they do not."""
        if await self._is_ended(topic, topic_id):
            await self.open_topics.run(self._check_warehouse, wal)
            count = wal.forget(topic, topic_id)
            log.warning("requests given up: their topic is deleted", topic=topic, count=count)
            return ""
        try:
            await self.lead(topic)
        except NotLeaderError:
            waiting_count = await self._meet_other_leader(topic)
            return "it is led elsewhere" if waiting_count else ""
        return ""

    async def _is_ended(self, topic: str, topic_id: str) -> bool:
        """Whether the topic with that id is proven to be deleted.

        Raises:
            UnknownTopicError: There is none of that name, which proves nothing.
        """
        # Nobody creates it: an empty one would look as if the old one had been deleted.
        async with self.open_topics.holding(topic, waiters_max=sys.maxsize) as slot:
            try:
                known = await self.open_topics.open(topic, slot)
            except UnknownTopicError:
                if await self.open_topics.run(self._topics.is_ended, topic, topic_id):
                    return True
                raise
            is_another = known.opened.state.topic_id != topic_id
            await self.open_topics.used(topic, slot)
        return is_another

    def _check_warehouse(self, wal: Wal) -> None:
        """Raises StoreUnavailableError unless the warehouse that the log belongs to is there: else
        nothing that is found in it, or not, is proof of anything. Blocks."""
        store = self._topics.store
        if wal.warehouse_id and read_warehouse_id(store) != wal.warehouse_id:
            raise StoreUnavailableError(
                f"{store.uri} is not warehouse {wal.warehouse_id} any more; mount its volume again"
            )

    def _note_waiting(self) -> None:
        """Counts what waits for its topic, and forgets why other entries did."""
        if self.wal is None:
            return
        there = set(self.wal.topics())
        self._waits = {key: why for key, why in self._waits.items() if key in there and why}
        self._metrics.wal_waiting.set(sum(self.wal.entry_count(*key) for key in self._waits))

    async def names(self) -> list[str]:
        """Every topic of the warehouse."""
        return await self.open_topics.run(self._topics.names)

    def maintain(self, opened: OpenTopic) -> None:
        """Notes a commit to a table of the platform's own, for its checkpoints."""
        self._maintainer.committed(opened, CHECKPOINT_INTERVAL_COMMITS)

    def gateways(self) -> list[GatewayRow]:
        """Every gateway that is alive, this one first; empty without leases."""
        return [] if self.leases is None else self.leases.gateways()

    def leader(self, topic: str) -> str:
        """host:port of the gateway that has the topic, or shall have it; empty without leases."""
        return "" if self.leases is None else self.leases.holder(topic)

    def uri(self, topic: str) -> str:
        return self._topics.uri(topic)

    def forget(self, topic: str, topic_id: str) -> None:
        """Keeps nothing of a topic that was deleted."""
        if self.leases is not None:
            self.leases.release(topic)
        for name, one in self.wal.topics() if self.wal is not None else ():
            # The id of a table that could not be read is not known; what had the name is gone.
            if name == topic and (one == topic_id or not topic_id):
                assert self.wal is not None
                self.wal.forget(name, one)
        self._metrics.forget_topic(topic)
        self.open_topics.on_closed(topic)

    async def drain(self, timeout_s: float) -> bool:
        """Takes no more, commits what was accepted, and closes every topic.

        Returns:
            Whether all of that was done within `timeout_s`, and no thread is at work any more.
        """
        ends_at = time.monotonic() + timeout_s
        clean = await self.open_topics.drain(ends_at)
        return await self._maintainer.close(max(ends_at - time.monotonic(), 0.1)) and clean

    def _failed(self, topic: str, error: MainstemError) -> None:
        log.error("topic lost", topic=topic, code=error.code, error=error.message)
        if self.leases is not None:
            self.leases.release(topic)
        self.open_topics.on_closed(topic)
        if isinstance(error, FencedError):
            self.open_topics.begin(self._keep_orphans(topic))
        known = self.open_topics.find(topic)
        if known is not None and known.opened.state.deleted and self.wal is not None:
            # Its log says so. That it cannot be found would be no proof.
            self.wal.forget(topic, known.opened.state.topic_id)
        if known is not None:
            # A topic that is gone, or that went on without us, is no other gateway's to be left to.
            at_once = isinstance(error, UnknownTopicError | LogOvertakenError)
            known.failed_at = -REOPEN_AFTER_S if at_once else time.monotonic()

    async def _keep_orphans(self, topic: str) -> None:
        """After the loss of a topic to another gateway, which gives its offsets from now on: what
        was acknowledged with acks=1 and is not in the table goes into a file beside the write-ahead
        log."""
        if self.wal is None:
            return
        async with self.open_topics.holding(topic, waiters_max=sys.maxsize) as slot:
            known = slot.known
            if known is None or known.appender is None or known.appender.failure is None:
                return  # led again meanwhile, which took care of them
            await known.appender.stopped()
            await self._settle(self.wal, topic, known.opened.state)

    async def _meet_other_leader(self, topic: str) -> int:
        """When another gateway has a topic that the write-ahead log has records of. They are
        orphans once it has appended to their partitions, and wait until then.

        Returns:
            How many records wait.
        """
        assert self.wal is not None
        async with self.open_topics.holding(topic, waiters_max=sys.maxsize) as slot:
            known = await self.open_topics.open(topic, slot)
            appender = known.appender
            if appender is not None and appender.failure is None:
                return 0  # led here meanwhile
            await self.open_topics.run(known.opened.refresh)
            return await self._settle(self.wal, topic, known.opened.state)

    async def _settle(self, wal: Wal, topic: str, state: TableState) -> int:
        """Keeps as orphans what can no longer get into a topic that is not led here; returns how
        many records may still."""
        found = await recover_topic(wal, topic, state, is_led=False)
        if found.orphan_count:
            self._metrics.orphaned(found.orphan_count)
            log.error(
                "records acknowledged with acks=1 are not in the table",
                topic=topic,
                count=found.orphan_count,
                kept_in=found.orphans_path,
            )
        return found.waiting_count

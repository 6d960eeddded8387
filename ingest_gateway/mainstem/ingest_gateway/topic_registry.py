"""The topics that a gateway knows and leads: opened when asked for, led from the first produce."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import structlog

from mainstem.config import GatewayConfig, TopicConfig
from mainstem.delta_log import (
    Appender,
    ByteBudget,
    CommittedRecords,
    OpenTopic,
    RollUpMemory,
    Store,
    TableState,
    Topics,
    refresh_table,
    registers,
)
from mainstem.delta_log.actions import Action, Metadata
from mainstem.delta_log.beside_leader import commit_beside_leader
from mainstem.delta_log.cluster_table import GatewayRow
from mainstem.delta_log.committer import TableCommit, wall_clock_ms
from mainstem.delta_log.topic_wal import recover_topic
from mainstem.delta_log.wal import Wal
from mainstem.errors import (
    BackPressureError,
    FencedError,
    InvalidConfigError,
    MainstemError,
    NotLeaderError,
    ShuttingDownError,
    TopicExistsError,
    UnknownTopicError,
)
from mainstem.ingest_gateway.gateway_metrics import GatewayMetrics
from mainstem.ingest_gateway.leases import Leases
from mainstem.ingest_gateway.maintainer import Maintainer
from mainstem.ingest_gateway.placement import StickyPlacement
from mainstem.limits import CHECKPOINT_INTERVAL_COMMITS, TOPICS_OPEN_MAX

log = structlog.get_logger()

T = TypeVar("T")

#: A topic that was lost to another leader, or is damaged, is not tried again before this has
#: passed: two gateways must not take it from each other at every request.
REOPEN_AFTER_S = 6.0

#: Topics that are open and not led. Each holds a state in memory and a descriptor, so that the next
#: description costs little; a listing of ten thousand must not keep them all.
IDLE_OPEN_MAX = 128

#: Calls that may wait for one topic to be opened, changed or deleted.
WAITERS_MAX = 1_000

#: How long a topic that is given up or deleted has for committing what it accepted.
CLOSE_TIMEOUT_S = 30.0

#: How old the state of a topic that is led here may be when it is described: jobs commit beside the
#: leader, and whoever ran one looks at what it did.
DESCRIBED_AGE_S_MAX = 0.1

#: How long a description or a fetch waits for a leader that is to take what others committed.
CATCH_UP_TIMEOUT_S = 5.0


@dataclass(slots=True)
class KnownTopic:
    """A topic that is open here."""

    opened: OpenTopic
    sticky: StickyPlacement
    appender: Appender | None = None
    failed_at: float = 0.0


@dataclass(slots=True)
class _Slot:
    """What serialises the opening and closing of one topic."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    known: KnownTopic | None = None
    users: int = 0


class TopicRegistry:
    """The gateway's view of the warehouse.

    Lives on one event loop; the store's calls run in `pool`. An operation that has begun runs to
    its end even if the caller goes away: half-way it would leave a store open that nobody closes,
    or an appender that still commits beside its successor.
    """

    def __init__(
        self, store: Store, config: GatewayConfig, metrics: GatewayMetrics, pool: ThreadPoolExecutor
    ) -> None:
        self._topics = Topics(store)
        self._config = config
        self._metrics = metrics
        self._pool = pool
        self._budget = ByteBudget(config.number("queued.max.bytes"))
        self._roll_up_memory = RollUpMemory(config.number("rollup.memory.bytes"))
        self._slots: dict[str, _Slot] = {}
        self._maintainer = Maintainer(config.number("checkpoint.interval.commits"), metrics)
        self._dice = random.Random()
        self._draining = False
        #: The write-ahead log for acks=1; None: acks=1 waits for the table commit.
        self.wal: Wal | None = None
        #: The leases of topics; None: every topic is ours.
        self.leases: Leases | None = None
        #: Told of the records of each commit; None: nobody is.
        self.on_records: Callable[[CommittedRecords], None] | None = None
        #: Told of each topic that is no longer led here.
        self.on_closed: Callable[[str], None] = lambda _: None
        self._operations: set[asyncio.Task[Any]] = set()
        #: Whoever wants a topic led while that is under way waits for the same task.
        self._leading: dict[str, asyncio.Task[KnownTopic]] = {}
        #: Open and not led, the longest unused first.
        self._idle: dict[str, None] = {}
        metrics.queued_bytes.set_function(lambda: self._budget.used_bytes)
        metrics.roll_up_bytes.set_function(lambda: self._roll_up_memory.used_bytes)
        metrics.watch_topics(self._led)

    @property
    def topics_led(self) -> int:
        """How many topics this gateway leads now."""
        return sum(1 for _ in self._led())

    def leading(self, topic: str) -> KnownTopic | None:
        """The topic if it is led and healthy right now, without waiting: the hot path."""
        slot = self._slots.get(topic)
        known = slot.known if slot is not None else None
        if known is None or known.appender is None or known.appender.failure is not None:
            return None
        return known

    def is_leader(self, topic: str) -> bool:
        """Whether the topic is led here and, as far as is known, nowhere else: a gateway that
        stalled for longer than its session may have lost it and not have tried a commit since."""
        return self.leading(topic) is not None and (self.leases is None or self.leases.holds(topic))

    async def lead(self, topic: str) -> KnownTopic:
        """The topic, led by this gateway: opened, created if it may, and taken over as needed.

        Raises:
            UnknownTopicError: There is none.
            NotLeaderError: It was lost to another gateway a moment ago.
            LogDamagedError: Its table cannot be written; the message says why.
            ShuttingDownError: The gateway is draining.
        """
        self._check_running()
        task = self._leading.get(topic)
        if task is None:
            task = self._leading[topic] = self._begin(self._lead(topic))
            task.add_done_callback(lambda _: self._leading.pop(topic, None))
        return await asyncio.shield(task)

    async def _lead(self, topic: str) -> KnownTopic:
        async with self._holding(topic) as slot:
            self._check_running()
            known = await self._open(
                topic, slot, create=self._config.flag("auto.create.topics.enable")
            )
            appender = known.appender
            if appender is not None and appender.failure is not None:
                if time.monotonic() - known.failed_at < REOPEN_AFTER_S:
                    # Raised again and again, it must not keep the frames of all who saw it.
                    raise appender.failure.with_traceback(None)
                await self._close(slot)
                known = await self._open(topic, slot, create=False)
                appender = None
            if appender is None:
                if self.leases is not None:
                    await self.leases.acquire(topic)
                    # What others committed before they lost the lease.
                    known.opened = await self._refreshed(known.opened)
                self._idle.pop(topic, None)
                known.appender = await Appender.lead(
                    known.opened,
                    self._pool,
                    queue_bytes=self._config.number("topic.queue.bytes"),
                    budget=self._budget,
                    metrics=self._metrics,
                    on_commit=self._maintainer.committed,
                    on_records=self.on_records,
                    on_failure=partial(self._failed, topic),
                    wal=self.wal,
                    roll_up_memory=self._roll_up_memory,
                    producer_expiration_ms=self._config.number("producer.id.expiration.ms"),
                )
                log.info("topic led", topic=topic, epoch=known.appender.epoch)
            return known

    async def _refreshed(self, opened: OpenTopic) -> OpenTopic:
        state = await self._run(refresh_table, opened.store, opened.state)
        if state.deleted:
            raise UnknownTopicError(f"topic {opened.topic!r} was deleted", topic=opened.topic)
        return opened if state is opened.state else OpenTopic(opened.topic, opened.store, state)

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
            may_create: Creates a topic that does not exist if the gateway may.

        Raises:
            UnknownTopicError: There is none.
        """
        known = self.leading(topic)
        if known is not None and known.appender is not None:
            if known.appender.looked_age_s > DESCRIBED_AGE_S_MAX:
                await self.catch_up(topic)
            if known.appender.failure is None:
                return view(known.appender.state, known.appender)
        try:
            return await self._finish(self._describe(topic, view))
        except UnknownTopicError:
            if not may_create or not self._config.flag("auto.create.topics.enable"):
                raise
        known = await self.lead(topic)
        assert known.appender is not None
        return view(known.appender.state, known.appender)

    async def catch_up(self, topic: str) -> None:
        """Has the topic's leader, if it is here, take what others have committed. Whatever fails is
        found out by whoever uses the topic next."""
        known = self.leading(topic)
        if known is None or known.appender is None:
            return
        with contextlib.suppress(MainstemError, TimeoutError):
            # A commit may be under way to a store that fails.
            async with asyncio.timeout(CATCH_UP_TIMEOUT_S):
                await known.appender.catch_up()

    async def _describe(self, topic: str, view: Callable[[TableState, Appender | None], T]) -> T:
        async with self._holding(topic) as slot:
            known = await self._open(topic, slot, create=False)
            appender = known.appender
            if appender is not None and appender.failure is None:
                return view(appender.state, appender)
            try:
                state = await self._run(refresh_table, known.opened.store, known.opened.state)
                if state.deleted:
                    raise UnknownTopicError(f"topic {topic!r} was deleted", topic=topic)
                if state is not known.opened.state and appender is None:
                    known.opened = OpenTopic(topic, known.opened.store, state)
            except MainstemError:
                await self._close(slot)
                known = await self._open(topic, slot, create=False)
                state = known.opened.state
            try:
                return view(state, None)
            finally:
                if self._draining:
                    await self._close(slot)
                elif known.appender is None:
                    self._keep_idle(topic)

    async def recover(self) -> None:
        """Brings what the write-ahead log has into its topics; before anything else is served."""
        for topic, topic_id in self.wal.topics() if self.wal is not None else ():
            assert self.wal is not None
            try:
                known = await self.lead(topic)
                found_id = known.opened.state.topic_id
            except UnknownTopicError:
                found_id = ""
            except MainstemError as error:
                log.error("the write-ahead log waits for a topic", topic=topic, error=error.message)
                continue
            if found_id != topic_id:
                count = self.wal.forget(topic, topic_id)
                log.warning("requests given up: their topic is deleted", topic=topic, count=count)

    async def names(self) -> list[str]:
        """Every topic of the warehouse."""
        return await self._run(self._topics.names)

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

    async def create(
        self, topic: str, partition_count: int, config: Mapping[str, str], *, validate_only: bool
    ) -> Metadata:
        """Creates a topic; see `Topics.create`."""
        self._check_running()
        self._check_message_bytes(TopicConfig.parse(config))
        return await self._run(
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
        self._check_running()
        return await self._finish(self._delete(topic))

    async def _delete(self, topic: str) -> str:
        async with self._holding(topic) as slot:
            self._check_running()
            await self._close(slot)
            topic_id = await self._run(self._topics.delete, topic)
            if self.leases is not None:
                self.leases.release(topic)
            if self.wal is not None:
                self.wal.forget(topic, topic_id)
            self._metrics.forget_topic(topic)
            self.on_closed(topic)
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
            return await self.describe(topic, validated)
        with contextlib.suppress(NotLeaderError):
            await self.lead(topic)
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
        self._check_running()
        known = self.leading(topic)
        if known is not None and known.appender is not None:
            return await self._finish(known.appender.change(operation, build))
        return await self._finish(self._commit_beside(topic, operation, build))

    async def _commit_beside(
        self, topic: str, operation: str, build: Callable[[TableState], Sequence[Action]]
    ) -> int:
        def commit(state: TableState) -> TableCommit | None:
            actions = build(state)
            if not actions:
                return None
            return TableCommit.of(operation, actions, timestamp_ms=wall_clock_ms())

        async with self._holding(topic) as slot:
            self._check_running()
            known = await self._open(topic, slot, create=False)
            appender = known.appender
            if appender is not None and appender.failure is None:
                return await appender.change(operation, build)  # led here meanwhile
            known.opened = await self._refreshed(known.opened)
            landed = await self._run(commit_beside_leader, known.opened, commit)
            return known.opened.state.version if landed is None else landed.version

    async def drain(self, timeout_s: float) -> bool:
        """Takes no more, commits what was accepted, and closes every topic.

        Returns:
            Whether all of that was done within `timeout_s`, and no thread is at work any more.
        """
        self._draining = True
        ends_at = time.monotonic() + timeout_s
        closing = {self._begin(self._drain(topic, ends_at)) for topic in list(self._slots)}
        operations = closing | self._operations
        if operations:
            await asyncio.wait(operations, timeout=timeout_s)
        # What began before may have opened a topic since; nothing does any more.
        closing |= {self._begin(self._drain(topic, ends_at)) for topic in list(self._slots)}
        if closing:
            await asyncio.wait(closing, timeout=max(ends_at - time.monotonic(), 0.1))
        clean = all(task.done() and task.exception() is None and task.result() for task in closing)
        return await self._maintainer.close(max(ends_at - time.monotonic(), 0.1)) and clean

    async def _drain(self, topic: str, ends_at: float) -> bool:
        async with self._holding(topic, waiters_max=sys.maxsize) as slot:
            await self._close(slot, max(ends_at - time.monotonic(), 0.0))
        return time.monotonic() < ends_at

    async def _open(self, topic: str, slot: _Slot, *, create: bool) -> KnownTopic:
        if slot.known is None:
            try:
                opened = await self._run(self._topics.open, topic)
            except UnknownTopicError:
                if not create:
                    raise
                with contextlib.suppress(TopicExistsError):
                    await self.create(topic, 0, {}, validate_only=False)
                    log.info("topic created automatically", topic=topic)
                opened = await self._run(self._topics.open, topic)
            slot.known = KnownTopic(opened, StickyPlacement(self._dice))
        return slot.known

    async def _close(self, slot: _Slot, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        known, slot.known = slot.known, None
        if known is None:
            return
        if known.appender is not None:
            await known.appender.close(timeout_s)
            self.on_closed(known.opened.topic)
        else:
            known.opened.store.close()

    def _failed(self, topic: str, error: MainstemError) -> None:
        log.error("topic lost", topic=topic, code=error.code, error=error.message)
        if self.leases is not None:
            self.leases.release(topic)
        self.on_closed(topic)
        if isinstance(error, FencedError):
            self._begin(self._keep_orphans(topic))
        slot = self._slots.get(topic)
        if slot is None or slot.known is None:
            return
        slot.known.failed_at = (
            -REOPEN_AFTER_S if isinstance(error, UnknownTopicError) else time.monotonic()
        )

    async def _keep_orphans(self, topic: str) -> None:
        """After the loss of a topic to another gateway."""
        async with self._holding(topic, waiters_max=sys.maxsize) as slot:
            known = slot.known
            if known is None or known.appender is None or known.appender.failure is None:
                return  # led again meanwhile, which took care of them
            await known.appender.stopped()
            await self._orphan(known.opened)

    async def _keep_orphans_of(self, topic: str, topic_id: str) -> None:
        """At a start, when another gateway has the topic."""
        async with self._holding(topic) as slot:
            known = await self._open(topic, slot, create=False)
            known.opened = await self._refreshed(known.opened)
            if known.opened.state.topic_id == topic_id:
                await self._orphan(known.opened)

    async def _orphan(self, opened: OpenTopic) -> None:
        """What was acknowledged with acks=1 and did not get into the table goes into a file beside
        the write-ahead log: another gateway leads the topic, and gives its offsets."""
        if self.wal is None:
            return
        folded = opened.state.register_value(registers.wal(self.wal.gateway_id))
        lost = await recover_topic(
            self.wal, opened.topic, opened.state.topic_id, folded, lambda _: -1
        )
        if lost.orphan_count:
            self._metrics.orphaned_records.inc(lost.orphan_count)
            log.error(
                "records acknowledged with acks=1 are not in the table",
                topic=opened.topic,
                count=lost.orphan_count,
                kept_in=lost.orphans_path,
            )

    @contextlib.asynccontextmanager
    async def _holding(self, topic: str, waiters_max: int = WAITERS_MAX) -> AsyncIterator[_Slot]:
        """The topic's slot, for this caller alone; it goes when it is neither used nor open."""
        slot = self._slots.get(topic)
        if slot is None:
            if len(self._slots) >= TOPICS_OPEN_MAX:
                raise BackPressureError(
                    f"the gateway has {TOPICS_OPEN_MAX} topics open, its limit; "
                    "use another gateway",
                    limit_topics=TOPICS_OPEN_MAX,
                )
            slot = self._slots[topic] = _Slot()
        if slot.users >= waiters_max:
            raise BackPressureError(
                f"{slot.users} calls wait for topic {topic!r} already; try again later",
                retry_delay_ms=1_000,
                topic=topic,
                limit_calls=waiters_max,
            )
        slot.users += 1
        try:
            async with slot.lock:
                yield slot
        finally:
            slot.users -= 1
            if slot.users == 0 and slot.known is None:
                del self._slots[topic]

    def _keep_idle(self, topic: str) -> None:
        """Notes the use of a topic that is open and not led; closes the one longest unused."""
        self._idle.pop(topic, None)
        self._idle[topic] = None
        for other in list(self._idle)[: max(len(self._idle) - IDLE_OPEN_MAX, 0)]:
            slot = self._slots.get(other)
            if slot is not None and slot.users:
                continue  # its user takes or keeps it
            del self._idle[other]
            if slot is not None and slot.known is not None and slot.known.appender is None:
                slot.known.opened.store.close()
                del self._slots[other]

    def _led(self) -> Iterator[Appender]:
        """For the metrics, which are read in another thread."""
        for slot in list(self._slots.values()):
            known = slot.known
            appender = known.appender if known is not None else None
            if appender is not None and appender.failure is None:
                yield appender

    def _begin(self, operation: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts an operation that runs to its end whoever goes away."""
        task = asyncio.get_running_loop().create_task(operation)
        self._operations.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._operations.discard(task)
        if not task.cancelled():
            task.exception()  # seen, though the caller may be gone

    async def _finish(self, operation: Coroutine[Any, Any, T]) -> T:
        return await asyncio.shield(self._begin(operation))

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

    def _check_running(self) -> None:
        if self._draining:
            raise ShuttingDownError(
                "the gateway is shutting down; try again after its restart", retry_delay_ms=500
            )

    async def _run(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)

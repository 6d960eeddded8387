"""The topics of a gateway: led from the first produce, followed for those who read or ask."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TypeVar

import structlog

from mainstem.config import GatewayConfig
from mainstem.delta_log import (
    Appender,
    ObjectStore,
    OpenTopic,
    TableState,
    Topics,
)
from mainstem.delta_log.store import StoreFolder, time_elapsed_s
from mainstem.delta_log.table import LogOvertakenError
from mainstem.delta_log.topics import TOPICS
from mainstem.delta_log.wal import Wal
from mainstem.errors import (
    BackPressureError,
    FencedError,
    MainstemError,
    TopicExistsError,
    UnknownTopicError,
)
from mainstem.ingest_gateway.leases import Leases
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.reader_threads import SLOW_S, ReaderThreads
from mainstem.ingest_gateway.topics.appenders import Appenders
from mainstem.ingest_gateway.topics.followed_topics import FollowedTopics
from mainstem.ingest_gateway.topics.gateway_topic import GatewayTopic, TopicState
from mainstem.ingest_gateway.topics.operations import Operations
from mainstem.ingest_gateway.topics.orphans import settle
from mainstem.limits import TOPICS_OPEN_MAX
from mainstem.records import check_topic_name

log = structlog.get_logger()

T = TypeVar("T")

#: A topic that was lost to another leader, or is damaged, is not tried again before this has
#: passed: two gateways must not take it from each other at every request.
REOPEN_AFTER_S = 6.0

#: How old the state of a topic that is led here may be when it is described: jobs commit beside the
#: leader, and the operator who ran one looks at what it did.
DESCRIBED_AGE_S_MAX = 0.1

#: How old the state of a topic that is led here may be for readers when nothing is appended to it:
#: an appender knows what it has committed itself, and is told to look what others have.
LED_CATCH_UP_INTERVAL_S = 5.0

#: How old the state of a topic that is followed may be for readers.
FOLLOW_INTERVAL_S = 0.1

#: How long a description or a fetch waits for a leader that is to take what others committed.
CATCH_UP_TIMEOUT_S = 5.0

#: Calls that may wait for one topic to be opened, changed or deleted.
WAITERS_MAX = 1_000

#: How long a topic that is given up or deleted has for committing what it accepted.
CLOSE_TIMEOUT_S = 30.0


class GatewayTopics:
    """The gateway's view of the warehouse: its topics by name, those that are not closed.

    Lives on one event loop. Leading and changing run their calls of the store through `operations`,
    readers in `reading_pool`, so that neither waits for a store that hangs for the other.

    Args:
        on_closed: Told of each topic that is no longer led here.
    """

    def __init__(
        self,
        store: ObjectStore,
        config: GatewayConfig,
        metrics: GatewayMetrics,
        *,
        reader_threads: ReaderThreads,
        operations: Operations,
        appenders: Appenders,
        leases: Leases,
        wal: Wal,
        on_closed: Callable[[str], None],
    ) -> None:
        self._store = store
        self._tables = Topics(store)
        self._config = config
        self._metrics = metrics
        self._reader_threads = reader_threads
        self._operations = operations
        self._appenders = appenders
        self._leases = leases
        self._wal = wal
        self._on_closed = on_closed
        self._topics: dict[str, GatewayTopic] = {}
        self._followed = FollowedTopics(time_elapsed_s)
        #: All who want a topic led while that is under way wait for the same task.
        self._leading: dict[str, asyncio.Task[GatewayTopic]] = {}
        self._dice = random.Random()
        metrics.watch_topics(self.leaders)

    # -- led ---------------------------------------------------------------------------------------

    def leaders(self) -> Iterator[Appender]:
        """The appenders that were not lost. The metrics ask from another thread."""
        for topic in list(self._topics.values()):
            leader = topic.leader
            if leader is not None:
                yield leader

    @property
    def led_count(self) -> int:
        """How many topics this gateway leads now."""
        return sum(1 for _ in self.leaders())

    def leading(self, name: str) -> GatewayTopic | None:
        """The topic if it is led right now, without waiting: the hot path."""
        topic = self._topics.get(name)
        return topic if topic is not None and topic.leader is not None else None

    def is_leader(self, name: str) -> bool:
        """Whether the topic is led here and, as far as is known, nowhere else: a gateway that
        stalled for longer than its session may have lost it and not have tried a commit since."""
        return self.leading(name) is not None and self._leases.holds(name)

    async def lead(self, name: str) -> GatewayTopic:
        """The topic, led by this gateway: taken over as needed.

        Raises:
            UnknownTopicError: There is none.
            NotLeaderError: It was lost to another gateway a moment ago.
            LogDamagedError: Its table cannot be written; the message says why.
            ShuttingDownError: The gateway is draining.
        """
        self._operations.check_running()
        task = self._leading.get(name)
        if task is None:
            task = self._leading[name] = self._operations.begin(self._lead(name))
            task.add_done_callback(lambda _: self._leading.pop(name, None))
        return await asyncio.shield(task)

    async def lead_or_create(self, name: str) -> GatewayTopic:
        """`lead`, for a producer: a topic that does not exist is created if the gateway may."""
        try:
            return await self.lead(name)
        except UnknownTopicError:
            if not self._config.flag("auto.create.topics.enable"):
                raise
        await self._operations.finish(self._create(name))
        return await self.lead(name)

    async def _create(self, name: str) -> None:
        async with self.holding(name):
            self._operations.check_running()
            with contextlib.suppress(TopicExistsError):
                partition_count = self._config.number("num.partitions")
                await self._operations.run(self._tables.create, name, partition_count, {})
                log.info("topic created automatically", topic=name)

    async def _lead(self, name: str) -> GatewayTopic:
        async with self.holding(name) as topic:
            self._operations.check_running()
            if topic.leader is not None:
                return topic
            if topic.appender is not None and topic.appender.failure is not None:
                if time.monotonic() - topic.lost_at < REOPEN_AFTER_S:
                    # Raised again and again, it must not keep the frames of all who saw it.
                    raise topic.appender.failure.with_traceback(None)
                await self.close(topic)
            # First: nobody shall have the lease of a topic that does not exist.
            table = await self.table_of(topic)
            try:
                await self._leases.acquire(name)
            except MainstemError:
                self.give_back(topic, table)
                raise
            # What others committed before they lost the lease.
            await self._operations.run(table.refresh)
            topic.appender = await self._appenders.lead(table, partial(self._lost, name))
            topic.unfollow()
            self._followed.remove(name)
            log.info("topic led", topic=name, epoch=topic.appender.epoch)
            return topic

    def _lost(self, name: str, error: MainstemError) -> None:
        log.error("topic lost", topic=name, code=error.code, error=error.message)
        self._leases.release(name)
        self._on_closed(name)
        if isinstance(error, FencedError):
            self._operations.begin(self._keep_orphans(name))
        topic = self._topics.get(name)
        if topic is None or topic.appender is None:
            return
        if topic.appender.state.deleted:
            # Its log says so. That it cannot be found would be no proof.
            self._wal.forget(name, topic.appender.state.topic_id)
        # A topic that is gone, or that went on without us, is no other gateway's to be left to.
        at_once = isinstance(error, UnknownTopicError | LogOvertakenError)
        topic.lost_at = -REOPEN_AFTER_S if at_once else time.monotonic()

    async def _keep_orphans(self, name: str) -> None:
        """After the loss of a topic to another gateway, which gives its offsets from now on: what
        was acknowledged with acks=1 and is not in the table goes into a file beside the write-ahead
        log."""
        async with self.holding(name, waiters_max=sys.maxsize) as topic:
            if topic.appender is None or topic.leader is not None:
                return  # led again meanwhile, which took care of them
            await topic.appender.stopped()
            await settle(self._wal, self._metrics, name, topic.appender.state)

    # -- described ---------------------------------------------------------------------------------

    async def describe(
        self,
        name: str,
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
        topic = self.leading(name)
        if topic is not None and topic.leader is not None:
            if topic.leader.state_age_s > DESCRIBED_AGE_S_MAX:
                await self.catch_up(name)
            if topic.leader is not None:
                return view(topic.leader.state, topic.leader)
        try:
            return await self._operations.finish(self._describe(name, view))
        except UnknownTopicError:
            if not may_create:
                raise
        topic = await self.lead_or_create(name)
        assert topic.appender is not None
        return view(topic.appender.state, topic.appender)

    async def catch_up(self, name: str) -> None:
        """Has the topic's leader, if it is here, take what others have committed. Whatever fails is
        found out by the next caller that uses the topic."""
        topic = self.leading(name)
        if topic is None or topic.leader is None:
            return
        with contextlib.suppress(MainstemError, TimeoutError):
            # A commit may be under way to a store that fails.
            async with asyncio.timeout(CATCH_UP_TIMEOUT_S):
                await topic.leader.catch_up()

    async def _describe(self, name: str, view: Callable[[TableState, Appender | None], T]) -> T:
        async with self.holding(name) as topic:
            if topic.leader is not None:
                return view(topic.leader.state, topic.leader)
            table = await self.table_of(topic)
            try:
                await self._operations.run(table.refresh)
            except MainstemError:
                await self.close(topic)
                table = await self._operations.run(self._tables.open, name)
            found = view(table.state, None)
            self.give_back(topic, table)
            return found

    # -- read --------------------------------------------------------------------------------------

    def looking(self, name: str) -> bool:
        """Whether the topic's state is being brought up to date from the store."""
        topic = self._topics.get(name)
        return topic is not None and topic.looking is not None

    def current(
        self, name: str, *, any_age: bool = False
    ) -> tuple[TableState, GatewayTopic, bool] | None:
        """The topic's newest state for readers, without waiting; None: `look` first.

        The caller does not keep the state: it changes with the next commit.

        Args:
            any_age: What is known will do, however long ago it was the newest.

        Returns:
            The state, whose files are in the store of the topic, and whether it is the appender's.
        """
        topic = self._topics.get(name)
        if topic is None:
            return None
        followed = topic.followed
        led = False
        if topic.leader is not None and self._leases.holds(name):
            if not any_age and topic.leader.state_age_s > LED_CATCH_UP_INTERVAL_S:
                return None
            state = topic.leader.state
            led = True
            if followed is not None and followed.topic_id != state.topic_id:
                topic.unfollow()
            elif followed is not None and followed.version > state.version:
                # Another gateway has taken the topic, and our appender does not know it yet.
                state, led = followed, False
        elif followed is not None and (
            any_age or time_elapsed_s() - topic.looked_at <= FOLLOW_INTERVAL_S
        ):
            state = followed
        else:
            return None
        if not led:
            self._note_read(topic)
        return state, topic, led

    async def look(self, name: str) -> None:
        """Brings the state of a topic up to date for readers.

        Raises:
            InvalidTopicError, UnknownTopicError: There is none.
            MainstemError: Its table cannot be read.
        """
        check_topic_name(name)
        if self.is_leader(name):
            await self._catch_up_soon(name)
            return
        refusal = self._reader_threads.refusal(name)
        if refusal is not None:
            raise refusal
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = self._closed_topic(name)
        self._note_read(topic)
        if topic.looking is None:
            topic.looking = asyncio.get_running_loop().create_task(self._look(topic))
            topic.looking.add_done_callback(_retrieve)
        await asyncio.shield(topic.looking)

    async def _catch_up_soon(self, name: str) -> None:
        """Catches up with a topic that is led here; what is known of it has to do where the store
        does not answer, which says nothing against it."""
        task = asyncio.get_running_loop().create_task(self.catch_up(name))
        task.add_done_callback(_retrieve)
        await asyncio.wait({task}, timeout=SLOW_S)
        if task.done():
            task.result()

    async def _look(self, topic: GatewayTopic) -> None:
        failed = True
        try:
            await self._reader_threads.run(lambda _: topic.look(self._tables), topic.topic)
            topic.looked_at = time_elapsed_s()
            failed = False
        finally:
            topic.looking = None
            # Perhaps another topic has the name now: the next one who asks looks again.
            if failed or topic.topic not in self._followed:
                self.unfollow(topic.topic)

    def unfollow(self, name: str) -> None:
        """Lets go of what is followed of a topic, for example because it is outdated."""
        topic = self._topics.get(name)
        self._followed.remove(name)
        if topic is not None:
            topic.unfollow()
            self._drop_closed(topic)

    def _note_read(self, topic: GatewayTopic) -> None:
        for other in self._followed.read(topic):
            self.unfollow(other.topic)

    # -- held by one caller at a time --------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def holding(
        self, name: str, waiters_max: int = WAITERS_MAX
    ) -> AsyncIterator[GatewayTopic]:
        """The topic for this caller alone, to lead, change or close it; readers read on.

        Raises:
            BackPressureError: Too many topics are open, or too many calls wait for this one.
        """
        topic = self._topics.get(name)
        if topic is None or (self._followed.has_readers(name) and not topic.in_use):
            if len(self._topics) - self._followed.read_count >= TOPICS_OPEN_MAX:
                raise BackPressureError(
                    f"the gateway has {TOPICS_OPEN_MAX} topics open, its limit; "
                    "use another gateway",
                    limit_topics=TOPICS_OPEN_MAX,
                )
            if topic is None:
                topic = self._topics[name] = self._closed_topic(name)
        if topic.users >= waiters_max:
            raise BackPressureError(
                f"{topic.users} calls wait for topic {name!r} already; try again later",
                retry_delay_ms=1_000,
                topic=name,
                limit_calls=waiters_max,
            )
        topic.users += 1
        try:
            async with topic.lock:
                yield topic
        finally:
            topic.users -= 1
            self._drop_closed(topic)

    async def table_of(self, topic: GatewayTopic) -> OpenTopic:
        """A table for a caller that holds the topic: what was followed, or else opened. Not brought
        up to date; `give_back` it, unless it failed.

        Raises:
            UnknownTopicError: There is none.
        """
        table = topic.take_table()
        if table is None:
            table = await self._operations.run(self._tables.open, topic.topic)
        return table

    def give_back(self, topic: GatewayTopic, table: OpenTopic) -> None:
        """Follows a table of `table_of` again."""
        topic.give_back(table)
        for other in self._followed.described(topic):
            self.unfollow(other.topic)

    async def close(self, topic: GatewayTopic, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Closes a topic that the caller holds; what it accepted is committed first."""
        appender, topic.appender = topic.appender, None
        topic.unfollow()
        if appender is not None:
            await appender.close(timeout_s)
            self._on_closed(topic.topic)

    def forget(self, name: str, topic_id: str) -> None:
        """Keeps nothing of a topic that was deleted."""
        self._leases.release(name)
        for wal_name, one in self._wal.topics():
            # The id of a table that could not be read is not known; what had the name is gone.
            if wal_name == name and (one == topic_id or not topic_id):
                self._wal.forget(wal_name, one)
        self._metrics.forget_topic(name)
        self._on_closed(name)

    def _closed_topic(self, name: str) -> GatewayTopic:
        return GatewayTopic(name, StoreFolder(self._store, f"{TOPICS}/{name}"), self._dice)

    def _drop_closed(self, topic: GatewayTopic) -> None:
        if topic.state is TopicState.CLOSED and not topic.in_use:
            self._topics.pop(topic.topic, None)
            self._followed.remove(topic.topic)

    # -- the warehouse -----------------------------------------------------------------------------

    async def names(self) -> list[str]:
        """Every topic of the warehouse."""
        return await self._operations.run(self._tables.names)

    def uri(self, name: str) -> str:
        return self._tables.uri(name)

    async def drain(self, timeout_s: float) -> bool:
        """Takes no more, commits what was accepted, and closes every topic.

        Returns:
            Whether all of that was done within `timeout_s`.
        """
        ends_at = time.monotonic() + timeout_s
        self._operations.refuse()
        begin = self._operations.begin
        closing = {begin(self._drain(name, ends_at)) for name in self._not_only_followed()}
        operations = closing | self._operations.under_way
        if operations:
            await asyncio.wait(operations, timeout=max(ends_at - time.monotonic(), 0.0))
        # What began before may have opened a topic since; nothing does any more.
        closing |= {begin(self._drain(name, ends_at)) for name in self._not_only_followed()}
        if closing:
            await asyncio.wait(closing, timeout=max(ends_at - time.monotonic(), 0.1))
        return all(task.done() and task.exception() is None and task.result() for task in closing)

    def _not_only_followed(self) -> list[str]:
        return [name for name, topic in self._topics.items() if topic.users or topic.appender]

    async def _drain(self, name: str, ends_at: float) -> bool:
        async with self.holding(name, waiters_max=sys.maxsize) as topic:
            await self.close(topic, max(ends_at - time.monotonic(), 0.0))
        return time.monotonic() < ends_at


def _retrieve(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()

"""The topics of a gateway: led from the first produce, followed for those who read or ask."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import structlog

from mainstem.config import GatewayConfig, TopicConfig
from mainstem.delta_log import Appender, TableState, Topics
from mainstem.delta_log.append import retrieve
from mainstem.delta_log.format import Action, Metadata
from mainstem.delta_log.store import Warehouse, time_elapsed_s
from mainstem.delta_log.table import LogOvertakenError
from mainstem.delta_log.wal import Wal
from mainstem.errors import (
    FencedError,
    MainstemError,
    NotLeaderError,
    TopicExistsError,
    UnknownTopicError,
)
from mainstem.ingest_gateway.cluster import Cluster
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.reader_threads import SLOW_S, ReaderThreads
from mainstem.ingest_gateway.supervised import begin_once
from mainstem.ingest_gateway.topics.appenders import Appenders
from mainstem.ingest_gateway.topics.gateway_topic import GatewayTopic
from mainstem.ingest_gateway.topics.hand_over import TopicHandOver
from mainstem.ingest_gateway.topics.operations import Operations
from mainstem.ingest_gateway.topics.orphans import settle
from mainstem.ingest_gateway.topics.table_changes import TableChanges, check_message_bytes
from mainstem.ingest_gateway.topics.topics_in_memory import WAITERS_MAX, TopicsInMemory
from mainstem.records import check_topic_name

log = structlog.get_logger()

T = TypeVar("T")

#: How old the state of a topic that is led here may be when it is described: jobs commit beside the
#: leader, and the operator who ran one looks at what it did.
DESCRIBED_AGE_S_MAX = 0.1

#: How long a description or a fetch waits for a leader that is to take what others committed.
CATCH_UP_TIMEOUT_S = 5.0


class GatewayTopics:
    """The gateway's view of the warehouse: its topics by name, those that are not closed.

    Lives on one event loop. Leading and changing run their calls of the store through `operations`,
    readers in `reading_pool`, so that neither waits for a store that hangs for the other.

    Args:
        on_closed: Told of each topic that is no longer led here.
    """

    def __init__(
        self,
        store: Warehouse,
        config: GatewayConfig,
        metrics: GatewayMetrics,
        *,
        reader_threads: ReaderThreads,
        operations: Operations,
        appenders: Appenders,
        cluster: Cluster,
        wal: Wal,
        on_closed: Callable[[str], None],
    ) -> None:
        self._tables = Topics(store)
        self._config = config
        self._metrics = metrics
        self._reader_threads = reader_threads
        self._operations = operations
        self._appenders = appenders
        self._cluster = cluster
        self._wal = wal
        self._on_closed = on_closed
        self._message_bytes_max = config.number("message.max.bytes")
        self._memory = TopicsInMemory(store, self._tables, operations, on_closed)
        self._changes = TableChanges(store, self._tables, operations, self._memory)
        #: Leaves a topic that is led here to another gateway.
        self.hand_over = TopicHandOver(self._tables, operations, self._memory, cluster).hand_over
        #: All who want a topic led while that is under way wait for the same task.
        self._leading: dict[str, asyncio.Task[GatewayTopic]] = {}
        metrics.watch_topics(self.leaders)

    # -- led ---------------------------------------------------------------------------------------

    def leaders(self) -> Iterator[Appender]:
        """The appenders that were not lost. The metrics ask from another thread."""
        for topic in self._memory:
            leader = topic.leader
            if leader is not None:
                yield leader

    def leading(self, name: str) -> GatewayTopic | None:
        """The topic if it is led right now, without waiting: the hot path."""
        topic = self._memory.find(name)
        return topic if topic is not None and topic.leader is not None else None

    def is_leader(self, name: str) -> bool:
        """Whether the topic is led here and, as far as is known, nowhere else: a gateway that
        stalled for longer than its session may have lost it and not have tried a commit since."""
        return self.leading(name) is not None and self._cluster.holds(name)

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

    @property
    def default_partition_count(self) -> int:
        """Of a topic that is created without a number of partitions."""
        return self._config.number("num.partitions")

    async def lead_or_create(self, name: str, creates: Callable[[int], None]) -> GatewayTopic:
        """`lead`, for a producer: a topic that does not exist is created if the gateway may.

        Args:
            creates: Raises unless the producer may have it created, with so many partitions.
        """
        try:
            return await self.lead(name)
        except UnknownTopicError:
            if not self._config.flag("auto.create.topics.enable"):
                raise
            creates(self.default_partition_count)
        await self._operations.finish(self._create(name))
        return await self.lead(name)

    async def _create(self, name: str) -> None:
        async with self._memory.holding(name):
            self._operations.check_running()
            with contextlib.suppress(TopicExistsError):
                await self._operations.run(
                    self._tables.create, name, self.default_partition_count, {}
                )
                log.info("topic created automatically", topic=name)

    async def _lead(self, name: str) -> GatewayTopic:
        async with self._memory.holding(name) as topic:
            self._operations.check_running()
            if topic.leader is not None and not self._cluster.holds(name):
                await self.catch_up(name)  # a commit would tell, and while nobody sends is none
            if topic.leader is not None:
                return topic
            if topic.appender is not None:
                if topic.refusal is not None:
                    # Raised again and again, it must not keep the frames of all who saw it.
                    raise topic.refusal.with_traceback(None)
                await self._memory.close(topic)
            await self._cluster.check_heard(name)
            table = await self._memory.table_of(topic)
            await self._operations.run(table.refresh)
            try:
                appender = await self._appenders.lead(table, partial(self._lost, name))
            except NotLeaderError:
                self._memory.give_back(topic, table)
                raise
            self._memory.led(topic, appender)
            self._cluster.led(name)
            log.info("topic led", topic=name, epoch=appender.epoch)
            return topic

    def _lost(self, name: str, error: MainstemError) -> None:
        log.error("topic lost", topic=name, code=error.code, error=error.message)
        self._cluster.released(name)
        self._on_closed(name)
        if isinstance(error, FencedError):
            orphans = self._keep_orphans(name)
            self._operations.track(begin_once("keep orphans", orphans, self._metrics, topic=name))
        topic = self._memory.find(name)
        if topic is None or topic.appender is None:
            return
        if topic.appender.state.deleted:
            # Its log says so. That it cannot be found would be no proof.
            self._wal.forget(name, topic.appender.state.topic_id)
        # A topic that is gone, or that went on without us, is no other gateway's to be left to.
        gone = isinstance(error, UnknownTopicError | LogOvertakenError)
        topic.lost(may_return_at_once=gone)

    async def _keep_orphans(self, name: str) -> None:
        """After the loss of a topic to another gateway, which gives its offsets from now on: what
        was acknowledged with acks=1 and is not in the table goes into a file beside the write-ahead
        log."""
        async with self._memory.holding(name, waiters_max=sys.maxsize) as topic:
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
        creates: Callable[[int], None] | None = None,
    ) -> T:
        """What `view` makes of the topic's newest state, and of its appender if it is led here.

        Args:
            view: Called on the loop, and does not keep the state: it changes with the next commit.
            creates: For a producer: a topic that does not exist is created if the gateway may, and
                unless this raises; see `lead_or_create`.

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
            if creates is None:
                raise
        topic = await self.lead_or_create(name, creates)
        assert topic.appender is not None
        return view(topic.appender.state, topic.appender)

    async def catch_up(self, name: str) -> None:
        """Has the topic's leader, if it is here, take what others have committed. Whatever fails is
        found out by the next caller that uses the topic."""
        topic = self.leading(name)
        leader = None if topic is None else topic.leader
        if leader is None:
            return
        began_at = time_elapsed_s()
        with contextlib.suppress(MainstemError, TimeoutError):
            # A commit may be under way to a store that fails.
            async with asyncio.timeout(CATCH_UP_TIMEOUT_S):
                await leader.catch_up()
        if leader.failure is None and leader.state_age_s <= time_elapsed_s() - began_at:
            self._cluster.found_led(name, began_at)

    async def _describe(self, name: str, view: Callable[[TableState, Appender | None], T]) -> T:
        async with self._memory.holding(name) as topic:
            if topic.leader is not None:
                return view(topic.leader.state, topic.leader)
            table = await self._memory.table_of(topic)
            try:
                await self._operations.run(table.refresh)
            except MainstemError:
                await self._memory.close(topic)
                table = await self._operations.run(self._tables.open, name)
            found = view(table.state, None)
            self._memory.give_back(topic, table)
            return found

    # -- read --------------------------------------------------------------------------------------

    def looking(self, name: str) -> bool:
        """Whether the topic's state is being brought up to date from the store."""
        return (topic := self._memory.find(name)) is not None and topic.looking is not None

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
        topic = self._memory.find(name)
        if topic is None:
            return None
        found = topic.current(holds_lease=self._cluster.holds(name), any_age=any_age)
        if found is None:
            return None
        state, led = found
        if not led:
            self._memory.note_read(topic)
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
        topic = self._memory.read(name)
        looking = topic.looking
        if looking is None:
            looking = topic.begin_look(self._look(topic))
            looking.add_done_callback(retrieve)
        await asyncio.shield(looking)

    async def _catch_up_soon(self, name: str) -> None:
        """Catches up with a topic that is led here; what is known of it has to do where the store
        does not answer, which says nothing against it."""
        task = asyncio.get_running_loop().create_task(self.catch_up(name))
        task.add_done_callback(retrieve)
        await asyncio.wait({task}, timeout=SLOW_S)
        if task.done():
            task.result()

    async def _look(self, topic: GatewayTopic) -> None:
        failed = True
        try:
            await self._reader_threads.run(lambda _: topic.load(self._tables), topic.topic)
            failed = False
        finally:
            topic.end_look(failed=failed)
            # Perhaps another topic has the name now: the next one who asks looks again.
            if failed or not self._memory.is_followed(topic.topic):
                self._memory.unfollow(topic.topic)

    def unfollow(self, name: str) -> None:
        """Lets go of what is followed of a topic, for example because it is outdated."""
        self._memory.unfollow(name)

    def holding(
        self, name: str, waiters_max: int = WAITERS_MAX
    ) -> contextlib.AbstractAsyncContextManager[GatewayTopic]:
        """See `TopicsInMemory.holding`."""
        return self._memory.holding(name, waiters_max)

    # -- created, changed, deleted -----------------------------------------------------------------

    async def create(
        self, name: str, partition_count: int, config: Mapping[str, str], *, validate_only: bool
    ) -> Metadata:
        """Creates a topic; see `Topics.create`."""
        self._operations.check_running()
        check_message_bytes(TopicConfig.parse(config), self._message_bytes_max)
        return await self._operations.run(
            partial(
                self._tables.create,
                name,
                partition_count or self.default_partition_count,
                config,
                validate_only=validate_only,
            )
        )

    async def delete(self, name: str) -> str:
        """Deletes a topic: what was accepted is committed and answered, then the table goes.

        What waits for a store that does not take it, as a full one, is not waited for.
        """
        self._operations.check_running()
        return await self._operations.finish(self._delete(name))

    async def finish_deletions(self) -> None:
        """Removes what is left of topics whose deletion was interrupted, as when a gateway was
        killed in the middle of it."""
        try:
            for topic in await self._operations.run(self._tables.half_deleted):
                await self._operations.run(self._tables.finish_deletion, topic)
                log.info("interrupted deletion finished", topic=topic)
        except MainstemError as error:
            log.warning("interrupted deletions wait for the next start", error=error.message)

    async def _delete(self, name: str) -> str:
        async with self._memory.holding(name) as held:
            self._operations.check_running()
            appends_wait = held.appender is not None and held.appender.trouble is not None
            if not appends_wait:
                await self._memory.close(held)
            topic_id = await self._operations.run(self._tables.delete, name)
            await self._memory.close(held, 0.0)
            self._forget(name, topic_id)
            if appends_wait:
                # They were tried again beside the deletion: a data file may have come after it.
                with contextlib.suppress(MainstemError):  # the topic is deleted, also with the file
                    await self._operations.run(self._tables.finish_deletion, name)
        await self._changes.fill_reserve()
        return topic_id

    async def change(
        self,
        name: str,
        operation: str,
        change: Callable[[TableState], Metadata],
        *,
        validate_only: bool,
    ) -> int:
        """Changes a topic's metadata; returns the table version that has it."""

        def checked(state: TableState) -> Metadata:
            metadata = change(state)
            config = TopicConfig.from_properties(metadata.configuration)
            check_message_bytes(config, self._message_bytes_max)
            return metadata

        def validated(state: TableState, _: Appender | None) -> int:
            checked(state)
            return state.version

        if validate_only:
            return await self.describe(name, validated)
        with contextlib.suppress(NotLeaderError):
            await self.lead(name)
        return await self.commit(name, operation, lambda state: [checked(state)])

    async def commit(
        self,
        name: str,
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
        led = self.leading(name)
        if led is not None and led.leader is not None:
            if led.leader.trouble is not None:
                # Its appends are tried until they are stored, which a change must not wait for.
                work = self._changes.commit_apart(name, operation, build, frees_space)
            else:
                work = led.leader.change(operation, build, frees_space=frees_space)
        else:
            work = self._changes.commit_beside(name, operation, build, frees_space)
        version = await self._operations.finish(work)
        if frees_space:
            await self._changes.fill_reserve()
        return version

    def _forget(self, name: str, topic_id: str) -> None:
        """Keeps nothing of a topic that was deleted."""
        self._cluster.released(name)
        for wal_name, one in self._wal.topics():
            # The id of a table that could not be read is not known; what had the name is gone.
            if wal_name == name and (one == topic_id or not topic_id):
                self._wal.forget(wal_name, one)
        self._metrics.forget_topic(name)
        self._on_closed(name)

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
        closing = self._begin_closing(ends_at)
        if operations := closing.keys() | self._operations.under_way:
            await asyncio.wait(operations, timeout=max(ends_at - time.monotonic(), 0.0))
        # What began before may have opened a topic since; nothing does any more.
        closing |= self._begin_closing(ends_at)
        if closing:
            await asyncio.wait(closing, timeout=max(ends_at - time.monotonic(), 0.1))
        if stuck := sorted({name for task, name in closing.items() if not task.done()}):
            log.error("topics are not closed, and the drain ends", topics=stuck)
        return all(task.done() and task.exception() is None and task.result() for task in closing)

    def _begin_closing(self, ends_at: float) -> dict[asyncio.Task[bool], str]:
        """A task for each topic that is led or about to be, with its name."""
        names = [topic.topic for topic in self._memory if topic.users or topic.appender]
        return {self._operations.begin(self._drain(name, ends_at)): name for name in names}

    async def _drain(self, name: str, ends_at: float) -> bool:
        async with self._memory.holding(name, waiters_max=sys.maxsize) as topic:
            await self._memory.close(topic, max(ends_at - time.monotonic(), 0.0))
        return time.monotonic() < ends_at

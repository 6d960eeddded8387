"""The topics that a gateway knows and leads: opened when asked for, led from the first produce on."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import structlog

from mainstem.config import GatewayConfig, TopicConfig
from mainstem.delta_log import (
    Appender,
    ByteBudget,
    OpenTopic,
    Store,
    TableState,
    Topics,
    refresh_table,
)
from mainstem.delta_log.actions import Metadata
from mainstem.errors import (
    BackPressureError,
    InvalidConfigError,
    MainstemError,
    ShuttingDownError,
    TopicExistsError,
    UnknownTopicError,
)
from mainstem.ingest_gateway.gateway_metrics import GatewayMetrics
from mainstem.ingest_gateway.maintainer import Maintainer
from mainstem.ingest_gateway.placement import StickyPlacement
from mainstem.limits import TOPICS_OPEN_MAX

log = structlog.get_logger()

T = TypeVar("T")

#: A topic that was lost to another leader, or is damaged, is not tried again before this has passed:
#: two gateways must not take it from each other at every request.
REOPEN_AFTER_S = 6.0


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
    """The gateway's view of the warehouse. Lives on one event loop; the store's calls run in `pool`."""

    def __init__(
        self, store: Store, config: GatewayConfig, metrics: GatewayMetrics, pool: ThreadPoolExecutor
    ) -> None:
        self._topics = Topics(store)
        self._config = config
        self._metrics = metrics
        self._pool = pool
        self._budget = ByteBudget(config.number("queued.max.bytes"))
        self._slots: dict[str, _Slot] = {}
        self._maintainer = Maintainer(config.number("checkpoint.interval.commits"), metrics)
        self._dice = random.Random()
        self._draining = False
        metrics.queued_bytes.set_function(lambda: self._budget.used_bytes)

    @property
    def topics_led(self) -> int:
        """How many topics this gateway leads now."""
        return sum(
            1
            for slot in self._slots.values()
            if slot.known and slot.known.appender and slot.known.appender.failure is None
        )

    def leading(self, topic: str) -> KnownTopic | None:
        """The topic if it is led and healthy right now, without waiting: the hot path."""
        slot = self._slots.get(topic)
        known = slot.known if slot is not None else None
        if known is None or known.appender is None or known.appender.failure is not None:
            return None
        return known

    async def lead(self, topic: str) -> KnownTopic:
        """The topic, led by this gateway; opened, created if the gateway may, and taken over as needed.

        Raises:
            UnknownTopicError: There is none.
            NotLeaderError: It was lost to another gateway a moment ago.
            LogDamagedError: Its table cannot be written; the message says why.
            ShuttingDownError: The gateway is draining.
        """
        self._check_running()
        async with self._holding(topic) as slot:
            self._check_running()
            known = await self._open(
                topic, slot, create=self._config.flag("auto.create.topics.enable")
            )
            appender = known.appender
            if appender is not None and appender.failure is not None:
                if time.monotonic() - known.failed_at < REOPEN_AFTER_S:
                    raise appender.failure
                await self._close(slot)
                known = await self._open(topic, slot, create=False)
                appender = None
            if appender is None:
                known.appender = await Appender.lead(
                    known.opened,
                    self._pool,
                    queue_bytes=self._config.number("topic.queue.bytes"),
                    budget=self._budget,
                    metrics=self._metrics,
                    on_commit=self._maintainer.committed,
                    on_failure=partial(self._failed, topic),
                )
                log.info("topic led", topic=topic, epoch=known.appender.epoch)
            return known

    async def describe(self, topic: str) -> tuple[TableState, Appender | None]:
        """The topic's newest state, and its appender if this gateway leads it.

        Raises:
            UnknownTopicError: There is none.
        """
        known = self.leading(topic)
        if known is not None and known.appender is not None:
            return known.appender.state, known.appender
        async with self._holding(topic) as slot:
            known = await self._open(topic, slot, create=False)
            if known.appender is None or known.appender.failure is not None:
                try:
                    state = await self._run(refresh_table, known.opened.store, known.opened.state)
                    if state.deleted:
                        raise UnknownTopicError(f"topic {topic!r} was deleted", topic=topic)
                    if state is not known.opened.state and known.appender is None:
                        known.opened = OpenTopic(topic, known.opened.store, state)
                except MainstemError:
                    await self._close(slot)
                    known = await self._open(topic, slot, create=False)
            return known.opened.state, None

    async def describe_or_create(self, topic: str) -> tuple[TableState, Appender | None]:
        """`describe`, for metadata: a topic that is asked for is created if the gateway may."""
        try:
            return await self.describe(topic)
        except UnknownTopicError:
            if not self._config.flag("auto.create.topics.enable"):
                raise
        await self.lead(topic)
        return await self.describe(topic)

    async def names(self) -> list[str]:
        """Every topic of the warehouse."""
        return await self._run(self._topics.names)

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
        """Deletes a topic: what was accepted is committed and answered, then table and records go."""
        self._check_running()
        async with self._holding(topic) as slot:
            await self._close(slot)
            topic_id = await self._run(self._topics.delete, topic)
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

        if validate_only:
            state, _ = await self.describe(topic)
            checked(state)
            return state.version
        known = await self.lead(topic)
        assert known.appender is not None
        return await known.appender.change_metadata(operation, checked)

    async def drain(self, timeout_s: float) -> None:
        """Takes no more, commits what was accepted, and closes every topic."""
        self._draining = True
        await asyncio.gather(*(self._drain(topic, timeout_s) for topic in list(self._slots)))
        await self._maintainer.close()

    async def _drain(self, topic: str, timeout_s: float) -> None:
        async with self._holding(topic) as slot:
            await self._close(slot, timeout_s)

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

    async def _close(self, slot: _Slot, timeout_s: float = 30.0) -> None:
        known, slot.known = slot.known, None
        if known is None:
            return
        if known.appender is not None:
            await known.appender.close(timeout_s)
        else:
            known.opened.store.close()

    def _failed(self, topic: str, error: MainstemError) -> None:
        log.error("topic lost", topic=topic, code=error.code, error=error.message)
        slot = self._slots.get(topic)
        if slot is None or slot.known is None:
            return
        slot.known.failed_at = (
            -REOPEN_AFTER_S if isinstance(error, UnknownTopicError) else time.monotonic()
        )

    @contextlib.asynccontextmanager
    async def _holding(self, topic: str) -> AsyncIterator[_Slot]:
        """The topic's slot, for this caller alone; it goes when nobody uses it and nothing is open."""
        slot = self._slots.get(topic)
        if slot is None:
            if len(self._slots) >= TOPICS_OPEN_MAX:
                raise BackPressureError(
                    f"the gateway has {TOPICS_OPEN_MAX} topics open, its limit; use another gateway",
                    limit_topics=TOPICS_OPEN_MAX,
                )
            slot = self._slots[topic] = _Slot()
        slot.users += 1
        try:
            async with slot.lock:
                yield slot
        finally:
            slot.users -= 1
            if slot.users == 0 and slot.known is None:
                del self._slots[topic]

    def _check_message_bytes(self, config: TopicConfig) -> None:
        limit = self._config.number("message.max.bytes")
        asked = config.overrides.get("max.message.bytes")
        if isinstance(asked, int) and asked > limit:
            raise InvalidConfigError(
                f"max.message.bytes is {asked} bytes; this gateway's message.max.bytes allows {limit}",
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

"""What a gateway has in memory of topics: of so many, and each is held by one caller at a time."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

import structlog

from mainstem.delta_log import Appender, ObjectStore, OpenTopic, Topics
from mainstem.delta_log.store import StoreFolder, time_elapsed_s
from mainstem.delta_log.topics import TOPICS
from mainstem.errors import BackPressureError
from mainstem.ingest_gateway.topics.followed_topics import FollowedTopics
from mainstem.ingest_gateway.topics.gateway_topic import GatewayTopic, TopicState
from mainstem.ingest_gateway.topics.operations import Operations
from mainstem.limits import TOPICS_OPEN_MAX

log = structlog.get_logger()

#: Calls that may wait for one topic to be opened, changed or deleted.
WAITERS_MAX: Final = 1_000

#: How long a topic that is given up or deleted has for committing what it accepted.
CLOSE_TIMEOUT_S: Final = 30.0
_TELL_BEFORE_S: Final = 0.1


class TopicsInMemory:
    """Topics by name, those that are not closed. On the event loop.

    Args:
        tables: Opens their tables, by `operations`.
        on_closed: Told of each topic that is no longer led here.
    """

    def __init__(
        self,
        store: ObjectStore,
        tables: Topics,
        operations: Operations,
        on_closed: Callable[[str], None],
    ) -> None:
        self._store = store
        self._tables = tables
        self._operations = operations
        self._on_closed = on_closed
        self._topics: dict[str, GatewayTopic] = {}
        self._followed = FollowedTopics(time_elapsed_s)
        self._dice = random.Random()

    def __iter__(self) -> Iterator[GatewayTopic]:
        """As they are now. The metrics ask from another thread."""
        return iter(list(self._topics.values()))

    def find(self, name: str) -> GatewayTopic | None:
        """The topic, unless it is closed."""
        return self._topics.get(name)

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
        try:
            async with topic.held():
                yield topic
        finally:
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
        """Closes a topic that the caller holds; what it accepted is committed first. What is not
        in that time is told in the log."""
        appender = topic.closed()
        if appender is None:
            return
        # A moment before what is left is given up, and nobody can tell any more what it was.
        telling = asyncio.get_running_loop().call_later(
            max(timeout_s - _TELL_BEFORE_S, 0.0), _tell_uncommitted, appender
        )
        try:
            await appender.close(timeout_s)
        finally:
            telling.cancel()
        self._on_closed(topic.topic)

    # -- followed ----------------------------------------------------------------------------------

    def read(self, name: str) -> GatewayTopic:
        """The topic, for a reader. Those that nobody has read for longest give way."""
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = self._closed_topic(name)
        self.note_read(topic)
        return topic

    def note_read(self, topic: GatewayTopic) -> None:
        """Somebody has read the topic."""
        for other in self._followed.read(topic):
            self.unfollow(other.topic)

    def is_followed(self, name: str) -> bool:
        """Whether somebody reads or describes the topic, and it has not given way."""
        return name in self._followed

    def led(self, topic: GatewayTopic, appender: Appender) -> None:
        """A topic that the caller holds is led from now on, and not followed."""
        topic.led(appender)
        self._followed.remove(topic.topic)

    def unfollow(self, name: str) -> None:
        """Lets go of what is followed of a topic, for example because it is outdated."""
        topic = self._topics.get(name)
        self._followed.remove(name)
        if topic is not None:
            topic.unfollow()
            self._drop_closed(topic)

    def _closed_topic(self, name: str) -> GatewayTopic:
        return GatewayTopic(name, StoreFolder(self._store, f"{TOPICS}/{name}"), self._dice)

    def _drop_closed(self, topic: GatewayTopic) -> None:
        if topic.state is TopicState.CLOSED and not topic.in_use:
            self._topics.pop(topic.topic, None)
            self._followed.remove(topic.topic)


def _tell_uncommitted(appender: Appender) -> None:
    if not appender.queued_bytes:
        return
    trouble = appender.trouble
    log.error(
        "accepted records are not committed, and their topic closes",
        topic=appender.topic,
        queued_bytes=appender.queued_bytes,
        oldest_s=round(appender.oldest_waiting_s, 1),
        error="the store does not answer" if trouble is None else trouble.message,
        errno=None if trouble is None else trouble.facts.get("errno"),
    )

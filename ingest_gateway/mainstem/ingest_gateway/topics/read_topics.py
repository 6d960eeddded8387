"""The topics that are read here: the appender's state where the gateway leads, else one of its own.

A topic that is led elsewhere, or by nobody, is followed: its state is brought up to date from the
store when somebody asks for it, at most once in `FOLLOW_INTERVAL_S`. An appender knows what it has
committed itself; one without traffic is told to look what others have, such as a retention, at most
once in `LED_CATCH_UP_INTERVAL_S`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from concurrent.futures import Executor

from mainstem.delta_log import ObjectStore, OpenTopic, TableState, Topics
from mainstem.delta_log.store import StoreFolder, time_elapsed_s
from mainstem.delta_log.topics import TOPICS
from mainstem.errors import MainstemError
from mainstem.ingest_gateway.topics.registry import TopicRegistry
from mainstem.limits import FETCH_PARTITIONS_MAX, TOPICS_OPEN_MAX
from mainstem.records import check_topic_name

#: How old the state of a followed topic may be.
FOLLOW_INTERVAL_S = 0.1

#: How old the state of a topic that is led here may be when nothing is appended to it.
LED_CATCH_UP_INTERVAL_S = 5.0

#: Topics that are kept open for readers. Each has a state where it is followed.
READ_TOPICS_MAX = TOPICS_OPEN_MAX

#: A topic that nobody has read for this long is closed.
UNREAD_S_MAX = 600.0


assert FETCH_PARTITIONS_MAX <= READ_TOPICS_MAX, "one request's topics would push each other out"


class ReadTopic:
    """One topic for readers, on the loop; `store` in any thread.

    Attributes:
        store: Where its files are.
    """

    def __init__(self, topic: str, store: ObjectStore) -> None:
        self.topic = topic
        self.store = store
        #: Of the table that is read; empty until that is known.
        self.topic_id = ""
        #: What is followed; None: it was led here whenever it was read.
        self._followed: OpenTopic | None = None
        self.refreshed_at = 0.0
        self.read_at = time_elapsed_s()
        self.refreshing: asyncio.Task[None] | None = None

    @property
    def state(self) -> TableState | None:
        """What was followed, as of the last time; None: it was led here whenever it was read."""
        return None if self._followed is None else self._followed.state

    def follow(self, topics: Topics) -> None:
        """Loads the state, or brings it forward. Blocks.

        Raises:
            UnknownTopicError: The topic was deleted.
            MainstemError: Its table cannot be read.
        """
        if self._followed is None:
            self._followed = topics.open(self.topic)
        else:
            self._followed.refresh()
        self.topic_id = self._followed.state.topic_id


class ReadTopics:
    """Lives on the event loop; the store's calls run in `pool`."""

    def __init__(self, store: ObjectStore, registry: TopicRegistry, pool: Executor) -> None:
        self._store = store
        self._topics = Topics(store)
        self._registry = registry
        self._pool = pool
        self._open: OrderedDict[str, ReadTopic] = OrderedDict()

    def led(self, topic: str) -> bool:
        """Whether this gateway leads the topic now."""
        return self._registry.is_leader(topic)

    def refreshing(self, topic: str) -> bool:
        """Whether the topic's state is being brought up to date from the store."""
        found = self._open.get(topic)
        return found is not None and found.refreshing is not None

    def current(
        self, topic: str, *, any_age: bool = False
    ) -> tuple[TableState, ReadTopic, bool] | None:
        """The topic's newest state without waiting; None: `refresh` it first.

        The caller does not keep the state: it changes with the next commit.

        Args:
            any_age: What is known will do, however long ago it was the newest.

        Returns:
            The state, how to read files, and whether the state is the appender's.
        """
        led = False
        known = self._registry.leading(topic) if self.led(topic) else None
        found = self._open.get(topic)
        if known is not None and known.appender is not None:
            if not any_age and known.appender.state_age_s > LED_CATCH_UP_INTERVAL_S:
                return None
            state = known.appender.state
            if found is not None and found.topic_id not in ("", state.topic_id):
                self.forget(topic)
                found = None
            if found is None:
                found = self._add(topic)
            found.topic_id = state.topic_id
            led = True
            if (
                found.state is not None
                and found.refreshing is None
                and found.state.version > state.version
            ):
                # Another gateway has taken the topic, and our appender does not know it yet.
                state, led = found.state, False
        elif (
            found is not None
            and found.state is not None
            and found.refreshing is None
            and (any_age or time_elapsed_s() - found.refreshed_at <= FOLLOW_INTERVAL_S)
        ):
            state = found.state
        else:
            return None
        self._open.move_to_end(topic)
        found.read_at = time_elapsed_s()
        return state, found, led

    async def refresh(self, topic: str) -> None:
        """Brings the state of a topic up to date from the store.

        Raises:
            InvalidTopicError, UnknownTopicError: There is none.
            MainstemError: Its table cannot be read.
        """
        check_topic_name(topic)
        found = self._open.get(topic)
        if found is None:
            found = self._add(topic)
        if found.refreshing is None:
            task = asyncio.get_running_loop().create_task(self._refresh(found))
            found.refreshing = task
            task.add_done_callback(_retrieve)
        await asyncio.shield(found.refreshing)

    def forget(self, topic: str) -> None:
        """Lets go of a topic, for example because it is deleted."""
        self._open.pop(topic, None)

    async def _refresh(self, found: ReadTopic) -> None:
        if self.led(found.topic):
            try:
                await self._registry.catch_up(found.topic)
            finally:
                found.refreshing = None
            return
        try:
            await asyncio.get_running_loop().run_in_executor(self._pool, found.follow, self._topics)
            found.refreshed_at = time_elapsed_s()
        except MainstemError:
            # Perhaps another topic has the name now: the next one who asks looks again.
            if self._open.get(found.topic) is found:
                self.forget(found.topic)
            raise
        finally:
            found.refreshing = None

    def _add(self, topic: str) -> ReadTopic:
        found = ReadTopic(topic, StoreFolder(self._store, f"{TOPICS}/{topic}"))
        self._open[topic] = found
        while True:
            oldest = next(iter(self._open.values()))
            if len(self._open) <= READ_TOPICS_MAX and found.read_at - oldest.read_at < UNREAD_S_MAX:
                break
            self.forget(oldest.topic)
        return found


def _retrieve(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()

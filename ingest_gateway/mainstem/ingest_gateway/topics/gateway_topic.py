"""One topic of a gateway, which is closed, followed or led."""

from __future__ import annotations

import asyncio
import random
from enum import Enum

from mainstem.delta_log import Appender, ObjectStore, OpenTopic, TableState, Topics
from mainstem.ingest_gateway.payloads import StickyPlacement


class TopicState(Enum):
    """Where a topic is in its life on one gateway.

    A closed topic is followed when somebody reads or describes it, and led when somebody produces.
    One that is followed can be led. One that is led can be lost, to another gateway or because its
    table is damaged, and then is closed, or followed, again.
    """

    #: Nothing of it is in memory.
    CLOSED = "closed"
    #: Its table's state is, and is brought up to date from the store when somebody asks.
    FOLLOWED = "followed"
    #: This gateway appends to it. The appender's state is the newest.
    LED = "led"


class GatewayTopic:
    """One topic. On the event loop, except `look`; `store` in any thread.

    Attributes:
        topic: Its name.
        store: Where its files are.
        lock: Held by whoever leads, changes, closes or deletes it.
        users: Who holds the lock, or waits for it.
        sticky: Where records without a partition and a key go.
        appender: Of the leader, also after it was lost, until the topic is led or closed again.
        lost_at: When that was, on the monotonic clock.
        looking: Brings what is followed up to date. Meanwhile it must not be read.
        looked_at: When the last look ended, on the clock `time_elapsed_s`.
    """

    def __init__(self, topic: str, store: ObjectStore, dice: random.Random) -> None:
        self.topic = topic
        self.store = store
        self.lock = asyncio.Lock()
        self.users = 0
        self.sticky = StickyPlacement(dice)
        self.appender: Appender | None = None
        self.lost_at = 0.0
        self.looking: asyncio.Task[None] | None = None
        self.looked_at = 0.0
        self._table: OpenTopic | None = None

    @property
    def state(self) -> TopicState:
        if self.leader is not None:
            return TopicState.LED
        return TopicState.CLOSED if self._table is None else TopicState.FOLLOWED

    @property
    def leader(self) -> Appender | None:
        """The appender, unless it was lost."""
        appender = self.appender
        return appender if appender is not None and appender.failure is None else None

    @property
    def followed(self) -> TableState | None:
        """What was followed, as of the last look; None: nothing is, or a look is under way.

        The caller does not keep it: it changes with the next look.
        """
        return None if self._table is None or self.looking is not None else self._table.state

    @property
    def in_use(self) -> bool:
        """Whether somebody is about to change its state, or it is led or was."""
        return bool(self.users) or self.looking is not None or self.appender is not None

    def look(self, topics: Topics) -> None:
        """Loads the state that is followed, or brings it forward. Blocks.

        Raises:
            UnknownTopicError: The topic was deleted.
            MainstemError: Its table cannot be read.
        """
        if self._table is None:
            self._table = topics.open(self.topic)
        else:
            self._table.refresh()

    def unfollow(self) -> None:
        """Forgets what was followed, unless a look is under way."""
        if self.looking is None:
            self._table = None

    def take_table(self) -> OpenTopic | None:
        """What was followed, for a caller that holds the lock and uses it in a thread. It is not
        followed any more."""
        if self.looking is not None:
            return None
        table, self._table = self._table, None
        return table

    def give_back(self, table: OpenTopic) -> None:
        """Follows what was taken again, unless it was opened by somebody else meanwhile."""
        if self._table is None and self.looking is None:
            self._table = table

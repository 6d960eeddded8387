"""One topic of a gateway, which is closed, followed or led."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Coroutine
from enum import Enum
from typing import Any

from mainstem.delta_log import Appender, ObjectStore, OpenTopic, TableState, Topics
from mainstem.delta_log.store import time_elapsed_s
from mainstem.errors import MainstemError
from mainstem.ingest_gateway.payloads import StickyPlacement

#: How old the state of a topic that is led here may be for readers when nothing is appended to it:
#: an appender knows what it has committed itself, and is told to look what others have.
LED_CATCH_UP_INTERVAL_S = 5.0

#: How old the state of a topic that is followed may be for readers.
FOLLOW_INTERVAL_S = 0.1


#: A topic that was lost to another leader, or is damaged, is not tried again before this has
#: passed: two gateways must not take it from each other at every request.
REOPEN_AFTER_S = 6.0


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
    """One topic. On the event loop, except `load`; `store` in any thread.

    Attributes:
        topic: Its name.
        store: Where its files are.
        sticky: Where records without a partition and a key go.
    """

    def __init__(self, topic: str, store: ObjectStore, dice: random.Random) -> None:
        self.topic = topic
        self.store = store
        self.sticky = StickyPlacement(dice)
        self._lock = asyncio.Lock()
        self._users = 0
        self._appender: Appender | None = None
        self._lost_at = 0.0
        self._looking: asyncio.Task[None] | None = None
        self._looked_at = 0.0
        self._look_began_at = self._known_at = 0.0
        self._table: OpenTopic | None = None

    @property
    def users(self) -> int:
        """How many hold it, to lead, change, close or delete it, or wait for that."""
        return self._users

    @property
    def appender(self) -> Appender | None:
        """Of the leader, also after it was lost, until the topic is led or closed again."""
        return self._appender

    @property
    def looking(self) -> asyncio.Task[None] | None:
        """Brings what is followed up to date. Meanwhile it must not be read."""
        return self._looking

    @property
    def state(self) -> TopicState:
        if self.leader is not None:
            return TopicState.LED
        return TopicState.CLOSED if self._table is None else TopicState.FOLLOWED

    @property
    def leader(self) -> Appender | None:
        """The appender, unless it was lost."""
        appender = self._appender
        return appender if appender is not None and appender.failure is None else None

    @property
    def followed(self) -> TableState | None:
        """What was followed, as of the last look; None: nothing is, or a look is under way.

        The caller does not keep it: it changes with the next look.
        """
        return None if self._table is None or self._looking is not None else self._table.state

    def current(self, *, holds_lease: bool, any_age: bool) -> tuple[TableState, bool] | None:
        """The newest state that is known, if it is new enough for readers.

        Args:
            holds_lease: Of the topic, as far as is known: it is not led elsewhere.
            any_age: What is known will do, however long ago it was the newest.

        Returns:
            The state, and whether it is the appender's.
        """
        leader, followed = self.leader, self.followed
        if leader is not None and holds_lease:
            if not any_age and leader.state_age_s > LED_CATCH_UP_INTERVAL_S:
                return None
            if followed is not None and followed.topic_id != leader.state.topic_id:
                self.unfollow()
            elif followed is not None and followed.version > leader.state.version:
                # Another gateway has taken the topic, and our appender does not know it yet.
                return followed, False
            return leader.state, True
        if followed is not None and (
            any_age or time_elapsed_s() - self._looked_at <= FOLLOW_INTERVAL_S
        ):
            return followed, False
        return None

    @property
    def known_at(self) -> float:
        """When the look began that found what is followed, by `time_elapsed_s`: what was committed
        later is not in it."""
        return self._known_at

    @property
    def in_use(self) -> bool:
        """Whether somebody is about to change its state, or it is led or was."""
        return bool(self._users) or self._looking is not None or self._appender is not None

    # -- led ---------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """For the block it is the caller's alone; readers read on."""
        self._users += 1
        try:
            async with self._lock:
                yield
        finally:
            self._users -= 1

    def led(self, appender: Appender) -> None:
        """It is led from now on: the appender knows more than what was followed."""
        self._appender = appender
        self.unfollow()

    def lost(self, *, may_return_at_once: bool) -> None:
        """Its appender can append no more.

        Args:
            may_return_at_once: It need not be left to another gateway for a while.
        """
        self._lost_at = -REOPEN_AFTER_S if may_return_at_once else time.monotonic()

    @property
    def refusal(self) -> MainstemError | None:
        """Why it is not to be led for now."""
        if self._appender is None or time.monotonic() - self._lost_at >= REOPEN_AFTER_S:
            return None
        return self._appender.failure

    def closed(self) -> Appender | None:
        """Nothing of it is in memory from now on. Returns the appender, for the caller to close."""
        appender, self._appender = self._appender, None
        self.unfollow()
        return appender

    # -- followed ----------------------------------------------------------------------------------

    def load(self, topics: Topics) -> None:
        """Loads the state that is followed, or brings it forward. Blocks.

        Raises:
            UnknownTopicError: The topic was deleted.
            MainstemError: Its table cannot be read.
        """
        if self._table is None:
            self._table = topics.open(self.topic)
        else:
            self._table.refresh()

    def begin_look(self, look: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begins to bring what is followed up to date; `look` ends with `end_look`."""
        self._look_began_at = time_elapsed_s()
        self._looking = asyncio.get_running_loop().create_task(look)
        return self._looking

    def end_look(self, *, failed: bool) -> None:
        """It is up to date, or cannot be told."""
        self._looking = None
        if not failed:
            self._looked_at = time_elapsed_s()
            self._known_at = self._look_began_at

    def unfollow(self) -> None:
        """Forgets what was followed, unless a look is under way."""
        if self._looking is None:
            self._table = None

    def take_table(self) -> OpenTopic | None:
        """What was followed, for a caller that holds the lock and uses it in a thread. It is not
        followed any more."""
        if self._looking is not None:
            return None
        table, self._table = self._table, None
        return table

    def give_back(self, table: OpenTopic) -> None:
        """Follows what was taken again, unless it was opened by somebody else meanwhile."""
        if self._table is None and self._looking is None:
            self._table = table

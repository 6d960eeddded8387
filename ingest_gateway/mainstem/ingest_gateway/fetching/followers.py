"""Looks at topics in the store while fetches wait for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

from mainstem.errors import MainstemError
from mainstem.ingest_gateway.fetching.waiters import FetchWaiters
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.supervised import SupervisedTask
from mainstem.ingest_gateway.topics import (
    FOLLOW_INTERVAL_S,
    LED_CATCH_UP_INTERVAL_S,
    GatewayTopics,
)

#: Topics that are followed at a time share this part of one core's time; a look at one takes about
#: `_LOOK_S`.
_FOLLOW_SHARE: Final = 0.25
_LOOK_S: Final = 0.001


class Followers:
    """On the event loop: one task for each topic that somebody waits for.

    Args:
        draining: Set when the gateway shuts down.
    """

    def __init__(
        self,
        topics: GatewayTopics,
        waiters: FetchWaiters,
        metrics: GatewayMetrics,
        draining: asyncio.Event,
    ) -> None:
        self._topics = topics
        self._waiters = waiters
        self._metrics = metrics
        self._draining = draining
        self._followers: dict[str, _Follower] = {}

    async def close(self) -> None:
        for follower in list(self._followers.values()):
            await follower.task.stop()

    def follow(self, topic: str) -> None:
        """Looks at the topic in the store while somebody waits for it."""
        follower = self._followers.get(topic)
        if follower is None:
            self._followers[topic] = _Follower(
                topic, self._topics.is_leader(topic), self._look_at, self._metrics
            )
        elif follower.was_led and not self._topics.is_leader(topic):
            follower.look_now.set()  # it looks too rarely for that

    async def _look_at(self, follower: _Follower) -> None:
        topic, seen = follower.topic, -1
        try:
            while not self._draining.is_set():
                interval_s = LED_CATCH_UP_INTERVAL_S if follower.was_led else FOLLOW_INTERVAL_S
                share_s = len(self._followers) * _LOOK_S / _FOLLOW_SHARE
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(interval_s, share_s)):
                        await follower.look_now.wait()
                follower.look_now.clear()
                if not self._waiters.waits_for(topic):
                    break
                await self._topics.look(topic)
                led = self._topics.is_leader(topic)
                if led != follower.was_led:
                    follower.was_led = led
                    self._waiters.changed(topic)
                if led:
                    continue  # what was looked at tells of itself
                found = self._topics.current(topic, any_age=True)
                if found is not None and found[0].version != seen:
                    seen = found[0].version
                    self._waiters.changed(topic)
        except MainstemError:
            pass  # the fetches that wait find out the same
        # In the same step in which nothing follows any more: a fetch that waits from now on sees
        # it.
        del self._followers[topic]
        self._waiters.changed(topic)


class _Follower:
    """Looks at one topic again and again, for the fetches that wait for it.

    Attributes:
        was_led: Whether the topic was led here at the last look.
        look_now: Set: it does not wait for the next time to look.
    """

    def __init__(
        self,
        topic: str,
        was_led: bool,
        look: Callable[[_Follower], Coroutine[Any, Any, None]],
        metrics: GatewayMetrics,
    ) -> None:
        self.topic = topic
        self.was_led = was_led
        self.look_now = asyncio.Event()
        self.task = SupervisedTask(
            "follow topic", lambda: look(self), metrics, returns=True, topic=topic
        )

"""What a consumer was asked for by calls that are no coroutines, done before its next call."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from mainstem import client
from mainstem.client.callbacks import looked_at
from mainstem.client.consumer.loop_callbacks import inside_callback
from mainstem.compat.aiokafka.configuration import their_errors
from mainstem.compat.aiokafka.errors import (
    ConsumerStoppedError,
    IllegalOperation,
    IllegalStateError,
)
from mainstem.compat.aiokafka.structs import TopicPartition, to_ours


class AskedConsumer:
    """A consumer with a list of what to do next: seeks, pauses, subscriptions.

    What is assigned and paused is known here at once; the gateways hear of it inside the next
    coroutine.
    """

    def __init__(self, settings: Mapping[str, Any], group_id: str | None, timeout_s: float) -> None:
        self._settings = settings
        self._group_id = group_id
        self._timeout_s = timeout_s
        self._consumer: client.AsyncConsumer | None = None
        self._stopped = False
        #: What calls that are no coroutines asked for, in order.
        self._asked: deque[Callable[[client.AsyncConsumer], Awaitable[object]]] = deque()
        #: What is under way of that.
        self._begun: set[asyncio.Future[object]] = set()
        self._assigned: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        #: Paused on behalf of getone(partitions) and getmany(partitions).
        self._left_out: set[TopicPartition] = set()
        self._subscription: frozenset[str] = frozenset()
        self._by_hand = False
        self._polled_at_ms: int | None = None
        self._partition_counts: dict[str, int] = {}

    def _running(self) -> client.AsyncConsumer:
        if self._stopped:
            raise ConsumerStoppedError("the consumer was stopped")
        if self._consumer is None:
            raise IllegalStateError("the consumer is not started; await start() first")
        return self._consumer

    async def _ready(self, partitions: Iterable[TopicPartition] = ()) -> client.AsyncConsumer:
        """The consumer, after what was asked for is done, reading these partitions only."""
        consumer = self._running()
        await self._do_what_was_asked()
        self._polled_at_ms = int(time.time() * 1000)
        only = set(partitions)
        for tp in only:
            self._check_assigned(tp)
        left_out = self._assigned - only - self._paused if only else set()
        if left_out != self._left_out:
            await self._to_its_end(self._leave_out(consumer, left_out))
        return consumer

    async def _leave_out(
        self, consumer: client.AsyncConsumer, left_out: set[TopicPartition]
    ) -> None:
        back = (self._left_out - left_out - self._paused) & self._assigned
        await consumer.resume([to_ours(tp) for tp in back])
        await consumer.pause([to_ours(tp) for tp in left_out])
        self._left_out = left_out

    async def _do_what_was_asked(self) -> None:
        consumer = self._running()
        # A callback belongs to a call that has the turn for which that would wait.
        while self._begun and not inside_callback(consumer):
            await asyncio.wait(self._begun)
        while self._asked:
            await self._to_its_end(self._asked.popleft()(consumer))

    async def _to_its_end(self, work: Awaitable[object]) -> None:
        """Does something that goes on when the caller goes away: nobody would ask for it again."""
        with their_errors():
            await asyncio.shield(self._begin(work))

    def _begin(self, work: Awaitable[object]) -> asyncio.Future[object]:
        """Begins it; calls that come later wait for its end."""
        begun = asyncio.ensure_future(work)
        self._begun.add(begun)
        begun.add_done_callback(self._begun.discard)
        begun.add_done_callback(looked_at)
        return begun

    def _check_assigned(self, partition: TopicPartition) -> None:
        to_ours(partition)
        if partition not in self._assigned:
            raise IllegalStateError(f"Partition {partition} is not assigned")

    def _needs_group(self) -> None:
        if self._group_id is None:
            raise IllegalOperation("Requires group_id")

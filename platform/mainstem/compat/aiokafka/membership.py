"""Which partitions a consumer reads: by subscription or by hand, and which of them pause."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable
from typing import Any

from mainstem import client
from mainstem.compat.aiokafka.abc import ConsumerRebalanceListener
from mainstem.compat.aiokafka.asked import AskedConsumer
from mainstem.compat.aiokafka.configuration import their_errors
from mainstem.compat.aiokafka.errors import IllegalStateError
from mainstem.compat.aiokafka.structs import TopicPartition, to_ours, to_theirs

_log = logging.getLogger("mainstem.client")


class MembershipCalls(AskedConsumer):
    """Subscriptions, assignments, pauses and the metadata behind them."""

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Reads these topics, or those whose name matches a pattern; replaces what was.

        Raises:
            IllegalStateError: Partitions were assigned by hand.
            TypeError: Neither topics nor a pattern, or both, or a listener of another class.
            ValueError: The pattern is not a regular expression.
        """
        if isinstance(topics, str):
            raise TypeError("topics is a str; give a list of names")
        names = list(topics)
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"a topic is a {type(name).__name__}; it must be a str")
        if bool(names) == (pattern is not None):
            raise TypeError("give topics or a pattern, one of the two")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError("listener should be an instance of ConsumerRebalanceListener")
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
        if self._by_hand:
            raise IllegalStateError("partitions are assigned by hand; unsubscribe() first")
        self._subscription = frozenset(names)

        async def do(consumer: client.AsyncConsumer) -> None:
            if self._group_id is None:
                counts = self._partition_counts
                chosen = [n for n in counts if pattern and re.match(pattern, n)] or names
                found = [TopicPartition(n, p) for n in chosen for p in range(counts.get(n, 0))]
                self._assigned = set(found)
                await consumer.assign([to_ours(tp) for tp in found])
                if listener is not None:
                    await _tell(listener.on_partitions_assigned, set(found))
            else:
                on_assign, on_revoke = self._callbacks(listener)
                await consumer.subscribe(
                    f"^(?:{pattern})" if pattern is not None else names, on_assign, on_revoke
                )

        self._asked.append(do)

    def unsubscribe(self) -> None:
        """Reads nothing, and leaves the group."""
        self._subscription = frozenset()
        by_hand, self._by_hand = self._by_hand or self._group_id is None, False
        self._assigned.clear()
        self._paused.clear()
        self._asked.append(lambda one: one.assign([]) if by_hand else one.unsubscribe())

    def subscription(self) -> frozenset[str]:
        """The topics that were subscribed to."""
        return self._subscription

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads exactly these partitions, without a coordinator.

        Raises:
            IllegalStateError: There is a subscription.
        """
        wanted = [(tp, to_ours(tp)) for tp in partitions]
        if self._subscription:
            raise IllegalStateError("there is a subscription; unsubscribe() first")
        self._by_hand = True
        self._assigned = {tp for tp, _ in wanted}
        self._paused &= self._assigned
        self._asked.append(lambda consumer: consumer.assign([ours for _, ours in wanted]))

    def assignment(self) -> frozenset[TopicPartition]:
        """What is read now."""
        return frozenset(self._assigned)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of them until resume()."""
        for tp in partitions:
            self._check_assigned(tp)
        self._paused.update(partitions)
        ours = [to_ours(tp) for tp in partitions]
        self._asked.append(lambda consumer: consumer.pause(ours))

    def resume(self, *partitions: TopicPartition) -> None:
        """Goes on with them."""
        for tp in partitions:
            self._check_assigned(tp)
        self._paused.difference_update(partitions)
        ours = [to_ours(tp) for tp in partitions]
        self._asked.append(lambda consumer: consumer.resume(ours))

    def paused(self) -> set[TopicPartition]:
        """What pause() was called for."""
        return set(self._paused)

    async def topics(self) -> set[str]:
        """The names of all topics."""
        consumer = self._running()
        with their_errors():
            found = await consumer.list_topics(min(30.0, self._timeout_s))
        self._partition_counts = {name: topic.partition_count for name, topic in found.items()}
        return set(found)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The partitions of a topic, as start() or topics() has found them; None: unknown."""
        count = self._partition_counts.get(topic)
        return None if count is None else set(range(count))

    def _callbacks(self, listener: ConsumerRebalanceListener | None) -> tuple[Any, Any]:
        async def on_assign(_: object, partitions: list[client.TopicPartition]) -> None:
            came = {to_theirs(tp) for tp in partitions}
            self._assigned |= came
            if listener is not None:
                await _tell(listener.on_partitions_assigned, came)
                await self._do_what_was_asked()

        async def on_revoke(_: object, partitions: list[client.TopicPartition]) -> None:
            gone = {to_theirs(tp) for tp in partitions}
            if listener is not None:
                await _tell(listener.on_partitions_revoked, gone)
            self._assigned -= gone
            self._paused -= gone
            self._left_out -= gone

        return on_assign, on_revoke


async def _tell(callback: Callable[[set[TopicPartition]], Any], what: set[TopicPartition]) -> None:
    """Calls a listener's method. What it raises is logged, and the rebalance goes on."""
    try:
        answer = callback(what)
        if inspect.isawaitable(answer):
            await answer
    except Exception:
        _log.exception("%s of the rebalance listener raised", callback.__name__)

"""aiokafka's AIOKafkaConsumer, over `mainstem.client.AsyncConsumer`."""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from mainstem import client
from mainstem.client import OFFSET_BEGINNING, OFFSET_END
from mainstem.compat.aiokafka.abc import ConsumerRebalanceListener
from mainstem.compat.aiokafka.configuration import CONSUMER, settings_of, their_errors
from mainstem.compat.aiokafka.errors import (
    ConsumerStoppedError,
    IllegalOperation,
    IllegalStateError,
    KafkaTimeoutError,
)
from mainstem.compat.aiokafka.structs import (
    ConsumerRecord,
    OffsetAndTimestamp,
    TopicPartition,
    size,
    to_ours,
    to_theirs,
)
from mainstem.errors import ConfigError

#: Called with None too, where a key or value is null.
Deserializer = Callable[[Any], Any]

#: aiokafka's defaults where ours are others and a program may rely on them.
_DEFAULTS: Final = {"request_timeout_ms": 40_000, "session_timeout_ms": 10_000}

#: How long one wait lasts: a seek() or pause() of another task counts after it.
_LOOK_S: Final = 0.1


class AIOKafkaConsumer:
    """Reads records, alone or as a member of a group.

    `seek`, `pause`, `resume`, `subscribe` and the like are no coroutines: what they ask for is done
    before the next record is given.

    Args:
        topics: To subscribe to. Without a group_id all their partitions are read.
        key_deserializer, value_deserializer: Functions of bytes.

    Raises:
        ValueError: Settings are wrong; all of them are told.
    """

    def __init__(
        self,
        *topics: str,
        loop: Any = None,
        bootstrap_servers: str | list[str] = "localhost",
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        **keywords: Any,
    ) -> None:
        given = {**_DEFAULTS, **keywords}
        self._group_id: str | None = given.get("group_id")
        self._max_records: int | None = given.get("max_poll_records")
        self._timeout_s = given["request_timeout_ms"] / 1000
        self._settings = settings_of(CONSUMER, bootstrap_servers, given)
        try:
            client.ConsumerSettings.parse(self._settings)
        except ConfigError as error:
            raise ValueError(error.message) from error
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._consumer: client.AsyncConsumer | None = None
        self._stopped = False
        #: What calls that are no coroutines asked for, in order.
        self._asked: deque[Callable[[client.AsyncConsumer], Awaitable[object]]] = deque()
        self._assigned: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        #: Paused on behalf of getone(partitions) and getmany(partitions).
        self._left_out: set[TopicPartition] = set()
        self._subscription: frozenset[str] = frozenset()
        self._by_hand = False
        self._polled_at_ms: int | None = None
        self._partition_counts: dict[str, int] = {}
        if topics:
            self.subscribe(topics)

    async def start(self) -> None:
        """Connects, and joins the group.

        Raises:
            KafkaConnectionError: No gateway can be reached.
        """
        assert self._consumer is None, "Did you call `start` twice?"
        consumer = client.AsyncConsumer(self._settings)
        self._consumer = consumer
        try:
            await self.topics()
            await self._do_what_was_asked()
        except BaseException:
            self._consumer = None
            await consumer.close()
            raise

    async def stop(self) -> None:
        """Commits if enable_auto_commit, leaves the group, closes. Again: does nothing."""
        self._stopped = True
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with their_errors():
                await consumer.close()

    # ------------------------------------------------------------------------------ records

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[Any, Any]:
        """The next record, of these partitions if any are named; waits for it.

        Raises:
            ConsumerStoppedError: stop() was called.
        """
        while True:
            consumer = await self._ready(partitions)
            try:
                with their_errors():
                    async with asyncio.timeout(_LOOK_S):
                        return self._record(await anext(consumer))
            except TimeoutError:
                continue

    async def getmany(
        self,
        *partitions: TopicPartition,
        timeout_ms: int = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """What is there, by partition; waits up to `timeout_ms` for the first record."""
        if max_records is not None and max_records < 1:
            raise ValueError("`max_records` must be a positive Integer")
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            consumer = await self._ready(partitions)
            left_s = max(0.0, deadline - time.monotonic())
            with their_errors():
                found = await consumer.getmany(
                    timeout_ms=int(min(_LOOK_S, left_s) * 1000),
                    max_records=max_records or self._max_records,
                )
            if found or left_s <= 0:
                return {
                    to_theirs(tp): [self._record(record) for record in records]
                    for tp, records in found.items()
                }

    def __aiter__(self) -> Self:
        if self._stopped:
            raise ConsumerStoppedError
        return self

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    # --------------------------------------------------------------------------- membership

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Reads these topics, or those whose name matches a pattern; replaces what was.

        Raises:
            IllegalStateError: Partitions were assigned by hand.
        """
        names = list(topics)
        if isinstance(topics, str):
            raise TypeError("topics is a str; give a list of names")
        if bool(names) == (pattern is not None):
            raise ValueError("give topics or a pattern, one of the two")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError("listener should be an instance of ConsumerRebalanceListener")
        if pattern is not None:
            re.compile(pattern)
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

    # ------------------------------------------------------------------------------ offsets

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        """Commits everything that was handed out, or these offsets; durable when it returns.

        Args:
            offsets: By partition the next offset to read, or (offset, metadata).

        Raises:
            IllegalOperation: There is no group_id.
            CommitFailedError: Another member may have the partitions.
        """
        self._needs_group()
        given = None if offsets is None else [_commit(tp, at) for tp, at in offsets.items()]
        consumer = await self._ready()
        with their_errors():
            await consumer.commit(offsets=given)

    async def committed(self, partition: TopicPartition) -> int | None:
        """The offset that the group has committed; None: none."""
        self._needs_group()
        consumer = await self._ready()
        with their_errors():
            (found,) = await consumer.committed([to_ours(partition)])
        return found.offset if found.offset >= 0 else None

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record.

        Raises:
            IllegalStateError: The partition is not assigned.
            KafkaTimeoutError: It was not known within request_timeout_ms.
        """
        deadline = time.monotonic() + self._timeout_s
        while True:
            self._check_assigned(partition)
            consumer = await self._ready()
            with their_errors():
                (found,) = await consumer.position([to_ours(partition)])
            if found.offset >= 0:
                return found.offset
            if time.monotonic() > deadline:
                raise KafkaTimeoutError(f"where {partition} begins was not known in time")
            await asyncio.sleep(0.01)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Goes on at `offset`.

        Raises:
            IllegalStateError: The partition is not assigned.
            ValueError: The offset is negative.
        """
        if offset < 0:
            raise ValueError("Offset must be a positive integer")
        self._check_assigned(partition)
        self._asked.append(lambda consumer: consumer.seek(to_ours(partition, offset)))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Goes on at the first records, of these partitions or of all."""
        return await self._seek_all(partitions, OFFSET_BEGINNING)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Goes on behind the last records, of these partitions or of all."""
        return await self._seek_all(partitions, OFFSET_END)

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, int | None]:
        """Goes on at the committed offsets, which it returns, of these partitions or of all."""
        found = {}
        for tp in partitions or self.assignment():
            self._check_assigned(tp)
            offset = found[tp] = await self.committed(tp)
            if offset is not None:
                self.seek(tp, offset)
        await self._ready()
        return found

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return {tp: low for tp, (low, _) in (await self._watermarks(partitions)).items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition."""
        return {tp: high for tp, (_, high) in (await self._watermarks(partitions)).items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset at or after each time, in ms; None where no record is that late.

        The timestamp of the answer is the one that was asked for.
        """
        for tp, at in timestamps.items():
            if at < 0:
                raise ValueError(f"The target time for partition {tp} is {at} ms: it is negative")
        consumer = await self._ready()
        with their_errors():
            found = await consumer.offsets_for_times(
                [to_ours(tp, at) for tp, at in timestamps.items()]
            )
        return {
            tp: OffsetAndTimestamp(one.offset, at) if one.offset >= 0 else None
            for (tp, at), one in zip(timestamps.items(), found, strict=True)
        }

    def highwater(self, partition: TopicPartition) -> int | None:
        """The offset after the last record, as the last fetch told it; None: none has."""
        self._check_assigned(partition)
        if self._consumer is None:
            return None
        # Read past the lock: an int that a fetching thread replaces.
        found = self._consumer._consumer._partitions.assigned.get(to_ours(partition))
        return found.high_watermark if found is not None and found.high_watermark >= 0 else None

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """The same as highwater(): there are no transactions."""
        return self.highwater(partition)

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """When records were asked for last, in ms since 1970-01-01 UTC; None: never."""
        self._check_assigned(partition)
        return self._polled_at_ms

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

    # ------------------------------------------------------------------------------- inside

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

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
            with their_errors():
                back = (self._left_out - left_out - self._paused) & self._assigned
                await consumer.resume([to_ours(tp) for tp in back])
                await consumer.pause([to_ours(tp) for tp in left_out])
            self._left_out = left_out
        return consumer

    async def _do_what_was_asked(self) -> None:
        consumer = self._running()
        while self._asked:
            with their_errors():
                await self._asked.popleft()(consumer)

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

    async def _seek_all(self, partitions: Iterable[TopicPartition], at: int) -> bool:
        chosen = list(partitions) or list(self._assigned)
        for tp in chosen:
            self._check_assigned(tp)
        consumer = await self._ready()
        with their_errors():
            for tp in chosen:
                await consumer.seek(to_ours(tp, at))
        return True

    async def _watermarks(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        consumer = await self._ready()
        with their_errors():
            return {tp: await consumer.get_watermark_offsets(to_ours(tp)) for tp in partitions}

    def _check_assigned(self, partition: TopicPartition) -> None:
        to_ours(partition)
        if partition not in self._assigned:
            raise IllegalStateError(f"Partition {partition} is not assigned")

    def _needs_group(self) -> None:
        if self._group_id is None:
            raise IllegalOperation("Requires group_id")

    def _record(self, record: client.ConsumerRecord) -> ConsumerRecord[Any, Any]:
        key, value = record.key, record.value
        return ConsumerRecord(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            record.timestamp_type,
            _deserialized(self._key_deserializer, key),
            _deserialized(self._value_deserializer, value),
            None,
            size(key),
            size(value),
            record.headers,
        )


def _deserialized(deserializer: Any, data: bytes | None) -> Any:
    return data if deserializer is None else deserializer(data)


async def _tell(callback: Callable[[set[TopicPartition]], Any], what: set[TopicPartition]) -> None:
    answer = callback(what)
    if inspect.isawaitable(answer):
        await answer


def _commit(tp: TopicPartition, at: Any) -> client.TopicPartition:
    offset, metadata = (at, "") if isinstance(at, int) else at
    if not isinstance(offset, int) or not isinstance(metadata, str):
        raise ValueError(f"the offset of {tp} is {at!r}; it must be an int or (int, str)")
    return client.TopicPartition(to_ours(tp).topic, tp.partition, offset, metadata)

"""aiokafka's AIOKafkaConsumer, over `mainstem.client.AsyncConsumer`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NoReturn, Self

from mainstem import client
from mainstem.compat.aiokafka import members
from mainstem.compat.aiokafka.configuration import (
    CONSUMER,
    check_function,
    no_pickle,
    settings_of,
    their_errors,
    with_defaults,
)
from mainstem.compat.aiokafka.errors import ConsumerStoppedError
from mainstem.compat.aiokafka.membership import MembershipCalls
from mainstem.compat.aiokafka.positions import PositionCalls
from mainstem.compat.aiokafka.structs import (
    ConsumerRecord,
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


class AIOKafkaConsumer(MembershipCalls, PositionCalls):
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
        for name, deserializer in (
            ("key_deserializer", key_deserializer),
            ("value_deserializer", value_deserializer),
        ):
            check_function(deserializer, name)
        given = with_defaults(_DEFAULTS, keywords)
        settings = settings_of(CONSUMER, bootstrap_servers, given)
        try:
            client.ConsumerSettings.parse(settings)
        except ConfigError as error:
            raise ValueError(error.message) from error
        super().__init__(settings, given.get("group_id"), given["request_timeout_ms"] / 1000)
        self._max_records: int | None = given.get("max_poll_records")
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
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
            if self._group_id is not None:
                members.started(consumer, self._group_id)
        except BaseException:
            self._consumer = None
            await consumer.close()
            raise

    async def stop(self) -> None:
        """Commits if enable_auto_commit, leaves the group, closes. Again: does nothing."""
        self._stopped = True
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            members.stopped(consumer)
            try:
                if self._begun:
                    await asyncio.wait(self._begun)  # or what it goes back to would be committed
            finally:
                with their_errors():
                    await consumer.close()

    # ------------------------------------------------------------------------------ records

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[Any, Any]:
        """The next record, of these partitions if any are named; waits for it.

        What a deserializer raises is raised, and the record comes again at the next call: seek()
        past it, or mend the deserializer.

        Raises:
            ConsumerStoppedError: stop() was called.
        """
        while True:
            consumer = await self._ready(partitions)
            try:
                with their_errors():
                    async with asyncio.timeout(_LOOK_S):
                        record = await anext(consumer)
            except TimeoutError:
                continue
            try:
                return self._record(record)
            except Exception:
                await self._go_back_to(consumer, record)
                raise

    async def getmany(
        self,
        *partitions: TopicPartition,
        timeout_ms: int = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """What is there, by partition; waits up to `timeout_ms` for the first record.

        Of a partition with a record that cannot be deserialized, what is before it is given; the
        next call raises what the deserializer raised. See getone.
        """
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
                return await self._records(consumer, found)

    def __aiter__(self) -> Self:
        if self._stopped:
            raise ConsumerStoppedError
        return self

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    def __reduce__(self) -> NoReturn:
        raise no_pickle(self)

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

    async def _records(
        self,
        consumer: client.AsyncConsumer,
        found: Mapping[client.TopicPartition, Sequence[client.ConsumerRecord]],
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        given: dict[TopicPartition, list[ConsumerRecord[Any, Any]]] = {}
        failure: Exception | None = None
        again: list[client.ConsumerRecord] = []
        for tp, records in found.items():
            made: list[ConsumerRecord[Any, Any]] = []
            for record in records:
                try:
                    made.append(self._record(record))
                except Exception as error:
                    failure = failure or error
                    again.append(record)
                    break
            if made:
                given[to_theirs(tp)] = made
        if again:
            try:
                await self._go_back_to(consumer, *again)
            except asyncio.CancelledError:
                # Nobody gets the others either.
                self._begin(_go_back(consumer, [records[0] for records in found.values()]))
                raise
        if failure is not None and not given:
            raise failure
        return given

    async def _go_back_to(
        self, consumer: client.AsyncConsumer, *records: client.ConsumerRecord
    ) -> None:
        await self._to_its_end(_go_back(consumer, records))

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


async def _go_back(
    consumer: client.AsyncConsumer, records: Sequence[client.ConsumerRecord]
) -> None:
    for record in records:
        tp = TopicPartition(record.topic, record.partition)
        await consumer.seek(to_ours(tp, record.offset))


def _deserialized(deserializer: Any, data: bytes | None) -> Any:
    return data if deserializer is None else deserializer(data)

"""aiokafka's AIOKafkaProducer, over `mainstem.client.AsyncProducer`."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NoReturn, Self, cast

import pyarrow as pa

from mainstem import client
from mainstem.client.callbacks import looked_at
from mainstem.compat.aiokafka.configuration import (
    PRODUCER,
    check_function,
    no_pickle,
    settings_of,
    their_errors,
    with_defaults,
)
from mainstem.compat.aiokafka.errors import (
    IllegalOperation,
    InvalidTxnState,
    ProducerClosed,
    ProducerFenced,
    from_mainstem,
)
from mainstem.compat.aiokafka.members import by_member
from mainstem.compat.aiokafka.positions import commit_of, dictionary
from mainstem.compat.aiokafka.structs import RecordMetadata, TopicPartition, where
from mainstem.errors import ConfigError

Headers = Sequence[tuple[str, bytes | None]]
Serializer = Callable[[Any], bytes | None]

#: aiokafka's defaults where ours are others and a program may rely on them.
_DEFAULTS: Final = {"request_timeout_ms": 40_000, "linger_ms": 0, "max_request_size": 1_048_576}

_BATCH_BYTES: Final = 16_384
_RECORD_BYTES: Final = 16

_SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("timestamp", pa.int64()),
        ("partition", pa.int32()),
    ]
)


class BatchBuilder:
    """Records of one partition that go as one append: `create_batch()` makes it."""

    def __init__(
        self, limit_bytes: int, key_serializer: Serializer | None, value_serializer: Any
    ) -> None:
        self._limit_bytes = limit_bytes
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._rows: list[dict[str, Any]] = []
        self._size_bytes = 0
        self._closed = False

    def append(
        self, *, timestamp: int | None, key: Any, value: Any, headers: Headers = ()
    ) -> int | None:
        """Adds a record; returns its number in the batch, or None when it does not fit."""
        key, value = (
            _serialized(self._key_serializer, key),
            _serialized(self._value_serializer, value),
        )
        size = _RECORD_BYTES + sum(len(part) for part in (key, value) if part is not None)
        size += sum(len(name) + len(data or b"") for name, data in headers)
        if self._closed or (self._rows and self._size_bytes + size > self._limit_bytes):
            return None
        self._rows.append(
            {
                "key": key,
                "value": value,
                "headers": [{"key": name, "value": data} for name, data in headers],
                "timestamp": timestamp,
            }
        )
        self._size_bytes += size
        return len(self._rows) - 1

    def size(self) -> int:
        """Bytes."""
        return self._size_bytes

    def record_count(self) -> int:
        """Records."""
        return len(self._rows)

    def close(self) -> None:
        """Takes no more."""
        self._closed = True

    def closed(self) -> bool:
        """Whether it takes no more."""
        return self._closed

    def rows(self, partition: int) -> pa.RecordBatch:
        """The records as Arrow, all for one partition."""
        rows = [{**row, "partition": partition} for row in self._rows]
        return pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


class TransactionContext:
    """What AIOKafkaProducer.transaction() gives."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        with their_errors():
            await self._producer._transactional()._begin_block()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            await self._producer.commit_transaction()
        elif not isinstance(error, (ProducerFenced, ProducerClosed)):
            await self._producer.abort_transaction()


class AIOKafkaProducer:
    """Sends records. Records are stored once, and acks is all, unless the arguments say otherwise.

    Args:
        bootstrap_servers: host:port, or a list of them.
        request_timeout_ms: From send() to the failure of a record that nobody acknowledged.
        key_serializer, value_serializer: Functions that give bytes.
        partitioner: A function (key, all partitions, available partitions) -> partition.

    Raises:
        ValueError: Settings are wrong; all of them are told.
    """

    def __init__(
        self,
        *,
        loop: Any = None,
        bootstrap_servers: str | list[str] = "localhost",
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        **keywords: Any,
    ) -> None:
        for name, serializer in (
            ("key_serializer", key_serializer),
            ("value_serializer", value_serializer),
        ):
            check_function(serializer, name)
        given = with_defaults(_DEFAULTS, keywords)
        self._batch_bytes = int(given.get("max_batch_size") or _BATCH_BYTES)
        self._settings = settings_of(PRODUCER, bootstrap_servers, given)
        # There, a request that is not answered in time fails its records.
        self._settings["delivery.timeout.ms"] = self._settings.pop("request.timeout.ms")
        partitioner = self._settings.get("partitioner")
        if callable(partitioner):
            self._settings["partitioner"] = _two_arguments(cast(Any, partitioner))
        try:
            client.ProducerSettings.parse(self._settings)
        except ConfigError as error:
            raise ValueError(error.message) from error
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._producer: client.AsyncProducer | None = None
        self._starting = False

    async def start(self) -> None:
        """Connects; with transactional_id, ends whoever had it before.

        Raises:
            KafkaConnectionError: No gateway can be reached.
        """
        assert self._producer is None, "Did you call `start` twice?"
        assert not self._starting, "Did you call `start` twice?"
        producer = client.AsyncProducer(self._settings)
        self._starting = True
        try:
            with their_errors():
                await producer.list_topics(10.0)
                if self._settings.get("transactional.id"):
                    await producer.init_transactions()
        except BaseException:
            await producer.close(0)
            raise
        finally:
            self._starting = False
        self._producer = producer

    async def stop(self) -> None:
        """Sends what waits, then closes. Calling it again does nothing."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with their_errors():
                await producer.close()

    async def flush(self) -> None:
        """Sends what waits, and waits for it; failures are told by the futures."""
        await self._open().flush()

    async def partitions_for(self, topic: str) -> set[int]:
        """The partitions of a topic."""
        with their_errors():
            return set(range(await self._open().partitions_for(topic)))

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Queues a record; returns a future of its place."""
        assert value is not None or key is not None, "Need at least one of value and key"
        producer = self._open()
        if not isinstance(topic, str):
            raise TypeError(f"topic is a {type(topic).__name__}; it must be a str")
        with _sending(), their_errors():
            sent = await producer.send(
                topic,
                _serialized(self._value_serializer, value),
                _serialized(self._key_serializer, key),
                -1 if partition is None else partition,
                timestamp_ms,
                headers,
            )
        return _translated(sent, where)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """`send`, and waits for the acknowledgement."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    def create_batch(self) -> BatchBuilder:
        """An empty batch of up to max_batch_size bytes."""
        return BatchBuilder(self._batch_bytes, self._key_serializer, self._value_serializer)

    async def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: int
    ) -> asyncio.Future[RecordMetadata]:
        """Queues a batch; returns a future of its first record's place."""
        producer = self._open()
        batch.close()

        def place(found: client.BatchMetadata) -> RecordMetadata:
            offset = found.offsets[0].base_offset if found.offsets else -1
            tp = TopicPartition(topic, partition)
            return RecordMetadata(*tp, tp, offset, int(time.time() * 1000), 0, None)

        with _sending(), their_errors():
            sent = await producer.send_batch(topic, batch.rows(partition))
        return _translated(sent, place)

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

    async def begin_transaction(self) -> None:
        """What is sent from now on is of a transaction.

        Raises:
            IllegalOperation: There is no transactional_id.
        """
        with their_errors():
            await self._transactional().begin_transaction()

    async def commit_transaction(self) -> None:
        """Sends what waits, and commits.

        Raises:
            InvalidTxnState: No transaction is open, or it is lost: abort it.
            ProducerFenced: Another producer has the transactional_id.
        """
        with their_errors():
            await self._transactional().commit_transaction()

    async def abort_transaction(self) -> None:
        """Throws away what the transaction has sent, and what waits."""
        with their_errors():
            await self._transactional().abort_transaction()

    def transaction(self) -> TransactionContext:
        """`async with producer.transaction():` begins one, and commits it at the block's end, or
        aborts it when the block raises."""
        return TransactionContext(self)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, Any], group_id: str
    ) -> None:
        """Commits offsets with the transaction: by the consumer of the group in this event loop
        that has the partition, or from outside the group, which may then have no members.

        Args:
            offsets: By partition, the next offset to read: an int, or OffsetAndMetadata.
        """
        producer = self._transactional()
        ours = [commit_of(tp, at) for tp, at in dictionary(offsets, "offsets").items()]
        with their_errors():
            for member, some in await by_member(group_id, ours):
                await producer.send_offsets_to_transaction(some, member)

    def _transactional(self) -> client.AsyncProducer:
        if not self._settings.get("transactional.id"):
            raise IllegalOperation("You need to configure transactional_id to use transactions")
        return self._open()

    def _open(self) -> client.AsyncProducer:
        if self._producer is None:
            raise ProducerClosed("the producer is not started, or was stopped")
        return self._producer


@contextlib.contextmanager
def _sending() -> Iterator[None]:
    try:
        yield
    except InvalidTxnState as error:
        raise IllegalOperation("Can't send messages while not in transaction") from error


def _serialized(serializer: Serializer | None, value: Any) -> Any:
    return value if serializer is None else serializer(value)


def _two_arguments(partitioner: Callable[..., int]) -> Callable[[bytes | None, int], int]:
    def place(key: bytes | None, partition_count: int) -> int:
        partitions: Iterable[int] = list(range(partition_count))
        return partitioner(key, partitions, partitions)

    return place


def _translated(
    sent: asyncio.Future[Any], translate: Callable[[Any], RecordMetadata]
) -> asyncio.Future[RecordMetadata]:
    """A future that ends as `sent` does, in aiokafka's words."""
    answer: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()

    def ended(done: asyncio.Future[Any]) -> None:
        if answer.cancelled():
            looked_at(done)
        elif done.cancelled():
            answer.cancel()
        elif error := done.exception():
            answer.set_exception(from_mainstem(error))
        else:
            answer.set_result(translate(done.result()))

    sent.add_done_callback(ended)
    return answer

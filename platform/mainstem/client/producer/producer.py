"""The synchronous producer, in the shape of confluent-kafka's."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Self

import pyarrow as pa

from mainstem.client.producer.accumulator import FULL, record_bytes
from mainstem.client.producer.append import (
    BytesLike,
    HeadersLike,
    append_batch,
    append_record,
    check_timestamp,
    to_bytes,
    to_headers,
)
from mainstem.client.producer.delivery import check_callback
from mainstem.client.producer.engine import Engine
from mainstem.client.producer.pieces import RECORD_OVERHEAD_BYTES, DeliveryCallback, Waiter
from mainstem.client.results import BatchMetadata, RecordMetadata, TopicMetadata
from mainstem.client.unclosed import warn_unclosed
from mainstem.errors import MainstemError

_log = logging.getLogger("mainstem.client")


class Producer:
    """Sends records to topics. Thread-safe; share one between threads, make one a process.

    Records are buffered by topic and sent in batches, in order a partition. A record is delivered
    when the gateway has acknowledged it (`acks`). What was not acknowledged is sent again for
    `delivery.timeout.ms`, over restarts of the gateway too, and stored once (`enable.idempotence`).

    Nothing is dropped in silence. A record that cannot be delivered is told to its `on_delivery` or
    its future; without either it is logged, and the next `flush()` or `close()` raises. Close the
    producer, or use it as a context manager: a program that ends without that loses what is
    buffered. A producer that is garbage before it was closed is a ResourceWarning.

    Args:
        config: Settings by Kafka's names; `bootstrap.servers` is needed. docs/reference/client.md.

    Raises:
        ConfigError: A setting is unknown, unsupported or out of range.

    Example:
        >>> with Producer({"bootstrap.servers": "127.0.0.1:9490"}) as producer:
        ...     producer.produce("flights", b'{"dep": 517}', key="UA")
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._engine = Engine(config)
        # The engine empties this very dict when it closes or the process forks.
        self._topics = self._engine.topics
        self._places = not isinstance(self._engine.settings.partitioner, str)

    def produce(
        self,
        topic: str,
        value: BytesLike | None = None,
        key: BytesLike | None = None,
        partition: int = -1,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int | None = None,
        headers: HeadersLike | None = None,
        *,
        callback: DeliveryCallback | None = None,
    ) -> None:
        """Queues one record. Waits only for metadata of a new topic and for room in buffer.memory.

        Args:
            topic: The topic's name.
            value: The record's content; str becomes UTF-8. None is stored as null, not as empty.
            key: Like `value`. Records with the same key go to the same partition.
            partition: From 0; -1: the partitioner chooses.
            on_delivery: Called as `on_delivery(error, metadata)` by poll(), flush() or close(), in
                the thread that calls these. `error` is None on success; on failure the metadata's
                offset is -1. Inside of it produce() and close() work as anywhere, poll() returns
                0 at once, and flush() is a RuntimeError.
            timestamp: Milliseconds since 1970-01-01 UTC; None or 0: now.
            headers: (name, value) pairs in order, names may repeat; or a dict.
            callback: The same as `on_delivery`, as in confluent-kafka.

        Raises:
            TypeError: A value has a type that is not named above, or the callback is a coroutine
                function.
            UnknownTopicError: The topic does not exist.
            UnknownPartitionError: The topic has no such partition.
            RecordTooLargeError: The record is larger than max.request.size.
            InvalidRecordError: The timestamp is negative or beyond the year 9999.
            QueueFullError: (a BufferError) There was no room within max.block.ms. Nothing was
                queued; poll() or wait, and try again.
            GatewayUnavailableError: No gateway told within max.block.ms where the topic is.
            ProducerClosedError: close() was called, or this is a forked child.
            ProducerFencedError: Another producer goes on in this one's place. So does every other
                call but poll() and close().
        """
        if on_delivery is not None:
            check_callback(on_delivery)
        buffer = self._topics.get(topic)
        if buffer is None:
            buffer = self._engine.open(topic)
        if type(value) is bytes:
            size = len(value) + RECORD_OVERHEAD_BYTES
        else:
            value = to_bytes(value, "value")
            size = record_bytes(value, None, None)
        if key is not None:
            if type(key) is not bytes:
                key = to_bytes(key, "key")
            size += len(key)  # type: ignore[arg-type]
        if timestamp or headers or partition != -1 or self._places or callback:
            if callback is not None:
                check_callback(callback)
            on_delivery = on_delivery or callback
            self._append_special(topic, value, key, partition, on_delivery, timestamp, headers)
            return
        code = buffer.append(value, key, size, -1, on_delivery)
        if code:
            while code == FULL:
                buffer = self._engine.make_room(buffer, size)
                code = buffer.append(value, key, size, -1, on_delivery)
            if code:
                self._engine.look(buffer)

    def send(
        self,
        topic: str,
        value: BytesLike | None = None,
        key: BytesLike | None = None,
        partition: int = -1,
        timestamp: int | None = None,
        headers: HeadersLike | None = None,
    ) -> Future[RecordMetadata]:
        """`produce`, with a future of the record's metadata in place of a callback.

        The future ends in a thread of the client, without poll(); a function given to its
        `add_done_callback` runs there and must not wait for the producer. It cannot be cancelled.

        Raises:
            As `produce`. What goes wrong later is the future's exception: DeliveryTimeoutError, or
            what the gateway said.
        """
        future: Future[RecordMetadata] = Future()
        future.set_running_or_notify_cancel()
        self._append_special(topic, value, key, partition, future, timestamp, headers)
        return future

    def produce_batch(self, topic: str, batch: pa.RecordBatch) -> Future[BatchMetadata]:
        """Queues all rows of a batch, or none: the fastest way in.

        Rows keep their order within each partition. A batch that fits into max.request.size is one
        atomic append; a larger one goes in parts, each of them atomic.

        Args:
            topic: The topic's name.
            batch: Columns `value` and, if wanted, `key` (binary or string), `headers`
                (list<struct<key: string, value: binary>>), `timestamp` (timestamp or int64 ms;
                null: now), and `partition` (int32; null or -1: the partitioner chooses).

        Returns:
            A future as of `send`. When it fails, parts that were sent may be in the log.

        Raises:
            As `produce`, and InvalidRecordError for a wrong column; QueueFullError for a batch
            larger than buffer.memory.
        """
        return append_batch(self._engine, topic, batch)

    def poll(self, timeout: float | None = 0) -> int:
        """Calls the `on_delivery` of records that have ended.

        Args:
            timeout: Seconds to wait for the first; 0: do not wait; None or negative: without end.

        Returns:
            How many were called. An exception from one of them comes out of here; the others stay
            for the next call.
        """
        return self._engine.poll(timeout)

    def flush(self, timeout: float | None = None) -> int:
        """Sends everything at once and waits until what was produced before this call has ended.

        Calls `on_delivery` as poll() does.

        Args:
            timeout: Seconds; None or negative: until all has ended, which delivery.timeout.ms
                bounds.

        Returns:
            How many records have not ended, or wait for their report to be served: 0: all done.

        Raises:
            MainstemError: Since the last call, records without callback or future failed; its class
                is that of the first failure, the fact `record_count` says how many.
            RuntimeError: An `on_delivery` called it.
            Exception: The first that an `on_delivery` raised, once all of them were called; the
                log has the others.
        """
        return self._engine.flush(timeout)

    def close(self, timeout: float | None = None) -> None:
        """Flushes, then ends threads and connections. Calling it again does nothing.

        Args:
            timeout: Seconds for the flush; what is left after that fails with
                ProducerClosedError. None or negative: until all has ended.

        Raises:
            MainstemError, Exception: As `flush`. The producer is closed all the same, and every
                `on_delivery` was called.
        """
        self._engine.close(timeout)

    def list_topics(self, timeout: float = 30.0) -> dict[str, TopicMetadata]:
        """Every topic, by name; the log (`mainstem.client`) names those that cannot be read.

        Args:
            timeout: Seconds for each gateway that is asked.

        Raises:
            GatewayUnavailableError: No gateway answered.
        """
        return self._engine.all_topics(timeout)

    def partitions_for(self, topic: str) -> int:
        """How many partitions the topic has: 0 to this number less one exist.

        Raises:
            UnknownTopicError, GatewayUnavailableError: As `produce`.
        """
        return self._engine.open(topic).info.partition_count

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is not None and not engine.closed:
            warn_unclosed(self, engine.free)

    def __len__(self) -> int:
        """Records that have not ended, and reports that wait for poll()."""
        return self._engine.pending_count()

    def __bool__(self) -> bool:
        """True: a producer without records is still a producer."""
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes. While another exception is on its way, undelivered records, and what callbacks
        raise, are only logged."""
        if kind is None:
            self.close()
            return
        try:
            self.close()
        except MainstemError:
            pass  # was logged when it happened
        except Exception:
            _log.exception("a delivery callback raised while the producer was closed")

    def _append_special(
        self,
        topic: str,
        value: BytesLike | None,
        key: BytesLike | None,
        partition: int,
        waiter: Waiter | None,
        timestamp: int | None,
        headers: HeadersLike | None,
    ) -> None:
        append_record(
            self._engine,
            topic,
            to_bytes(value, "value"),
            to_bytes(key, "key"),
            partition,
            waiter,
            check_timestamp(timestamp),
            to_headers(headers),
        )

"""The asyncio producer, in the shape of aiokafka's: the same engine, awaited."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Self

import pyarrow as pa

from mainstem.client.producer.append import (
    BytesLike,
    HeadersLike,
    append_batch,
    append_record,
    check_timestamp,
    to_bytes,
    to_headers,
)
from mainstem.client.producer.engine import Engine, WouldBlock
from mainstem.client.results import BatchMetadata, RecordMetadata, TopicMetadata
from mainstem.client.unclosed import warn_unclosed
from mainstem.errors import MainstemError


class AsyncProducer:
    """`Producer` for asyncio: same settings, same promises, futures in place of callbacks.

    Every method belongs to one event loop, the one that runs when it is first awaited. The loop is
    never blocked for I/O: a record is appended in the loop's own thread (microseconds; once in
    8,192 records the few milliseconds that it takes to build their columns), and only what has to
    wait, for a topic's metadata or for room in buffer.memory, waits in the loop's executor.

    Args:
        config: As of `Producer`.

    Example:
        >>> async with AsyncProducer({"bootstrap.servers": "127.0.0.1:9490"}) as producer:
        ...     where = await producer.send_and_wait("flights", b"...", key="UA")
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._engine = Engine(config)
        # Records that wait in the executor go one after the other, and later ones behind them.
        self._waiting = asyncio.Lock()

    async def send(
        self,
        topic: str,
        value: BytesLike | None = None,
        key: BytesLike | None = None,
        partition: int = -1,
        timestamp_ms: int | None = None,
        headers: HeadersLike | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Queues one record; returns, when it is queued, a future of its metadata.

        `await (await producer.send(...))` waits for the acknowledgement; `send_and_wait` says it in
        one word. Records of one task are sent in the order of their `send`. Cancelling the future
        does not take the record back.

        Args:
            topic, value, key, partition, headers: As of `Producer.produce`.
            timestamp_ms: Milliseconds since 1970-01-01 UTC; None or 0: now.

        Raises:
            As `Producer.produce`. What goes wrong later is the future's exception.
        """
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        record = (
            topic,
            to_bytes(value, "value"),
            to_bytes(key, "key"),
            partition,
            future,
            check_timestamp(timestamp_ms),
            to_headers(headers),
        )
        if not self._waiting.locked():
            try:
                append_record(self._engine, *record, blocking=False)
            except WouldBlock:
                pass
            else:
                return future
        async with self._waiting:
            try:
                append_record(self._engine, *record, blocking=False)
            except WouldBlock:
                await asyncio.shield(asyncio.to_thread(append_record, self._engine, *record))
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: BytesLike | None = None,
        key: BytesLike | None = None,
        partition: int = -1,
        timestamp_ms: int | None = None,
        headers: HeadersLike | None = None,
    ) -> RecordMetadata:
        """`send`, and waits for the acknowledgement."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    async def send_batch(self, topic: str, batch: pa.RecordBatch) -> asyncio.Future[BatchMetadata]:
        """`Producer.produce_batch`; returns, when the batch is queued, a future of its metadata."""
        async with self._waiting:
            future: Future[BatchMetadata] = await asyncio.to_thread(
                append_batch, self._engine, topic, batch
            )
        return asyncio.wrap_future(future)

    async def partitions_for(self, topic: str) -> int:
        """How many partitions the topic has."""
        found = await asyncio.to_thread(self._engine.open, topic)
        return found.info.partition_count

    async def list_topics(self, timeout: float = 30.0) -> dict[str, TopicMetadata]:  # noqa: ASYNC109
        """Every topic, by name; `timeout` in seconds for each gateway that is asked."""
        return await asyncio.to_thread(self._engine.all_topics, timeout)

    async def flush(self, timeout: float | None = None) -> int:  # noqa: ASYNC109
        """Sends everything at once and waits for it; see `Producer.flush`.

        Failures are told by the futures only.
        """
        return await asyncio.to_thread(self._engine.flush, timeout)

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Flushes, then ends threads and connections; see `Producer.close`."""
        await asyncio.to_thread(self._engine.close, timeout)

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is not None and not engine.closed:
            warn_unclosed(self, engine.free)

    def __len__(self) -> int:
        """Records that have not ended."""
        return self._engine.pending_count()

    def __bool__(self) -> bool:
        """True: a producer without records is still a producer."""
        return True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.close()
        else:
            with contextlib.suppress(MainstemError):
                await self.close()

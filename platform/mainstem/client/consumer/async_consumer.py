"""The asyncio consumer, in the shape of aiokafka's: the same consumer, awaited."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa

from mainstem.client.arguments import check_config
from mainstem.client.callbacks import looked_at
from mainstem.client.consumer.consumer import CommitOffsets, Consumer, OnPartitions
from mainstem.client.consumer.loop_callbacks import LoopCallbacks, inside_callback, run_inside
from mainstem.client.consumer.records import ConsumerRecord
from mainstem.client.positions import ConsumerGroupMetadata, TopicPartition
from mainstem.client.results import TopicMetadata
from mainstem.client.unclosed import free_later, warn_unclosed
from mainstem.errors import ConsumerClosedError

T = TypeVar("T")
M = TypeVar("M", list[ConsumerRecord], dict[TopicPartition, pa.RecordBatch])

#: Called with the consumer and the partitions; what a coroutine function gives is awaited.
AsyncOnPartitions = OnPartitions | Callable[["AsyncConsumer", list[TopicPartition]], Any]

#: How long one wait in the executor lasts: a cancelled task holds the consumer no longer.
_WAIT_S = 0.2


class _Consumer(Consumer):
    """Of an AsyncConsumer, which warns itself when nobody has closed it."""

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is not None and not engine.closed:
            free_later(engine.at_exit)


class AsyncConsumer:
    """`Consumer` for asyncio: same settings, same promises.

    A record that is there is given in the loop's own thread; what waits or does I/O runs in a
    thread of the consumer's own. The callbacks of `subscribe` and `on_commit` may be coroutine
    functions: these are awaited on the loop, with this consumer as their argument, and may await
    its calls. Plain functions run in the consumer's thread and get the synchronous `Consumer`.
    Calls of several tasks go one after the other.

    Args:
        config: As of `Consumer`.

    Example:
        >>> async with AsyncConsumer({"bootstrap.servers": "127.0.0.1:9490"}) as consumer:
        ...     await consumer.assign([TopicPartition("flights", 0, OFFSET_BEGINNING)])
        ...     async for record in consumer:
        ...         print(record.value)
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._callbacks = LoopCallbacks(self)
        check_config(config)
        if "on_commit" in config:
            on_commit = self._callbacks.plain(config["on_commit"], has_consumer=False)
            config = {**config, "on_commit": on_commit}
        self._consumer = _Consumer(config)
        self._executor = ThreadPoolExecutor(1, "mainstem-async-consumer")
        self._turn = asyncio.Lock()
        self._closed = False
        #: A call of a task that did not wait for its end: it still uses the consumer.
        self._left: Future[Any] | None = None
        self._close_call: Future[None] | None = None

    async def getone(self) -> ConsumerRecord:
        """The next record; waits for it.

        Raises:
            As `Consumer.poll`, and RuntimeError inside a callback, where none may come:
            `getmany` gives what is there.
        """
        if inside_callback(self):
            raise RuntimeError(
                "getone() was awaited in a callback of the consumer, which the next record waits "
                "for; getmany() gives what is there"
            )
        async with self._my_turn():
            while (record := self._consumer.take_ready()) is None:
                await self._wait(_WAIT_S)
            return record

    async def getmany(
        self, *, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """What is there, by partition, in order.

        Args:
            timeout_ms: How long to wait for the first record.
            max_records: None: max.poll.records.
        """
        limit = self._consumer.poll_limit(max_records)
        records = await self._many(
            partial(self._consumer.take_ready_many, limit), timeout_ms / 1000
        )
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        for record in records:
            found.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        return found

    async def poll_batch(
        self,
        timeout: float | None = None,  # noqa: ASYNC109
        max_records: int | None = None,
    ) -> dict[TopicPartition, pa.RecordBatch]:
        """`Consumer.poll_batch`."""
        limit = self._consumer.poll_limit(max_records)
        return await self._many(partial(self._consumer.take_ready_batches, limit), timeout)

    async def _many(self, take: Callable[[], M], timeout_s: float | None) -> M:
        if inside_callback(self):
            await run_inside(self._consumer.wait_ready, 0.0)
            return await run_inside(take, unheard=self._take_back)
        deadline = None if timeout_s is None or timeout_s < 0 else time.monotonic() + timeout_s
        async with self._my_turn():
            while True:
                left_s = _WAIT_S if deadline is None else deadline - time.monotonic()
                await self._wait(max(0.0, min(_WAIT_S, left_s)))
                found = take()
                if found or left_s <= 0:
                    return found

    def _take_back(self, found: M) -> None:
        if found:
            self._consumer.undo()

    async def _wait(self, timeout_s: float) -> None:
        self._check_open()
        await self._run(self._consumer.wait_ready, timeout_s)

    async def subscribe(
        self,
        topics: Sequence[str] | str,
        on_assign: AsyncOnPartitions | None = None,
        on_revoke: AsyncOnPartitions | None = None,
        on_lost: AsyncOnPartitions | None = None,
    ) -> None:
        """`Consumer.subscribe`; the callbacks may be coroutine functions."""
        callbacks = [
            self._callbacks.plain(callback, has_consumer=True)
            for callback in (on_assign, on_revoke, on_lost)
        ]
        await self._call(self._consumer.subscribe, topics, *callbacks)

    async def unsubscribe(self) -> None:
        """`Consumer.unsubscribe`."""
        await self._call(self._consumer.unsubscribe)

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """`Consumer.assign`."""
        await self._call(self._consumer.assign, partitions)

    async def unassign(self) -> None:
        """`Consumer.unassign`."""
        await self._call(self._consumer.unassign)

    async def poll(self, timeout: float | None = None) -> ConsumerRecord | None:  # noqa: ASYNC109
        """`Consumer.poll`."""
        records = await self._many(partial(self._consumer.take_ready_many, 1), timeout)
        return records[0] if records else None

    async def consume(
        self,
        num_messages: int = 1,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> list[ConsumerRecord]:
        """Up to `num_messages` records; waits for the first only, so that a wait which is cancelled
        loses none."""
        if num_messages < 1:
            raise ValueError(f"num_messages is {num_messages}; it must be at least 1")
        return await self._many(partial(self._consumer.take_ready_many, num_messages), timeout)

    def subscription(self) -> list[str]:
        """`Consumer.subscription`."""
        return self._consumer.subscription()

    async def assignment(self) -> list[TopicPartition]:
        """`Consumer.assignment`."""
        return await self._call(self._consumer.assignment)

    async def commit(
        self,
        message: ConsumerRecord | None = None,
        offsets: CommitOffsets | None = None,
        *,
        asynchronous: bool = False,
    ) -> list[TopicPartition]:
        """`Consumer.commit`; durable when it returns, unless it is asynchronous: then on_commit
        tells its end, and nothing is returned."""
        done = await self._call(
            partial(self._consumer.commit, message, offsets, asynchronous=asynchronous)
        )
        return done or []

    async def store_offsets(
        self, message: ConsumerRecord | None = None, offsets: CommitOffsets | None = None
    ) -> None:
        """`Consumer.store_offsets`."""
        await self._call(self._consumer.store_offsets, message, offsets)

    async def list_topics(self, timeout: float = 30.0) -> dict[str, TopicMetadata]:  # noqa: ASYNC109
        """`Consumer.list_topics`."""
        return await self._call(self._consumer.list_topics, timeout)

    async def committed(
        self,
        partitions: Iterable[TopicPartition],
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> list[TopicPartition]:
        """`Consumer.committed`."""
        return await self._call(self._consumer.committed, partitions, timeout)

    async def position(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """`Consumer.position`."""
        return await self._call(self._consumer.position, partitions)

    async def sources(self) -> dict[TopicPartition, str]:
        """`Consumer.sources`."""
        return await self._call(self._consumer.sources)

    async def seek(self, partition: TopicPartition) -> None:
        """`Consumer.seek`."""
        await self._call(self._consumer.seek, partition)

    async def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """`Consumer.pause`."""
        await self._call(self._consumer.pause, partitions)

    async def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """`Consumer.resume`."""
        await self._call(self._consumer.resume, partitions)

    async def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float | None = None,  # noqa: ASYNC109
        cached: bool = False,
    ) -> tuple[int, int]:
        """`Consumer.get_watermark_offsets`."""
        return await self._call(self._consumer.get_watermark_offsets, partition, timeout, cached)

    async def offsets_for_times(
        self,
        partitions: Iterable[TopicPartition],
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> list[TopicPartition]:
        """`Consumer.offsets_for_times`."""
        return await self._call(self._consumer.offsets_for_times, partitions, timeout)

    async def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        """`Consumer.consumer_group_metadata`."""
        return await self._call(self._consumer.consumer_group_metadata)

    async def close(self) -> None:
        """`Consumer.close`. It runs to its end, however often it is cancelled meanwhile, and raises
        the cancellation then. A call that waits for records in another task ends with
        ConsumerClosedError; another `close` waits for this one."""
        await self._close(done=True)

    async def _close(self, *, done: bool) -> None:
        if inside_callback(self):
            await run_inside(partial(self._consumer.close_as, done=done))
            return
        self._closed = True
        cancelled = False
        while True:
            try:
                await self._close_once(done=done)
            except asyncio.CancelledError:
                cancelled = True
            else:
                break
        if cancelled:
            assert self._close_call is not None
            raise asyncio.CancelledError from self._close_call.exception()

    async def _close_once(self, *, done: bool) -> None:
        async with self._my_turn():
            if self._close_call is not None:
                return
            self._callbacks.loop = asyncio.get_running_loop()
            call = self._executor.submit(partial(self._consumer.close_as, done=done))
            self._close_call = self._left = call
            self._executor.shutdown(wait=False)
            await asyncio.wait({_future_of(call)})
        call.result()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            warn_unclosed(self, lambda: None)

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        # The common case without a lock: nobody waits, and a record is there.
        if not self._turn.locked() and self._left is None and not self._closed:
            record = self._consumer.take_ready()
            if record is not None:
                return record
        return await self.getone()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes. While an exception is on its way, what came last is not committed."""
        if kind is None:
            await self._close(done=True)
        else:
            with contextlib.suppress(Exception):
                await self._close(done=False)

    def _check_open(self) -> None:
        if self._closed and not inside_callback(self):
            raise ConsumerClosedError("the consumer is closed; make a new one")

    async def _call(self, what: Callable[..., T], *args: Any) -> T:
        async with self._my_turn():
            self._check_open()
            return await self._run(what, *args)

    @contextlib.asynccontextmanager
    async def _my_turn(self) -> AsyncIterator[None]:
        """Waits for other tasks' calls; not inside a callback, which one of them waits for."""
        if inside_callback(self):
            yield
            return
        async with self._turn:
            while self._left is not None:
                await asyncio.wait({_future_of(self._left)})
                self._left = None
            yield

    async def _run(self, what: Callable[..., T], *args: Any) -> T:
        """Runs a call in the consumer's thread. A task that is cancelled waits until it has ended;
        one that is cancelled again does not, but whoever has the next turn does."""
        if inside_callback(self):
            return await run_inside(what, *args)
        self._callbacks.loop = asyncio.get_running_loop()
        call = self._executor.submit(partial(what, *args))
        ended = _future_of(call)
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            # Left alone, the call would use the consumer while the next one does.
            self._left = call
            await asyncio.wait({ended})
            self._left = None
            raise


def _future_of(call: Future[T]) -> asyncio.Future[T]:
    """A call's future for the running loop, where nobody need look at what it raises."""
    future = asyncio.wrap_future(call)
    future.add_done_callback(looked_at)
    return future

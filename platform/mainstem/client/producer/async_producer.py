"""The asyncio producer, in the shape of aiokafka's: the same engine, awaited."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import pyarrow as pa

from mainstem.client.arguments import offsets_of
from mainstem.client.callbacks import looked_at
from mainstem.client.positions import ConsumerGroupMetadata, TopicPartition
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
from mainstem.client.producer.transactions import Transactions
from mainstem.client.results import BatchMetadata, RecordMetadata, TopicMetadata, TransactionPlaces
from mainstem.client.unclosed import warn_unclosed
from mainstem.errors import MainstemError

T = TypeVar("T")

#: Calls of which each is another one: who makes the same waits for its end.
_NOT_JOINED: Final = frozenset({"send_offsets_to_transaction", "transaction"})

#: The arguments of `append_record` behind the engine.
_Record = tuple[Any, ...]


class AsyncProducer:
    """`Producer` for asyncio: same settings, same promises, futures in place of callbacks.

    Every method belongs to one event loop, the one that runs when it is first awaited. The loop is
    never blocked for I/O: a record is appended in the loop's own thread (microseconds; once in
    8,192 records the few milliseconds that it takes to build their columns), and only what has to
    wait, for a topic's metadata or for room in buffer.memory, waits in a thread of the producer.

    Args:
        config: As of `Producer`.

    Example:
        >>> async with AsyncProducer({"bootstrap.servers": "127.0.0.1:9490"}) as producer:
        ...     where = await producer.send_and_wait("flights", b"...", key="UA")
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._engine = Engine(config)
        # Records that wait go one after the other, and later ones behind them.
        self._waiting = asyncio.Lock()
        #: Calls for the metadata of a topic, which go on when who made them was cancelled.
        self._asking: dict[str, asyncio.Future[object]] = {}
        self._closing: asyncio.Future[None] | None = None
        #: The call of transactions that is under way, by name. It goes on when who made it was
        #: cancelled; the same call joins it, another one waits for it.
        self._transacting: tuple[str, asyncio.Future[Any]] | None = None

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
        one word. Records of one task are sent in the order of their `send`. A `send` that is
        cancelled while it waits has queued nothing; cancelling its future does not take the record
        back.

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
        if not self._waiting.locked() and self._append(record) is None:
            return future
        async with self._waiting:
            deadline = self._engine.clock() + self._engine.settings.max_block_ms / 1000
            while (missing := self._append(record)) is not None:
                await self._wait_for(missing, deadline)
        return future

    def _append(self, record: _Record) -> WouldBlock | None:
        """Queues a record; returns what is missing if it cannot be queued now."""
        try:
            append_record(self._engine, *record, blocking=False)
        except WouldBlock as missing:
            return missing.with_traceback(None)
        return None

    async def _wait_for(self, missing: WouldBlock, deadline: float) -> None:
        given_up = threading.Event()
        if missing.topic:
            asking = self._asking.get(missing.topic)
            if asking is None:
                asking = _in_thread(missing.wait, deadline, given_up)
                asking.add_done_callback(lambda _: self._asking.pop(missing.topic, None))
                self._asking[missing.topic] = asking
            await asyncio.shield(asking)
            return
        try:
            await _in_thread(missing.wait, deadline, given_up)
        finally:
            given_up.set()

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
        """`Producer.produce_batch`; returns, when the batch is queued, a future of its metadata.

        Where it is cancelled the batch may be queued all the same.
        """
        # In a task of its own: until it is queued or refused, nothing may overtake it.
        queueing = asyncio.ensure_future(self._queue_batch(topic, batch))
        queueing.add_done_callback(looked_at)
        return await asyncio.shield(queueing)

    async def _queue_batch(
        self, topic: str, batch: pa.RecordBatch
    ) -> asyncio.Future[BatchMetadata]:
        async with self._waiting:
            return _followed(await _in_thread(append_batch, self._engine, topic, batch))

    async def partitions_for(self, topic: str) -> int:
        """How many partitions the topic has."""
        return await _in_thread(self._engine.partition_count, topic)

    async def list_topics(self, timeout: float = 30.0) -> dict[str, TopicMetadata]:  # noqa: ASYNC109
        """Every topic, by name; `timeout` in seconds for each gateway that is asked."""
        return await _in_thread(self._engine.all_topics, timeout)

    async def init_transactions(
        self,
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        single_use: bool = False,
    ) -> str | None:
        """See `Producer.init_transactions`, also for what errors mean.

        This and the following calls go on when they are cancelled. The same call then waits for
        the same end; another one is made after it.
        """
        return await self._transact("init_transactions", Transactions.init, timeout, single_use)

    async def begin_transaction(self) -> None:
        """See `Producer.begin_transaction`."""
        await self._transact("begin_transaction", Transactions.open)

    async def send_offsets_to_transaction(
        self,
        offsets: Iterable[TopicPartition],
        group_metadata: ConsumerGroupMetadata,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> None:
        """See `Producer.send_offsets_to_transaction`."""
        call = "send_offsets_to_transaction"
        given = offsets_of(offsets, call)
        await self._transact(call, Transactions.send_offsets, given, group_metadata, timeout)

    async def commit_transaction(self, timeout: float | None = None) -> TransactionPlaces:  # noqa: ASYNC109
        """See `Producer.commit_transaction`."""
        return await self._transact("commit_transaction", Transactions.commit, timeout)

    async def abort_transaction(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """See `Producer.abort_transaction`."""
        await self._transact("abort_transaction", Transactions.abort, timeout)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """`async with producer.transaction():`, see `Producer.transaction`."""
        transactions = Transactions.of(self._engine, "transaction")
        await self._begin_block()
        try:
            yield self
            if transactions.is_open:
                await self.commit_transaction()
        except BaseException:
            await self._roll_back()
            raise

    async def _begin_block(self) -> None:
        """`begin_transaction` for a block: one that is cancelled leaves no transaction open, as
        nobody would end it."""
        beginning = _Beginning()
        try:
            await self._transact("transaction", beginning.open)
        except asyncio.CancelledError:
            if beginning.give_up():
                await self._roll_back()
            raise

    async def _roll_back(self) -> None:
        """It goes on when it is cancelled, also where it waits for another call."""
        work = self._transact("abort_transaction", Transactions.roll_back)
        rolling_back = asyncio.ensure_future(work)
        rolling_back.add_done_callback(looked_at)
        await asyncio.shield(rolling_back)

    async def prepare_transaction(
        self,
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        lifetime: float | None = None,
    ) -> str:
        """See `Producer.prepare_transaction`."""
        return await self._transact("prepare_transaction", Transactions.prepare, timeout, lifetime)

    async def complete_transaction(
        self,
        token: str,
        commit: bool = True,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> TransactionPlaces:
        """See `Producer.complete_transaction`."""
        call = "complete_transaction"
        return await self._transact(call, Transactions.complete, token, commit, timeout)

    async def _transact(self, name: str, call: Callable[..., T], *arguments: object) -> T:
        transactions = Transactions.of(self._engine, name)
        while self._transacting is not None and not self._transacting[1].done():
            before, running = self._transacting
            if before == name and before not in _NOT_JOINED:
                return await asyncio.shield(running)
            await asyncio.wait([running])
        running = _in_thread(call, transactions, *arguments)
        self._transacting = name, running
        return await asyncio.shield(running)

    async def flush(self, timeout: float | None = None) -> int:  # noqa: ASYNC109
        """Sends everything at once and waits for it; see `Producer.flush`.

        Failures are told by the futures only.
        """
        return await _in_thread(self._engine.flush, timeout)

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Flushes, then ends threads and connections; see `Producer.close`.

        Where it is cancelled it goes on all the same, and another call waits for the same end.
        """
        loop = asyncio.get_running_loop()
        if self._closing is None or self._closing.get_loop() is not loop:
            self._closing = _in_thread(self._engine.close, timeout)
        elif self._closing.done():
            return
        await asyncio.shield(self._closing)

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


class _Beginning:
    """The begin of a block's transaction, which the block may give up meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened = False
        self._given_up = False

    def open(self, transactions: Transactions) -> None:
        """In a thread."""
        transactions.open()
        with self._lock:
            self._opened = True
            given_up = self._given_up
        if given_up:
            transactions.roll_back()

    def give_up(self) -> bool:
        """Whether it was open already, and is the caller's to end."""
        with self._lock:
            self._given_up = True
            return self._opened


def _in_thread(call: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
    """What a call returns, made in a thread of its own: no other call can hold it up, and it holds
    up no loop that ends. It goes on when the future is cancelled."""
    ended: Future[T] = Future()

    def run() -> None:
        try:
            ended.set_result(call(*arguments))
        except BaseException as failure:
            ended.set_exception(failure)

    future = _followed(ended)
    future.add_done_callback(looked_at)
    threading.Thread(target=run, name="mainstem-async-producer", daemon=True).start()
    return future


def _followed(source: Future[T]) -> asyncio.Future[T]:
    """A future of the loop that ends as `source` does; nobody is told when the loop is closed."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell() -> None:
        if future.done():
            return  # cancelled by the caller that waited
        failure = source.exception()
        if failure is None:
            future.set_result(source.result())
        else:
            future.set_exception(failure)

    def ended(_: Future[T]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell)

    source.add_done_callback(ended)
    return future

"""The synchronous producer, in the shape of confluent-kafka's."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Self

import pyarrow as pa

from mainstem.client.arguments import check_seconds
from mainstem.client.per_record import faster_produce
from mainstem.client.per_record.plain import FULL
from mainstem.client.positions import ConsumerGroupMetadata, TopicPartition
from mainstem.client.producer.accumulator import record_bytes
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
from mainstem.client.producer.transactions import Transactions
from mainstem.client.results import BatchMetadata, RecordMetadata, TopicMetadata, TransactionPlaces
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

    With `transactional.id` records are produced in transactions only: they become visible together,
    in all their topics, with offsets of a group if wanted, or not at all. In a transaction a
    record's delivery report comes when the coordinator has taken it, with offset -1; close()
    aborts one that is open.

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
            InvalidTxnStateError: With transactional.id, and no transaction is open.
            TransactionAbortedError: The transaction is lost: abort_transaction().
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

    produce = faster_produce(produce)

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

    # ------------------------------------------------------------------------------- transactions

    def init_transactions(
        self, timeout: float | None = None, *, single_use: bool = False
    ) -> str | None:
        """Makes this producer the one of its transactional.id: whoever had it before is fenced, and
        its open transaction aborted. Once, before the first transaction.

        Errors of this and the following calls are of three kinds. `retriable`: call again.
        `abortable`: abort_transaction(), and go on with the next transaction. `fatal`: close the
        producer. InvalidTxnStateError is none of them: the call does not fit what was called
        before, and nothing was changed.

        Args:
            timeout: Seconds; None or negative: max.block.ms.
            single_use: The transactional.id is for one transaction, made up with a UUID in it:
                nobody can have had it before, and the coordinator forgets it when the transaction
                is over, instead of after transactional.id.expiration.ms.

        Returns:
            The token of a transaction that is prepared under this id: complete_transaction() it
            before another can begin. None: there is none.

        Raises:
            ConfigError: transactional.id is not set.
            PolicyViolationError: The gateway does not take transaction.timeout.ms.
            InvalidConfigError: The gateway is older than this client and has no transactions.
            GatewayUnavailableError, OutcomeUnknownError: (retriable) Nobody answered in time.
        """
        transactions = Transactions.of(self._engine, "init_transactions")
        return transactions.init(timeout, single_use)

    def begin_transaction(self) -> None:
        """Opens a transaction: records and offsets from now on are of it. Asks nobody: the
        coordinator hears of it with the first of them.

        Raises:
            InvalidTxnStateError: init_transactions() was not called, or a transaction is open.
            ProducerFencedError: (fatal) Another producer has the transactional.id now.
        """
        Transactions.of(self._engine, "begin_transaction").open()

    def send_offsets_to_transaction(
        self,
        offsets: Iterable[TopicPartition],
        group_metadata: ConsumerGroupMetadata,
        timeout: float | None = None,
    ) -> None:
        """Commits offsets of a group with the transaction. The consumer has enable.auto.commit off.

        Args:
            offsets: The next offsets to read. Those that are OFFSET_INVALID are left out.
            group_metadata: What `consumer_group_metadata()` of the consumer returns at this moment.
            timeout: Seconds; None or negative: max.block.ms.

        Raises:
            TransactionAbortedError: (abortable) The consumer has lost the partitions, or is not a
                member any more; or the transaction was lost already.
            GatewayUnavailableError, OutcomeUnknownError: (retriable) Nobody answered in time.
            ProducerFencedError: (fatal)
        """
        transactions = Transactions.of(self._engine, "send_offsets_to_transaction")
        transactions.send_offsets(offsets, group_metadata, timeout)

    def commit_transaction(self, timeout: float | None = None) -> TransactionPlaces:
        """Sends what is buffered, then commits: when it returns, all records are rows of their
        topics' tables, and the offsets are committed. Calls `on_delivery` as poll() does.

        Args:
            timeout: Seconds; None or negative: as long as the records take
                (delivery.timeout.ms bounds it), and max.block.ms for the answer.

        Returns:
            Where the records are, by (topic, partition); empty for an empty transaction.

        Raises:
            TransactionAbortedError: (abortable) A record failed, or the transaction was lost;
                TransactionTimedOutError: it was open for longer than transaction.timeout.ms.
                Nothing of it is in the log.
            OutcomeUnknownError: (retriable) No answer in time: it may be committed. Call this
                again until it is answered; nothing else can be done with the transaction.
            GatewayUnavailableError: (retriable) Not all records were taken in time. Call it again,
                or abort.
            ProducerFencedError: (fatal)
            RuntimeError: An `on_delivery` called it.
            Exception: The first that an `on_delivery` raised: nothing was committed; the
                transaction is still open.
        """
        return Transactions.of(self._engine, "commit_transaction").commit(timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Ends the transaction without a trace. What was not sent is thrown away: its `on_delivery`
        and futures get a TransactionAbortedError.

        Args:
            timeout: Seconds; None or negative: max.block.ms.

        Raises:
            GatewayUnavailableError, OutcomeUnknownError: (retriable) Nobody answered in time. The
                coordinator aborts it in any case when transaction.timeout.ms has passed.
            ProducerFencedError: (fatal)
        """
        Transactions.of(self._engine, "abort_transaction").abort(timeout)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Self]:
        """`with producer.transaction():` begins a transaction and commits it at the block's end.

        What the block raises aborts it, and goes on. So does what commit_transaction() raises,
        unless the transaction may be committed: after an OutcomeUnknownError call
        commit_transaction() until it is answered. A transaction that the block itself has ended or
        prepared is left as it is.
        """
        transactions = Transactions.of(self._engine, "transaction")
        transactions.open()
        try:
            yield self
            if transactions.is_open:
                transactions.commit(None)
        except BaseException:
            transactions.roll_back()
            raise

    def prepare_transaction(
        self, timeout: float | None = None, *, lifetime: float | None = None
    ) -> str:
        """The first phase of a commit together with another system: what was sent is durable, and
        waits for `complete_transaction`, from any process and for any time. It holds back no
        reader, and this producer begins no other transaction before. It may not have offsets.

        Args:
            timeout: As of commit_transaction.
            lifetime: Seconds, at most a day, after which it is aborted if nobody has completed it;
                None: it waits for any time.

        Returns:
            The token, which the other system stores in the transaction that it commits.

        Raises:
            As commit_transaction; after an OutcomeUnknownError call this again.
        """
        return Transactions.of(self._engine, "prepare_transaction").prepare(timeout, lifetime)

    def complete_transaction(
        self, token: str, commit: bool = True, timeout: float | None = None
    ) -> TransactionPlaces:
        """The second phase. `AdminClient.complete_transaction` is the same for any process.

        Args:
            token: From prepare_transaction() or init_transactions(), of any producer.
            commit: False: abort.
            timeout: Seconds; None or negative: max.block.ms.

        Returns:
            As commit_transaction. It may be called again with the same `commit`.

        Raises:
            InvalidTxnStateError: It was completed the other way, or is not known.
            GatewayUnavailableError, OutcomeUnknownError: (retriable) Nobody answered in time.
        """
        transactions = Transactions.of(self._engine, "complete_transaction")
        return transactions.complete(token, commit, timeout)

    # -------------------------------------------------------------------------------------- topics

    def list_topics(self, timeout: float = 30.0) -> dict[str, TopicMetadata]:
        """Every topic, by name; the log (`mainstem.client`) names those that cannot be read.

        Args:
            timeout: Seconds for each gateway that is asked.

        Raises:
            GatewayUnavailableError: No gateway answered.
        """
        check_seconds(timeout)
        return self._engine.all_topics(timeout)

    def partitions_for(self, topic: str) -> int:
        """How many partitions the topic has: 0 to this number less one exist.

        Raises:
            UnknownTopicError, GatewayUnavailableError: As `produce`.
        """
        return self._engine.partition_count(topic)

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

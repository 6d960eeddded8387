"""confluent-kafka's Producer, over the engine of `mainstem.client.Producer`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NoReturn, Self

from mainstem.client.callbacks import check_plain, raise_first
from mainstem.client.producer.append import (
    append_record,
    check_timestamp,
    to_bytes,
    to_headers,
)
from mainstem.client.producer.engine import Engine, WouldBlock
from mainstem.client.results import RecordMetadata
from mainstem.client.unclosed import free_later
from mainstem.compat.confluent.configuration import (
    Configuration,
    in_kafkas_words,
    kafka_exceptions,
    no_pickle,
    seconds,
)
from mainstem.compat.confluent.error import (
    NO_OTHER_CREDENTIALS,
    KafkaError,
    KafkaException,
    from_mainstem,
    kafka_error,
    refused,
)
from mainstem.compat.confluent.metadata import ClusterMetadata, cluster_metadata
from mainstem.compat.confluent.model import (
    TIMESTAMP_CREATE_TIME,
    Headers,
    Message,
)
from mainstem.compat.confluent.transactions import TransactionalProducer
from mainstem.errors import (
    ConfigError,
    GatewayUnavailableError,
    InvalidTxnStateError,
    MainstemError,
    ProducerClosedError,
    RecordTooLargeError,
    TransactionAbortedError,
    UnknownPartitionError,
)

#: Called as `on_delivery(error, message)`.
OnDelivery = Callable[[KafkaError | None, Message], object]

_OWN: Final = ("queue.buffering.max.messages", "delivery.report.only.error")

#: librdkafka's defaults where ours are others and a program may rely on them.
_DEFAULTS: Final = {"delivery.timeout.ms": 300_000}
_BOUNDS_OF_DELIVERY: Final = ("delivery.timeout.ms", "message.timeout.ms", "transactional.id")


class Producer(TransactionalProducer):
    """Sends messages; `on_delivery(error, message)` is called by poll() and flush().

    Args:
        config: Settings by librdkafka's names; `on_delivery`, `error_cb`, `stats_cb`, `logger`.

    Raises:
        KafkaException: Settings are wrong; all of them are told.
        TypeError: `config` is no dictionary.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        self._configuration = Configuration(config, keywords, own=_OWN)
        settings = self._configuration.settings
        # Of a transaction, transaction.timeout.ms bounds it.
        if not any(name in settings for name in _BOUNDS_OF_DELIVERY):
            settings.update(_DEFAULTS)
        try:
            self._engine = Engine(settings)
        except ConfigError as error:
            raise in_kafkas_words(error) from error
        self._message_count_max = self._configuration.own_int(
            "queue.buffering.max.messages", 100_000
        )
        self._errors_only = self._configuration.own_bool("delivery.report.only.error", False)
        #: Reports that do not come from the engine: poll() serves them first.
        self._waiting: deque[tuple[OnDelivery, KafkaError | None, Message]] = deque()
        self._purging = False
        self._produced_count = 0
        self._closed = False

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Mapping[str, Any] | Sequence[tuple[str | bytes, Any]] | None = None,
    ) -> None:
        """Queues a message; waits only for the metadata of a topic that is new to it.

        Args:
            partition: -1: by the key, or any.
            callback, on_delivery: Two names of the same: it gets (error or None, message).
            timestamp: Milliseconds since 1970-01-01 UTC; 0: now.
            headers: A dictionary, or a list of pairs; a name may be bytes of UTF-8.

        Raises:
            BufferError: queue.buffering.max.messages or buffer.memory is full: poll(), try again.
            KafkaException: The message is too large, or there is no such partition.
            TypeError: A value is neither str nor bytes; on_delivery is not a plain function.
        """
        self._check_open()
        if not isinstance(topic, str):
            raise TypeError(f"topic is a {type(topic).__name__}; it must be a str")
        found_key, found_value = to_bytes(key, "key"), to_bytes(value, "value")
        pairs = to_headers(_named_by_text(headers)) if headers else None
        if self._message_count_max and len(self) >= self._message_count_max:
            raise _queue_full(f"{self._message_count_max} messages wait")
        report = _first(callback, on_delivery, self._configuration.on_delivery)
        if report is not None:
            check_plain(report, "on_delivery", "mainstem.client.AsyncProducer.send()")
        started = time.monotonic()

        def delivered(error: MainstemError | None, where: RecordMetadata) -> None:
            failure = None if error is None else self._failure(error)
            if report is None or (failure is None and self._errors_only):
                return
            message = Message(
                where.topic,
                where.partition,
                where.offset if where.offset >= 0 else None,
                found_key,
                found_value,
                _to_pairs(pairs),
                failure,
                (TIMESTAMP_CREATE_TIME, where.timestamp),
                time.monotonic() - started,
            )
            if self._purging:
                self._waiting.append((report, failure, message))
            else:
                report(failure, message)

        try:
            self._append(
                topic,
                found_value,
                found_key,
                partition,
                delivered if report is not None else None,
                check_timestamp(timestamp or None),
                pairs,
            )
        except InvalidTxnStateError as error:
            raise refused("_STATE", error.message) from error
        except (RecordTooLargeError, TransactionAbortedError, UnknownPartitionError) as error:
            raise KafkaException(from_mainstem(error)) from error
        except ProducerClosedError:
            raise _closed() from None
        except MainstemError as error:
            if isinstance(error, BufferError):
                raise
            if isinstance(error, GatewayUnavailableError):
                self._configuration.tell_error(error)
            if report is None:
                raise KafkaException(from_mainstem(error)) from error
            # librdkafka finds it out later, and tells it in the delivery report.
            failure = from_mainstem(error)
            message = Message(
                topic, partition, None, found_key, found_value, _to_pairs(pairs), failure
            )
            self._waiting.append((report, failure, message))
        else:
            self._produced_count += 1

    def _append(
        self, topic: str, value: bytes | None, key: bytes | None, partition: int, *rest: Any
    ) -> None:
        engine = self._engine
        try:
            append_record(engine, topic, value, key, partition, *rest, blocking=False)
        except WouldBlock:
            # For metadata it waits; for room it does not.
            buffer = engine.open(topic)
            if partition == -1:
                partition = engine.place(buffer, key)
            else:
                engine.check_partition(buffer, partition, blocking=True)
            try:
                append_record(engine, topic, value, key, partition, *rest, blocking=False)
            except WouldBlock:
                raise _queue_full(
                    f"buffer.memory ({engine.settings.buffer_memory} bytes) is full"
                ) from None

    def produce_batch(
        self,
        topic: str,
        messages: Sequence[dict[str, Any]],
        partition: int = -1,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> int:
        """Queues messages, given as dictionaries of produce()'s arguments.

        Returns:
            How many were queued; one that was not has a KafkaError as `_error`.
        """
        if not isinstance(messages, list):
            raise TypeError("messages must be a list")
        queued_count = 0
        for message in messages:
            if not isinstance(message, dict):
                raise TypeError("each message must be a dict")
            try:
                self.produce(
                    topic,
                    message.get("value"),
                    message.get("key"),
                    message.get("partition", partition),
                    _first(
                        message.get("callback"), message.get("on_delivery"), callback, on_delivery
                    ),
                    timestamp=message.get("timestamp", 0),
                    headers=message.get("headers"),
                )
            except BufferError as error:
                message["_error"] = kafka_error("_QUEUE_FULL", str(error))
            except KafkaException as error:
                message["_error"] = error.args[0]
            else:
                queued_count += 1
        return queued_count

    def poll(self, timeout: float | None = -1) -> int:
        """Calls the callbacks of messages that have ended; returns how many.

        Args:
            timeout: Seconds to wait for the first; negative or None: without end.
        """
        self._check_open()
        wait_s = seconds(timeout)
        served_count = self._serve_waiting()
        if served_count:
            wait_s = 0
        served_count += self._engine.poll(self._configuration.statistics.due_in_s(wait_s))
        return served_count + self._configuration.statistics.report("producer", self._collect)

    def flush(self, timeout: float | None = -1) -> int:
        """Sends everything, waits for it, and calls the callbacks.

        What a callback produces is sent and waited for too.

        Args:
            timeout: Seconds; negative or None: without end.

        Returns:
            How many messages have not ended: 0: all have. Failures are told by the callbacks; those
            of messages without one are logged, and error_cb is called.
        """
        self._check_open()
        try:
            return self._flush(seconds(timeout))
        except ProducerClosedError as error:
            raise RuntimeError(error.message) from error

    def _flush(self, left_s: float | None) -> int:
        deadline = None if left_s is None else time.monotonic() + left_s
        while True:
            self._serve_waiting()
            try:
                self._engine.flush(left_s)
            except ProducerClosedError:
                raise
            except MainstemError as error:
                self._configuration.tell_error(error)
            self._configuration.statistics.report("producer", self._collect)
            if deadline is not None:
                left_s = max(0.0, deadline - time.monotonic())
            if not len(self) or left_s == 0:
                return len(self)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Gives up what has not been acknowledged: each report says _PURGE_QUEUE, at the next poll.

        A message that was under way may be stored all the same. In a transaction it is not: what is
        left of that is to abort it.

        Raises:
            KafkaException: Only one of the two queues was named: they are purged together.
        """
        self._check_open()
        if not in_queue and not in_flight:
            return
        if in_queue != in_flight:
            raise refused(
                "_NOT_IMPLEMENTED",
                "what waits and what is under way are purged together: purge() without arguments",
            )
        self._purging = True
        if self._engine.transactions is not None:
            self._engine.transactions.lost(TransactionAbortedError("purge() was called"))
            self._engine.poll(0)
            self._purging = False
            return
        try:
            self._engine.close(0)
        except MainstemError as error:
            self._configuration.tell_error(error)
        finally:
            self._purging = False
        self._engine = Engine(self._configuration.settings)

    def close(self) -> bool:
        """Flushes, then ends threads and connections; True.

        What callbacks raise is raised when all is done.
        """
        if self._closed:
            return True
        failures: list[BaseException] = []
        # An open transaction is aborted: nothing of it is worth waiting for.
        flush_s = None if self._engine.transactions is None else 0
        while not self._engine.in_callback:
            try:
                self._flush(flush_s)
            except ProducerClosedError:
                break  # of another process
            except Exception as failure:
                failures.append(failure)
            if not self._waiting:
                break
        self._closed = True
        try:
            self._engine.close(None)
        except MainstemError as error:
            self._configuration.tell_error(error)
        except Exception as failure:
            failures.append(failure)
        raise_first(failures, "delivery callbacks")
        return True

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Topics, partitions and gateways; with `topic` only that one.

        Raises:
            KafkaException: No gateway answered.
        """
        self._check_open()
        with kafka_exceptions():
            found = self._engine.all_topics(30.0 if timeout < 0 else timeout)
        return cluster_metadata(found, self._engine.settings.bootstrap_servers, topic)

    def cluster_id(self, timeout: float = -1) -> str | None:
        """The name that stands for the cluster; asks a gateway."""
        return self.list_topics(timeout=timeout).cluster_id

    def __len__(self) -> int:
        """Messages that have not ended, and reports that wait for poll()."""
        return 0 if self._closed else self._engine.pending_count() + len(self._waiting)

    def __bool__(self) -> bool:
        """True: a producer without messages is still a producer."""
        return True

    def __del__(self) -> None:
        # A program need not close it: what it has queued is sent all the same.
        engine = getattr(self, "_engine", None)
        if engine is not None and not engine.closed:
            free_later(engine.free)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise no_pickle(self)

    # ------------------------------------------------------------------------- what cannot be

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Refused: see sasl.password.location."""
        raise refused("_NOT_IMPLEMENTED", NO_OTHER_CREDENTIALS)

    # ------------------------------------------------------------------------------- inside

    def _failure(self, error: MainstemError) -> KafkaError:
        if self._purging and isinstance(error, (ProducerClosedError, TransactionAbortedError)):
            return kafka_error("_PURGE_QUEUE", "purge() was called; it may be stored all the same")
        if isinstance(error, GatewayUnavailableError):
            self._configuration.tell_error(error)
        return from_mainstem(error)

    def _serve_waiting(self) -> int:
        served_count = 0
        for _ in range(len(self._waiting)):
            report, error, message = self._waiting.popleft()
            served_count += 1
            report(error, message)
        return served_count

    def _collect(self) -> dict[str, object]:
        pending = self._engine.pending_count()
        return {
            "msg_cnt": pending,
            "msg_max": self._message_count_max,
            "txmsgs": self._produced_count,
            "topics": {name: {"topic": name} for name in list(self._engine.topics)},
        }

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()


def _first(*callbacks: OnDelivery | None) -> OnDelivery | None:
    """The first that there is; it may be an object that is false, as an empty list is."""
    return next((one for one in callbacks if one is not None), None)


def _closed() -> RuntimeError:
    return RuntimeError("Producer has been closed")


def _queue_full(what: str) -> BufferError:
    return BufferError(f"Local: Queue full: {what}; call poll(), then try again")


def _named_by_text(headers: Any) -> Any:
    """Headers whose names may have been bytes."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    if not isinstance(pairs, Iterable) or isinstance(pairs, (str, bytes)):
        raise TypeError(
            f"headers is a {type(headers).__name__}; it must be a dict or a list of pairs"
        )
    return [
        (pair[0].decode(), *pair[1:])
        if isinstance(pair, (tuple, list)) and pair and isinstance(pair[0], bytes)
        else pair
        for pair in pairs
    ]


def _to_pairs(headers: Any) -> Headers | None:
    return None if headers is None else [(name, value) for name, value in headers]

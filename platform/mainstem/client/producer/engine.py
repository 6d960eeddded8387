"""The engine of both producers: takes records, bounds their memory, tells what became of them."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from mainstem.client.callbacks import raise_first
from mainstem.client.channels import Channels
from mainstem.client.gateways import Gateways
from mainstem.client.interrupts import held_back
from mainstem.client.metadata import MetadataClient, readable
from mainstem.client.per_record.plain import PIECE_ROWS_MAX
from mainstem.client.producer import exits
from mainstem.client.producer.accumulator import TopicBuffer
from mainstem.client.producer.delivery import LOOK_EVERY_S, Reports
from mainstem.client.producer.memory import BufferMemory
from mainstem.client.producer.sender import Sender
from mainstem.client.producer.settings import ProducerSettings
from mainstem.client.producer.transactions import Transactions
from mainstem.client.results import TopicMetadata
from mainstem.errors import (
    MainstemError,
    ProducerClosedError,
    QueueFullError,
    UnknownPartitionError,
)
from mainstem.records import check_topic_name

_log = logging.getLogger("mainstem.client")

#: While no request of a topic may go out, the thread that fills it looks so often whether one may.
_LOOK_AGAIN_NS: Final = 1_000_000

_CALLBACKS: Final = "delivery callbacks"


class WouldBlock(Exception):
    """There is no metadata or no room, and the caller asked not to wait; never leaves here.

    Attributes:
        topic: Whose metadata is missing; empty: room is.
        wait: Waits for that, as the call would have; given a deadline, and what ends the wait for
            room when it is set. Then the call may be made again.
    """

    def __init__(self, topic: str, wait: Callable[[float, threading.Event], object]) -> None:
        super().__init__(topic)
        self.topic = topic
        self.wait = wait


class Engine:
    """What Producer and AsyncProducer share. Thread-safe.

    Attributes:
        settings: As parsed.
        topics: The topics that may be appended to: empty once closed, or in a forked child, so that
            the hot path needs no check of its own.
        clock: Monotonic seconds.
        memory, sender: For `produce_batch`, which brings pieces of its own.
        reports: What became of each piece.
        transactions: None: there is no transactional.id.
        gate: Guards `topics`, and whether records are let in. Taken before a topic's lock.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self.settings = settings = ProducerSettings.parse(config)
        self.topics: dict[str, TopicBuffer] = {}
        self.clock = clock
        self._rng = rng or random.Random()
        self._policy = settings.queue_policy()
        self._linger_ns = settings.linger_ms * 1_000_000
        channels = Channels(settings.max_request_size, settings.client_id, settings.connection)
        self._fatal: MainstemError | None = None
        gateways = Gateways(settings.bootstrap_servers, channels, time.monotonic)
        self._metadata = MetadataClient(gateways, clock, may_create=True)
        self._closing = threading.Event()
        self.gate = threading.Lock()
        self._pid = os.getpid()
        self.memory = BufferMemory(settings.buffer_memory)
        self.reports = Reports(self.memory, clock)
        self.transactions = (
            Transactions(self, settings, gateways, lambda seconds: not self._closing.wait(seconds))
            if settings.transactional_id
            else None
        )
        self.sender = Sender(
            settings,
            self._policy,
            gateways,
            self._metadata,
            self.memory,
            self.reports,
            self.transactions,
            self.end,
            clock,
            self._rng,
        )
        exits.watch(self)

    # ------------------------------------------------------------------------------------- records

    def open(self, name: str, *, blocking: bool = True) -> TopicBuffer:
        """The topic's buffer, with metadata that is known to exist, in a transaction that is begun.

        Raises:
            UnknownTopicError: The gateway says that there is no such topic.
            GatewayUnavailableError: Nobody answered within max.block.ms.
            InvalidTxnStateError, TransactionAbortedError: No transaction takes records.
            WouldBlock: Not `blocking`, and a gateway has to be asked.
        """
        self.check_open()
        topic = self.topics.get(name)
        if topic is not None and not topic.stale:
            return topic
        check_topic_name(name)
        transactions = self.transactions
        must_begin = transactions is not None and transactions.must_begin()
        known = self.sender.topic(name)
        if not blocking and (must_begin or known is None or known.stale):
            raise WouldBlock(name, lambda *_: self.open(name))
        if transactions is None:
            self.sender.prepare()
        info = self.metadata_of(name) if known is None or known.stale else None
        number = 0 if transactions is None else transactions.begin()
        if known is None:
            assert info is not None
            known = TopicBuffer(info, self.settings, self._policy, self._rng)
        with self.gate:
            self.check_open()
            if transactions is not None:
                transactions.check(number)
            topic = self.topics[name] = self.sender.add(known)
            with topic.lock:
                topic.info = info or topic.info
                topic.stale = topic.closed = False
                topic.limit = max(topic.limit, 0)
        return topic

    def partition_count(self, name: str) -> int:
        """How many partitions a topic has, also if no transaction takes records for it now."""
        if self.transactions is None:
            return self.open(name).info.partition_count
        self.check_open()
        known = self.sender.topic(name)
        if known is None or known.stale:
            check_topic_name(name)
            return self.metadata_of(name).partition_count
        return known.info.partition_count

    def metadata_of(self, name: str) -> TopicMetadata:
        """Asks for a topic, again and again until max.block.ms has passed."""
        return self._metadata.wait_for(
            name,
            block_ms=self.settings.max_block_ms,
            timeout_ms=self.settings.request_timeout_ms,
            backoff_ms=self.settings.retry_backoff_ms,
            backoff_max_ms=self.settings.retry_backoff_max_ms,
            pause=self._pause,
        )

    def _pause(self, seconds: float) -> None:
        """Sleeps, unless the producer is closed."""
        self._closing.wait(seconds)
        self.check_open()

    def all_topics(self, timeout_s: float) -> dict[str, TopicMetadata]:
        """Every topic, by name."""
        self.check_open()
        return readable(self._metadata.fetch([], timeout_s))

    def check_partition(self, topic: TopicBuffer, partition: int, *, blocking: bool) -> None:
        """Refuses a partition that the topic does not have; asks the gateway before that."""
        if 0 <= partition < topic.info.partition_count:
            return
        if partition >= 0:
            if not blocking:
                raise WouldBlock(
                    topic.name, lambda *_: self.check_partition(topic, partition, blocking=True)
                )
            topic.info = self.metadata_of(topic.name)
            if partition < topic.info.partition_count:
                return
        raise UnknownPartitionError(
            f"topic {topic.name} has no partition {partition}; it has partitions 0 to "
            f"{topic.info.partition_count - 1}",
            topic=topic.name,
            partition=partition,
        )

    def place(self, topic: TopicBuffer, key: bytes | None, *, blocking: bool = True) -> int:
        """Asks the caller's own partitioner; -1 when there is none."""
        partitioner = self.settings.partitioner
        if isinstance(partitioner, str):
            return -1
        partition = partitioner(key, topic.info.partition_count)
        if type(partition) is not int:
            raise TypeError(
                f"the partitioner returned {partition!r}; it must return an int, the partition"
            )
        self.check_partition(topic, partition, blocking=blocking)
        return partition

    def look(self, topic: TopicBuffer) -> None:
        """After an append that said LOOK: starts the linger clock, or ends the piece."""
        with topic.lock:
            if self._must_wait(topic):
                return
        with held_back():
            self._look(topic)

    def _must_wait(self, topic: TopicBuffer) -> bool:
        """Whether what is open could go, but for its request: most looks under load. Nothing that
        an interrupt could leave half done changes, and to hold one back costs more than this."""
        row_count = len(topic.values)
        if not row_count or row_count >= PIECE_ROWS_MAX or topic.used >= topic.batch_bytes:
            return False
        now_ns = topic.appended_ns()
        if not topic.created_at or now_ns < topic.flush_at_ns or self.sender.may_go_out(topic):
            return False
        topic.flush_at_ns = now_ns + _LOOK_AGAIN_NS
        return True

    def _look(self, topic: TopicBuffer) -> None:
        with topic.lock:
            row_count = len(topic.values)
            if not row_count:
                return
            now_ns = topic.appended_ns()
            if not topic.created_at:
                topic.created_at = self.clock()
                topic.flush_at_ns = now_ns + self._linger_ns
                self.sender.opened(topic)
            if topic.used >= topic.batch_bytes:
                self.sender.cut(topic, ready=True)
            elif row_count >= PIECE_ROWS_MAX:
                self.sender.cut(topic, ready=False)
            elif now_ns >= topic.flush_at_ns:
                self.sender.cut(topic, ready=True)
            else:
                return
        self.sender.pump()

    def make_room(self, topic: TopicBuffer, size: int, *, blocking: bool = True) -> TopicBuffer:
        """After an append that said FULL: reserves memory for a record of `size` bytes.

        Returns:
            The topic, to try again: another thread may have been faster.

        Raises:
            RecordTooLargeError: It never fits.
            QueueFullError: There was no room within max.block.ms.
            WouldBlock: Not `blocking`, and there is no room now.
        """
        topic.check_size(size, self.settings.max_request_size, self.settings.buffer_memory)
        deadline: float | None = None
        while True:
            self.check_open()
            if topic.stale:
                return self.open(topic.name, blocking=blocking)
            if topic.closed:
                return self.open(topic.name, blocking=blocking)
            with held_back():
                room = self._room(topic, size)
            if room:
                return topic
            if topic.closed:
                continue
            if not blocking:
                raise WouldBlock("", partial(self.wait_for_room, size))
            if deadline is None:
                deadline = self.clock() + self.settings.max_block_ms / 1000
            self.wait_for_room(size, deadline)

    def _room(self, topic: TopicBuffer, size: int) -> bool:
        """Whether the topic has memory for a record of `size` bytes now."""
        cut = room = False
        with topic.lock:
            if topic.closed:
                return False
            if topic.values and topic.used + size > topic.batch_bytes:
                self.sender.cut(topic, ready=True)
                cut = True
            room = topic.reserve(self.memory, size)
            if not room and topic.values:
                self.sender.cut(topic, ready=True)
                cut = True
        if cut:
            self.sender.pump()
        return room

    def wait_for_room(
        self, size: int, deadline: float, given_up: threading.Event | None = None
    ) -> None:
        """Waits until `size` bytes may fit, or `given_up` is set.

        Raises:
            QueueFullError: They did not by `deadline`, or will not unless somebody polls.
        """
        memory = self.memory
        while not memory.wait(size, 0) and not (given_up is not None and given_up.is_set()):
            self.check_open()
            left_s = deadline - self.clock()
            if memory.only_reports and not self.reports.served_elsewhere():
                raise QueueFullError(
                    f"buffer.memory ({memory.total_bytes} bytes) is full of records whose delivery "
                    "reports nobody has served: call poll() now and then, or flush()",
                    limit_bytes=memory.total_bytes,
                )
            if left_s <= 0:
                raise QueueFullError(
                    f"buffer.memory ({memory.total_bytes} bytes) stayed full for max.block.ms "
                    f"({self.settings.max_block_ms} ms): the gateway takes records more slowly "
                    "than they come. Try again later, or raise buffer.memory",
                    limit_bytes=memory.total_bytes,
                )
            memory.wait(size, min(left_s, LOOK_EVERY_S))

    # ------------------------------------------------------------------------------------- results

    def end(self, error: MainstemError) -> None:
        """Another producer goes on in this one's place, or a fault of ours has lost account of its
        records: fails everything, now and later."""
        with self.gate:
            if self._fatal is not None:
                return
            self._fatal = error
        _log.error("the producer cannot go on: %s", error)
        try:
            self.shut()
        finally:
            self.sender.abandon(error)

    def shut(self) -> None:
        """No more records, until `open` lets some in again; what is open becomes a piece."""
        with held_back():
            with self.gate:
                self.topics.clear()
            for topic in self.sender.topics():
                with topic.lock:
                    topic.closed = True
                    topic.limit = -1
                    if topic.values:
                        self.sender.cut(topic, ready=True)

    def poll(self, timeout_s: float | None) -> int:
        """Calls the callbacks of delivery reports; waits up to `timeout_s` for the first."""
        waits = self._pid == os.getpid()
        return self.reports.poll(timeout_s if waits else 0, self._closing.is_set)

    def pending_count(self) -> int:
        """Records that are not acknowledged, and delivery reports that are not served."""
        open_count = 0
        for topic in self.sender.topics():
            with topic.lock:  # between lists and queue they would be in neither
                open_count += len(topic.values)
        return open_count + self.reports.left_count()

    @property
    def in_callback(self) -> bool:
        """Whether a delivery callback has called, in this thread."""
        return self.reports.in_callback

    @property
    def report_count(self) -> int:
        """Delivery reports that are not served."""
        return len(self.reports)

    def flush(self, timeout_s: float | None) -> int:
        """Sends what is buffered and waits for it; see Producer.flush."""
        left_count = self.settle("flush", timeout_s)
        self.reports.raise_failure()
        self.check_fatal()
        return left_count

    def settle(self, call: str, timeout_s: float | None) -> int:
        """As `flush`, but for records that failed.

        Args:
            call: Of the application, for the error.
        """
        if self.in_callback:
            raise RuntimeError(
                f"{call}() was called in a delivery callback: it would wait for reports that only "
                "the call around it serves. Call it where poll() is called"
            )
        failures: list[BaseException] = []
        left_count = self._drain(timeout_s, failures)
        raise_first(failures, _CALLBACKS)
        return left_count

    def _drain(
        self, timeout_s: float | None, failures: list[BaseException], *, closing: bool = False
    ) -> int:
        """Sends what is buffered, and serves reports until all has ended; returns what has not.

        Args:
            failures: Takes what callbacks raise; an interrupt ends the wait.
        """
        self._check_process()
        deadline = None if timeout_s is None or timeout_s < 0 else self.clock() + timeout_s
        with held_back():
            for topic in self.sender.topics():
                with topic.lock:
                    if topic.values:
                        self.sender.cut(topic, ready=True)
            mark = self.sender.mark_ready()
        while True:
            self.reports.serve(failures)
            if not closing and failures and not isinstance(failures[-1], Exception):
                raise failures[-1]
            left_s = LOOK_EVERY_S if deadline is None else deadline - self.clock()
            if self.reports.wait(mark, min(left_s, LOOK_EVERY_S)):
                return 0
            if left_s <= 0:
                return self.reports.left_count(mark)

    # --------------------------------------------------------------------------------------- close

    def close(self, timeout_s: float | None) -> None:
        """Flushes, fails what is left, and ends threads and connections. Again: does nothing."""
        transactions = self.transactions
        if transactions is not None and not self.closed and not self.in_callback:
            transactions.wait_idle(timeout_s)
        if self._pid != os.getpid() or not self._begin_to_close():
            return
        failures: list[BaseException] = []
        after = "" if timeout_s is None or timeout_s < 0 else f" after {timeout_s} s"
        try:
            self.shut()
            if transactions is not None:
                transactions.close()
            self._drain(timeout_s, failures, closing=True)
        except BaseException as failure:  # an interrupt of the wait, for one
            failures.append(failure)
            after = f" by {type(failure).__name__}"
        finally:
            # Whatever happened: each record is told of once.
            self.sender.abandon(
                ProducerClosedError(
                    f"close() ended{after} before the record was acknowledged: it may be in the "
                    "log if it was sent"
                )
            )
            self.reports.serve(failures)
            self.sender.stop()
            exits.forget(self)
        raise_first(failures, _CALLBACKS)
        self.reports.raise_failure()

    def free(self) -> None:
        """Nobody has closed it, and nobody can any more: sends what is buffered, as it would have
        been sent otherwise, and ends threads and connections. Calls no callbacks."""
        if self._pid != os.getpid() or not self._begin_to_close():
            return
        try:
            self.shut()
            if self.transactions is not None:
                self.transactions.close()
            mark = self.sender.mark_ready()
            while not self.reports.wait(mark, LOOK_EVERY_S, served=False):
                pass  # delivery.timeout.ms bounds it
            exits.tell_of_reports(self.report_count)
        finally:
            self.sender.stop()
            exits.forget(self)

    def _begin_to_close(self) -> bool:
        """No more records; returns False if it was closed before."""
        with self.gate:
            if self._closing.is_set():
                return False
            self._closing.set()
            self.topics.clear()
        self.memory.close()
        self.reports.wake()
        return True

    @property
    def closed(self) -> bool:
        """close() was called, or this is a forked child, which has nothing to close."""
        return self._closing.is_set() or self._pid != os.getpid()

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise ProducerClosedError(
                f"this producer belongs to process {self._pid}, and this is its forked child "
                f"{os.getpid()}: threads and connections do not survive a fork. Start the process "
                "with multiprocessing's 'spawn' or 'forkserver', and make a producer in it"
            )

    def check_open(self) -> None:
        self._check_process()
        if self._closing.is_set():
            raise _closed_error()
        self.check_fatal()

    def check_fatal(self) -> None:
        fatal = self._fatal
        if fatal is not None:
            error = type(fatal)(fatal.message)
            error.facts = fatal.facts
            raise error

    def forked(self) -> None:
        """In a forked child: makes every later call take the slow way, which then refuses."""
        self.topics.clear()


def _closed_error() -> ProducerClosedError:
    return ProducerClosedError("the producer is closed; make a new one")

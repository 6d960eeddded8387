"""The synchronous consumer, in the shape of confluent-kafka's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

import pyarrow as pa

from mainstem.client.arguments import check_seconds, offsets_of, partition_of, partitions_of
from mainstem.client.callbacks import check_plain
from mainstem.client.consumer.engine import ConsumerEngine
from mainstem.client.consumer.one_thread import two_threads
from mainstem.client.consumer.partitions import Start
from mainstem.client.consumer.reader import deadline_of
from mainstem.client.consumer.records import ConsumerRecord
from mainstem.client.consumer.stepwise import StepwiseConsumer
from mainstem.client.positions import (
    OFFSET_END,
    OFFSET_INVALID,
    ConsumerGroupMetadata,
    TopicPartition,
)
from mainstem.client.results import TopicMetadata
from mainstem.client.unclosed import warn_unclosed
from mainstem.errors import MainstemError

#: Called in poll() with the consumer and the partitions.
OnPartitions = Callable[["Consumer", list[TopicPartition]], object]

#: What a commit may be given.
CommitOffsets = Iterable[TopicPartition]


class Consumer(StepwiseConsumer):
    """Reads records of topics, alone or as a member of a group. One thread at a time.

    Records are fetched ahead by threads of the client, up to `queued.max.messages.kbytes`; a poll
    hands out what is there. The application may use the consumer from any thread, but two at once
    is an error (RuntimeError).

    Delivery is at least once by default: with `enable.auto.commit` a poll commits what was handed
    out before it, and never what it hands out itself. docs/reference/consumer.md says how to get
    at most once and exactly once.

    Args:
        config: Settings by Kafka's names; `bootstrap.servers` is needed. Also `on_commit`, a
            function (error or None, partitions), called in poll() or close() after asynchronous and
            automatic commits.

    Raises:
        ConfigError: A setting is unknown, unsupported or out of range.

    Example:
        >>> with Consumer({"bootstrap.servers": "127.0.0.1:9490", "group.id": "g"}) as consumer:
        ...     consumer.subscribe(["flights"])
        ...     record = consumer.poll(1.0)
        ...     if record is not None:
        ...         print(record.key, record.value)
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__(ConsumerEngine(config))
        self._subscription: list[str] = []

    # -------------------------------------------------------------------------------------- records

    def poll(self, timeout: float | None = None) -> ConsumerRecord | None:
        """The next record.

        Rebalances, automatic commits and callbacks happen inside this call.

        Args:
            timeout: Seconds to wait; 0: do not wait; None or negative: until there is one.

        Returns:
            A record, or None when the time is over.

        Raises:
            OffsetOutOfRangeError: auto.offset.reset is none, and there is no offset to read from.
            UnknownTopicError, UnknownPartitionError: An assigned partition does not exist. A topic
                that was there may be gone for topic.metadata.propagation.max.ms before it counts.
            MainstemError: A partition cannot be read, or the group refuses this member. A
                partition's error is raised once; the others go on, and it does after `seek`.
            ConsumerClosedError: close() was called.
        """
        if not self._busy.acquire(blocking=False):
            raise two_threads()
        try:
            reader = self._reader
            self._engine.polls += 1
            if not self._partitions.attention:
                at = reader.at
                if at < len(reader.records):
                    reader.at = at + 1
                    if reader.undone:
                        reader.undone = {}
                    reader.last = record = reader.records[at]
                    return record
            return self._poll(timeout)
        finally:
            self._busy.release()

    def _poll(self, timeout: float | None) -> ConsumerRecord | None:
        reader = self._reader
        reader.begin()
        try:
            if not self._wait_for_records(timeout):
                return None
        except BaseException as failure:
            self._engine.give_back(failure)
            raise
        reader.last = record = reader.records[reader.at]
        reader.at += 1
        return record

    def consume(self, num_messages: int = 1, timeout: float | None = None) -> list[ConsumerRecord]:
        """Up to `num_messages` records; waits for all of them until the time is over.

        A call that is interrupted (Ctrl-C) gives back what it had: the next one gets it.

        Raises:
            As `poll`.
        """
        if num_messages < 1:
            raise ValueError(f"num_messages is {num_messages}; it must be at least 1")
        records: list[ConsumerRecord] = []
        with self._alone():
            self._reader.begin()
            try:
                self._consume(num_messages, timeout, records)
            except BaseException as failure:
                self._engine.give_back(failure)
                raise
        return records

    def _consume(
        self, num_messages: int, timeout: float | None, records: list[ConsumerRecord]
    ) -> None:
        deadline = deadline_of(timeout)
        while len(records) < num_messages:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                # A rebalance between two pieces would give up records that are in `records`:
                # the next call does that.
                if not self._wait_for_records(left_s, attend=not records):
                    break
            except MainstemError:
                if records:
                    break
                raise
            self._reader.take(num_messages - len(records), records)
            if records and self._partitions.attention:
                break

    def take_ready(self) -> ConsumerRecord | None:
        """The next record, if it is decoded and nothing else is due."""
        reader = self._reader
        if self._partitions.attention or reader.at >= len(reader.records):
            return None
        return self.poll(0)

    def poll_batch(
        self, timeout: float | None = None, max_records: int | None = None
    ) -> dict[TopicPartition, pa.RecordBatch]:
        """What is there, as Arrow, by partition: the fastest way out.

        Args:
            timeout: Seconds to wait for the first record; as of `poll`.
            max_records: For all partitions together; None: max.poll.records.

        Returns:
            Batches with the columns offset, timestamp, timestamp_type, key, value and headers.
            Empty when the time is over. An interrupted call gives back what it had.

        Raises:
            As `poll`.
        """
        limit = self.poll_limit(max_records)
        with self._alone():
            self._reader.begin()
            try:
                if not self._wait_for_records(timeout, decode=False):
                    return {}
                return self._reader.take_batches(limit)
            except BaseException as failure:
                self._engine.give_back(failure)
                raise

    # ----------------------------------------------------------------------------------- membership

    def subscribe(
        self,
        topics: Sequence[str] | str,
        on_assign: OnPartitions | None = None,
        on_revoke: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> None:
        """Joins the group for these topics; replaces an earlier subscription.

        Partitions come and go inside poll(), one by one: only those that move are revoked.

        Args:
            topics: Names, or one regular expression that begins with `^`.
            on_assign: Called as `on_assign(consumer, partitions)` with new partitions, before they
                are read: `consumer.seek()` may say from where.
            on_revoke: Called with partitions before they are given up; commits still count.
            on_lost: Called with partitions that were lost without a word: others may read them,
                and nothing can be committed. None: on_revoke is called.

        Callbacks may call the consumer. Inside of one a poll() hands out what is there of other
        partitions and never waits, and unsubscribe(), subscribe() and close() do what they do
        elsewhere; on_revoke is called once for each partition that goes.

        Raises:
            TypeError: A callback is a coroutine function; AsyncConsumer awaits these.
            ConfigError: There is no group.id.
            ValueError: No topic, or a pattern among names.
        """
        names = [topics] if isinstance(topics, str) else list(topics)
        patterns = [name for name in names if name.startswith("^")]
        if not names or (patterns and len(names) > 1):
            raise ValueError("subscribe to one or more topics, or to one pattern beginning with ^")
        callbacks = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        for name, callback in callbacks.items():
            if callback is not None:
                check_plain(callback, name, "AsyncConsumer")
        with self._alone():
            self._engine.subscribe(
                [] if patterns else names,
                patterns[0] if patterns else "",
                (on_assign, on_revoke, on_lost),
            )
            self._subscription = names

    def unsubscribe(self) -> None:
        """Commits as close() does, gives everything up and leaves the group."""
        with self._alone():
            self._subscription = []
            self._engine.unsubscribe(self)

    def subscription(self) -> list[str]:
        """What `subscribe` was given: topics, or one pattern that begins with `^`."""
        return list(self._subscription)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads exactly these partitions, without a group's coordinator.

        Where each begins: at its `offset`; without one at the offset that the group has committed,
        or where auto.offset.reset says. Inside on_assign it only sets where new partitions begin.

        Raises:
            RuntimeError: There is a subscription.
        """
        given = offsets_of(partitions, "assign")
        with self._alone():
            self._engine.assign(given)

    def unassign(self) -> None:
        """Reads nothing."""
        self.assign([])

    def assignment(self) -> list[TopicPartition]:
        """What is read now."""
        with self._alone():
            return sorted(self._partitions.assigned, key=lambda tp: (tp.topic, tp.partition))

    def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        """This member's name and epoch."""
        with self._alone():
            return self._engine.group_metadata()

    # -------------------------------------------------------------------------------------- offsets

    def commit(
        self,
        message: ConsumerRecord | None = None,
        offsets: CommitOffsets | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commits offsets for the group.

        Args:
            message: This record is done: its offset + 1.
            offsets: The next offsets to read.
            asynchronous: True: it is queued; on_commit tells its end, and a failure is logged.
                False: it is durable when this returns.

        With neither, everything that was handed out is committed; with
        enable.auto.offset.store=false, what was stored.

        Returns:
            What was committed; None when asynchronous.

        Raises:
            ConfigError: There is no group.id.
            UnknownMemberError, StaleMemberEpochError: Another member may have the partitions.
            MainstemError: What the coordinator said, or nobody answered in time.
        """
        if message is not None and offsets is not None:
            raise ValueError("give a message or offsets, not both")
        if message is not None:
            offsets = [_next_of(message, "commit")]
        given = None if offsets is None else offsets_of(offsets, "commit")
        with self._alone():
            self._reader.settle()
            return self._engine.commits.commit(given, asynchronous=asynchronous)

    def store_offsets(
        self, message: ConsumerRecord | None = None, offsets: CommitOffsets | None = None
    ) -> None:
        """Says what the next commit takes; needs enable.auto.offset.store=false.

        Args:
            message: This record is done.
            offsets: The next offsets to read.

        Raises:
            ConfigError: enable.auto.offset.store is true.
            ValueError: An offset is negative; nothing was stored.
            RuntimeError: A partition is not assigned.
        """
        if (message is None) == (offsets is None):
            raise ValueError("give a message or offsets")
        if message is not None:
            offsets = [_next_of(message, "store_offsets")]
        given = offsets_of(offsets or (), "store_offsets")
        with self._alone():
            self._engine.commits.store(given)

    def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        """What the group has committed, by partition; OFFSET_INVALID where nothing is."""
        given = partitions_of(partitions, "committed")
        with self._alone():
            return self._engine.committed(given, timeout)

    def position(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The next offset that poll() gives; OFFSET_INVALID where it is not known yet."""
        given = partitions_of(partitions, "position")
        with self._alone():
            self._reader.settle()
            assigned = self._partitions.assigned
            return [
                TopicPartition(
                    tp.topic,
                    tp.partition,
                    assigned[tp].position if tp in assigned else OFFSET_INVALID,
                )
                for tp in given
            ]

    def sources(self) -> dict[TopicPartition, str]:
        """host:port of the gateway that each assigned partition was fetched from last; empty: it
        was not yet. With client.rack it need not be the leader."""
        with self._alone():
            return {tp: one.source for tp, one in self._partitions.assigned.items()}

    def seek(self, partition: TopicPartition) -> None:
        """Goes on at `partition.offset`, or at OFFSET_BEGINNING or OFFSET_END.

        Raises:
            RuntimeError: The partition is not assigned.
        """
        given = partition_of(partition, "seek")
        with self._alone():
            self._engine.seek(given)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hands out nothing of them until `resume`. What was fetched ahead is fetched again.

        A partition that this consumer loses (its session ended, the gateway was restarted, it did
        not poll for max.poll.interval.ms) or whose topic is made again comes back paused. One that
        it gives up to another member does not, nor after `unsubscribe`.
        """
        given = partitions_of(partitions, "pause")
        with self._alone():
            self._engine.pause(given, paused=True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Goes on with them; also with those that were lost and are not back yet."""
        given = partitions_of(partitions, "resume")
        with self._alone():
            self._engine.pause(given, paused=False)

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int]:
        """The log start offset, and the high watermark: one past the last committed record.

        Args:
            cached: As the last fetch told them, without asking; OFFSET_INVALID if none has.
        """
        partition_of(partition, "get_watermark_offsets")
        with self._alone():
            if cached:
                found = self._partitions.assigned.get(partition)
                if found is None:
                    return OFFSET_INVALID, OFFSET_INVALID
                return found.log_start_offset, found.high_watermark
            low = self._engine.list_offsets({partition: Start.EARLIEST}, timeout)[partition]
            high = self._engine.list_offsets({partition: Start.LATEST}, timeout)[partition]
            return low, high

    def offsets_for_times(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        """The first offset whose record is at or after `offset`, here a time in ms since 1970.

        OFFSET_END where no record is that late.

        Raises:
            ValueError: A time is negative, as the offset of a TopicPartition is that has none.
        """
        times: dict[TopicPartition, int | Start] = {}
        for tp in offsets_of(partitions, "offsets_for_times"):
            if tp.offset < 0:
                raise ValueError(
                    f"the time for {tp.topic}-{tp.partition} is {tp.offset} ms; give a time in ms "
                    "since 1970 as its offset"
                )
            times[tp] = tp.offset
        with self._alone():
            found = self._engine.list_offsets(times, timeout)
        return [
            TopicPartition(tp.topic, tp.partition, OFFSET_END if found[tp] < 0 else found[tp])
            for tp in times
        ]

    def list_topics(self, timeout: float = 30.0) -> dict[str, TopicMetadata]:
        """Every topic, by name; the log (`mainstem.client`) names those that cannot be read.

        Args:
            timeout: Seconds for each gateway that is asked.
        """
        check_seconds(timeout)
        with self._alone():
            return self._engine.all_topics(timeout)

    # ---------------------------------------------------------------------------------------- close

    def close(self) -> None:
        """Commits if enable.auto.commit, leaves the group, ends threads and connections.

        With enable.auto.commit everything that was handed out is committed: who closes is done with
        it. Calling it again does nothing.

        Raises:
            Exception: The first that on_revoke or on_commit raised. The consumer is closed all the
                same.
        """
        self.close_as(done=True)

    def close_as(self, *, done: bool) -> None:
        """`close`; unless `done`, what the latest poll gave is not committed."""
        if not self._busy.acquire(blocking=False):
            raise two_threads()
        try:
            self._engine.close(self, done=done)
        finally:
            self._busy.release()

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is not None and not engine.closed:
            warn_unclosed(self, engine.at_exit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes. While an exception is on its way, what the latest poll gave is not committed."""
        self.close_as(done=kind is None)


def _next_of(message: ConsumerRecord, call: str) -> TopicPartition:
    """Where to go on when a record is done."""
    if not isinstance(message, ConsumerRecord):
        raise TypeError(
            f"{call}() takes a record, not a {type(message).__name__}; offsets are given as "
            "offsets=[TopicPartition(topic, partition, offset)]"
        )
    return TopicPartition(message.topic, message.partition, message.offset + 1)

"""The thread that finds out leaders and starting offsets, so that the application need not wait."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import grpc

from mainstem.client.callbacks import unexpected
from mainstem.client.consumer.fetcher import LeaderFetcher
from mainstem.client.consumer.partitions import Partition, Partitions, Start
from mainstem.client.consumer.settings import ConsumerSettings
from mainstem.client.consumer.sources import PAUSE_S, Sources
from mainstem.client.consumer.starts import CommittedOffsets, OffsetAnswer, StartFinder
from mainstem.client.gateways import FIRST_REFRESH_S, Gateways
from mainstem.client.metadata import MetadataClient
from mainstem.client.positions import TopicPartition
from mainstem.client.results import TopicMetadata
from mainstem.errors import (
    AuthenticationError,
    AuthorizationError,
    GatewayUnavailableError,
    MainstemError,
    NotLeaderError,
    OffsetOutOfRangeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from mainstem.limits import FETCH_PARTITIONS_MAX
from mainstem.protocol import error_from_message
from mainstem.protocol.v1 import log_pb2, log_pb2_grpc

_log = logging.getLogger("mainstem.client")

_LOOK_EVERY_S: Final = 1.0


class ConsumerWorker:
    """Keeps every assigned partition with a gateway to read it from, and a position.

    Args:
        committed: Asks the group; None: there is no group.
        on_reset: Called with the offsets at which auto.offset.reset has set partitions; without the
            lock.
        on_round: Called at least once a second, without the lock.
        subscribed: The coordinator takes the partitions of deleted topics away.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        partitions: Partitions,
        gateways: Gateways,
        committed: CommittedOffsets | None,
        on_reset: Callable[[dict[Partition, int]], None],
        on_round: Callable[[], None],
        subscribed: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._gateways = gateways
        self._starts = StartFinder(settings, partitions, committed, self.list_offsets, on_reset)
        self._on_round = on_round
        self._subscribed = subscribed
        self.metadata = MetadataClient(gateways, time.monotonic, may_create=False)
        self.topics: dict[str, TopicMetadata] = {}
        #: Why topics may not be seen.
        self._refused: dict[str, AuthorizationError] = {}
        # With the lock of the partitions held.
        self._sources = Sources(settings.read_rack)
        # When it was last said that a gateway is not read from, by address.
        self._told_at: dict[str, float] = {}
        self._asked_at: dict[str, float] = {}
        # When a topic of which too little is known may be asked for again, and how often it was.
        self._ask_at: dict[str, float] = {}
        self._failed_asks: dict[str, int] = {}
        self._stale: set[str] = set()
        self._gone_at: dict[str, float] = {}
        self._fetchers: dict[str, LeaderFetcher] = {}
        # Of gateways that lead nothing any more, until their threads have ended.
        self._former: list[LeaderFetcher] = []
        self._silent_at = 0.0
        self._metadata_age_s = settings.metadata_max_age_ms / 1000
        self._refresh_after_s = min(FIRST_REFRESH_S, self._metadata_age_s)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread, at the first assignment."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mainstem-consumer", daemon=True)
            self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Waits for all threads, after the partitions were closed."""
        deadline = time.monotonic() + timeout_s
        if self._thread is not None:
            self._thread.join(timeout_s)
        for fetcher in [*self._fetchers.values(), *self._former]:
            fetcher.join(max(0.0, deadline - time.monotonic()))

    # ------------------------------------------------------------------------------ for any thread

    def list_offsets(
        self, queries: dict[TopicPartition, int | Start], timeout_s: float
    ) -> dict[TopicPartition, OffsetAnswer]:
        """Offsets by EARLIEST, LATEST or a time in ms; -1: no record is that late.

        An error for each partition that could not be asked; retriable ones were not tried again.
        """
        by_leader: dict[str, list[TopicPartition]] = {}
        found: dict[TopicPartition, OffsetAnswer] = {}
        self._learn({tp.topic for tp in queries if not self._has(tp)}, timeout_s)
        for tp in queries:
            topic = self.topics.get(tp.topic)
            if tp.topic in self._refused:
                found[tp] = self._refused[tp.topic]
            elif topic is None:
                found[tp] = UnknownTopicError(f"topic {tp.topic} does not exist", topic=tp.topic)
            elif not 0 <= tp.partition < topic.partition_count:
                self._stale.add(tp.topic)
                found[tp] = _unknown_partition(tp, topic)
            else:
                by_leader.setdefault(topic.leader, []).append(tp)
        for leader, asked in _requests(by_leader):
            request = log_pb2.ListOffsetsRequest(queries=[_query(tp, queries[tp]) for tp in asked])
            channel = self._gateways.channels.get(leader)
            try:
                answer = log_pb2_grpc.LogStub(channel).ListOffsets(request, timeout=timeout_s)
            except grpc.RpcError as failure:
                error = self._gateways.failed(failure, leader, channel)
                self._stale.update(tp.topic for tp in asked)
                found.update(dict.fromkeys(asked, error))
                continue
            for tp, one in zip(asked, answer.answers, strict=False):
                if one.HasField("error"):
                    failed = error_from_message(one.error)
                    if isinstance(failed, (NotLeaderError, UnknownTopicError)):
                        self._stale.add(tp.topic)
                    found[tp] = failed
                else:
                    found[tp] = one.offset
        for tp in queries:
            found.setdefault(tp, GatewayUnavailableError(f"the gateway said nothing of {tp.topic}"))
        return found

    def _has(self, tp: TopicPartition) -> bool:
        topic = None if tp.topic in self._refused else self.topics.get(tp.topic)
        return topic is not None and tp.partition < topic.partition_count

    # ---------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        try:
            self._work()
        finally:
            self._cancel_fetches()

    def _work(self) -> None:
        failures = 0
        while not self._partitions.closed:
            try:
                pause_s = self._round()
                failures = 0
            except Exception as error:
                if self._partitions.closed:
                    return
                if not failures and isinstance(error, MainstemError) and error.retriable:
                    _log.warning("finding out leaders and offsets failed: %s", error)
                elif isinstance(error, AuthenticationError):
                    # Again and again, so that no poll() waits for what will not come.
                    if not failures:
                        _log.error("signing in failed: %s", error)
                    if not self._partitions.errors:
                        self._partitions.tell(error)
                elif not failures:
                    _log.exception("finding out leaders and offsets failed; trying again")
                    self._partitions.tell(unexpected("finding out leaders and offsets", error))
                pause_s = self._settings.backoff_s(failures)
                failures += 1
            self._sleep(pause_s, failed=failures > 0)

    def _sleep(self, seconds: float, *, failed: bool) -> None:
        partitions = self._partitions
        with partitions.lock:
            is_long = not failed and seconds > self._backoff_s
            if partitions.closed or (is_long and self._to_start()):
                return
            overdue, catch_up_in_s = self._overdue_fetches()
            if not overdue:
                partitions.news.wait(min(seconds, catch_up_in_s))
        for call in overdue:
            call.cancel()

    def _cancel_fetches(self) -> None:
        """The consumer was closed: nobody wants their answers."""
        with self._partitions.lock:
            overdue, _ = self._overdue_fetches()
        for call in overdue:
            call.cancel()

    def _overdue_fetches(self) -> tuple[list[Any], float]:
        """Fetches that wait for records and lack a partition that is to be fetched, and when to
        look again; the lock is held. While this thread is busy they end by fetch.max.wait.ms."""
        fetchers = [*self._fetchers.values(), *self._former]
        looked = [fetcher.overdue() for fetcher in fetchers]
        calls = [call for overdue, _ in looked for call in overdue]
        return calls, min((wait_s for _, wait_s in looked), default=_LOOK_EVERY_S)

    @property
    def _backoff_s(self) -> float:
        return self._settings.retry_backoff_ms / 1000

    def _round(self) -> float:
        """Does what is to do; returns how long to sleep."""
        self._on_round()
        timeout_s = self._settings.request_timeout_ms / 1000
        now = time.monotonic()
        self._doubt_silent(now)
        oldest = now - self._refresh_after_s
        with self._partitions.lock:
            assigned = self._partitions.assigned.values()
            names = {one.topic for one in assigned if one.failed is None}
            due = {
                name
                for name in names
                if (
                    (name not in self.topics or name in self._stale)
                    and self._ask_at.get(name, 0.0) <= now
                )
                or self._asked_at.get(name, 0.0) < oldest
            }
            again = self._sources.due(names, now)
            due |= {name for name in again if self._ask_at.get(name, 0.0) <= now}
        if due:
            if any(self._asked_at.get(name, now) < oldest for name in due):
                self._refresh_after_s = min(2 * self._refresh_after_s, self._metadata_age_s)
            self._learn(due, timeout_s)
            self._compare(due)
        self._start_fetchers()
        with self._partitions.lock:
            todo = self._to_start()
        if todo:
            self._starts.find(todo, timeout_s)
        waiting = any(name in self._stale or name not in self.topics for name in names)
        with self._partitions.lock:
            pending = [
                one
                for one in self._partitions.assigned.values()
                if one.start is not Start.READY and one.failed is None
            ]
        return self._backoff_s if waiting or pending else _LOOK_EVERY_S

    def _doubt_silent(self, now: float) -> None:
        """A gateway that does not answer may hang: asks others who leads its topics, or leaves it
        for their leaders."""
        if now < self._silent_at + _LOOK_EVERY_S:
            return
        with self._partitions.lock:
            silent = {a for a, fetcher in self._fetchers.items() if fetcher.silent(now)}
            if silent:
                self._silent_at = now
                topics = {one.topic for one in self._partitions.assigned.values()}
                led = topics & self.topics.keys()
                self._stale.update(n for n in led if self.topics[n].leader in silent)
                for one in self._partitions.assigned.values():
                    if (source := self._source(one.topic)) in silent:
                        self._to_leader(source, one, "it does not answer")
        for address in silent:
            self._gateways.doubt(address)

    def _to_start(self) -> list[Partition]:
        """Partitions whose start is to be found now; the lock is held."""
        now = time.monotonic()
        return [
            one
            for one in self._partitions.assigned.values()
            if one.start is not Start.READY and one.failed is None and one.retry_at <= now
        ]

    def _learn(self, names: Iterable[str], timeout_s: float) -> None:
        wanted = list(names)
        if not wanted:
            return
        answers = self.metadata.fetch(wanted, timeout_s)
        now = time.monotonic()
        with self._partitions.lock:
            self._sources.learned(self.metadata.places, now)
        for name in wanted:
            self._asked_at[name] = now
            answer = answers.get(name)
            failures = 0 if isinstance(answer, TopicMetadata) else self._failed_asks.get(name, 0)
            self._ask_at[name] = now + self._settings.backoff_s(failures)
            self._failed_asks[name] = failures + 1
            self._refused.pop(name, None)
            if isinstance(answer, TopicMetadata):
                self.topics[name] = answer
                self._stale.discard(name)
                self._gone_at.pop(name, None)
            elif isinstance(answer, AuthorizationError):
                # Whether it is there is not told; what was known of it may still be so.
                self._refused[name] = answer
                self._stale.add(name)
            elif answer is None or not answer.retriable:
                if self.topics.pop(name, None) is not None:
                    self._gone_at[name] = now
                self._stale.add(name)
            else:
                self._stale.add(name)

    def _compare(self, names: set[str]) -> None:
        """Tells the partitions of topics that are gone or are others now."""
        with self._partitions.lock:
            for one in list(self._partitions.assigned.values()):
                if one.topic not in names or one.failed is not None:
                    continue
                topic = self.topics.get(one.topic)
                if one.topic in self._refused:
                    # It may be allowed later: it is asked for again, and told each time.
                    self._partitions.tell_once(self._refused[one.topic])
                elif topic is None:
                    if not self._subscribed() and not self._may_come_back(one.topic):
                        self._partitions.fail(
                            one,
                            UnknownTopicError(
                                f"topic {one.topic} does not exist; create it", topic=one.topic
                            ),
                        )
                elif one.partition >= topic.partition_count:
                    self._partitions.fail(one, _unknown_partition(one.tp, topic))
                elif one.topic_id and one.topic_id != topic.topic_id and not one.queued:
                    self._recreated(one, topic)
            self._partitions.changed()

    def _may_come_back(self, topic: str) -> bool:
        """The topic was there, and is gone for less than topic.metadata.propagation.max.ms."""
        gone_at = self._gone_at.get(topic)
        gone_max_s = self._settings.topic_gone_max_ms / 1000
        return gone_at is not None and time.monotonic() < gone_at + gone_max_s

    def _recreated(self, one: Partition, topic: TopicMetadata) -> None:
        """The topic was deleted and created again: no offset of before means anything."""
        if self._settings.reset == "none":
            self._partitions.fail(
                one,
                OffsetOutOfRangeError(
                    f"topic {one.topic} was deleted and created again: offset {one.fetch_offset} "
                    "of the old one means nothing in it. Seek to where you want to go on",
                    topic=one.topic,
                    partition=one.partition,
                ),
            )
            return
        _log.warning(
            "topic %s was deleted and created again; auto.offset.reset says %s for partition %d",
            one.topic,
            self._settings.reset,
            one.partition,
        )
        one.topic_id = topic.topic_id
        one.find(Start.RESET)

    def _start_fetchers(self) -> None:
        with self._partitions.lock:
            if self._partitions.closed:
                return
            sources = {self._source(one.topic) for one in self._partitions.assigned.values()}
            sources.discard("")
            new = sources - self._fetchers.keys()
            for address in self._fetchers.keys() - sources if sources else ():
                former = self._fetchers.pop(address)
                former.stop()
                self._former.append(former)
        self._former = [one for one in self._former if one.running]
        for address in new:
            self._fetchers[address] = LeaderFetcher(
                address,
                self._partitions,
                self._gateways,
                self._settings,
                self._reads_from,
                self._share_bytes,
                self._lost,
                self._to_leader,
                self._served,
            )

    def _source(self, name: str) -> str:
        """The gateway that the topic is read from now; empty: not known. The lock is held."""
        topic = self.topics.get(name)
        return "" if topic is None else self._sources.of(name, topic.leader)

    def _reads_from(self, address: str, one: Partition) -> bool:
        return self._source(one.topic) == address

    def _to_leader(self, address: str, one: Partition, why: str) -> bool:
        """See `ToLeader`; the lock is held."""
        topic = self.topics.get(one.topic)
        if not self._settings.read_rack or (topic is not None and topic.leader == address):
            return False
        self._lost([one])
        if topic is None:
            return True
        now = time.monotonic()
        pause_s = self._sources.failed(one.topic, topic.leader, address, now)
        if pause_s:
            level = logging.WARNING
            if now - self._told_at.get(address, -math.inf) < PAUSE_S:
                level = logging.DEBUG  # of another topic it has been said
            self._told_at[address] = now
            _log.log(
                level,
                "topic %s is read from its leader %s for at least %.0f s, and not from %s in rack "
                "%s: %s",
                one.topic,
                topic.leader,
                pause_s,
                address,
                self._settings.read_rack,
                why,
            )
            self._partitions.changed()
        return True

    def _served(self, address: str, one: Partition) -> None:
        self._sources.served(one.topic, address, time.monotonic())

    def _share_bytes(self) -> int:
        return max(1, self._settings.buffer_bytes // max(1, len(self._fetchers)))

    def _lost(self, partitions: Sequence[Partition]) -> None:
        self._stale.update(one.topic for one in partitions)
        self._partitions.news.notify_all()


def _requests(
    by_leader: Mapping[str, Sequence[TopicPartition]],
) -> Iterator[tuple[str, Sequence[TopicPartition]]]:
    """What each leader is asked for, in as many requests as that takes."""
    for leader, asked in by_leader.items():
        for start in range(0, len(asked), FETCH_PARTITIONS_MAX):
            yield leader, asked[start : start + FETCH_PARTITIONS_MAX]


def _query(tp: TopicPartition, at: int | Start) -> log_pb2.OffsetQuery:
    query = log_pb2.OffsetQuery(topic=tp.topic, partition=tp.partition)
    if at is Start.EARLIEST:
        query.earliest = True
    elif at is Start.LATEST:
        query.latest = True
    else:
        assert isinstance(at, int)
        query.timestamp_ms = at
    return query


def _unknown_partition(tp: TopicPartition, topic: TopicMetadata) -> UnknownPartitionError:
    return UnknownPartitionError(
        f"topic {tp.topic} has no partition {tp.partition}; it has partitions 0 to "
        f"{topic.partition_count - 1}",
        topic=tp.topic,
        partition=tp.partition,
    )

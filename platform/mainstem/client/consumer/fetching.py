"""Which partitions each fetch from a leader asks for, and what comes of it. Pure.

At the end of the log one fetch waits for all partitions. A consumer that is behind has two under
way instead: while one answer is read from the data files, the other is on its way. A partition is
in one of them only, so its records stay in order.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mainstem.client.consumer.partitions import Chunk, Partition, Partitions, Start
from mainstem.client.consumer.records import batches_from_ipc
from mainstem.client.consumer.settings import ConsumerSettings
from mainstem.errors import (
    AuthorizationError,
    LogTruncatedError,
    MainstemError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    SessionExpiredError,
)
from mainstem.protocol import error_from_message
from mainstem.protocol.v1 import log_pb2


def share_of_first(free: Sequence[Partition], *, second_idle: bool) -> list[Partition]:
    """What the first fetch asks for: everything, or what it does not leave to the second.

    Args:
        free: What is to be fetched and is not under way in the second.
        second_idle: The second has nothing under way, and will take `share_of_second`.
    """
    if not second_idle:
        return list(free)
    left = set(_every_other_behind(free))
    return [one for one in free if one not in left]


def share_of_second(free: Sequence[Partition], *, first_idle: bool) -> list[Partition]:
    """What the second fetch asks for: only partitions that are behind, so it never waits.

    Args:
        free: What is to be fetched and is not under way in the first.
        first_idle: The first has nothing under way, and will take `share_of_first`.
    """
    if first_idle:
        return _every_other_behind(free)
    return [one for one in free if one.behind]


def _every_other_behind(free: Sequence[Partition]) -> list[Partition]:
    return [one for one in free if one.behind][1::2]


_log = logging.getLogger("mainstem.client")


class Wanted(NamedTuple):
    """A partition that was asked for, as it was."""

    partition: Partition
    generation: int
    offset: int


#: Called with the lock held, with the address of a gateway, a partition that it could not serve as
#: it should, and why: whether it does not lead the partition, so that its leader is asked.
ToLeader = Callable[[str, Partition, str], bool]


class FetchAnswers:
    """Puts what one gateway answers into the buffer.

    Args:
        on_lost: A partition's leader is not known any more; called with the lock held.
        to_leader: See ToLeader. Of what a follower says against a partition nothing counts: it may
            know less than the leader.
        on_served: A partition was served as it should be; likewise.
    """

    def __init__(
        self,
        address: str,
        partitions: Partitions,
        settings: ConsumerSettings,
        on_lost: Callable[[Sequence[Partition]], None],
        to_leader: ToLeader,
        on_served: Callable[[str, Partition], None],
    ) -> None:
        self._address = address
        self._partitions = partitions
        self._settings = settings
        self._on_lost = on_lost
        self._to_leader = to_leader
        self._on_served = on_served
        self._failures = 0

    def take(self, answer: log_pb2.FetchResponse, wanted: Sequence[Wanted]) -> None:
        """An answer came; it has the partitions in the order of `wanted`."""
        self._failures = 0
        jitter = random.random()  # one for all: they stay together in one fetch
        partitions = self._partitions
        decoded: list[tuple[list[Any], MainstemError | None]] = []
        for (_, _, offset), fetched in zip(wanted, answer.partitions, strict=False):
            error = error_from_message(fetched.error) if fetched.HasField("error") else None
            try:
                decoded.append((batches_from_ipc(fetched.arrow, offset), error))
            except MainstemError as failure:
                decoded.append(([], failure))
        lost: list[Partition] = []
        with partitions.lock:
            for (one, generation, offset), fetched, (batches, error) in zip(
                wanted, answer.partitions, decoded, strict=False
            ):
                current = partitions.assigned.get(one.tp) is one and one.generation == generation
                if not current or one.paused or one.fetch_offset != offset:
                    continue  # of the last: another leader was faster
                if error is not None:
                    if self._to_leader(self._address, one, str(error)):
                        one.retry_at = 0.0
                    else:
                        self._partition_failed(one, error, lost, jitter)
                    continue
                one.failures = 0
                one.topic_id = one.topic_id or fetched.topic_id
                one.leader_epoch = fetched.leader_epoch or one.leader_epoch
                one.high_watermark = fetched.high_watermark
                one.durable_mark = fetched.durable_mark
                one.log_start_offset = fetched.log_start_offset
                one.source = self._address
                self._put(one, batches, offset, fetched.next_offset)
                self._watch_lag(one, fetched)
            if lost:
                self._on_lost(lost)

    def failed(self, error: MainstemError, wanted: Sequence[Wanted]) -> None:
        """The whole call failed."""
        retriable = error.retriable or isinstance(error, OutcomeUnknownError)
        if not self._failures:
            level = logging.DEBUG if isinstance(error, SessionExpiredError) else logging.WARNING
            _log.log(level, "fetching from %s failed: %s", self._address, error)
        backoff_s = self._settings.backoff_s(self._failures, error)
        self._failures += 1
        with self._partitions.lock:
            current = [
                one
                for one, generation, _ in wanted
                if one.generation == generation
                and not self._to_leader(self._address, one, str(error))
            ]
            for one in current:
                one.retry_at = time.monotonic() + backoff_s
                if not retriable:
                    self._partitions.fail(one, error)
            self._on_lost(current)

    def _watch_lag(self, one: Partition, fetched: log_pb2.FetchedPartition) -> None:
        lag_ms, lag_ms_max = fetched.follower_lag_ms, self._settings.follower_lag_ms_max
        if lag_ms <= lag_ms_max:
            self._on_served(self._address, one)
            return
        why = f"it has not looked at the table for {lag_ms} ms; follower.max.lag.ms is {lag_ms_max}"
        self._to_leader(self._address, one, why)

    def _put(self, one: Partition, batches: list[Any], offset: int, next_offset: int) -> None:
        last = len(batches) - 1
        for index, batch in enumerate(batches):
            following = (
                max(next_offset, batch.column("offset")[-1].as_py() + 1)
                if index == last
                else batches[index + 1].column("offset")[0].as_py()
            )
            chunk = Chunk(one, one.generation, batch, following, batch.nbytes, self._address)
            one.fetch_offset = following
            self._partitions.put(chunk)
        if not batches and next_offset > offset:
            one.fetch_offset = next_offset
            self._partitions.put(Chunk(one, one.generation, None, next_offset, 0, self._address))

    def _truncated(self, one: Partition, error: LogTruncatedError) -> None:
        """Goes on with the first record that was not read: neither skips what the log has in place
        of those that it lost, nor reads again what is left. The lock is held."""
        offset = int(error.facts["truncated_to"])
        _log.warning(
            "%s-%d goes on at offset %d: it was put back from an older copy, which lacks records "
            "that were read, up to %d",
            one.topic,
            one.partition,
            offset,
            one.fetch_offset,
        )
        one.go_to(offset)
        if one.stored is not None and one.stored > offset:
            one.stored = None
        self._partitions.changed()

    def _partition_failed(
        self, one: Partition, error: MainstemError, lost: list[Partition], jitter: float
    ) -> None:
        """What an error of one partition means; the lock is held."""
        backoff_s = self._settings.backoff_s(one.failures, error, jitter)
        one.failures += 1
        moved = isinstance(error, OffsetOutOfRangeError) or (
            error.code == "UNKNOWN_TOPIC" and bool(one.topic_id)
        )
        if moved and one.queued:
            # What was fetched before is good, and comes first.
            one.retry_at = time.monotonic() + backoff_s
        elif isinstance(error, OffsetOutOfRangeError):
            if self._settings.reset == "none":
                self._partitions.fail(one, error)
                return
            if isinstance(error, LogTruncatedError):
                self._truncated(one, error)
                return
            _log.warning(
                "offset %d of %s-%d is out of range; auto.offset.reset says %s: %s",
                one.fetch_offset, one.topic, one.partition, self._settings.reset, error,
            )  # fmt: skip
            one.start = Start.RESET
            self._partitions.changed()
        elif error.code == "UNKNOWN_TOPIC" or error.retriable:
            # The metadata tell whether the topic is gone, is another now, or has another leader.
            one.retry_at = time.monotonic() + backoff_s
            lost.append(one)
        elif isinstance(error, AuthorizationError):
            # What may not be read now may be later: it is asked for again, and told each time.
            one.retry_at = time.monotonic() + backoff_s
            self._partitions.tell_once(error)
        else:
            self._partitions.fail(one, error)

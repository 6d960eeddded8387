"""The threads that fetch from one leader while the buffer has room."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc

from mainstem.client.callbacks import unexpected
from mainstem.client.channels import read_to_end
from mainstem.client.consumer.fetching import (
    FetchAnswers,
    ToLeader,
    Wanted,
    share_of_first,
    share_of_second,
)
from mainstem.client.consumer.partitions import Partition, Partitions, Start
from mainstem.client.consumer.settings import ConsumerSettings
from mainstem.client.gateways import Gateways
from mainstem.protocol.v1 import log_pb2

_log = logging.getLogger("mainstem.client")

#: A fetch that lacks a partition is cancelled when it is this old; twice as old each time in a row,
#: so that an application that seeks without end still gets records.
_CANCEL_AFTER_S: Final = 0.1

#: A leader that has not answered for so long after the wait that it was asked for may hang, while
#: another leads already.
_SILENT_S: Final = 2.0

#: How long a thread sleeps at most: nothing depends on it.
_LOOK_EVERY_S: Final = 1.0

_METHOD: Final = "/mainstem.v1.Log/Fetch"


class _Fetch:
    """A fetch, from what it asks for to its answer.

    Attributes:
        bytes_max: Of records in the answer.
        reserved_bytes: What the answer may take of the buffer.
        changes: Of the partitions, when it was last compared with what is to be fetched.
    """

    def __init__(
        self, wanted: Sequence[Wanted], bytes_max: int, partition_bytes_max: int, changes: int
    ) -> None:
        self.wanted = wanted
        self.bytes_max = bytes_max
        self.reserved_bytes = min(bytes_max, len(wanted) * partition_bytes_max)
        self.changes = changes
        self.call: Any = None
        self.began_at = 0.0
        self.cancelled = False
        self._asked = {(id(one), generation) for one, generation, _ in wanted}

    def has(self, one: Partition) -> bool:
        """It asks for the partition, as it is now."""
        return (id(one), one.generation) in self._asked

    @property
    def waits(self) -> bool:
        """None of its partitions is known to have records."""
        return not any(one.behind and self.has(one) for one, _, _ in self.wanted)


class LeaderFetcher:
    """Fetches all partitions that one gateway leads; see `_fetch_shares` for what is under way.

    Args:
        leads: Tells whether a partition is this leader's; called with the lock held.
        share_bytes: How much of the buffer is this leader's.
        on_lost, to_leader, on_served: See FetchAnswers.
    """

    def __init__(
        self,
        address: str,
        partitions: Partitions,
        gateways: Gateways,
        settings: ConsumerSettings,
        leads: Callable[[str, Partition], bool],
        share_bytes: Callable[[], int],
        on_lost: Callable[[Sequence[Partition]], None],
        to_leader: ToLeader,
        on_served: Callable[[str, Partition], None],
    ) -> None:
        self.address = address
        self._partitions = partitions
        self._gateways = gateways
        self._settings = settings
        self._leads = leads
        self._share_bytes = share_bytes
        self._answers = FetchAnswers(address, partitions, settings, on_lost, to_leader, on_served)
        self._stopped = False
        self._first: _Fetch | None = None
        self._second: _Fetch | None = None
        self._turn = 0
        self._cancelled = 0
        self._told = False
        self._failures = 0
        self._first_thread = self._thread(self._run_first, "")
        self._second_thread: threading.Thread | None = None
        self._first_thread.start()

    def stop(self) -> None:
        """It leads nothing any more: ends the threads; the lock is held. A call that is under way
        is `overdue`."""
        self._stopped = True
        self._partitions.wanted.notify_all()

    @property
    def running(self) -> bool:
        """A thread has not ended."""
        second = self._second_thread
        return self._first_thread.is_alive() or (second is not None and second.is_alive())

    def silent(self, now: float) -> bool:
        """A call waits for its answer for longer than it asked for; the lock is held."""
        return any(
            fetch is not None
            and fetch.call is not None
            and now - fetch.began_at >= self._settings.fetch_max_wait_ms / 1000 + _SILENT_S
            for fetch in (self._first, self._second)
        )

    @property
    def _ended(self) -> bool:
        return self._stopped or self._partitions.closed

    def join(self, timeout_s: float) -> None:
        """Waits for the threads, after the partitions were closed."""
        deadline = time.monotonic() + timeout_s
        self._first_thread.join(timeout_s)
        if self._second_thread is not None:
            self._second_thread.join(max(0.0, deadline - time.monotonic()))

    def overdue(self) -> tuple[list[Any], float]:
        """Calls under way to be cancelled, without the lock, which is held now; and in how many
        seconds to ask again. One is if it waits and lacks a partition, all are after a close."""
        partitions = self._partitions
        if self._ended:
            calls = [
                fetch
                for fetch in (self._first, self._second)
                if fetch is not None and fetch.call is not None and not fetch.cancelled
            ]
            for fetch in calls:
                fetch.cancelled = True
            return [fetch.call for fetch in calls], _LOOK_EVERY_S
        first = self._first
        if first is None or first.call is None or first.cancelled:
            return [], _LOOK_EVERY_S
        if partitions.changes == first.changes:
            return [], _LOOK_EVERY_S
        if not self._lacks(first):
            first.changes = partitions.changes
            return [], _LOOK_EVERY_S
        least_s = _CANCEL_AFTER_S * 2 ** min(self._cancelled - 1, 6) if self._cancelled else 0.0
        wait_s = first.began_at + least_s - time.monotonic()
        if wait_s > 0:
            return [], wait_s
        first.cancelled = True
        return [first.call], 0.0

    def _lacks(self, first: _Fetch) -> bool:
        """A partition is to be fetched that is in no fetch, and will not be in one soon."""
        if self._may_share and not first.waits:
            return False
        return any(not first.has(one) for one in self._free(self._second))

    # -------------------------------------------------------------------------------- what to fetch

    def _free(self, other: _Fetch | None) -> list[Partition]:
        """The partitions that are to be fetched now and are not under way in the other fetch."""
        now = time.monotonic()
        return [
            one
            for one in self._partitions.assigned.values()
            if self._fetchable(one)
            and one.retry_at <= now
            and (other is None or not other.has(one))
        ]

    def _fetchable(self, one: Partition) -> bool:
        return (
            one.start is Start.READY
            and not one.paused
            and one.failed is None
            and self._leads(self.address, one)
        )

    @property
    def _may_share(self) -> bool:
        """fetch.min.bytes counts the bytes of all partitions together."""
        return self._settings.fetch_min_bytes <= 1

    def _room_bytes(self, other: _Fetch | None) -> int:
        """How much of the buffer the next answer may take; 0: too little is free."""
        share_bytes = self._share_bytes()
        used_bytes = self._partitions.buffered.get(self.address, 0)
        if other is not None:
            used_bytes += other.reserved_bytes
        return 0 if used_bytes * 2 > share_bytes else max(1, share_bytes - used_bytes)

    def _plan_first(self) -> _Fetch | None:
        room_bytes = self._room_bytes(self._second)
        if not room_bytes:
            return None
        free = self._free(self._second)
        share = free
        if self._may_share:
            share = share_of_first(free, second_idle=self._second is None)
        if share:
            self._turn = (self._turn + 1) % len(share)
            share = share[self._turn :] + share[: self._turn]
        if len(share) < len(free):
            room_bytes = max(1, room_bytes // 2)
            if self._second_thread is None:
                self._second_thread = self._thread(self._run_second, "-2")
                self._second_thread.start()
        return self._plan(share, room_bytes)

    def _plan_second(self) -> _Fetch | None:
        room_bytes = self._room_bytes(self._first)
        if not room_bytes:
            return None
        share = share_of_second(self._free(self._first), first_idle=self._first is None)
        return self._plan(share, room_bytes)

    def _plan(self, share: Sequence[Partition], room_bytes: int) -> _Fetch | None:
        if not share:
            return None
        settings = self._settings
        return _Fetch(
            [Wanted(one, one.generation, one.fetch_offset) for one in share],
            min(settings.fetch_max_bytes, room_bytes),
            settings.max_partition_fetch_bytes,
            self._partitions.changes,
        )

    def _pause_s(self) -> float:
        """Until the first partition may be tried again."""
        now = time.monotonic()
        waits = [
            one.retry_at - now
            for one in self._partitions.assigned.values()
            if one.retry_at > now and self._fetchable(one)
        ]
        return max(0.001, min([*waits, _LOOK_EVERY_S]))

    # --------------------------------------------------------------------------------- the threads

    def _thread(self, run: Callable[[], None], suffix: str) -> threading.Thread:
        return threading.Thread(
            target=run, name=f"mainstem-fetch-{self.address}{suffix}", daemon=True
        )

    def _run_first(self) -> None:
        while (fetch := self._next_first()) is not None:
            if self._fetched(fetch):
                self._cancelled = 0
            elif fetch.cancelled:
                self._cancelled += 1

    def _run_second(self) -> None:
        while (fetch := self._next_second()) is not None:
            self._fetched(fetch)

    def _next_first(self) -> _Fetch | None:
        """Waits until there is something to fetch; None: the consumer was closed."""
        partitions = self._partitions
        with partitions.lock:
            self._first = None
            if self._second_thread is not None:
                partitions.wanted.notify_all()
            self._first = self._planned(self._plan_first)
            return self._first

    def _next_second(self) -> _Fetch | None:
        """As `_next_first`."""
        partitions = self._partitions
        with partitions.lock:
            before, self._second = self._second, None
            partitions.wanted.notify_all()
            if before is not None and not all(one.behind for one, _, _ in before.wanted):
                partitions.changed()  # the first, which may wait for others, has to take over
            self._second = self._planned(self._plan_second)
            return self._second

    def _planned(self, plan: Callable[[], _Fetch | None]) -> _Fetch | None:
        """The first plan that there is; the lock is held, and let go while there is none."""
        partitions = self._partitions
        while not self._ended:
            fetch = plan()
            if fetch is not None:
                return fetch
            partitions.wanted.wait(self._pause_s())
        return None

    def _fetched(self, fetch: _Fetch) -> bool:
        """Makes the call and takes its answer; whether one came."""
        try:
            answer = self._answer(fetch)
            if answer is not None:
                self._answers.take(answer, fetch.wanted)
                self._told = False
                self._failures = 0
                return True
        except Exception as error:
            if not self._ended:
                if not self._told:
                    _log.exception("fetching from %s failed; trying again", self.address)
                    self._partitions.tell(unexpected(f"fetching from {self.address}", error))
                self._told = True
                time.sleep(self._settings.backoff_s(self._failures))
                self._failures += 1
        return False

    def _answer(self, fetch: _Fetch) -> log_pb2.FetchResponse | None:
        """The answer to a fetch. None: it failed, or was cancelled."""
        settings, partitions = self._settings, self._partitions
        timeout_s = (settings.fetch_max_wait_ms + settings.request_timeout_ms) / 1000
        channel = self._gateways.channels.get(self.address)
        # As a stream of one answer, for which gRPC needs no thread beside this one: see `Channels`.
        method: Any = channel.unary_stream(
            _METHOD,
            request_serializer=log_pb2.FetchRequest.SerializeToString,
            response_deserializer=log_pb2.FetchResponse.FromString,
        )
        call = method(self._request(fetch), timeout=timeout_s)
        with partitions.lock:
            fetch.began_at = time.monotonic()
            fetch.call = call
            fetch.cancelled = self._ended
            if partitions.changes != fetch.changes:
                partitions.news.notify_all()  # nobody has looked at this call yet
        if fetch.cancelled:
            call.cancel()  # who would do it else may have ended
        try:
            answer: log_pb2.FetchResponse = next(call)
            for _ in call:  # there is no second one: the end of the call
                pass
        except grpc.RpcError as failure:
            # Of a cancelled call too: it loses its traceback.
            error = self._gateways.failed(failure, self.address, channel)
            if not fetch.cancelled:
                self._answers.failed(error, fetch.wanted)
            return None
        finally:
            with partitions.lock:
                fetch.call = None
            read_to_end(call)
        return answer

    def _request(self, fetch: _Fetch) -> log_pb2.FetchRequest:
        settings = self._settings
        return log_pb2.FetchRequest(
            partitions=[
                log_pb2.FetchPartition(
                    topic=one.topic,
                    partition=one.partition,
                    offset=offset,
                    max_bytes=settings.max_partition_fetch_bytes,
                    topic_id=one.topic_id,
                    leader_epoch=one.leader_epoch,
                )
                for one, _, offset in fetch.wanted
            ],
            min_bytes=settings.fetch_min_bytes,
            max_wait_ms=settings.fetch_max_wait_ms,
            max_bytes=fetch.bytes_max,
            format=log_pb2.FETCH_FORMAT_ARROW,
            visibility=log_pb2.VISIBILITY_DURABLE
            if settings.durable
            else log_pb2.VISIBILITY_COMMITTED,
        )

"""One thread for each leader, which keeps one fetch under way while the buffer has room."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc

from mainstem.client._channels import Channels
from mainstem.client._consumer_partitions import Chunk, Partition, Partitions, Start
from mainstem.client._consumer_records import batches_from_ipc
from mainstem.client._consumer_settings import ConsumerSettings
from mainstem.errors import MainstemError, OutcomeUnknownError
from mainstem.protocol import error_from_message, error_from_rpc
from mainstem.protocol.v1 import log_pb2

_log = logging.getLogger("mainstem.client")

#: A fetch that lacks a partition is cancelled when it is this old; twice as old each time in a row,
#: so that an application that seeks without end still gets records.
_CANCEL_AFTER_S: Final = 0.1

#: How long a thread sleeps at most: nothing depends on it.
_LOOK_EVERY_S: Final = 1.0

_METHOD: Final = "/mainstem.v1.Log/Fetch"

_Wanted = list[tuple[Partition, int, int]]


@dataclass(slots=True)
class _UnderWay:
    """A fetch that is not answered yet.

    Attributes:
        asked: The partitions that it has, as they were.
        changes: Of the partitions, when it was last compared with what is to be fetched.
    """

    call: Any
    asked: set[tuple[int, int]]
    changes: int
    began_at: float
    cancelled: bool = False


class LeaderFetcher:
    """Fetches all partitions that one gateway leads.

    Args:
        leads: Tells whether a partition is this leader's; called with the lock held.
        share_bytes: How much of the buffer is this leader's.
        on_lost: A partition's leader is not known any more; called with the lock held.
    """

    def __init__(
        self,
        address: str,
        partitions: Partitions,
        channels: Channels,
        settings: ConsumerSettings,
        leads: Callable[[str, Partition], bool],
        share_bytes: Callable[[], int],
        on_lost: Callable[[Sequence[Partition]], None],
    ) -> None:
        self.address = address
        self._partitions = partitions
        # As a stream of one answer, for which gRPC needs no thread beside this one: see `Channels`.
        self._fetch: Any = channels.get(address).unary_stream(
            _METHOD,
            request_serializer=log_pb2.FetchRequest.SerializeToString,
            response_deserializer=log_pb2.FetchResponse.FromString,
        )
        self._under_way: _UnderWay | None = None
        self._settings = settings
        self._leads = leads
        self._share_bytes = share_bytes
        self._on_lost = on_lost
        self._turn = 0
        self._cancelled = 0
        self._down = False
        self._thread = threading.Thread(
            target=self._run, name=f"mainstem-fetch-{address}", daemon=True
        )
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Waits for the thread, after the partitions were closed."""
        self._thread.join(timeout_s)

    # ---------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        partitions = self._partitions
        while (found := self._next()) is not None:
            wanted, room_bytes, changes = found
            request = self._request(wanted, room_bytes)
            try:
                answer = self._call(request, wanted, changes)
            except Exception:
                if partitions.closed:
                    return
                _log.exception("fetching from %s failed; trying again", self.address)
                time.sleep(self._settings.retry_backoff_ms / 1000)
                continue
            if answer is not None:
                self._take(answer, wanted)

    def _next(self) -> tuple[_Wanted, int, int] | None:
        """Waits until there is something to fetch; None: the consumer was closed."""
        partitions = self._partitions
        with partitions.lock:
            while not partitions.closed:
                wanted, room_bytes = self._wanted()
                if wanted:
                    return wanted, room_bytes, partitions.changes
                partitions.wanted.wait(self._pause_s())
        return None

    def _wanted(self) -> tuple[_Wanted, int]:
        """What to fetch now, the least recently served first, and the room for it."""
        partitions = self._partitions
        share_bytes = self._share_bytes()
        used_bytes = partitions.buffered.get(self.address, 0)
        if used_bytes * 2 > share_bytes:
            return [], 0
        now = time.monotonic()
        wanted = [
            (one, one.generation, one.fetch_offset)
            for one in partitions.assigned.values()
            if self._fetchable(one) and one.retry_at <= now
        ]
        if wanted:
            self._turn = (self._turn + 1) % len(wanted)
            wanted = wanted[self._turn :] + wanted[: self._turn]
        return wanted, share_bytes - used_bytes

    def _fetchable(self, one: Partition) -> bool:
        return (
            one.start is Start.READY
            and not one.paused
            and one.failed is None
            and self._leads(self.address, one)
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

    def _request(self, wanted: _Wanted, room_bytes: int) -> log_pb2.FetchRequest:
        settings = self._settings
        return log_pb2.FetchRequest(
            partitions=[
                log_pb2.FetchPartition(
                    topic=one.topic,
                    partition=one.partition,
                    offset=offset,
                    max_bytes=settings.max_partition_fetch_bytes,
                    topic_id=one.topic_id,
                )
                for one, _, offset in wanted
            ],
            min_bytes=settings.fetch_min_bytes,
            max_wait_ms=settings.fetch_max_wait_ms,
            max_bytes=max(1, min(settings.fetch_max_bytes, room_bytes)),
            format=log_pb2.FETCH_FORMAT_ARROW,
        )

    def _call(
        self, request: log_pb2.FetchRequest, wanted: _Wanted, changes: int
    ) -> log_pb2.FetchResponse | None:
        """One fetch. None: it failed, or was cancelled because it lacks a partition."""
        settings, partitions = self._settings, self._partitions
        timeout_s = (settings.fetch_max_wait_ms + settings.request_timeout_ms) / 1000
        under_way = _UnderWay(
            self._fetch(request, timeout=timeout_s),
            {(id(one), generation) for one, generation, _ in wanted},
            changes,
            time.monotonic(),
        )
        with partitions.lock:
            self._under_way = under_way
            under_way.cancelled = partitions.closed
            if partitions.changes != changes:
                partitions.news.notify_all()  # nobody has looked at this call yet
        if under_way.cancelled:
            under_way.call.cancel()  # who would do it else may have ended
        try:
            answer: log_pb2.FetchResponse = next(under_way.call)
            for _ in under_way.call:  # there is no second one: the end of the call
                pass
        except grpc.RpcError as failure:
            error = error_from_rpc(failure)
            if under_way.cancelled:
                self._cancelled += 1
            else:
                self._failed(error, wanted)
            return None
        finally:
            with partitions.lock:
                self._under_way = None
        self._cancelled = 0
        self._down = False
        return answer

    def overdue(self) -> tuple[Any, float]:
        """The call under way, if it lacks a partition and is old enough: to be cancelled, without
        the lock, which is held now. Else None, and in how many seconds to ask again."""
        partitions, under_way = self._partitions, self._under_way
        if under_way is None or under_way.cancelled:
            return None, _LOOK_EVERY_S
        wait_s = 0.0
        if not partitions.closed:
            if partitions.changes == under_way.changes:
                return None, _LOOK_EVERY_S
            if not self._lacks(under_way.asked):
                under_way.changes = partitions.changes
                return None, _LOOK_EVERY_S
            least_s = _CANCEL_AFTER_S * 2 ** min(self._cancelled - 1, 6) if self._cancelled else 0.0
            wait_s = under_way.began_at + least_s - time.monotonic()
        if wait_s > 0:
            return None, wait_s
        under_way.cancelled = True
        return under_way.call, 0.0

    def _lacks(self, asked: set[tuple[int, int]]) -> bool:
        """A partition is to be fetched that the call under way does not have."""
        now = time.monotonic()
        return any(
            self._fetchable(one) and one.retry_at <= now and (id(one), one.generation) not in asked
            for one in self._partitions.assigned.values()
        )

    # ----------------------------------------------------------------------------------- its answer

    def _take(self, answer: log_pb2.FetchResponse, wanted: _Wanted) -> None:
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
                if not current or one.paused:
                    continue
                if error is not None:
                    self._partition_failed(one, error, lost)
                    continue
                one.topic_id = one.topic_id or fetched.topic_id
                one.high_watermark = fetched.high_watermark
                one.log_start_offset = fetched.log_start_offset
                self._put(one, batches, offset, fetched.next_offset)
            if lost:
                self._on_lost(lost)

    def _put(self, one: Partition, batches: list[Any], offset: int, next_offset: int) -> None:
        last = len(batches) - 1
        for index, batch in enumerate(batches):
            following = (
                max(next_offset, batch.column("offset")[-1].as_py() + 1)
                if index == last
                else batches[index + 1].column("offset")[0].as_py()
            )
            chunk = Chunk(one, one.generation, batch, following, batch.nbytes, self.address)
            one.fetch_offset = following
            self._partitions.put(chunk)
        if not batches and next_offset > offset:
            one.fetch_offset = next_offset
            self._partitions.put(Chunk(one, one.generation, None, next_offset, 0, self.address))

    def _partition_failed(
        self, one: Partition, error: MainstemError, lost: list[Partition]
    ) -> None:
        """What an error of one partition means; the lock is held."""
        backoff_s = max(self._settings.retry_backoff_ms, error.retry_delay_ms) / 1000
        moved = error.code == "OFFSET_OUT_OF_RANGE" or (
            error.code == "UNKNOWN_TOPIC" and bool(one.topic_id)
        )
        if moved and one.queued:
            # What was fetched before is good, and comes first.
            one.retry_at = time.monotonic() + backoff_s
        elif error.code == "OFFSET_OUT_OF_RANGE":
            if self._settings.reset == "none":
                self._partitions.fail(one, error)
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
        else:
            self._partitions.fail(one, error)

    def _failed(self, error: MainstemError, wanted: _Wanted) -> None:
        """The whole call failed."""
        retriable = error.retriable or isinstance(error, OutcomeUnknownError)
        if not self._down:
            _log.warning("fetching from %s failed: %s", self.address, error)
        self._down = True
        backoff_s = max(self._settings.retry_backoff_ms, error.retry_delay_ms) / 1000
        with self._partitions.lock:
            current = [one for one, generation, _ in wanted if one.generation == generation]
            for one in current:
                one.retry_at = time.monotonic() + backoff_s
                if not retriable:
                    self._partitions.fail(one, error)
            self._on_lost(current)

"""Where partitions begin: at the committed offset, or where auto.offset.reset says."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from mainstem.client.consumer.group import CommittedOffset
from mainstem.client.consumer.partitions import Partition, Partitions, Start
from mainstem.client.consumer.settings import ConsumerSettings
from mainstem.client.positions import TopicPartition
from mainstem.errors import MainstemError, OffsetOutOfRangeError, UnknownTopicError

#: The offset that was found, or why there is none.
OffsetAnswer = int | MainstemError

#: `GroupClient.committed`.
CommittedOffsets = Callable[
    [Sequence[TopicPartition], float], Mapping[TopicPartition, CommittedOffset | MainstemError]
]

#: `ConsumerWorker.list_offsets`.
ListOffsets = Callable[
    [dict[TopicPartition, int | Start], float], dict[TopicPartition, OffsetAnswer]
]


class StartFinder:
    """Of one consumer; on its worker's thread.

    Args:
        committed: Asks the group; None: there is no group.
        on_reset: Called with the offsets at which auto.offset.reset has set partitions; without the
            lock.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        partitions: Partitions,
        committed: CommittedOffsets | None,
        list_offsets: ListOffsets,
        on_reset: Callable[[dict[Partition, int]], None],
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._committed = committed
        self._list_offsets = list_offsets
        self._on_reset = on_reset

    def find(self, todo: list[Partition], timeout_s: float) -> None:
        """Makes each ready to be fetched, or notes when to try again, or that it failed."""
        asked = {one: (one.generation, one.start) for one in todo}
        committed = [one for one in todo if one.start is Start.COMMITTED]
        others = [one for one in todo if one.start is not Start.COMMITTED]
        if committed and self._committed is None:
            others += committed
        elif committed and self._committed is not None:
            answers = self._committed([one.tp for one in committed], timeout_s)
            with self._partitions.lock:
                for one in committed:
                    answer = answers[one.tp]
                    if not self._valid(one, asked):
                        continue
                    if isinstance(answer, MainstemError):
                        self._not_found(one, answer)
                    elif answer.offset >= 0:
                        _settle(one, answer.offset)
                        one.committed = answer.offset
                        one.leader_epoch = answer.leader_epoch
                    else:
                        others.append(one)
                self._partitions.changed()
        self._reset(others, asked, timeout_s)

    def _reset(
        self,
        todo: list[Partition],
        asked: dict[Partition, tuple[int, Start]],
        timeout_s: float,
    ) -> None:
        queries: dict[TopicPartition, int | Start] = {}
        by_policy: list[Partition] = []
        for one in todo:
            start = asked[one][1]
            if start in (Start.EARLIEST, Start.LATEST):
                queries[one.tp] = start
                continue
            query = self._policy(one, start)
            if query is None:
                with self._partitions.lock:
                    if self._valid(one, asked):
                        self._partitions.fail(one, _no_offset(one))
                continue
            by_policy.append(one)
            queries[one.tp] = query
        if not queries:
            return
        found = self._list_offsets(queries, timeout_s)
        late = {tp: Start.LATEST for tp, offset in found.items() if offset == -1}
        if late:
            found.update(self._list_offsets(dict(late), timeout_s))
        done: dict[Partition, int] = {}
        with self._partitions.lock:
            for one in todo:
                answer = found.get(one.tp)
                if answer is None or not self._valid(one, asked):
                    continue
                if isinstance(answer, MainstemError):
                    self._not_found(one, answer)
                    continue
                _settle(one, answer)
                if one in by_policy:
                    done[one] = answer
            self._partitions.changed()
            self._partitions.arrived.notify_all()
        if done:
            self._on_reset(done)

    def _policy(self, one: Partition, start: Start) -> int | Start | None:
        if one.added_later and start is Start.COMMITTED:
            return Start.EARLIEST
        match self._settings.reset:
            case "earliest":
                return Start.EARLIEST
            case "latest":
                return Start.LATEST
            case "by_duration":
                return max(0, int(time.time() * 1000) - self._settings.reset_duration_ms)
            case "none":
                return None

    def _valid(self, one: Partition, asked: dict[Partition, tuple[int, Start]]) -> bool:
        """Nobody sought elsewhere meanwhile; the lock is held."""
        current = self._partitions.assigned.get(one.tp) is one
        return current and (one.generation, one.start) == asked[one]

    def _not_found(self, one: Partition, error: MainstemError) -> None:
        if error.retriable or isinstance(error, UnknownTopicError):
            one.retry_at = time.monotonic() + self._settings.backoff_s(one.failures, error)
            one.failures += 1
        else:
            self._partitions.fail(one, error)


def _settle(one: Partition, offset: int) -> None:
    """The start was found. What is buffered of before an offset out of range stays good."""
    one.start = Start.READY
    one.position = one.fetch_offset = offset
    one.retry_at = 0.0
    one.failures = 0


def _no_offset(one: Partition) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        f"no offset says where to read {one.topic}-{one.partition}, and auto.offset.reset is "
        "none: seek(), commit an offset, or set auto.offset.reset",
        topic=one.topic,
        partition=one.partition,
    )

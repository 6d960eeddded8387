"""One topic's part of the write-ahead log: which pending requests it has, and what a start finds.

The log is prefix-closed: before a request enters it, all earlier pending requests of the topic do.
So whatever is found there after a crash fits together, without a gap before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar

from mainstem.delta_log.append.queue import Group, Pending
from mainstem.delta_log.files import Slice
from mainstem.delta_log.table import Batch
from mainstem.delta_log.wal import Wal, WalRequest
from mainstem.errors import MainstemError

log = logging.getLogger(__name__)

Token = TypeVar("Token")


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a start found of a topic in the log.

    Attributes:
        requests: With their entry numbers, in order: they continue the partitions where they end.
        orphan_count: Records that no longer fit, because others own their offsets, and were not
            kept before.
        orphans_path: The file that keeps them.
    """

    requests: tuple[tuple[int, WalRequest], ...]
    orphan_count: int = 0
    orphans_path: str = ""


class TopicWal(Generic[Token]):
    """The log as one appender uses it. On the event loop. Make it after `recover_topic`.

    Args:
        epoch: The leader epoch under which requests are accepted.
    """

    def __init__(self, wal: Wal, topic: str, topic_id: str, epoch: int) -> None:
        self._wal = wal
        self._topic = topic
        self._topic_id = topic_id
        self._epoch = epoch
        self._turn = wal.turn(topic, topic_id)
        #: Accepted, not committed, and not in the log, with their numbers; in order.
        self._unlogged: deque[tuple[int, Pending[Token]]] = deque()
        #: In the log and not committed; before those in order.
        self._logged: deque[tuple[int, Pending[Token]]] = deque()
        self._is_refused = False

    @property
    def gateway_id(self) -> str:
        return self._wal.gateway_id

    def accepted(self, pending: Pending[Token]) -> None:
        """Notes a request that waits for its table commit.

        It gets its number now: its commit may be on the way when the request enters the log, for
        the sake of a later one, and must say nevertheless that it has it.
        """
        self._unlogged.append((self._wal.take_number(), pending))

    def recovered(self, number: int, pending: Pending[Token]) -> None:
        """Notes a request that came from the log."""
        self._logged.append((number, pending))

    def write(self) -> asyncio.Future[None] | None:
        """Puts all that is not in the log yet into it; the future is done when the last is durable.

        None: the log takes no more now. What was accepted then waits for its table commit.
        """
        if self._wal.turn(self._topic, self._topic_id) != self._turn:
            return None  # another appender has taken the topic over
        done: asyncio.Future[None] | None = None
        while self._unlogged:
            number, pending = self._unlogged[0]
            request = WalRequest(
                self._topic,
                self._topic_id,
                self._epoch,
                pending.slices,
                pending.batches,
                pending.size_bytes,
            )
            try:
                done = self._wal.append(number, request)
            except MainstemError as error:
                if not self._is_refused:  # once, not for each of thousands
                    log.warning("topic %s: acks=1 waits for commits: %s", self._topic, error)
                self._is_refused = True
                return None
            self._is_refused = False
            self._unlogged.popleft()
            self._logged.append((number, pending))
        return done

    def number_of(self, group: Group[Token]) -> int:
        """The number of a group's last request: with its commit all up to it are in the table."""
        last = group.requests[-1]
        for number, pending in chain(self._logged, self._unlogged):
            if pending is last:
                return number
        raise AssertionError("a group whose requests were not accepted here")

    def committed(self, group: Group[Token]) -> None:
        """Notes that a group is in the table: its entries are not needed any more."""
        members = {id(pending) for pending in group.requests}
        number = None
        while self._logged and id(self._logged[0][1]) in members:
            number, _ = self._logged.popleft()
        while self._unlogged and id(self._unlogged[0][1]) in members:
            self._unlogged.popleft()
        if number is not None:
            self._wal.fold(self._topic, self._topic_id, number)


async def recover_topic(
    wal: Wal,
    topic: str,
    topic_id: str,
    after_number: int,
    log_end_offset: Callable[[int], int],
) -> Recovered:
    """What the log has of a topic that this gateway has just taken the lead of.

    A batch whose first offset is where its partition ends is to be appended there, as if nothing
    had happened. Where another gateway has appended meanwhile, the offsets are taken: there this
    log and the table have parted, and all that follows in the partition are orphans. They are kept
    in a file beside the log, never written over what others own, never dropped.

    Args:
        after_number: The topic's register for this gateway.
        log_end_offset: Of a partition, in the table.

    Raises:
        LogDamagedError, StoreUnavailableError: The log, or the file of orphans, fails.
    """
    entries = await wal.unfolded(topic, topic_id, after_number)
    ends: dict[int, int] = {}
    parted: set[int] = set()
    fitting: list[tuple[int, WalRequest]] = []
    orphans: list[tuple[int, WalRequest]] = []
    for number, request in entries:
        fits: list[tuple[Slice, Batch]] = []
        rest: list[tuple[Slice, Batch]] = []
        for slice_, batch in zip(request.slices, request.batches, strict=True):
            partition = batch.partition
            end = ends[partition] if partition in ends else log_end_offset(partition)
            if batch.base_offset == end and partition not in parted:
                ends[partition] = end + batch.record_count
                fits.append((slice_, batch))
            else:
                parted.add(partition)
                rest.append((slice_, batch))
        if fits:
            fitting.append((number, request.only(fits)))
        if rest:
            orphans.append((number, request.only(rest)))
    if not orphans:
        return Recovered(tuple(fitting))
    path, count = await wal.keep_orphans(topic_id, orphans)
    last = orphans[-1][0]
    if fitting:
        # The commit of the last that fits is the end of the orphans, too.
        number, request = fitting[-1]
        fitting[-1] = (max(number, last), request)
    else:
        wal.fold(topic, topic_id, last)
    return Recovered(tuple(fitting), count, path)

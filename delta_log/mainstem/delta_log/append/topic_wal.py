"""One topic's part of the write-ahead log while it is led: which pending requests it has.

The log is prefix-closed: before a request enters it, all earlier pending requests of the topic do.
So whatever is found there after a crash fits together, without a gap before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from itertools import chain
from typing import Generic, TypeVar

from mainstem.delta_log.append.queue import Pending, Portion
from mainstem.delta_log.wal import Wal, WalRequest
from mainstem.errors import BackPressureError, StoreUnavailableError

log = logging.getLogger(__name__)

Token = TypeVar("Token")


class TopicWal(Generic[Token]):
    """The log as one appender uses it. On the event loop. Make it after `recover_topic`."""

    def __init__(self, wal: Wal, topic: str, topic_id: str) -> None:
        self._wal = wal
        self._topic = topic
        self._topic_id = topic_id
        self._fault_count = wal.fault_count
        self._turn = wal.turn(topic, topic_id)
        #: Accepted, not committed, and not in the log, with their numbers; in order.
        self._unlogged: deque[tuple[int, Pending[Token]]] = deque()
        #: In the log and not committed; before those in order.
        self._logged: deque[tuple[int, Pending[Token]]] = deque()
        self._is_refused = False

    @property
    def register(self) -> str:
        """The name of the register that a commit sets to `number_of` its portion."""
        return self._wal.register

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
        if self._wal.fault_count != self._fault_count:
            # Some of them are not there, and what comes next must not leave a gap. Those that are
            # there are written again as well: the segment that has them could not be synced.
            self._fault_count = self._wal.fault_count
            self._unlogged.extendleft(reversed(self._logged))
            self._logged.clear()
        done: asyncio.Future[None] | None = None
        while self._unlogged:
            number, pending = self._unlogged[0]
            request = WalRequest(
                self._topic,
                self._topic_id,
                pending.epoch,
                pending.slices,
                pending.batches,
                pending.size_bytes,
            )
            try:
                done = self._wal.append(number, request)
            except StoreUnavailableError:  # which the log has said once, for all topics
                return None
            except BackPressureError as error:
                if not self._is_refused:  # once, not for each of thousands
                    log.warning("topic %s: acks=1 waits for commits: %s", self._topic, error)
                self._is_refused = True
                return None
            self._is_refused = False
            self._unlogged.popleft()
            self._logged.append((number, pending))
        return done

    def number_of(self, portion: Portion[Token]) -> int:
        """The number of a portion's last request: with its commit all up to it are in the table."""
        last = portion.requests[-1]
        for number, pending in chain(self._logged, self._unlogged):
            if pending is last:
                return number
        raise AssertionError("a portion whose requests were not accepted here")

    def committed(self, portion: Portion[Token]) -> None:
        """Notes that a portion is in the table: its entries are not needed any more."""
        members = {id(pending) for pending in portion.requests}
        number = None
        while self._logged and id(self._logged[0][1]) in members:
            number, _ = self._logged.popleft()
        while self._unlogged and id(self._unlogged[0][1]) in members:
            number, _ = self._unlogged.popleft()  # it may be in a segment nevertheless
        if number is not None:
            self._wal.fold(self._topic, self._topic_id, number)

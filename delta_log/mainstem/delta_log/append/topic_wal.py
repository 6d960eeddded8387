"""One topic's part of the write-ahead log while it is led: which pending requests it has.

The log is prefix-closed: before a request enters it, all earlier pending requests of the topic do.
So whatever is found there after a crash fits together, without a gap before it.

**The durable mark.** A request that the log has will be in the table at its offsets, whatever
happens: who leads the topic next, this gateway or another, finds it there, since it seals the log
before it reads it, and what is checked in the log before the seal was written before it. So it may
be given to readers before its commit. This rests on two rules:

- What was recovered from another gateway's log is committed before anything enters this log: a log
  whose owner is alive may lose what it had not checked when it was sealed. And nothing that was
  recovered is shown before its commit.
- When the log goes on behind a seal, a topic enters it again only when a commit of its own has
  landed since. Who took the topic over had claimed its epoch before the seal, and that commit finds
  it; who does so later finds the log as it is by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Final, Generic, TypeVar

from mainstem.delta_log.append.queue import Pending, Portion
from mainstem.delta_log.append.wal_recovery import RecoveredRequest
from mainstem.delta_log.format import Register, registers
from mainstem.delta_log.wal import Wal, WalRequest
from mainstem.errors import BackPressureError, StoreUnavailableError

log = logging.getLogger(__name__)

Token = TypeVar("Token")

#: No request has a lower number.
_NONE: Final = -1


class TopicWal(Generic[Token]):
    """The log as one appender uses it. On the event loop. Make it after `recover_topic`.

    Args:
        epoch: Of the lead; 0: what other gateways have left of the topic was not looked for, so
            nothing is said about that.
        generation: Of the log before the epoch was claimed.
        on_durable: Called with requests, in order, when the log has them and their table commits
            have not landed.
        may_show: Asked before that; False: only the commit shows them.
    """

    def __init__(
        self,
        wal: Wal,
        topic: str,
        topic_id: str,
        epoch: int = 0,
        generation: int | None = None,
        on_durable: Callable[[Sequence[Pending[Token]]], None] | None = None,
        may_show: Callable[[], bool] = lambda: True,
    ) -> None:
        self._wal = wal
        self._topic = topic
        self._topic_id = topic_id
        self._epoch = epoch
        self._generation = wal.generation if generation is None else generation
        self._on_durable = on_durable
        self._may_show = may_show
        self._fault_count = wal.fault_count
        self._turn = wal.turn(topic, topic_id)
        #: From the logs of others, and not committed, with what is from this one behind that; in
        #: order, and before all that is accepted here.
        self._recovered: deque[tuple[RecoveredRequest, Pending[Token]]] = deque()
        #: Accepted, not committed, and not in the log, with their numbers; in order.
        self._unlogged: deque[tuple[int, Pending[Token]]] = deque()
        #: In the log and not committed; before those in order.
        self._logged: deque[tuple[int, Pending[Token]]] = deque()
        #: Of these, those that were not shown; in order.
        self._unshown: deque[tuple[int, Pending[Token]]] = deque()
        #: Accepted, not committed, and never in the log: records of transactions, in order.
        self._kept_out: deque[Pending[Token]] = deque()
        self._shown_number = _NONE
        self._committed_number = _NONE
        #: Of the log when the commit began that is under way.
        self._commit_generation = self._generation
        self._is_settled = not epoch
        self._is_refused = False

    def accepted(self, pending: Pending[Token]) -> None:
        """Notes a request that waits for its table commit.

        It gets its number now: its commit may be on the way when the request enters the log, for
        the sake of a later one, and must say nevertheless that it has it.
        """
        self._unlogged.append((self._wal.take_number(), pending))

    def keep_out(self, pending: Pending[Token]) -> None:
        """Notes a request that waits for its table commit and does not enter the log, nor does
        what is accepted behind it before that commit: the log has no gap."""
        self._kept_out.append(pending)

    def recovered(self, found: RecoveredRequest, pending: Pending[Token]) -> bool:
        """Notes a request that came from a log. Whether it counts as being in this one."""
        if found.wal is self._wal and not self._recovered:
            self._logged.append((found.number, pending))
            return True
        self._recovered.append((found, pending))
        return False

    def write(self) -> asyncio.Future[None] | None:
        """Puts all that is not in the log yet into it; the future is done when the last is durable.

        None: the log takes no more now. What was accepted then waits for its table commit.
        """
        if self._recovered or self._kept_out or self._wal.generation != self._generation:
            return None
        if self._wal.turn(self._topic, self._topic_id) != self._turn:
            return None  # another appender has taken the topic over
        if self._wal.fault_count != self._fault_count:
            # Some of them are not there, and what comes next must not leave a gap. Those that are
            # there are written again as well: the segment that has them could not be synced.
            self._fault_count = self._wal.fault_count
            self._unlogged.extendleft(reversed(self._logged))
            self._logged.clear()
            self._unshown.clear()
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
            if self._on_durable is not None and number > self._shown_number:
                self._unshown.append((number, pending))
                done.add_done_callback(partial(self._durable, number))
        return done

    def _durable(self, number: int, done: asyncio.Future[None]) -> None:
        """The log has a request, and all before it, or has not."""
        if done.cancelled() or done.exception() is not None or number <= self._shown_number:
            return
        if self._on_durable is None or not self._may_show():
            return
        self._shown_number = number
        shown: list[Pending[Token]] = []
        while self._unshown and self._unshown[0][0] <= number:
            one, pending = self._unshown.popleft()
            if one > self._committed_number:
                shown.append(pending)
        if shown:
            self._on_durable(shown)

    @property
    def is_settled(self) -> bool:
        """Whether no log, of this gateway or of one that led the topic before, has anything that
        the table lacks."""
        return bool(self._epoch) and not (
            self._recovered
            or self._unlogged
            or self._logged
            or self._wal.entry_count(self._topic, self._topic_id)
        )

    def end(self) -> None:
        """Shows nothing any more: the topic is not led here."""
        self._on_durable = None

    def registers(self, portion: Portion[Token]) -> list[Register]:
        """What the commit of a portion has to say: up to which request of each log the table has
        all from now on; and, the first time, that no leader before this one has left anything."""
        self._commit_generation = self._wal.generation
        members = {id(pending) for pending in portion.requests}
        values: dict[str, int] = {}
        left = len(self._recovered)
        for found, pending in self._recovered:
            if id(pending) in members:
                name = found.wal.register
                values[name] = max(values.get(name, _NONE), found.number)
                left -= 1
        for number, pending in chain(self._logged, self._unlogged):
            if id(pending) not in members:
                break
            name = self._wal.register
            values[name] = max(values.get(name, _NONE), number)
        assert values or any(id(pending) in members for pending in self._kept_out), (
            "a portion whose requests were not accepted here"
        )
        said = [Register(name, value) for name, value in values.items()]
        if not left and not self._is_settled:
            said.append(Register(registers.SETTLED, self._epoch))
        return said

    def committed(self, portion: Portion[Token]) -> None:
        """Notes that a portion is in the table: its entries are not needed any more."""
        self._generation = self._commit_generation
        members = {id(pending) for pending in portion.requests}
        while self._recovered and id(self._recovered[0][1]) in members:
            found, _ = self._recovered.popleft()
            found.wal.fold(self._topic, self._topic_id, found.number)
        self._is_settled = self._is_settled or not self._recovered
        while self._kept_out and id(self._kept_out[0]) in members:
            self._kept_out.popleft()
        number = None
        while self._logged and id(self._logged[0][1]) in members:
            number, _ = self._logged.popleft()
        while self._unlogged and id(self._unlogged[0][1]) in members:
            number, _ = self._unlogged.popleft()  # it may be in a segment nevertheless
        if number is not None:
            self._committed_number = number
            self._wal.fold(self._topic, self._topic_id, number)
        while self._unshown and self._unshown[0][0] <= self._committed_number:
            self._unshown.popleft()

"""The leader's write-ahead log: where acks=1 batches are durable until a table commit has them.

One log for all topics of a gateway. Requests are numbered as they are accepted, whether they enter
the log or not; a register of each topic says up to which number its requests are in the table.
Segments whose entries are all in tables are deleted.

Runs on one event loop; it is written to in a thread of its own, many entries for one sync, or one
object of an object storage service.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, TypeVar

from mainstem.delta_log.format import registers
from mainstem.delta_log.wal.format import (
    WalRequest,
    decode_entry,
    encode_entry,
    encode_frame,
    entry_topic,
)
from mainstem.delta_log.wal.identity import WalIdentity, read_identity, write_identity
from mainstem.delta_log.wal.orphans import OrphanFiles, Part
from mainstem.delta_log.wal.place import WalFiles, WalLost, WalSealed
from mainstem.delta_log.wal.queue import Queued, WriteQueue
from mainstem.errors import LogDamagedError, StoreUnavailableError
from mainstem.limits import MIB

log = logging.getLogger(__name__)

T = TypeVar("T")

#: After a failure the log is left alone for so long, twice as long after each that follows, and for
#: so long at most. Requests wait for their table commits meanwhile.
RETRY_S: Final = 0.1
RETRY_S_MAX: Final = 10.0


@dataclass(frozen=True, slots=True)
class _Fault:
    """The log could not be written to, and is not tried again before `retry_at`."""

    error: StoreUnavailableError
    pause_s: float
    retry_at: float


class Wal:
    """An open log. Open it before the gateway serves, and recover each topic of `topics()`.

    Blocks while it reads what is there.

    Args:
        files: Where it is: its own; or another gateway's, sealed: nothing can be appended.
        gateway_id: Names the register in the topics.
        interval_s: The log is written to once in so many seconds at most, unless what waits fills
            a frame: in an object storage service each time has its price. 0: at once.
        segment_bytes: A file that has reached this many bytes is followed by a new one.
        queue_bytes: Entries that may wait for their sync.
        clock_us: Wall clock, microseconds.

    Attributes:
        failures: How often the log could not be written to, by the system's name of the error.
        fault_count: Changes with each failure. All that a topic has in the log is to be written
            again before anything that follows it: see `TopicWal`.
        generation: Changes when the log goes on after another gateway has sealed it. A topic may
            have another leader since, of which nobody has told us: see `TopicWal`.

    Raises:
        LogDamagedError: A segment is damaged; the message names file and position.
        StoreUnavailableError: A segment cannot be read.
    """

    def __init__(
        self,
        files: WalFiles,
        gateway_id: str,
        *,
        interval_s: float = 0.0,
        segment_bytes: int = 64 * MIB,
        queue_bytes: int = 64 * MIB,
        clock_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = files
        self._gateway_id = gateway_id
        self._monotonic = monotonic
        self._segments = files.segments(segment_bytes)
        self._orphans = OrphanFiles(files)
        self._topic_numbers: dict[tuple[str, str], deque[int]] = {}
        self._turns: dict[tuple[str, str], int] = {}
        self._unfolded: set[int] = set()
        self._queue = WriteQueue(queue_bytes)
        self._interval_s = interval_s
        self._written_at = -math.inf
        #: What waits is written before its time.
        self._hurry = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._fault: _Fault | None = None
        self._identity = WalIdentity()
        #: Nothing is taken any more.
        self._ended: StoreUnavailableError | None = None
        if not files.is_own:
            self._ended = self._unavailable("is another gateway's")
        self._owning_again: asyncio.Task[None] | None = None
        self.failures: Counter[str] = Counter()
        self.fault_count = 0
        self.generation = 0
        # A number is never used twice, even if the directory was lost: a new log begins at the
        # clock's microseconds, which run faster than requests.
        self._next_number = max(self._scan() + 1, clock_us())
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="wal")
        #: What is read holds up nobody who writes.
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="wal-read")

    @property
    def uri(self) -> str:
        """Where it is, for messages."""
        return self._files.uri

    @property
    def gateway_id(self) -> str:
        """The gateway whose requests it has."""
        return self._gateway_id

    @property
    def register(self) -> str:
        """The name of the register that says what of this log is in a topic's table."""
        return registers.wal(self._gateway_id, self._identity.log_id)

    @property
    def warehouse_id(self) -> str:
        """The warehouse whose records it has; empty if nobody has said so yet."""
        return self._identity.warehouse_id

    def belong_to(self, warehouse_id: str) -> None:
        """Names the warehouse, for good. Blocks. Before anything is appended.

        A log without entries gets an id of its own; one from before it had one goes on without.

        Raises:
            StoreUnavailableError: The log cannot be written.
        """
        log_id = self._identity.log_id
        if not log_id and not self._topic_numbers:
            log_id = uuid.uuid4().hex[:16]
        identity = WalIdentity(log_id, warehouse_id)
        try:
            write_identity(self._files, identity)
        except OSError as error:
            raise self._unavailable(f"cannot be written: {error}") from error
        self._identity = identity

    def entry_count(self, topic: str, topic_id: str) -> int:
        """How many entries of a topic may not be in its table."""
        return len(self._topic_numbers.get((topic, topic_id), ()))

    # -- what a start finds ----------------------------------------------------------------------

    def topics(self) -> list[tuple[str, str]]:
        """(topic, topic id) of every topic with entries that may not be in its table."""
        return sorted(self._topic_numbers)

    async def unfolded(
        self, topic: str, topic_id: str, after_number: int
    ) -> list[tuple[int, WalRequest]]:
        """The topic's entries after `after_number`, its register, in order.

        Those up to it are marked as folded. From now on an appender that had the topic before adds
        nothing to it: what it would add nobody would look for any more. An entry that was written
        again after a failure may come twice, whole or in parts.

        Raises:
            LogDamagedError: An entry that was there at the start cannot be read any more.
            StoreUnavailableError: A segment cannot be read.
        """
        key = (topic, topic_id)
        self._turns[key] = self.turn(topic, topic_id) + 1
        # The clock may have been behind when the directory was lost.
        self._next_number = max(self._next_number, after_number + 1)
        # Only what is there now: other topics' requests may come without end.
        waiting = self._queue.of(key)
        if waiting:
            self._hurry.set()
            await asyncio.wait(waiting)
        self.fold(topic, topic_id, after_number)
        wanted = set(self._topic_numbers.get(key, ()))
        if not wanted:
            return []
        return await self._read_in_thread(
            self._read, self._segments.holding(wanted), wanted, topic, topic_id
        )

    def turn(self, topic: str, topic_id: str) -> int:
        """Changes when somebody else takes care of the topic: see `unfolded`."""
        return self._turns.get((topic, topic_id), 0)

    async def kept_orphans(self, topic_id: str, numbers: set[int]) -> set[Part]:
        """What files of orphans have of a topic's entries of these numbers. It is durable.

        Raises:
            LogDamagedError, StoreUnavailableError: A file fails.
        """
        return await self._read_in_thread(self._orphans.kept, topic_id, numbers)

    async def keep_orphans(self, topic_id: str, orphans: list[tuple[int, WalRequest]]) -> str:
        """Keeps entries that can no longer become part of the topic in a file beside the log.

        The file has the format of a segment. It is durable when this returns.

        Args:
            orphans: At least one, of which no such file has anything yet.

        Returns:
            The file's path.

        Raises:
            StoreUnavailableError: The file cannot be written.
        """
        return await self._read_in_thread(self._orphans.keep, topic_id, orphans)

    # -- the hot path ----------------------------------------------------------------------------

    def take_number(self) -> int:
        """The number of the next request that is accepted, of any topic."""
        number = self._next_number
        self._next_number += 1
        return number

    def append(self, number: int, request: WalRequest) -> asyncio.Future[None]:
        """Queues a request under its number; the future is done when it is durable.

        Requests of one topic come in the order of their numbers. One that is in the log already may
        come again after a failure.

        Raises:
            BackPressureError: Too much waits for its sync. Nothing was queued.
            StoreUnavailableError: The log could not be written to a moment ago, or is closed.
                Nothing was queued, and acks=1 waits for the table commit.
        """
        if self._ended is not None:
            raise self._ended.with_traceback(None)
        if self._fault is not None and self._monotonic() < self._fault.retry_at:
            raise self._fault.error.with_traceback(None)
        entry = encode_entry(request)
        self._queue.check_room(len(entry))
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(_retrieve)
        key = (request.topic, request.topic_id)
        self._queue.add(Queued(key, number, entry, done))
        if self._queue.fills_a_frame:
            self._hurry.set()
        self._note(key, number)
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_queue())
        return done

    def fold(self, topic: str, topic_id: str, number: int) -> None:
        """Marks the topic's entries up to `number` as being in its table."""
        numbers = self._topic_numbers.get((topic, topic_id), ())
        self._forget(topic, topic_id, set(takewhile(lambda one: one <= number, numbers)))

    def release(self, topic: str, topic_id: str, numbers: set[int]) -> None:
        """Marks entries as being in the topic's table or in a file of orphans, whole."""
        self._forget(topic, topic_id, numbers)

    def forget(self, topic: str, topic_id: str) -> int:
        """Gives up the entries of a topic that is deleted; returns how many."""
        numbers = set(self._topic_numbers.get((topic, topic_id), ()))
        self._forget(topic, topic_id, numbers)
        return len(numbers)

    @property
    def segment_names(self) -> list[str]:
        return self._segments.names

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self._segments.size_bytes

    async def close(self) -> None:
        """Writes what is queued, and closes the file. A log that no table waits for is removed."""
        if self._ended is None:
            self._ended = StoreUnavailableError(
                f"the write-ahead log {self._files.uri} is closed", directory=self._files.uri
            )
        if self._owning_again is not None:
            self._owning_again.cancel()
        self._hurry.set()
        while self._writing is not None:
            await asyncio.wait([self._writing])
        await asyncio.get_running_loop().run_in_executor(self._pool, self._segments.close)
        self._pool.shutdown(wait=True)
        self._reading.shutdown(wait=True)

    # -- writing ---------------------------------------------------------------------------------

    async def _write_queue(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._queue:
                await self._until_due()
                for one in self._queue.drop_all_but(self._unfolded):
                    if not one.done.done():
                        one.done.set_result(None)  # its table commit was sooner
                if not self._queue:
                    break
                self._written_at = self._monotonic()
                group = self._queue.take_group()
                if self._queue.fills_a_frame:
                    self._hurry.set()
                try:
                    frame = encode_frame([(one.number, one.entry) for one in group])
                    segment = await loop.run_in_executor(
                        self._pool, self._segments.write, frame, self._next_number
                    )
                except asyncio.CancelledError:
                    raise
                except BaseException as error:  # a panic in a native library is no Exception
                    self._failed(error)
                    return
                segment.unfolded |= {one.number for one in group} & self._unfolded
                self._segments.drop_folded()
                self._queue.written()
                if self._fault is not None:
                    self._fault = None
                    log.info("the write-ahead log %s works again", self._files.uri)
                for one in group:
                    if not one.done.done():
                        one.done.set_result(None)
        finally:
            self._writing = None

    async def _until_due(self) -> None:
        left_s = min(self._written_at + self._interval_s - self._monotonic(), self._interval_s)
        if left_s > 0 and self._ended is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._hurry.wait()
        self._hurry.clear()

    def _failed(self, error: BaseException) -> None:
        """Nothing of what is written or queued counts as being in the log: it waits for its table
        commits. What was durable before stays."""
        self.fault_count += 1
        self.failures[_reason(error)] += 1
        if isinstance(error, WalSealed):
            failure = self._unavailable(f"was sealed: {error}; acks=1 waits for table commits")
            log.error("%s", failure)
            self._fault = _Fault(failure, RETRY_S, math.inf)
            if self._ended is None:
                self._owning_again = asyncio.get_running_loop().create_task(self._own_again())
        elif isinstance(error, WalLost):
            failure = self._ended = self._unavailable(
                f"is lost: {error}; acks=1 waits for table commits until a restart"
            )
            log.error("%s", failure)
        else:
            failure = self._unavailable(
                f"cannot be written: {error}; acks=1 waits for table commits until it can"
            )
            if self._fault is None:  # once, not for each attempt
                log.error("%s", failure)
            pause_s = RETRY_S if self._fault is None else 2 * self._fault.pause_s
            pause_s = min(pause_s, RETRY_S_MAX)
            self._fault = _Fault(failure, pause_s, self._monotonic() + pause_s)
        for one in self._queue.give_up():
            if not self._segments.holds(one.number):  # else it was there before
                self._forget(*one.topic, {one.number})
            if not one.done.done():
                one.done.set_exception(failure)

    async def _own_again(self) -> None:
        """Goes on after another gateway has sealed the log: it takes some topics over, and has read
        what it needs of them once it has claimed their epochs. The others are still ours."""
        pause_s = RETRY_S
        while True:
            await asyncio.sleep(pause_s)
            try:
                await asyncio.get_running_loop().run_in_executor(self._pool, self._files.own_again)
            except WalLost as error:
                self._fault = None
                self._failed(error)
                return
            except (OSError, StoreUnavailableError) as error:
                log.warning("the write-ahead log %s stays sealed: %s", self._files.uri, error)
                pause_s = min(2 * pause_s, RETRY_S_MAX)
            else:
                break
        self.generation += 1
        self._fault = None
        log.info("the write-ahead log %s goes on behind its seal", self._files.uri)

    def _note(self, topic: tuple[str, str], number: int) -> None:
        if number not in self._unfolded:
            self._topic_numbers.setdefault(topic, deque()).append(number)
            self._unfolded.add(number)

    def _forget(self, topic: str, topic_id: str, gone: set[int]) -> None:
        """Notes that entries of a topic are not needed any more."""
        numbers = self._topic_numbers.get((topic, topic_id))
        if numbers is None or not gone:
            return
        while numbers and numbers[0] in gone:
            numbers.popleft()
        if not gone.isdisjoint(numbers):
            left = [number for number in numbers if number not in gone]
            numbers.clear()
            numbers.extend(left)
        if not numbers:
            del self._topic_numbers[topic, topic_id]
        self._unfolded -= gone
        self._segments.fold(gone)
        if self._writing is None:
            self._segments.drop_folded()

    def _unavailable(self, what: str) -> StoreUnavailableError:
        uri = self._files.uri
        return StoreUnavailableError(f"the write-ahead log {uri} {what}", directory=uri)

    # -- reading ---------------------------------------------------------------------------------

    def _scan(self) -> int:
        """Reads what is there; returns the highest number."""
        topics: dict[int, tuple[str, str]] = {}
        try:
            self._identity = read_identity(self._files)
            for number, entry in self._segments.scan():
                topic = entry_topic(entry)
                if topics.setdefault(number, topic) != topic:
                    raise LogDamagedError(
                        f"the write-ahead log {self._files.uri} has entry {number} of topic "
                        f"{topic[0]!r} and of topic {topics[number][0]!r}: it has segments of two "
                        "logs. Move those away that are not this log's",
                        file=self._files.uri,
                    )
                self._note(topic, number)
        except OSError as error:
            raise self._unavailable(f"cannot be read: {error}") from error
        for key in self._topic_numbers:
            self._topic_numbers[key] = deque(sorted(self._topic_numbers[key]))
        return max(topics, default=0)

    def _read(
        self, places: list[tuple[str, int]], wanted: set[int], topic: str, topic_id: str
    ) -> list[tuple[int, WalRequest]]:
        found = [
            (number, decode_entry(entry))
            for number, entry in self._segments.read(places)
            if number in wanted and entry_topic(entry) == (topic, topic_id)
        ]
        if {number for number, _ in found} != wanted:
            raise LogDamagedError(
                f"the write-ahead log {self._files.uri} has lost entries of topic {topic!r} "
                "while it was open",
                file=self._files.uri,
            )
        return sorted(found, key=lambda one: one[0])

    async def _read_in_thread(self, call: Callable[..., T], *arguments: object) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reading, call, *arguments)
        except OSError as error:
            raise self._unavailable(f"cannot be read, or not be added to: {error}") from error


def _reason(error: BaseException) -> str:
    if isinstance(error, StoreUnavailableError):
        return str(error.facts.get("errno") or type(error).__name__)
    number = error.errno if isinstance(error, OSError) else None
    return type(error).__name__ if number is None else errno.errorcode.get(number, str(number))


def _retrieve(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()

"""The leader's write-ahead log: where acks=1 batches are durable until a table commit has them.

One log for all topics of a gateway. Requests are numbered as they are accepted, whether they enter
the log or not; the register `mainstem/wal/<gateway id>` of a topic says up to which number its
requests are in the table. Segments whose entries are all in tables are deleted.

Runs on one event loop; files are written in a thread of its own, many entries for one sync.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from mainstem.delta_log.wal.files import WalFile, WalFiles
from mainstem.delta_log.wal.format import (
    WalRequest,
    decode_entry,
    decode_segment,
    encode_entry,
    encode_frame,
    entry_topic,
)
from mainstem.errors import BackPressureError, LogDamagedError, StoreUnavailableError
from mainstem.limits import MIB

_SUFFIX: Final = ".wal"
_ORPHANS_SUFFIX: Final = ".orphans"


@dataclass(slots=True)
class _Segment:
    """A file of the log: its name, size, and the numbers of its entries that no table has yet."""

    name: str
    size_bytes: int = 0
    unfolded: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Queued:
    topic: tuple[str, str]
    number: int
    entry: bytes
    done: asyncio.Future[None]


class Wal:
    """An open log. Open it before the gateway serves, and recover each topic of `topics()`.

    Blocks while it reads what is there.

    Args:
        gateway_id: Names the register in the topics.
        segment_bytes: A segment that has reached this many bytes is followed by a new one.
        queue_bytes: Entries that may wait for their sync.
        clock_us: Wall clock, microseconds.

    Raises:
        LogDamagedError: A segment is damaged; the message names file and position.
        OSError: A segment cannot be read.
    """

    def __init__(
        self,
        files: WalFiles,
        gateway_id: str,
        *,
        segment_bytes: int = 64 * MIB,
        queue_bytes: int = 64 * MIB,
        clock_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
    ) -> None:
        self._files = files
        self.gateway_id = gateway_id
        self._segment_bytes = segment_bytes
        self._queue_bytes = queue_bytes
        self._segments: list[_Segment] = []
        self._next_segment = 0
        self._topic_numbers: dict[tuple[str, str], deque[int]] = {}
        self._turns: dict[tuple[str, str], int] = {}
        self._unfolded: set[int] = set()
        #: Of the newest segment, while this log writes to it.
        self._file: WalFile | None = None
        self._queue: deque[_Queued] = deque()
        self._queued_bytes = 0
        self._failure: StoreUnavailableError | None = None
        self._writing: asyncio.Task[None] | None = None
        # A number is never used twice, even if the directory was lost: a new log begins at the
        # clock's microseconds, which run faster than requests.
        self._next_number = max(self._scan() + 1, clock_us())
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="wal")

    # -- what a start finds ----------------------------------------------------------------------

    def topics(self) -> list[tuple[str, str]]:
        """(topic, topic id) of every topic with entries that may not be in its table."""
        return sorted(self._topic_numbers)

    async def unfolded(
        self, topic: str, topic_id: str, after_number: int
    ) -> list[tuple[int, WalRequest]]:
        """The topic's entries after `after_number`, its register, in order.

        Those up to it are marked as folded. From now on an appender that had the topic before adds
        nothing to it: what it would add nobody would look for any more.

        Raises:
            LogDamagedError: An entry that was there at the start cannot be read any more.
            StoreUnavailableError: A segment cannot be read.
        """
        key = (topic, topic_id)
        self._turns[key] = self.turn(topic, topic_id) + 1
        # The clock may have been behind when the directory was lost.
        self._next_number = max(self._next_number, after_number + 1)
        while self._writing is not None:
            await asyncio.wait([self._writing])
        self.fold(topic, topic_id, after_number)
        wanted = set(self._topic_numbers.get(key, ()))
        if not wanted:
            return []
        segments = [
            (segment.name, segment.size_bytes)
            for segment in self._segments
            if not wanted.isdisjoint(segment.unfolded)
        ]
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, self._read, segments, wanted, topic)
        except OSError as error:
            raise StoreUnavailableError(
                f"the write-ahead log {self._files.uri} cannot be read: {error}",
                directory=self._files.uri,
            ) from error

    def turn(self, topic: str, topic_id: str) -> int:
        """Changes when somebody else takes care of the topic: see `unfolded`."""
        return self._turns.get((topic, topic_id), 0)

    async def keep_orphans(
        self, topic_id: str, orphans: list[tuple[int, WalRequest]]
    ) -> tuple[str, int]:
        """Keeps entries that can no longer become part of the topic in a file beside the log.

        The file has the format of a segment. What such a file has already, from a start that was
        interrupted, is not kept again.

        Returns:
            The file's path, and the number of records that it keeps now and did not before.

        Raises:
            StoreUnavailableError: The file cannot be written.
        """
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, self._keep_orphans, topic_id, orphans)
        except OSError as error:
            raise StoreUnavailableError(
                f"records that were acknowledged cannot be kept in {self._files.uri}: {error}",
                directory=self._files.uri,
            ) from error

    # -- the hot path ----------------------------------------------------------------------------

    def take_number(self) -> int:
        """The number of the next request that is accepted, of any topic."""
        number = self._next_number
        self._next_number += 1
        return number

    def append(self, number: int, request: WalRequest) -> asyncio.Future[None]:
        """Queues a request under its number; the future is done when it is durable.

        Requests of one topic come in the order of their numbers.

        Raises:
            BackPressureError: Too much waits for its sync. Nothing was queued.
            StoreUnavailableError: The log's disk has failed, or the log is closed; acks=1 is not to
                be had until a restart.
        """
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        entry = encode_entry(request)
        if self._queued_bytes and self._queued_bytes + len(entry) > self._queue_bytes:
            raise BackPressureError(
                f"{self._queued_bytes} bytes wait to be written to the write-ahead log, at most "
                f"{self._queue_bytes} may; send the batch again in 50 ms",
                retry_delay_ms=50,
                queued_bytes=self._queued_bytes,
                limit_bytes=self._queue_bytes,
            )
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(_retrieve)
        key = (request.topic, request.topic_id)
        self._queue.append(_Queued(key, number, entry, done))
        self._queued_bytes += len(entry)
        self._note(key, number)
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_queue())
        return done

    def fold(self, topic: str, topic_id: str, number: int) -> None:
        """Marks the topic's entries up to `number` as being in its table."""
        numbers = self._topic_numbers.get((topic, topic_id))
        if numbers is None:
            return
        gone = set()
        while numbers and numbers[0] <= number:
            gone.add(numbers.popleft())
        if not numbers:
            del self._topic_numbers[topic, topic_id]
        if gone:
            self._forget_numbers(gone)

    def forget(self, topic: str, topic_id: str) -> int:
        """Gives up the entries of a topic that is deleted; returns how many."""
        numbers = self._topic_numbers.get((topic, topic_id))
        count = len(numbers) if numbers else 0
        if numbers:
            self.fold(topic, topic_id, numbers[-1])
        return count

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self._segments)

    async def close(self) -> None:
        """Writes what is queued, and closes the file. A log that no table waits for is removed."""
        while self._writing is not None:
            await asyncio.wait([self._writing])
        if self._failure is None:
            self._failure = StoreUnavailableError(
                f"the write-ahead log {self._files.uri} is closed", directory=self._files.uri
            )
        if self._file is not None:
            self._file.close()
            self._file = None
        self._drop_folded()
        self._pool.shutdown(wait=True)

    # -- writing ---------------------------------------------------------------------------------

    async def _write_queue(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._queue:
                group = list(self._queue)
                self._queue.clear()
                try:
                    frame = encode_frame([(one.number, one.entry) for one in group])
                    segment = self._segment_for(frame)
                    await loop.run_in_executor(self._pool, self._write, segment, frame)
                    segment.size_bytes += len(frame)
                    segment.unfolded |= {one.number for one in group} & self._unfolded
                    self._queued_bytes -= sum(len(one.entry) for one in group)
                    self._drop_folded()
                except Exception as error:
                    self._fail(error, group)
                    return
                for one in group:
                    if not one.done.done():
                        one.done.set_result(None)
        finally:
            self._writing = None

    def _segment_for(self, frame: bytes) -> _Segment:
        """The segment in use, or a new one, whose file is not there yet."""
        if self._file is not None:
            last = self._segments[-1]
            if last.size_bytes + len(frame) <= self._segment_bytes:
                return last
            self._file.close()
            self._file = None
        self._next_segment = max(self._next_segment + 1, self._next_number)
        segment = _Segment(f"{self._next_segment:020d}{_SUFFIX}")
        self._segments.append(segment)
        return segment

    def _write(self, segment: _Segment, frame: bytes) -> None:
        """In the pool: one frame, one sync."""
        if self._file is None:
            self._file = self._files.create(segment.name)
        self._file.append(frame)
        self._file.sync()

    def _fail(self, error: Exception, group: list[_Queued]) -> None:
        """After a failed sync nobody knows what the disk has: nothing more is promised from this
        log. What it promised before stays."""
        self._failure = StoreUnavailableError(
            f"the write-ahead log {self._files.uri} has failed: {error}; "
            "acks=1 waits for table commits until a restart",
            directory=self._files.uri,
        )
        lost = [*group, *self._queue]
        self._queue.clear()
        self._queued_bytes = 0
        for one in lost:
            numbers = self._topic_numbers.get(one.topic)
            if numbers is not None:
                with contextlib.suppress(ValueError):  # in its table by now
                    numbers.remove(one.number)
                if not numbers:
                    del self._topic_numbers[one.topic]
            self._unfolded.discard(one.number)
            if not one.done.done():
                one.done.set_exception(self._failure)

    def _note(self, topic: tuple[str, str], number: int) -> None:
        self._topic_numbers.setdefault(topic, deque()).append(number)
        self._unfolded.add(number)

    def _forget_numbers(self, numbers: set[int]) -> None:
        self._unfolded -= numbers
        for segment in self._segments:
            segment.unfolded -= numbers
        if self._writing is None:
            self._drop_folded()

    def _drop_folded(self) -> None:
        """Deletes the segments whose entries are all in tables, but for the one in use.

        Also from the middle: a topic that cannot be committed to must not keep all that came later.
        """
        in_use = self._segments[-1] if self._file is not None else None
        kept: list[_Segment] = []
        for segment in self._segments:
            if segment is in_use or segment.unfolded:
                kept.append(segment)
                continue
            try:
                self._files.delete(segment.name)
            except OSError:
                kept.append(segment)  # the next time may have more luck
        self._segments = kept

    # -- reading ---------------------------------------------------------------------------------

    def _scan(self) -> int:
        """Reads what is there; returns the highest number."""
        names = [name for name in self._files.names() if name.endswith(_SUFFIX)]
        highest = 0
        for name in names:
            segment = _Segment(name)
            data = self._files.read(name)
            path = f"{self._files.uri}/{name}"
            for frame in decode_segment(data, path, is_last=name == names[-1]):
                for number, entry in frame.entries:
                    self._note(entry_topic(entry), number)
                    segment.unfolded.add(number)
                    highest = max(highest, number)
                segment.size_bytes = frame.end
            self._next_segment = int(name.removesuffix(_SUFFIX))
            if segment.size_bytes < len(data):
                # Before a deletion, too: if that is undone by a loss of power, the file may be
                # there beside a newer one, and only the last may have a torn frame.
                self._files.cut(name, segment.size_bytes)
            if segment.size_bytes:
                self._segments.append(segment)
            else:
                self._files.delete(name)
        return highest

    def _read(
        self, segments: list[tuple[str, int]], wanted: set[int], topic: str
    ) -> list[tuple[int, WalRequest]]:
        found = []
        for name, size_bytes in segments:
            data = self._files.read(name)[:size_bytes]
            for frame in decode_segment(data, f"{self._files.uri}/{name}", is_last=False):
                found += [
                    (number, decode_entry(entry))
                    for number, entry in frame.entries
                    if number in wanted
                ]
        if {number for number, _ in found} != wanted:
            raise LogDamagedError(
                f"the write-ahead log {self._files.uri} has lost entries of topic {topic!r} "
                "while it was open",
                file=self._files.uri,
            )
        return found

    def _keep_orphans(
        self, topic_id: str, orphans: list[tuple[int, WalRequest]]
    ) -> tuple[str, int]:
        prefix = f"{topic_id}-"
        names = [
            name
            for name in self._files.names()
            if name.startswith(prefix) and name.endswith(_ORPHANS_SUFFIX)
        ]
        kept: set[tuple[int, int, int]] = set()
        for name in names:
            data = self._files.read(name)
            for frame in decode_segment(data, f"{self._files.uri}/{name}", is_last=False):
                for number, entry in frame.entries:
                    batches = decode_entry(entry).batches
                    kept.update((number, one.partition, one.base_offset) for one in batches)
        new = []
        count = 0
        for number, request in orphans:
            parts = [
                (slice_, batch)
                for slice_, batch in zip(request.slices, request.batches, strict=True)
                if (number, batch.partition, batch.base_offset) not in kept
            ]
            if parts:
                new.append((number, encode_entry(request.only(parts))))
                count += sum(batch.record_count for _, batch in parts)
        if not new:
            return f"{self._files.uri}/{names[-1]}", 0
        first = new[0][0]
        while (name := f"{prefix}{first:020d}{_ORPHANS_SUFFIX}") in names:
            first += 1
        self._files.write_whole(name, b"".join(encode_frame([one]) for one in new))
        return f"{self._files.uri}/{name}", count


def _retrieve(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()

"""The leader's write-ahead log: where acks=1 batches are durable until a table commit has them.

One log for all topics of a gateway. Entries are numbered; the register `mainstem/wal/<gateway id>` of a topic
says up to which number its entries are in the table. Segments whose entries are all in tables are deleted.

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

from mainstem.delta_log.wal_files import WalFile, WalFiles
from mainstem.delta_log.wal_format import (
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
    number: int
    entry: bytes
    done: asyncio.Future[None]


class Wal:
    """An open log. `open` it before the gateway serves; `recover` each topic of `topics()`.

    Args:
        gateway_id: Names the register in the topics.
        segment_bytes: A segment that has reached this many bytes is followed by a new one.
        queue_bytes: Entries that may wait for their sync.
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
        self._segments: deque[_Segment] = deque()
        self._topic_numbers: dict[tuple[str, str], deque[int]] = {}
        self._unfolded: set[int] = set()
        self._file: WalFile | None = None
        self._queue: deque[_Queued] = deque()
        self._queued_bytes = 0
        self._failure: StoreUnavailableError | None = None
        self._writing: asyncio.Task[None] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="wal")
        self._next_number = self._scan(clock_us())

    # -- what a start finds ------------------------------------------------------------------------

    def topics(self) -> list[tuple[str, str]]:
        """(topic, topic id) of every topic with entries that may not be in its table."""
        return sorted(self._topic_numbers)

    async def unfolded(
        self, topic: str, topic_id: str, after_number: int
    ) -> list[tuple[int, WalRequest]]:
        """The topic's entries after `after_number`, its register, in order; the others are marked.

        Raises:
            LogDamagedError: An entry that was there at the start cannot be read any more.
        """
        self.fold(topic, topic_id, after_number)
        wanted = set(self._topic_numbers.get((topic, topic_id), ()))
        if not wanted:
            return []
        segments = [(segment.name, segment.size_bytes) for segment in self._segments]
        loop = asyncio.get_running_loop()
        # In the thread that writes: the last segment does not grow meanwhile.
        return await loop.run_in_executor(self._pool, self._read, segments, wanted, topic)

    async def keep_orphans(self, topic_id: str, orphans: list[tuple[int, WalRequest]]) -> str:
        """Keeps entries that can no longer become part of the topic in a file beside the log.

        The file has the format of a segment. Returns its path.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._write_orphans, topic_id, orphans)

    # -- the hot path ------------------------------------------------------------------------------

    def append(self, request: WalRequest) -> tuple[int, asyncio.Future[None]]:
        """Queues a request; its number, and a future that is done when it is durable.

        Raises:
            BackPressureError: Too much waits for its sync. Nothing was queued.
            StoreUnavailableError: The log's disk has failed; acks=1 is not to be had until a restart.
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
        number = self._next_number
        self._next_number += 1
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(_retrieve)
        self._queue.append(_Queued(number, entry, done))
        self._queued_bytes += len(entry)
        self._note((request.topic, request.topic_id), number)
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_queue())
        return number, done

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
        self._unfolded -= gone
        for segment in self._segments:
            segment.unfolded -= gone
        if self._writing is None and gone:
            self._drop_folded()

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
        """Writes what is queued, and closes the file."""
        if self._writing is not None:
            with contextlib.suppress(Exception):
                await self._writing
        if self._file is not None:
            self._file.close()
            self._file = None
        self._pool.shutdown(wait=True)

    # -- writing -----------------------------------------------------------------------------------

    async def _write_queue(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._queue:
                group = list(self._queue)
                self._queue.clear()
                try:
                    segment = await loop.run_in_executor(self._pool, self._write, group)
                except OSError as error:
                    self._fail(error, group)
                    return
                segment.unfolded |= {one.number for one in group} & self._unfolded
                self._queued_bytes -= sum(len(one.entry) for one in group)
                for one in group:
                    if not one.done.done():
                        one.done.set_result(None)
                self._drop_folded()
        finally:
            self._writing = None

    def _write(self, group: list[_Queued]) -> _Segment:
        """In the pool: one frame, one sync."""
        frame = encode_frame(group[0].number, [one.entry for one in group])
        if self._file is None or self._segments[-1].size_bytes + len(frame) > self._segment_bytes:
            if self._file is not None:
                self._file.close()
            segment = _Segment(f"{group[0].number:020d}{_SUFFIX}")
            self._file = self._files.create(segment.name)
            self._segments.append(segment)
        segment = self._segments[-1]
        self._file.append(frame)
        self._file.sync()
        segment.size_bytes += len(frame)
        return segment

    def _read(
        self, segments: list[tuple[str, int]], wanted: set[int], topic: str
    ) -> list[tuple[int, WalRequest]]:
        found = []
        for name, size_bytes in segments:
            data = self._files.read(name)[:size_bytes]
            for frame in decode_segment(data, f"{self._files.uri}/{name}", is_last=False):
                for number, entry in enumerate(frame.entries, start=frame.first_number):
                    if number in wanted:
                        found.append((number, decode_entry(entry)))
        if {number for number, _ in found} != wanted:
            raise LogDamagedError(
                f"the write-ahead log {self._files.uri} has lost entries of topic {topic!r} "
                "while it was open",
                file=self._files.uri,
            )
        return found

    def _write_orphans(self, topic_id: str, orphans: list[tuple[int, WalRequest]]) -> str:
        name = f"{topic_id}-{orphans[0][0]:020d}{_ORPHANS_SUFFIX}"
        if name not in self._files.names():
            frames = [encode_frame(number, [encode_entry(request)]) for number, request in orphans]
            self._files.write_whole(name, b"".join(frames))
        return f"{self._files.uri}/{name}"

    def _fail(self, error: OSError, group: list[_Queued]) -> None:
        """After a failed sync nobody knows what the disk has: nothing more is promised from this log."""
        self._failure = StoreUnavailableError(
            f"the write-ahead log {self._files.uri} has failed: {error}; acks=1 works again after a restart",
            directory=self._files.uri,
        )
        for one in [*group, *self._queue]:
            if not one.done.done():
                one.done.set_exception(self._failure)
        self._queue.clear()
        self._queued_bytes = 0

    def _note(self, topic: tuple[str, str], number: int) -> None:
        self._topic_numbers.setdefault(topic, deque()).append(number)
        self._unfolded.add(number)

    def _drop_folded(self) -> None:
        """Deletes the segments before the one in use whose entries are all in tables, from the front."""
        while len(self._segments) > 1 and not self._segments[0].unfolded:
            self._files.delete(self._segments.popleft().name)

    def _scan(self, now_us: int) -> int:
        """Reads what is there; returns the number of the next entry.

        A number is never used twice, even if the directory was lost: a new log begins at the clock's
        microseconds, which run faster than entries.
        """
        names = [name for name in self._files.names() if name.endswith(_SUFFIX)]
        last_number = 0
        for name in names:
            is_last = name == names[-1]
            segment = _Segment(name)
            data = self._files.read(name)
            for frame in decode_segment(data, f"{self._files.uri}/{name}", is_last=is_last):
                for number, entry in enumerate(frame.entries, start=frame.first_number):
                    self._note(entry_topic(entry), number)
                    segment.unfolded.add(number)
                    last_number = number
                segment.size_bytes = frame.end
            if segment.size_bytes < len(data):
                self._files.cut(name, segment.size_bytes)
            if segment.size_bytes:
                self._segments.append(segment)
            else:
                self._files.delete(name)
        return max(last_number + 1, now_us)


def _retrieve(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()

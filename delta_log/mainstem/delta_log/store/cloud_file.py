"""One object of an object storage service, read at any place: few requests, each for much, and the
next ones before they are wanted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Final, Protocol

from mainstem.delta_log.store.random_access import RandomAccessFile
from mainstem.limits import MIB

#: A request takes tens of milliseconds whatever it asks for, in which a service sends megabytes.
READ_AHEAD_BYTES: Final = 4 * MIB

#: Requests end at a multiple of this, so that those for the same file ask for the same parts.
BLOCK_BYTES: Final = MIB

assert READ_AHEAD_BYTES % BLOCK_BYTES == 0

#: So many requests are under way for a file that is read from front to back.
_AHEAD_MAX: Final = 3


class Ahead(Protocol):
    """Who reads ahead, within what all files together may have: `CloudReader`."""

    def ahead(self, length: int, read: Callable[[], bytes]) -> Future[bytes] | None: ...

    def taken(self, length: int) -> None: ...


class CloudFile(RandomAccessFile):
    """An object as Python's files are.

    What was read last is kept, and more is asked for than is needed: readers of Parquet ask for
    one column after the other. Of a file that is read on from where the last request ended, the
    next requests are sent before they are wanted.

    Args:
        size: Of the object, in bytes.
        tail: Its last bytes, which are there already: a Parquet file is read from its end.
        read_range: The bytes in [start, start + length) of the object. Raises OSError.
        ahead: None: nothing is read before it is wanted.
    """

    def __init__(
        self,
        size: int,
        tail: bytes,
        read_range: Callable[[int, int], bytes],
        ahead: Ahead | None = None,
    ) -> None:
        super().__init__()
        self._size = size
        self._tail = memoryview(tail)
        self._tail_start = size - len(tail)
        self._read_range = read_range
        self._start = 0
        self._kept = memoryview(b"")
        self._ahead = ahead
        #: Where each request under way begins, how long it is, and what it gives; in order.
        self._coming: deque[tuple[int, int, Future[bytes]]] = deque()

    def end(self) -> int:
        return self._size

    def close(self) -> None:
        self._give_up()
        self._kept = memoryview(b"")
        super().close()

    def read(self, size: int = -1) -> bytes:
        start = self._position
        end = self._size if size < 0 else min(start + size, self._size)
        if start >= end:
            return b""
        self._position = end
        before_tail = min(end, self._tail_start)
        if start >= before_tail:
            return bytes(self._tail[start - self._tail_start : end - self._tail_start])
        data = self._body(start, before_tail)
        if end > before_tail:
            data = b"".join((data, self._tail[: end - before_tail]))
        return bytes(data)

    def _body(self, start: int, end: int) -> memoryview | bytes:
        """What lies before the tail."""
        kept_end = self._start + len(self._kept)
        if not self._start <= start <= end <= kept_end:
            goes_on = self._start < kept_end and self._start <= start <= kept_end
            data = self._fetched(start, end)
            if len(data) < end - start:
                self._position = start + len(data)
                return data  # the reader finds that it has too little
            self._start, self._kept = start, memoryview(data)
            if goes_on:
                self._read_on(start + len(data))
        return self._kept[start - self._start : end - self._start]

    def _fetched(self, start: int, end: int) -> bytes | memoryview:
        """The bytes in [start, end) and some behind, from what is coming if it has them."""
        kept_end = self._start + len(self._kept)
        if self._start <= start < kept_end or (self._coming and start == kept_end):
            parts: list[bytes | memoryview] = [self._kept[start - self._start :]]
            reached = kept_end
            while self._coming and self._coming[0][0] == reached < end:
                _, length, future = self._coming.popleft()
                assert self._ahead is not None
                self._ahead.taken(length)
                try:
                    part = future.result()
                except (OSError, CancelledError):
                    break  # asked for again below, and told
                parts.append(part)
                reached += len(part)
                if len(part) < length:
                    break
            if reached < end:
                self._give_up()
                parts.append(self._read_range(reached, self._length(reached, end)))
            return b"".join(parts)
        self._give_up()
        return self._read_range(start, self._length(start, end))

    def _length(self, start: int, end: int) -> int:
        reached = min(max(end, start + READ_AHEAD_BYTES), self._tail_start)
        rounded = reached // BLOCK_BYTES * BLOCK_BYTES
        return (rounded if rounded >= end and reached < self._tail_start else reached) - start

    def _read_on(self, position: int) -> None:
        """Asks for what comes behind what is coming."""
        if self._ahead is None:
            return
        if self._coming:
            begins, length, _ = self._coming[-1]
            position = begins + length
        while len(self._coming) < _AHEAD_MAX and position < self._tail_start:
            length = min(READ_AHEAD_BYTES, self._tail_start - position)
            future = self._ahead.ahead(length, self._reading(position, length))
            if future is None:
                return
            self._coming.append((position, length, future))
            position += length

    def _reading(self, start: int, length: int) -> Callable[[], bytes]:
        return lambda: self._read_range(start, length)

    def _give_up(self) -> None:
        """Of what is coming nothing is wanted."""
        while self._coming:
            _, length, future = self._coming.popleft()
            future.cancel()
            assert self._ahead is not None
            self._ahead.taken(length)

"""One object of an object storage service, read at any place: few requests, each for much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mainstem.delta_log.store.random_access import RandomAccessFile
from mainstem.limits import MIB

#: A request takes tens of milliseconds whatever it asks for, in which a service sends megabytes.
READ_AHEAD_BYTES: Final = 4 * MIB


class CloudFile(RandomAccessFile):
    """An object as Python's files are.

    What was read last is kept, and more is asked for than is needed: readers of Parquet ask for
    one column after the other.

    Args:
        size: Of the object, in bytes.
        tail: Its last bytes, which are there already: a Parquet file is read from its end.
        read_range: The bytes in [start, start + length) of the object. Raises OSError.
    """

    def __init__(self, size: int, tail: bytes, read_range: Callable[[int, int], bytes]) -> None:
        super().__init__()
        self._size = size
        self._tail = memoryview(tail)
        self._tail_start = size - len(tail)
        self._read_range = read_range
        self._start = 0
        self._kept = memoryview(b"")

    def end(self) -> int:
        return self._size

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
        if not self._start <= start <= end <= self._start + len(self._kept):
            length = min(max(end - start, READ_AHEAD_BYTES), self._tail_start - start)
            data = self._read_range(start, length)
            if len(data) < end - start:
                self._position = start + len(data)
                return data  # the reader finds that it has too little
            self._start, self._kept = start, memoryview(data)
        return self._kept[start - self._start : end - self._start]

"""Reading a file at any place through its descriptor: a place that cannot be read is an error.

Files are not memory-mapped: where a page of a mapped file cannot be read, the kernel kills the
process.
"""

from __future__ import annotations

import contextlib
import io
import os
from typing import Final

import pyarrow as pa

from mainstem.limits import KIB

#: A file up to this size is read as a whole: cheaper than to open it once more for Arrow.
_WHOLE_BYTES_MAX: Final = 256 * KIB

#: Where the system shows this process's descriptors as files. Not every system does.
_DESCRIPTORS: Final = "/proc/self/fd"


def read_at(fd: int, start: int, length: int) -> bytes:
    """The bytes in [start, start + length) of an open file; fewer only where it ends."""
    assert start >= 0
    assert length >= 0
    parts = []
    while length and (part := os.pread(fd, length, start)):
        parts.append(part)
        start += len(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def open_descriptor(fd: int) -> pa.NativeFile:
    """The open file for Arrow. Takes over `fd`, which is closed with what this returns, or before.

    A read that fails raises OSError; one that finds less than was there before gets less.
    """
    taken = False
    try:
        size = os.fstat(fd).st_size
        if size <= _WHOLE_BYTES_MAX:
            with contextlib.suppress(OSError):  # the reader of that part of the file is told
                return pa.BufferReader(read_at(fd, 0, size))
        try:
            # Arrow reads it without the interpreter's lock, for which each read would wait when the
            # process is busy.
            return pa.OSFile(f"{_DESCRIPTORS}/{fd}")
        except OSError:
            opened = pa.PythonFile(_DescriptorFile(fd), mode="r")
            taken = True
            return opened
    finally:
        if not taken:
            os.close(fd)


class RandomAccessFile(io.RawIOBase):
    """What files for Arrow share: a position. Arrow takes the size from where the end is."""

    def __init__(self) -> None:
        self._position = 0

    def end(self) -> int:
        """The size in bytes, as it is now."""
        raise NotImplementedError

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_CUR:
            offset += self._position
        elif whence == os.SEEK_END:
            offset += self.end()
        self._position = offset
        return self._position


class _DescriptorFile(RandomAccessFile):
    """An open file as Python's files are; closes the descriptor."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd

    def end(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            size = max(self.end() - self._position, 0)
        data = read_at(self._fd, self._position, size)
        self._position += len(data)
        return data

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._fd)

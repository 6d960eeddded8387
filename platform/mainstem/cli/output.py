"""stdout as a place where data can be lost: what failed, and what a pipe's reader has taken."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import stat
import sys
import time
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

#: How long one wait for a full terminal or socket in non-blocking mode lasts, until the next try.
_RETRY_S: Final = 1.0


class OutputError(Exception):
    """stdout did not take what was written. Not an OSError, which click and rich treat as theirs.

    Attributes:
        errno: Of the write that failed.
        reader_is_gone: The reader of a pipe has seen enough; that is no failure.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(f"stdout cannot be written: {error.strerror or error}")
        self.errno = error.errno
        self.reader_is_gone = error.errno == errno.EPIPE


class _Checked(io.FileIO):
    """stdout; a write that fails is an OutputError."""

    def write(self, data: ReadableBuffer, /) -> int:
        while True:
            try:
                count = super().write(data)
            except OSError as error:
                raise OutputError(error) from error
            if count is not None:
                return count
            select.select([], [self], [], _RETRY_S)  # somebody made it non-blocking, and it is full


class _Messages(io.FileIO):
    """stderr; a message that nobody can read is dropped, and what was to be done is done."""

    def write(self, data: ReadableBuffer, /) -> int:
        with contextlib.suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes


def open_standard_streams() -> None:
    """Puts the checked streams in place of Python's own. Called once, before anything is opened.

    A stream that the shell closed (`>&-`) is opened in a way in which using it fails: its number
    would else be given to the next file or connection, which would then get the output.
    """
    for number, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDWR)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # the lowest number that is free
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = _text(_Checked(1, "wb", closefd=False), sys.stdout)
    sys.stderr = _text(_Messages(2, "wb", closefd=False), sys.stderr, line_buffering=True)


def _text(raw: io.FileIO, before: TextIO | None, *, line_buffering: bool = False) -> TextIO:
    """What the encoding does not have is escaped: what was done is told all the same."""
    errors = getattr(before, "errors", None) or "strict"
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(before, "encoding", None) or "utf-8",
        errors="backslashreplace" if errors in ("strict", "surrogateescape") else errors,
        line_buffering=line_buffering or raw.isatty(),
    )


def discard_output() -> None:
    """What is still buffered is written nowhere, not even when the process ends."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)


class Output:
    """stdout for records, of which it matters how far they got.

    Of a pipe, bytes count as taken when its reader has read them. Of a file, when they are synced.
    Of anything else (a terminal, a socket), when they were written.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._number = -1
        self.is_pipe = self._is_file = False
        with contextlib.suppress(OSError, AttributeError, ValueError):
            self._number = stream.fileno()
            mode = os.fstat(self._number).st_mode
            self.is_pipe = stat.S_ISFIFO(mode)
            self._is_file = stat.S_ISREG(mode)

    def write(self, data: bytes) -> None:
        """Writes and flushes.

        Raises:
            OutputError: Not all of it was taken.
        """
        self._stream.write(data)
        self._stream.flush()

    def reader_is_gone(self) -> bool:
        """Nobody will read what is written from now on. Costs a microsecond; waits for nothing."""
        if self._number < 0 or self._is_file:
            return False
        poll = select.poll()
        poll.register(self._number, 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))

    def unread_bytes(self) -> int:
        """What lies in the pipe; 0 where that cannot be known."""
        if not self.is_pipe:
            return 0
        import fcntl
        import termios

        buffer = bytearray(4)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._number, termios.FIONREAD, buffer)
        return int.from_bytes(buffer, sys.byteorder)

    def sync(self) -> None:
        """Makes a file's bytes durable: some file systems tell only now that there is no room.

        Raises:
            OutputError: They are not.
        """
        if not self._is_file:
            return
        try:
            os.fsync(self._number)
        except OSError as error:
            raise OutputError(error) from error

    def wait_until_read(self, timeout_s: float) -> bool:
        """Waits until the pipe is empty. False: it is not, or its reader is gone."""
        deadline = time.monotonic() + timeout_s
        wait_s = 0.001
        while not self.reader_is_gone():
            if not self.unread_bytes():
                return True
            if time.monotonic() >= deadline:
                break
            time.sleep(wait_s)
            wait_s = min(0.05, 2 * wait_s)
        return False

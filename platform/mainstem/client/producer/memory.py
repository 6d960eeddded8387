"""The account of `buffer.memory`."""

from __future__ import annotations

import threading


class BufferMemory:
    """Bytes of records that a producer holds, out of a fixed total. Thread-safe: its lock is its
    own, and nothing else is locked while it is held.

    Args:
        total_bytes: buffer.memory.

    Attributes:
        total_bytes: As given.
    """

    __slots__ = ("_closed", "_freed", "_in_reports", "_lock", "_used", "total_bytes")

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._lock = threading.Lock()
        self._freed = threading.Condition(self._lock)
        self._used = 0
        self._in_reports = 0
        self._closed = False

    @property
    def used_bytes(self) -> int:
        """What open buffers, pieces and delivery reports hold."""
        return self._used

    @property
    def only_reports(self) -> bool:
        """Nothing but unserved reports holds memory: waiting for the gateway cannot help."""
        with self._lock:
            return 0 < self._in_reports == self._used

    def reserve(self, size: int, at_best: int = 0) -> int:
        """Takes `at_best` bytes if there is room, else `size`; returns how many: 0, if none."""
        with self._lock:
            room = self.total_bytes - self._used
            taken = at_best if size < at_best <= room else size if size <= room else 0
            self._used += taken
            return taken

    def release(self, size: int) -> None:
        """Gives bytes back."""
        if size:
            self.finished(size, 0)

    def finished(self, size: int, report_bytes: int) -> None:
        """A piece of `size` bytes has ended; its reports hold `report_bytes` of them until poll()
        serves them."""
        with self._lock:
            self._used -= size - report_bytes
            self._in_reports += report_bytes
            assert self._used >= 0
            self._freed.notify_all()

    def served(self, report_bytes: int) -> None:
        """Delivery reports of so many bytes were served."""
        with self._lock:
            self._in_reports -= report_bytes
            self._used -= report_bytes
            assert self._used >= self._in_reports >= 0
            self._freed.notify_all()

    def wait(self, size: int, timeout_s: float) -> bool:
        """Waits until `size` bytes may be taken; returns whether. Closed: at once."""
        with self._lock:
            self._freed.wait_for(
                lambda: self._closed or self._used + size <= self.total_bytes, timeout_s
            )
            return self._used + size <= self.total_bytes

    def close(self) -> None:
        """The producer ends: nobody waits from now on."""
        with self._lock:
            self._closed = True
            self._freed.notify_all()

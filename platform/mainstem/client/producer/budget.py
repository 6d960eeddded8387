"""The account of `buffer.memory`."""

from __future__ import annotations


class Budget:
    """Bytes of records that are held, out of a fixed total. Guarded by the sender's lock.

    Attributes:
        total: buffer.memory.
        used: Reserved by open buffers, pieces and delivery reports.
        reports: The part of `used` that only waits for poll().
    """

    __slots__ = ("reports", "total", "used")

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self.reports = 0

    def reserve(self, size: int) -> bool:
        """Takes `size` bytes if there is room."""
        if self.used + size > self.total:
            return False
        self.used += size
        return True

    def release(self, size: int) -> None:
        """Gives bytes back."""
        self.used -= size
        assert self.used >= 0

    def to_reports(self, size: int) -> None:
        """The bytes wait for poll() now."""
        self.reports += size

    def release_reports(self, size: int) -> None:
        """Delivery reports of so many bytes were served."""
        self.reports -= size
        self.release(size)

    @property
    def only_reports(self) -> bool:
        """Nothing but unserved reports holds memory: waiting for the gateway cannot help."""
        return 0 < self.reports == self.used

"""Threads that use one consumer take turns: librdkafka's consumers may be used by several."""

from __future__ import annotations

import threading
import time
from collections import deque
from types import TracebackType
from typing import Final

#: How long a poll waits at most before it lets others in.
SLICE_S: Final = 0.1

#: How long a poll stays out where others wait: they get the lock meanwhile.
_ASIDE_S: Final = 0.001


class Turns:
    """A lock around each call, which a callback that calls back has already."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        #: One for each thread that waits; appended to and popped from in one step each.
        self._waiting: deque[None] = deque()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waiting.append(None)
            try:
                self._lock.acquire()
            finally:
                self._waiting.pop()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()

    def give_way(self) -> None:
        """For a poll, between two of its waits: the lock alone would come back to it at once."""
        if self._waiting:
            time.sleep(_ASIDE_S)

"""A thread that looks after things when it is time."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Alarm:
    """Calls `look` again and again, in a thread of its own: when that is due, and never late.

    Whoever changes something that is to be looked at earlier says so with `by`, after the change.
    Any lock may be held then, as none is taken while this one's is held.

    Args:
        look: Does what is due; returns when it is to be called again at the latest. Without a lock.
        failed: Called with what `look` raises; after that the thread ends.
        clock: The times: monotonic seconds.
    """

    def __init__(
        self,
        name: str,
        look: Callable[[], float],
        failed: Callable[[Exception], None],
        clock: Callable[[], float],
    ) -> None:
        self._look = look
        self._failed = failed
        self._clock = clock
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._at = clock()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begins with a look."""
        self._thread.start()

    def by(self, at: float) -> None:
        """Looks at `at` at the latest."""
        if at < self._at:
            with self._lock:
                if at < self._at:
                    self._at = at
                    self._changed.notify()

    def stop(self, timeout_s: float) -> None:
        """Ends the thread, and waits for that unless it is the caller."""
        with self._lock:
            self._stopped = True
            self._changed.notify()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while self._wait():
                self.by(self._look())
        except Exception as failure:
            self._failed(failure)

    def _wait(self) -> bool:
        """Waits until it is time; returns False when there will be no more looks."""
        with self._lock:
            while not self._stopped and self._at > (now := self._clock()):
                self._changed.wait(self._at - now)
            # What changes from here on, the look finds, or it tells with `by` that it comes later.
            self._at = float("inf")
            return not self._stopped

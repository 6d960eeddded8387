"""The threads that write to the store, so that one part of it that hangs does not hold up the rest.

A call that has not come back after `SLOW_S` gives its turn to another, in one more thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Final

#: A write takes milliseconds, a large one to a slow store seconds: it loses nothing but its turn.
SLOW_S: Final = 1.0

#: Threads beside those that have their turn: slow calls of so many topics that hang, each of which
#: has four at most.
EXTRA_THREADS: Final = 64


class _Call:
    """A call, from `submit` to its end."""

    __slots__ = ("began_at", "future", "has_turn", "work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.future: Future[Any] = Future()
        self.has_turn = False
        self.began_at = 0.0


class StoreThreads(Executor):
    """An executor whose `submit` is called on the event loop on which it is made.

    Args:
        count: Calls that have their turn at a time.
    """

    def __init__(self, count: int, thread_name_prefix: str) -> None:
        self._pool = ThreadPoolExecutor(count + EXTRA_THREADS, thread_name_prefix)
        self._count = count
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting: deque[_Call] = deque()
        #: Those that have their turn, the oldest first.
        self._running: dict[_Call, None] = {}
        self._lent_count = 0
        self._timer: asyncio.TimerHandle | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        call = _Call(lambda: fn(*args, **kwargs))
        with self._lock:
            self._waiting.append(call)
            try:
                self._start()
            except RuntimeError:  # shut down
                self._waiting.clear()
                raise
            if self._waiting and self._timer is None:
                self._timer = self._loop.call_later(SLOW_S, self._look)
        return call.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `Executor.shutdown`. What waits for its turn is cancelled in any case, and what has
        it is not."""
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
            if self._timer is not None:
                self._timer.cancel()
        for call in waiting:
            call.future.cancel()
        self._pool.shutdown(wait=wait)

    def _start(self) -> None:
        """Begins what has its turn. Under the lock."""
        while self._waiting and len(self._running) < self._count:
            call = self._waiting[0]
            self._pool.submit(self._run, call)  # raises once it is shut down
            self._waiting.popleft()
            call.began_at = time.monotonic()
            call.has_turn = True
            self._running[call] = None

    def _run(self, call: _Call) -> None:
        try:
            if call.future.set_running_or_notify_cancel():
                try:
                    result = call.work()
                except BaseException as failure:
                    call.future.set_exception(failure)
                else:
                    call.future.set_result(result)
        finally:
            with self._lock:
                self._running.pop(call, None)
                if not call.has_turn:
                    self._lent_count -= 1
                try:
                    self._start()
                except RuntimeError:  # shut down, by an interpreter that ends
                    self._waiting.clear()

    def _look(self) -> None:
        """Gives the turns of calls that do not come back to those that wait."""
        with self._lock:
            self._timer = None
            slow_before = time.monotonic() - SLOW_S
            for call in list(self._running):
                if call.began_at > slow_before or self._lent_count >= EXTRA_THREADS:
                    break
                del self._running[call]
                call.has_turn = False
                self._lent_count += 1
            self._start()
            if self._waiting:
                self._timer = self._loop.call_later(SLOW_S / 4, self._look)

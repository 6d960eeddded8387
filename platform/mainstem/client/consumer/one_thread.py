"""A consumer is for one thread at a time: the guard of its calls."""

from __future__ import annotations

from typing import Any

from mainstem.client.consumer.engine import ConsumerEngine
from mainstem.errors import ConsumerClosedError


class OneThread:
    """A context manager for a call: one thread at a time, and not after close().

    Args:
        busy: The consumer's RLock: the thread that has it may enter again, in a callback.
    """

    __slots__ = ("_busy", "_engine")

    def __init__(self, busy: Any, engine: ConsumerEngine) -> None:
        self._busy = busy
        self._engine = engine

    def __enter__(self) -> None:
        if not self._busy.acquire(blocking=False):
            raise two_threads()
        if self._engine.closed:
            self._busy.release()
            raise ConsumerClosedError("the consumer is closed; make a new one")
        self._engine.polls += 1

    def __exit__(self, *_: object) -> None:
        self._busy.release()


def two_threads() -> RuntimeError:
    """The error for the second of two threads."""
    return RuntimeError(
        "two threads use this consumer at once; it is not thread-safe: give each thread a consumer "
        "of its own, or let one thread poll and hand the records on"
    )

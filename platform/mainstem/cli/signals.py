"""Signals that ask a command to end, which then does so in its own time."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def signals_set(event: threading.Event) -> Iterator[None]:
    """While the block lasts, SIGINT, SIGTERM and SIGHUP set the event, and do nothing else."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        event.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

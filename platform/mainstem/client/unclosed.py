"""Clients that nobody has closed: told with a ResourceWarning, and freed."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable


def warn_unclosed(client: object, free: Callable[[], None]) -> None:
    """For a client's `__del__`, where close() was not called: warns, and frees what it has.

    Args:
        free: As of `free_later`.
    """
    try:
        warnings.warn(
            f"unclosed {type(client).__name__}: call close(), or use it as a context manager",
            ResourceWarning,
            stacklevel=2,
            source=client,
        )
    finally:
        free_later(free)


def free_later(free: Callable[[], None]) -> None:
    """Frees what a client has that nobody refers to any more.

    Args:
        free: Ends threads and connections; must not refer to the client. It is called in a thread
            of its own: the garbage collector runs in any, whatever locks that holds.
    """
    if sys.is_finalizing():
        return  # threads and connections end with the process
    with contextlib.suppress(RuntimeError):  # no thread can be started any more
        threading.Thread(target=free, name="mainstem-unclosed", daemon=True).start()

"""The allocators of a gateway's process: its memory stays small where messages are large."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

#: glibc's mallopt(3) parameter of that name.
_M_ARENA_MAX: Final = -8

#: Each arena keeps what it had at its own peak. Small objects are Python's and each thread's own
#: cache's, so threads meet here for messages alone, whose copying takes far longer.
_ARENAS_MAX: Final = 1


def take_little_memory() -> None:
    """Chooses allocators for this process, for good. Before its first threads, and before pyarrow
    is imported."""
    if sys.platform != "linux":
        return
    if os.uname().machine == "x86_64":
        # A seventh less memory at the peak than Arrow's default, for as much of the processor;
        # read when pyarrow is imported. Elsewhere a jemalloc that was built for other page sizes
        # than the kernel's would end the process.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's: musl has one arena
    is_told = "MALLOC_ARENA_MAX" in os.environ or "GLIBC_TUNABLES" in os.environ
    if mallopt is not None and not is_told:
        mallopt(_M_ARENA_MAX, _ARENAS_MAX)

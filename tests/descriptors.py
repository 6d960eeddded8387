"""The files that this process has open."""

from __future__ import annotations

import contextlib
import os


def descriptors_below(folder: str | os.PathLike[str]) -> list[str]:
    """What this process has open below `folder`, by path, in order.

    Of the whole process, other threads (Spark's, gRPC's) open and close descriptors at any time.
    """
    root = os.path.realpath(folder)
    found: list[str] = []
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with contextlib.suppress(OSError):  # closed in the meantime
            target = os.readlink(f"/proc/self/fd/{name}")
            if target == root or target.startswith(f"{root}/"):
                found.append(target)
    return sorted(found)

"""Runs keyed compaction once, and kills itself with the store's write number `at`, if there is one.

Usage: python keyed_compaction_process.py WAREHOUSE AT before|after
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from mainstem.delta_log import LocalStore
from mainstem.jobs.keyed_compaction import KeyedCompaction
from mainstem.jobs.runner import run_job
from mainstem.jobs.task_pool import InProcessPool


class _Deadly:
    """Counts the writes of all stores."""

    def __init__(self, at: int, when: str) -> None:
        self._at = at
        self._when = when
        self._count = 0

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self._count += 1
            mine = self._count == self._at
            if mine and self._when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*arguments, **options)
            if mine:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counted


def main(warehouse: str, at: int, when: str) -> None:
    deadly = _Deadly(at, when)
    for name in ("put", "put_if_absent", "delete"):
        setattr(LocalStore, name, deadly.wrap(getattr(LocalStore, name)))
    run_job(warehouse, KeyedCompaction(), ["t"], pool=lambda: InProcessPool(1))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])

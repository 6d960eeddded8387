"""Producers that a fork or the end of the process finds open."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.client.producer.engine import Engine

_log = logging.getLogger("mainstem.client")

_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def watch(engine: Engine) -> None:
    """It is open from now on."""
    _engines.add(engine)


def forget(engine: Engine) -> None:
    """It is closed."""
    _engines.discard(engine)


def tell_of_reports(count: int) -> None:
    """Logs delivery reports that nobody will serve any more."""
    if count:
        _log.error(
            "a producer was not closed, and %d delivery reports were never served: call poll(), "
            "flush() or close()",
            count,
        )


def _after_fork() -> None:
    for engine in list(_engines):
        engine.forked()
    _engines.clear()


def _at_exit() -> None:
    for engine in list(_engines):
        report_count = engine.report_count
        count = engine.pending_count() - report_count
        if count:
            _log.error(
                "a producer was not closed, and %d of its records were not acknowledged: they are "
                "lost unless they had been sent; call close(), or use it as a context manager",
                count,
            )
        tell_of_reports(report_count)
        # A thread that is inside gRPC when the interpreter ends may abort the process.
        engine.sender.stop()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)

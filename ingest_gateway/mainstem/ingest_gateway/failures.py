"""From whatever went wrong in the gateway to an error that a caller can be told. Pure."""

from __future__ import annotations

import structlog

from mainstem.delta_log.store import NotFound
from mainstem.errors import InternalError, LogDamagedError, MainstemError

log = structlog.get_logger()


def as_ours(failure: BaseException) -> MainstemError:
    """The failure as one of our errors; one that is not ours is logged as a fault.

    Raises:
        BaseException: The failure itself, where it is none of an application, as CancelledError.
    """
    if isinstance(failure, MainstemError):
        return failure
    if isinstance(failure, NotFound):
        return LogDamagedError(f"a file of the table is missing: {failure}")
    if not isinstance(failure, Exception):
        raise failure
    log.error("request failed", exc_info=failure)
    return InternalError(f"the gateway failed on this request: {failure!r}")

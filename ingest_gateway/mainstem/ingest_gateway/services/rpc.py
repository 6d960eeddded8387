"""From what went wrong in a call to the status that its caller gets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc.aio
import structlog

from mainstem.errors import InternalError, MainstemError
from mainstem.protocol import error_to_status

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]

R = TypeVar("R")


async def answer_or_abort(context: Context, call: Callable[[], Awaitable[R]]) -> R:
    """Runs a call; its errors become statuses, and the connection lives on."""
    try:
        return await call()
    except Exception as failure:
        await context.abort_with_status(error_to_status(as_ours(failure)))
        raise


def as_ours(failure: BaseException) -> MainstemError:
    """The failure as one of our errors; one that is not ours is logged as a fault."""
    if isinstance(failure, MainstemError):
        return failure
    if not isinstance(failure, Exception):
        raise failure
    log.error("request failed", exc_info=failure)
    return InternalError(f"the gateway failed on this request: {failure!r}")

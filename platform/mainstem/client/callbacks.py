"""The application's callbacks: what they may be, and what becomes of what they raise; and what the
application is told of failures in the client's own threads."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Iterator
from typing import Any

from mainstem.errors import InternalError, MainstemError

_log = logging.getLogger("mainstem.client")


def check_plain(callback: object, name: str, instead: str) -> None:
    """Refuses what cannot be called, and coroutine functions, which nobody would await.

    Args:
        name: Of the callback, for the error.
        instead: Which class awaits it.

    Raises:
        TypeError: It is one of these.
    """
    code = getattr(callback, "__code__", None)
    if code is not None:  # a function or a method: the common case, in 0.1 us
        if code.co_flags & inspect.CO_COROUTINE:
            raise coroutine_error(callback, name, instead)
    elif not callable(callback):
        raise TypeError(f"{name} is a {type(callback).__name__}; it must be a function")
    elif is_coroutine_function(callback):
        raise coroutine_error(callback, name, instead)


def is_coroutine_function(callback: object) -> bool:
    """Whether a call of it gives a coroutine: `async def`, a partial of one, or an object with an
    `async def __call__`."""
    call = getattr(callback, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(call)


def check_returned(returned: object, callback: object, name: str, instead: str) -> None:
    """Refuses a coroutine that a callback has returned.

    Raises:
        TypeError: It is one.
    """
    if inspect.iscoroutine(returned):
        returned.close()
        raise coroutine_error(callback, name, instead)


def coroutine_error(callback: object, name: str, instead: str) -> TypeError:
    """The error for a callback that would have to be awaited."""
    return TypeError(
        f"{name} {callback!r} is a coroutine function, which nobody would await: give a plain "
        f"function, or use {instead}"
    )


def unexpected(what: str, error: Exception) -> MainstemError:
    """What the application is told of a failure in a thread of the client: itself, or that it is a
    fault of ours."""
    if isinstance(error, MainstemError):
        return error
    found = InternalError(
        f"{what} failed, which is a fault of mainstem: {type(error).__name__}: {error}. Its "
        "traceback is in the log; report it"
    )
    found.__cause__ = error
    return found


@contextlib.contextmanager
def collect(failures: list[BaseException]) -> Iterator[None]:
    """Goes on after whatever is raised inside: the first is raised later, the others are logged."""
    try:
        yield
    except BaseException as failure:
        note_failure(failures, failure)


def note_failure(failures: list[BaseException], failure: BaseException) -> None:
    """Adds a failure; logs it if it is not the first."""
    if failures:
        _log.error("another callback raised", exc_info=failure)
    failures.append(failure)


def raise_first(failures: list[BaseException], whose: str) -> None:
    """Raises the first failure if there is one, an interrupt before anything else."""
    if not failures:
        return
    first = next((one for one in failures if not isinstance(one, Exception)), failures[0])
    if len(failures) > 1:
        first.add_note(f"{len(failures) - 1} more {whose} raised; the log has them")
    raise first


def looked_at(done: asyncio.Future[Any]) -> None:
    """Of a future that is done: what it raised is no news to asyncio; who waits for it is told."""
    if not done.cancelled():
        done.exception()

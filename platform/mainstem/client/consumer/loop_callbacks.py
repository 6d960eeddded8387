"""Coroutine functions as callbacks of an AsyncConsumer: awaited on its loop, inside the call that
they belong to.

The consumer's own thread is in `poll` when it has to call one. It has the event loop run the
coroutine, and meanwhile does what the coroutine asks of the consumer, which no other thread may use
now:

    loop                                   the consumer's thread
    await getone() ----------------------> Consumer.wait_ready: a rebalance
    on_assign(consumer, partitions) <----- LoopCallbacks: runs it on the loop, and waits for work
      await consumer.seek(...) ----------> Consumer.seek
      <----------------------------------- done
    returns -----------------------------> Consumer.wait_ready goes on
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

from mainstem.client.callbacks import is_coroutine_function

T = TypeVar("T")

#: So often the waiting thread looks whether the event loop still runs.
_LOOK_EVERY_S: Final = 1.0

_Work = tuple[Callable[[], Any], "Future[Any]"]


class LoopCallbacks:
    """The coroutine callbacks of one consumer.

    Attributes:
        loop: The event loop that uses the consumer.

    Args:
        consumer: What the coroutines get in place of the synchronous consumer.
    """

    def __init__(self, consumer: object) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._consumer = consumer

    def plain(self, callback: Any, *, has_consumer: bool) -> Any:
        """The callback as a plain function; what is not a coroutine function stays as it is.

        Args:
            has_consumer: Its first argument is the consumer.
        """
        if callback is None or not is_coroutine_function(callback):
            return callback
        return partial(self._await, callback, has_consumer)

    def _await(self, callback: Any, has_consumer: bool, *args: Any) -> None:
        if has_consumer:
            args = (self._consumer, *args[1:])
        assert self.loop is not None
        call = _Call(self._consumer)
        running = call.run(partial(callback, *args))
        try:
            done = asyncio.run_coroutine_threadsafe(running, self.loop)
        except RuntimeError:  # the loop is closed
            running.close()
            raise
        done.add_done_callback(lambda _: call.work.put(None))
        call.serve(self.loop)
        done.result(0)


class _Call:
    """One callback that is under way."""

    def __init__(self, consumer: object) -> None:
        self.consumer = consumer
        self.work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self.ended = False

    async def run(self, callback: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """On the loop."""
        _current.set(self)
        try:
            await callback()
        finally:
            self.ended = True

    def serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """In the consumer's thread: does what the coroutine asks for, until it has ended.

        Raises:
            RuntimeError: The loop was stopped.
        """
        while True:
            try:
                work = self.work.get(timeout=_LOOK_EVERY_S)
            except queue.Empty:
                if loop.is_running():
                    continue
                raise RuntimeError(
                    "the event loop was stopped while a callback of the consumer ran on it"
                ) from None
            if work is None:
                return
            what, future = work
            if not future.set_running_or_notify_cancel():
                continue  # who asked for it was cancelled before it began
            try:
                result = what()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)


_current: contextvars.ContextVar[_Call | None] = contextvars.ContextVar("callback", default=None)


def inside_callback(consumer: object) -> bool:
    """Whether the running task is a coroutine callback of this consumer, or was started by one that
    is still under way."""
    call = _current.get()
    return call is not None and call.consumer is consumer and not call.ended


async def run_inside(
    what: Callable[..., T], *args: Any, unheard: Callable[[T], object] | None = None
) -> T:
    """In such a task: runs a call in the thread that waits for the callback. A task that is
    cancelled does not wait for its end; one that had not begun is not made.

    Args:
        unheard: Called in that thread, after the call, with what it gave to a task that was
            cancelled meanwhile.
    """
    call = _current.get()
    assert call is not None
    future: Future[T] = Future()
    call.work.put((partial(what, *args), future))
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        if unheard is not None and not future.cancelled():
            call.work.put((partial(_tell, future, unheard), Future()))
        raise


def _tell(ended: Future[T], unheard: Callable[[T], object]) -> None:
    unheard(ended.result())

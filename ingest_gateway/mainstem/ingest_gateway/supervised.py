"""Background tasks that must not end unseen: each end is logged, counted, and followed by a new
start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from mainstem.ingest_gateway.metrics import GatewayMetrics

log = structlog.get_logger()

#: Between the end of a task's work and its next start: one that fails at once must not take the
#: event loop for itself.
RESTART_AFTER_S = 1.0

#: `stop` does not wait longer for work that does not give way to its cancellation.
STOP_TIMEOUT_S = 5.0


class SupervisedTask:
    """Work that goes on until `stop`, on the event loop.

    Whatever else ends it, an exception, a panic, or a `CancelledError` that came out of something
    it waited for, is an error: it is logged with its traceback, counted in
    `mainstem_background_task_ends_total`, and the work starts again after `RESTART_AFTER_S`.

    Args:
        name: For the log and the metric's label `task`: one of a few constants.
        work: Makes the coroutine; called for each start.
        returns: Whether the work may return, which is the end that is meant: then it is `done`.
            Otherwise returning is an error like the others.
        facts: For the log, for example `topic`.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], Coroutine[Any, Any, None]],
        metrics: GatewayMetrics,
        *,
        returns: bool = False,
        **facts: object,
    ) -> None:
        self._name = name
        self._work = work
        self._metrics = metrics
        self._returns = returns
        self._facts = facts
        self._task: asyncio.Task[None] | None = None
        self._restart: asyncio.TimerHandle | None = None
        self._done = False
        self._ending = False
        self._start()

    @property
    def done(self) -> bool:
        """Whether the work has returned as it may, or was stopped: it does not start again."""
        return self._done

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ends the work, and waits until it has ended, for `timeout_s` at most. May be called
        again."""
        self._done = True
        if self._restart is not None:
            self._restart.cancel()
        task = self._task
        if task is not None and not task.done():
            task.cancel()
            _, pending = await asyncio.wait({task}, timeout=timeout_s)
            if pending:
                log.error("background task does not stop", task=self._name, **self._facts)

    async def finish(self, timeout_s: float) -> bool:
        """Waits for the end of work that returns, for `timeout_s` at most; it does not start again,
        however it ends. Returns whether it has ended."""
        self._ending = True
        if self._restart is not None:
            self._restart.cancel()
            self._done = True
        task = self._task
        if task is not None and not task.done():
            await asyncio.wait({task}, timeout=timeout_s)
        return task is None or task.done()

    def _start(self) -> None:
        self._restart = None
        self._task = asyncio.get_running_loop().create_task(self._work(), name=self._name)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        failure = None if task.cancelled() else task.exception()
        if self._done:
            return
        if failure is None and not task.cancelled() and self._returns:
            self._done = True
            return
        how = _how(task)
        self._metrics.background_task_ends.labels(self._name).inc()
        if self._ending:
            self._done = True
            facts = {"task": self._name, "how": how, **self._facts}
            log.error("background task ended", exc_info=failure, **facts)
            return
        log.error(
            "background task ended and starts again",
            task=self._name,
            how=how,
            restart_after_s=RESTART_AFTER_S,
            exc_info=failure,
            **self._facts,
        )
        loop = asyncio.get_running_loop()
        self._restart = loop.call_later(RESTART_AFTER_S, self._start)


def begin_once(
    name: str,
    work: Coroutine[Any, Any, None],
    metrics: GatewayMetrics,
    **facts: object,
) -> asyncio.Task[None]:
    """Begins work that is done once, and whose next occasion comes by itself.

    It is not started again, but whatever ends it other than its own return is an error as of a
    `SupervisedTask`: logged with its traceback and counted. Nobody need look at the task.

    Args:
        name, facts: As those of `SupervisedTask`.
    """

    def ended(task: asyncio.Task[None]) -> None:
        failure = None if task.cancelled() else task.exception()
        if failure is None and not task.cancelled():
            return
        metrics.background_task_ends.labels(name).inc()
        log.error("background task ended", task=name, how=_how(task), exc_info=failure, **facts)

    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(ended)
    return task


def _how(task: asyncio.Task[None]) -> str:
    if task.cancelled():
        return "was cancelled"
    return "returned" if task.exception() is None else "failed"

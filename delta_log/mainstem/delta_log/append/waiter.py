"""Who waits for a request, and what they are told when it is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mainstem.delta_log.append.producers import SeenBatch
from mainstem.delta_log.append.queue import Pending
from mainstem.delta_log.format import Batch
from mainstem.errors import MainstemError


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a request's records are.

    Attributes:
        table_version: The commit that has them, the newest one if several have; -1: none yet (they
            are in the write-ahead log), or nobody remembers.
        batches: By partition. The base offset is -1 where nobody remembers it.
    """

    table_version: int
    batches: tuple[Batch, ...]


@dataclass(slots=True)
class AppendWaiter:
    """Who waits for a request.

    Attributes:
        future: For its table commit.
        accepted_at: Monotonic time.
        written: For the write-ahead log, if somebody asked for that.
        answers: Others for its table commit, each of one caller. They are done in the same step as
            `future`, so that whoever waits is told in the order of the log.
    """

    future: asyncio.Future[Appended]
    accepted_at: float
    written: asyncio.Future[None] | None = None
    answers: list[asyncio.Future[Appended]] = field(default_factory=list)

    def answer(self) -> asyncio.Future[Appended]:
        """A future for one caller, who may cancel it."""
        one: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        one.add_done_callback(retrieve)
        # Without those who have given up: somebody may ask again and again.
        self.answers = [*(other for other in self.answers if not other.done()), one]
        return one

    def committed(self, appended: Appended) -> None:
        """The table has the request."""
        for one in (self.future, *self.answers):
            if not one.done():
                one.set_result(appended)

    def failed(self, error: MainstemError) -> None:
        """The request will not be committed here."""
        for one in (self.future, *self.answers):
            if not one.done():
                one.set_exception(error)


def first_durable(
    waiter: AppendWaiter, runs: tuple[Batch, ...], may_acknowledge: Callable[[], bool]
) -> asyncio.Future[Appended]:
    """Done when a request is in the write-ahead log or in the table, whichever comes first.

    Args:
        may_acknowledge: Asked when it is in the log; False: only the table counts.
    """
    assert waiter.written is not None
    either: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
    either.add_done_callback(retrieve)

    def written(future: asyncio.Future[None]) -> None:
        if either.done() or future.cancelled() or future.exception() is not None:
            return
        # Now: the process may have been stopped, for whatever time, since the request came.
        if may_acknowledge():
            either.set_result(Appended(-1, runs))

    def committed(future: asyncio.Future[Appended]) -> None:
        if future.cancelled():
            return
        failure = future.exception()  # also where the answer was given before
        if either.done():
            return
        if failure is None:
            either.set_result(future.result())
        else:
            either.set_exception(failure)

    waiter.written.add_done_callback(written)
    waiter.future.add_done_callback(committed)
    return either


def after_repeats(
    pending: Pending[AppendWaiter] | None,
    repeated: Sequence[SeenBatch[AppendWaiter]],
    may_acknowledge: Callable[[], bool],
    *,
    write_ahead: bool,
) -> asyncio.Future[Appended]:
    """Done when a request is durable of which something, or all, was accepted before."""
    waits: list[asyncio.Future[Appended]] = []
    if pending is not None:
        one = pending.token
        early = write_ahead and one.written is not None
        waits.append(first_durable(one, pending.runs, may_acknowledge) if early else one.future)
    for seen in repeated:
        if seen.token is not None:
            early = write_ahead and seen.token.written is not None
            waits.append(
                first_durable(seen.token, (seen.batch,), may_acknowledge)
                if early
                else seen.token.future
            )
    batches = [*(pending.runs if pending is not None else ()), *(seen.batch for seen in repeated)]
    batches.sort(key=lambda batch: batch.partition)
    known = max((seen.table_version for seen in repeated), default=-1)

    async def all_done() -> Appended:
        # Shielded: a caller that gives up here must not take the batch from those who sent it
        # first.
        done = await asyncio.gather(*(asyncio.shield(future) for future in waits))
        return Appended(max([known, *(one.table_version for one in done)]), tuple(batches))

    task = asyncio.get_running_loop().create_task(all_done())
    task.add_done_callback(retrieve)
    return task


def retrieve(future: asyncio.Future[Any]) -> None:
    """For a future whose failure nobody may be left to look at."""
    if not future.cancelled():
        future.exception()

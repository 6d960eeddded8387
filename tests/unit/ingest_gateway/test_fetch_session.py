"""Who waits for records is woken when there are enough of them, and not before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tests.unit.ingest_gateway.harness import WAIT_S, run, soon, until

from mainstem.ingest_gateway.fetching.waiters import FetchWaiters

Partitions = Iterable[tuple[str, int]]


async def wait(waiters: FetchWaiters, partitions: Partitions, missing: int, s: float) -> None:
    with waiters.waiting(partitions, missing, s) as waiter:
        await waiter.woken


def test_a_waiter_sleeps_until_its_partitions_have_got_enough_bytes() -> None:
    async def test() -> None:
        waiters = FetchWaiters()
        asked = [("t", 0), ("t", 1), ("u", 0), ("t", 1)]
        task = asyncio.create_task(wait(waiters, asked, 100, WAIT_S))
        await until(lambda: len(waiters) == 1)
        (waiter,) = waiters._by_topic["t"][0]
        waiters.appended("t", {0: 60, 7: 1_000})
        waiters.appended("nosuch", {0: 1_000})
        waiters.appended("u", {0: 39})
        assert not waiter.woken.done()
        waiters.appended("t", {1: 1})
        assert waiter.woken.done()
        await soon(task)
        assert len(waiters) == 0
        assert not waiters.waits_for("t")
        assert not waiters.waits_for("u")

    run(test())


def test_a_change_wakes_the_waiters_of_its_topic_alone() -> None:
    async def test() -> None:
        waiters = FetchWaiters()
        tasks = [
            asyncio.create_task(wait(waiters, [(topic, 0)], 1, WAIT_S)) for topic in ("t", "u")
        ]
        await until(lambda: len(waiters) == 2)
        waiters.changed("t")
        await soon(tasks[0])
        assert len(waiters) == 1
        assert waiters.waits_for("u")
        waiters.wake_all()
        await soon(tasks[1])

    run(test())


def test_a_waiter_that_is_cancelled_is_forgotten() -> None:
    async def test() -> None:
        waiters = FetchWaiters()
        task = asyncio.create_task(wait(waiters, [("t", 0)], 1, WAIT_S))
        await until(lambda: len(waiters) == 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(waiters) == 0
        assert not waiters.waits_for("t")

    run(test())

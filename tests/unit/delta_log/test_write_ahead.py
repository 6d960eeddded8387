"""Under load the data files of the next portion are written while one is committed: nothing lands
out of order, early or twice, whatever becomes of the one in front."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.delta_log.appending import PARTITIONS, batch, create, lead, run, values
from tests.unit.delta_log.faults import FaultyStore

from mainstem.delta_log import Appended, Appender, ByteBudget, OpenTopic, Slice, Topics
from mainstem.delta_log.table import TOPIC_CALLS_MAX
from mainstem.delta_log.topics import added_partitions
from mainstem.errors import (
    FencedError,
    InternalError,
    MainstemError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from mainstem.limits import MIB

pytestmark = pytest.mark.fault

_PATIENCE_S = 20.0

#: So much counts as load.
_MUCH = 5 * MIB


class Held:
    """A store whose next commit is held up until it may go on.

    Attributes:
        on_put: Called before each put of a data file that comes while the commit is held up.
    """

    def __init__(self, opened: OpenTopic) -> None:
        self._holds = threading.Event()
        self._is_held = threading.Event()
        self._may_go_on = threading.Event()
        self.on_put: Callable[[str], object] = lambda _: None
        self.store = FaultyStore(opened.store, self._before)
        self.opened = OpenTopic(opened.topic, self.store, opened.state)

    def hold(self) -> None:
        self._holds.set()

    def go_on(self) -> None:
        self._may_go_on.set()

    async def held(self) -> None:
        await asyncio.to_thread(self._is_held.wait, _PATIENCE_S)
        assert self._is_held.is_set()

    def files(self) -> list[str]:
        """The data files that were put, in order."""
        with self.store.lock:
            return [path for call, path in self.store.calls if call == "put" and "=" in path]

    def _before(self, call: str, path: str) -> None:
        if call == "put" and path.startswith("partition=") and self._is_held.is_set():
            self.on_put(path)
        if call == "put_if_absent" and self._holds.is_set():
            self._holds.clear()
            self._is_held.set()
            self._may_go_on.wait(_PATIENCE_S)


@asynccontextmanager
async def _leader(
    topics: Topics, pool: ThreadPoolExecutor, **options: Any
) -> AsyncIterator[tuple[Appender, Held, asyncio.Future[Appended]]]:
    """A leader whose commit of one record, a 0 in partition 0, is held up."""
    held = Held(topics.open("t"))
    leader = await lead(held.opened, pool, **options)
    held.hold()
    first = leader.submit([Slice(0, batch(0))], _MUCH)
    await held.held()
    try:
        yield leader, held, first
    finally:
        held.go_on()
        await leader.close(10)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - what it looks at changes in threads
            await asyncio.sleep(0.005)


def test_the_next_files_are_written_while_a_commit_is_held_up_and_land_behind_it(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        async with _leader(topics, pool) as (leader, held, first):
            before = len(held.files())
            second = leader.submit([Slice(0, batch(1)), Slice(1, batch(1))], _MUCH)
            third = leader.submit([Slice(0, batch(2))], _MUCH)
            await _until(lambda: len(held.files()) == before + 2)
            await asyncio.sleep(0.05)
            # One portion ahead, no more: the third has time to become larger.
            assert len(held.files()) == before + 2
            assert not first.done()
            assert not second.done()
            held.go_on()
            answers = [await one for one in (first, second, third)]
            versions = [one.table_version for one in answers]
            assert versions == list(range(versions[0], versions[0] + 3))
            assert leader.queued_bytes == 0

    run(work)
    assert values(topics, 0) == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert values(topics, 1) == [(0, b"1")]


def test_what_is_written_ahead_does_not_wait_for_the_commit_interval(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics, commit_interval_ms=60_000)

    async def work() -> None:
        async with _leader(topics, pool) as (leader, held, first):
            before = len(held.files())
            second = leader.submit([Slice(0, batch(1))], _MUCH)
            await _until(lambda: len(held.files()) == before + 1)
            held.go_on()
            await first
            await asyncio.wait_for(second, _PATIENCE_S)

    run(work)


def test_little_is_not_written_ahead_but_waits_for_more(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        async with _leader(topics, pool) as (leader, held, _):
            before = len(held.files())
            waiting = [leader.submit([Slice(0, batch(n))], 1) for n in range(1, 4)]
            await asyncio.sleep(0.05)
            assert len(held.files()) == before
            held.go_on()
            assert len({(await one).table_version for one in waiting}) == 1

    run(work)
    assert [value for _, value in values(topics, 0)] == [b"0", b"1", b"2", b"3"]


def test_a_portion_with_many_partitions_does_not_wait_for_files_of_the_next(
    topics: Topics,
) -> None:
    """More of them than a topic may write at a time: none of the next begins before the last."""
    create(topics)

    async def work(pool: ThreadPoolExecutor) -> None:
        async with _leader(topics, pool) as (leader, held, first):
            before = len(held.files())
            permits = threading.Semaphore(0)
            held.on_put = lambda _: permits.acquire(timeout=_PATIENCE_S)
            whole = [Slice(p, batch(1)) for p in range(PARTITIONS)]
            answers = [leader.submit(whole, _MUCH)]
            await _until(lambda: len(held.files()) == before + TOPIC_CALLS_MAX)
            held.go_on()
            await first
            answers.append(leader.submit(whole, _MUCH))
            for count in range(before + TOPIC_CALLS_MAX, before + 2 * PARTITIONS):
                await asyncio.sleep(0.005)
                assert len(held.files()) == count
                permits.release()
                await _until(lambda count=count: len(held.files()) > count)  # type: ignore[misc]
            permits.release(TOPIC_CALLS_MAX)
            offsets = [int(path.split("/")[1][:20]) for path in held.files()[before:]]
            assert sorted(offsets[:PARTITIONS]) == [0] * (PARTITIONS - 1) + [1]
            await asyncio.gather(*answers)

    with ThreadPoolExecutor(TOPIC_CALLS_MAX + 1) as pool:
        run(lambda: work(pool))


def test_a_leader_that_is_fenced_commits_nothing_of_what_is_written_ahead(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        budget = ByteBudget(2**30)
        async with _leader(topics, pool, budget=budget) as (leader, held, first):
            before = len(held.files())
            second = leader.submit([Slice(0, batch(1))], _MUCH)
            await _until(lambda: len(held.files()) == before + 1)
            successor = await lead(topics.open("t"), pool)
            held.go_on()
            for one in (first, second):
                with pytest.raises(FencedError):
                    await asyncio.wait_for(one, _PATIENCE_S)
            assert budget.used_bytes == 0
            assert (await successor.submit([Slice(0, batch(7))], 1)).batches[0].base_offset == 0
            await successor.close(10)

    run(work)
    assert values(topics, 0) == [(0, b"7")]


def test_closing_in_front_of_a_store_that_hangs_fails_what_is_written_ahead_too(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        budget = ByteBudget(2**30)
        before = asyncio.all_tasks()
        async with _leader(topics, pool, budget=budget) as (leader, held, first):
            may_be_put = threading.Event()
            held.on_put = lambda _: may_be_put.wait(_PATIENCE_S)
            second = leader.submit([Slice(0, batch(1))], _MUCH)
            await asyncio.sleep(0.02)
            await leader.close(0.05)
            for one in (first, second):
                with pytest.raises(OutcomeUnknownError):
                    await asyncio.wait_for(one, _PATIENCE_S)
            assert budget.used_bytes == 0
            await asyncio.sleep(0.01)
            assert asyncio.all_tasks() == before
            may_be_put.set()

    run(work)


def test_closing_in_time_commits_what_is_written_ahead(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        async with _leader(topics, pool) as (leader, held, first):
            second = leader.submit([Slice(0, batch(1))], _MUCH)
            closing = asyncio.ensure_future(leader.close(_PATIENCE_S))
            await asyncio.sleep(0.02)
            held.go_on()
            await closing
            assert [(await one).batches[0].base_offset for one in (first, second)] == [0, 1]

    run(work)


def test_a_store_that_does_not_take_a_file_of_the_next_portion_holds_the_first_not_up(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        async with _leader(topics, pool) as (leader, held, first):
            is_full = True

            def full(_: str) -> None:
                if is_full:
                    raise StoreUnavailableError("injected: the disk is full")

            held.on_put = full
            second = leader.submit([Slice(0, batch(1))], _MUCH)
            await _until(lambda: leader.trouble is not None)
            held.go_on()
            assert (await asyncio.wait_for(first, _PATIENCE_S)).batches[0].base_offset == 0
            assert not second.done()
            is_full = False
            assert (await asyncio.wait_for(second, _PATIENCE_S)).batches[0].base_offset == 1

    run(work)
    assert values(topics, 0) == [(0, b"0"), (1, b"1")]


def test_a_fault_of_ours_in_what_is_written_ahead_fails_it_and_not_the_one_in_front(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    class Panic(BaseException):
        """As a panic in Rust comes through to Python: no Exception."""

    async def work() -> None:
        budget = ByteBudget(2**30)
        failures: list[MainstemError] = []
        options = {"budget": budget, "on_failure": failures.append}
        async with _leader(topics, pool, **options) as (leader, held, first):

            def panic(_: str) -> None:
                raise Panic("injected")

            held.on_put = panic
            second = leader.submit([Slice(0, batch(1))], _MUCH)
            await asyncio.sleep(0.02)
            held.go_on()
            assert (await asyncio.wait_for(first, _PATIENCE_S)).batches[0].base_offset == 0
            with pytest.raises(InternalError, match="injected"):
                await asyncio.wait_for(second, _PATIENCE_S)
            assert len(failures) == 1
            assert budget.used_bytes == 0

    run(work)
    assert values(topics, 0) == [(0, b"0")]


def test_a_change_of_the_topic_goes_between_a_commit_and_what_is_written_ahead(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    create(topics)

    async def work() -> None:
        async with _leader(topics, pool) as (leader, held, first):
            before = len(held.files())
            second = leader.submit([Slice(0, batch(1))], _MUCH)
            await _until(lambda: len(held.files()) == before + 1)
            change = asyncio.ensure_future(
                leader.change_metadata("ADD", lambda state: added_partitions(state, PARTITIONS + 1))
            )
            await asyncio.sleep(0.02)
            held.go_on()
            versions = [(await first).table_version, await change, (await second).table_version]
            assert versions == list(range(versions[0], versions[0] + 3))
            third = await leader.submit([Slice(PARTITIONS, batch(5))], 1)
            assert third.batches[0].base_offset == 0

    run(work)
    assert values(topics, 0) == [(0, b"0"), (1, b"1")]


def test_what_is_written_ahead_counts_as_waiting_as_soon_as_it_is_its_turn(
    topics: Topics, pool: ThreadPoolExecutor
) -> None:
    """A store that hangs is told by the age of what waits for it."""
    create(topics)

    async def work() -> None:
        async with _leader(topics, pool) as (leader, held, first):
            may_be_put = threading.Event()
            held.on_put = lambda _: may_be_put.wait(_PATIENCE_S)
            second = leader.submit([Slice(0, batch(1))], _MUCH)
            held.go_on()
            await first
            await asyncio.sleep(0.1)
            assert leader.oldest_waiting_s >= 0.1
            may_be_put.set()
            await second
            assert leader.oldest_waiting_s == 0

    run(work)

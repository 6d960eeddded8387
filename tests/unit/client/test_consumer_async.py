"""The asyncio consumer, over real gRPC to an in-memory gateway."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import inspect
import threading
from collections.abc import Coroutine, Generator, Iterator
from typing import Any

import pytest

from mainstem.client import OFFSET_BEGINNING, AsyncConsumer, Consumer, TopicPartition
from mainstem.errors import ConsumerClosedError
from mainstem.testing._fake_fetch import FakeLogGateway

DEADLINE_S = 20.0
ONE = TopicPartition("one", 0, OFFSET_BEGINNING)


@pytest.fixture
def gateway(no_leaks: None) -> Iterator[FakeLogGateway]:
    with FakeLogGateway({"t": 3, "one": 1}) as running:
        yield running


def consumer(gateway: FakeLogGateway, **settings: object) -> AsyncConsumer:
    config = {name.replace("_", "."): value for name, value in settings.items()}
    return AsyncConsumer({"bootstrap.servers": gateway.address, "retry.backoff.ms": 5, **config})


class CancelledAt:
    """Awaits a call that is cancelled as it waits for the `step`-th time, as by `asyncio.timeout`;
    gives whether it waited so often."""

    def __init__(self, call: Coroutine[Any, Any, object], step: int) -> None:
        self._call = call
        self._step = step

    def __await__(self) -> Generator[Any, Any, bool]:
        task = asyncio.current_task()
        assert task is not None
        steps = self._call.__await__()
        waits = 0
        while True:
            try:
                waits_for = next(steps)
            except StopIteration:
                return False
            waits += 1
            if waits == self._step:
                task.cancel()
            try:
                yield waits_for
            except asyncio.CancelledError as cancelled:
                with pytest.raises(asyncio.CancelledError):
                    steps.throw(cancelled)
                task.uncancel()
                return True


def test_async_for_gives_every_record_in_order(gateway: FakeLogGateway) -> None:
    gateway.append("one", 0, [b"x"] * 3000)

    async def read() -> list[int]:
        async with consumer(gateway) as reading:
            await reading.assign([ONE])
            found = []
            async for record in reading:
                found.append(record.offset)
                if len(found) == 3000:
                    break
            return found

    assert asyncio.run(asyncio.wait_for(read(), DEADLINE_S)) == list(range(3000))


def test_getmany_groups_by_partition_and_waits_for_the_first_only(gateway: FakeLogGateway) -> None:
    gateway.append("t", 0, [b"a", b"b"])

    async def read() -> None:
        async with consumer(gateway) as reading:
            await reading.assign([TopicPartition("t", 0, 0), TopicPartition("t", 1, 0)])
            found = await reading.getmany(timeout_ms=int(DEADLINE_S * 1000))
            assert [r.value for r in found[TopicPartition("t", 0)]] == [b"a", b"b"]
            assert await reading.getmany() == {}
            assert (await reading.position([TopicPartition("t", 0)]))[0].offset == 2

    asyncio.run(asyncio.wait_for(read(), DEADLINE_S))


def test_a_cancelled_wait_leaves_the_consumer_usable_and_loses_no_record(
    gateway: FakeLogGateway,
) -> None:
    async def read() -> list[int]:
        async with consumer(gateway) as reading:
            await reading.assign([ONE])
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reading.getone(), 0.05)
            for _ in range(20):
                task = asyncio.create_task(reading.getone())
                await asyncio.sleep(0.005)
                # It arrives while the task is being cancelled.
                gateway.append("one", 0, [b"a"])
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    found.append((await task).offset)
            while len(found) < 20:
                found.append((await reading.getone()).offset)
            return found

    found: list[int] = []
    assert asyncio.run(asyncio.wait_for(read(), DEADLINE_S)) == list(range(20))


def test_the_loop_goes_on_while_a_consumer_waits(gateway: FakeLogGateway) -> None:
    async def read() -> bytes | None:
        async with consumer(gateway) as reading:
            await reading.assign([ONE])
            waiting = asyncio.create_task(reading.getone())
            await asyncio.sleep(0.02)
            gateway.append("one", 0, [b"a"])
            return (await waiting).value

    assert asyncio.run(asyncio.wait_for(read(), DEADLINE_S)) == b"a"


def test_an_exception_in_the_block_leaves_the_latest_record_to_be_read_again(
    gateway: FakeLogGateway,
) -> None:
    gateway.append("one", 0, [b"a", b"b", b"c"])

    async def read() -> None:
        async with consumer(gateway, group_id="g", auto_offset_reset="earliest") as reading:
            await reading.subscribe(["one"])
            async for record in reading:
                if record.offset == 1:
                    raise ZeroDivisionError

    with contextlib.suppress(ZeroDivisionError):
        asyncio.run(asyncio.wait_for(read(), DEADLINE_S))
    assert gateway.groups.offsets["g", "one", 0] == 1


def test_a_closed_consumer_says_so(gateway: FakeLogGateway) -> None:
    async def read() -> None:
        reading = consumer(gateway)
        await reading.close()
        await reading.close()
        with pytest.raises(ConsumerClosedError):
            await reading.getone()

    asyncio.run(asyncio.wait_for(read(), DEADLINE_S))


def test_coroutine_callbacks_are_awaited_on_the_loop_and_may_await_the_consumer(
    gateway: FakeLogGateway,
) -> None:
    gateway.append("one", 0, [b"%d" % number for number in range(10)])
    told: list[object] = []

    async def read() -> None:
        loop = asyncio.get_running_loop()

        async def on_assign(one: AsyncConsumer, added: list[TopicPartition]) -> None:
            assert asyncio.get_running_loop() is loop
            await asyncio.sleep(0)
            await one.seek(TopicPartition("one", 0, 7))
            assert await one.getmany() == {}
            with pytest.raises(RuntimeError, match="getmany"):
                await one.getone()
            told.append(("assign", await one.assignment() == added))

        async def on_revoke(one: AsyncConsumer, gone: list[TopicPartition]) -> None:
            await one.commit()
            told.append(("revoke", (await one.committed(gone))[0].offset))

        async def on_commit(error: object, offsets: list[TopicPartition]) -> None:
            told.append(("commit", error, offsets[0].offset))

        config = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        reading = AsyncConsumer(
            {"bootstrap.servers": gateway.address, "on_commit": on_commit, **config}
        )
        async with reading:
            await reading.subscribe(["one"], on_assign, on_revoke)
            assert (await reading.getone()).offset == 7
            await reading.commit(asynchronous=True)

    asyncio.run(asyncio.wait_for(read(), DEADLINE_S))
    assert told == [("assign", True), ("revoke", 8), ("commit", None, 8)]


def test_what_a_coroutine_callback_raises_comes_out_of_the_call(gateway: FakeLogGateway) -> None:
    async def on_assign(one: AsyncConsumer, added: list[TopicPartition]) -> None:
        raise KeyError("of the application")

    async def read() -> None:
        async with consumer(gateway, group_id="g") as reading:
            await reading.subscribe(["one"], on_assign)
            with pytest.raises(KeyError, match="of the application"):
                await reading.getone()

    asyncio.run(asyncio.wait_for(read(), DEADLINE_S))


def test_a_coroutine_callback_that_is_cancelled_with_its_program_leaves_no_thread(
    gateway: FakeLogGateway,
) -> None:
    async def read() -> None:
        begun = asyncio.Event()

        inner: list[asyncio.Task[None] | None] = []

        async def on_assign(one: AsyncConsumer, added: list[TopicPartition]) -> None:
            inner.append(asyncio.current_task())
            begun.set()
            await asyncio.sleep(3_600)

        reading = consumer(gateway, group_id="g")
        await reading.subscribe(["one"], on_assign)
        task = asyncio.create_task(reading.getone())
        await begun.wait()
        assert inner[0] is not None
        inner[0].cancel()  # as asyncio.run does at its end
        with pytest.raises((asyncio.CancelledError, concurrent.futures.CancelledError)):
            await task
        await reading.close()

    asyncio.run(asyncio.wait_for(read(), DEADLINE_S))


@pytest.mark.parametrize("step", [1, 2])
def test_a_coroutine_callback_that_gives_a_call_up_goes_on_and_loses_no_record(
    gateway: FakeLogGateway, step: int
) -> None:
    """At its first step it waits for what is due, at its second it takes records."""
    gateway.append("one", 0, [b"%d" % number for number in range(10)])
    found: list[int] = []
    given_up: list[bool] = []

    async def on_revoke(one: AsyncConsumer, gone: list[TopicPartition]) -> None:
        if not given_up:
            getting = one.getmany(max_records=3)
            given_up.append(await CancelledAt(getting, step))
            await one.position(gone)

    async def read() -> None:
        async with consumer(gateway, group_id="g", auto_offset_reset="earliest") as reading:
            await reading.subscribe(["one", "t"], None, on_revoke)
            found.append((await reading.getone()).offset)
            await reading.subscribe(["one"], None, on_revoke)
            while len(found) < 10:
                found.append((await reading.getone()).offset)

    asyncio.run(asyncio.wait_for(read(), DEADLINE_S))
    assert given_up == [True]
    assert found == list(range(10))


@pytest.mark.parametrize("wait", [True, False])
def test_what_a_cancelled_call_raises_is_no_news_to_the_loop(
    gateway: FakeLogGateway, wait: bool
) -> None:
    reported: list[dict[str, Any]] = []

    async def read() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: reported.append(told))
        async with consumer(gateway) as reading:
            await reading.assign([ONE])
            seeking = asyncio.ensure_future(reading.seek(TopicPartition("none", 0, 1)))
            await asyncio.sleep(0)
            seeking.cancel()
            if not wait:
                await asyncio.sleep(0)
                seeking.cancel()
            await asyncio.wait({seeking})
            assert await reading.position([ONE])
            gc.collect()

    asyncio.run(asyncio.wait_for(read(), DEADLINE_S))
    gc.collect()
    assert reported == []


def test_a_consumer_that_is_closed_in_a_coroutine_callback_ends(gateway: FakeLogGateway) -> None:
    calls: list[int] = []

    async def read() -> None:
        async def on_revoke(one: AsyncConsumer, gone: list[TopicPartition]) -> None:
            calls.append(len(gone))
            await one.close()

        reading = consumer(gateway, group_id="g", auto_offset_reset="earliest")
        await reading.subscribe(["one"], None, on_revoke)
        gateway.append("one", 0, [b""])
        await reading.getone()
        await reading.close()
        with pytest.raises(ConsumerClosedError):
            await reading.getone()

    asyncio.run(asyncio.wait_for(read(), DEADLINE_S))
    assert calls == [1]


class SlowCommits:
    """A group whose commits are held up until they are let through."""

    def __init__(self, gateway: FakeLogGateway) -> None:
        self.came = threading.Event()
        self.go_on = threading.Event()
        gateway.groups.on_commit = self._hold

    def _hold(self, _: object) -> None:
        self.came.set()
        assert self.go_on.wait(DEADLINE_S)


async def came(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, DEADLINE_S)


async def cancel(task: asyncio.Task[Any], times: int) -> None:
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_commit_that_is_cancelled_again_and_again_leaves_the_consumer_usable(
    gateway: FakeLogGateway, times: int
) -> None:
    async def read() -> None:
        gateway.append("one", 0, [b"a", b"b"])
        slow = SlowCommits(gateway)
        async with consumer(gateway, group_id="g", enable_auto_commit=False) as reading:
            await reading.assign([ONE])
            assert (await reading.getone()).value == b"a"
            task = asyncio.create_task(reading.commit())
            await came(slow.came)
            await cancel(task, times)
            following = [asyncio.create_task(reading.getone()) for _ in range(2)]
            await asyncio.sleep(0.01)
            await cancel(following[1], times)
            slow.go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await following[0]).value == b"b"
            assert (await reading.commit()) != []
        assert gateway.groups.offsets["g", "one", 0] == 2

    asyncio.run(asyncio.wait_for(read(), DEADLINE_S))


def test_close_runs_to_its_end_however_often_it_is_cancelled(gateway: FakeLogGateway) -> None:
    async def read() -> None:
        gateway.append("one", 0, [b"a"])
        slow = SlowCommits(gateway)
        reading = consumer(gateway, group_id="g", auto_offset_reset="earliest")
        await reading.subscribe(["one"])
        assert (await reading.getone()).value == b"a"
        committing = asyncio.create_task(reading.commit())
        await came(slow.came)
        closing = asyncio.create_task(reading.close())
        second = asyncio.create_task(reading.close())
        await cancel(committing, 3)
        await cancel(closing, 4)
        assert not second.done(), "the consumer is not closed yet"
        slow.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await second
        assert len(gateway.groups.leaves) == 1
        assert gateway.groups.offsets["g", "one", 0] == 1
        with pytest.raises(ConsumerClosedError):
            await reading.getone()

    asyncio.run(asyncio.wait_for(read(), DEADLINE_S))


def test_close_ends_a_wait_for_records_of_another_task(gateway: FakeLogGateway) -> None:
    async def read() -> None:
        reading = consumer(gateway)
        await reading.assign([ONE])
        waiting = asyncio.create_task(reading.getone())
        await asyncio.sleep(0.01)
        await reading.close()
        with pytest.raises(ConsumerClosedError):
            await waiting

    asyncio.run(asyncio.wait_for(read(), DEADLINE_S))


def test_it_has_the_calls_of_the_synchronous_consumer_with_the_same_arguments() -> None:
    def arguments(of: type, name: str) -> set[str]:
        return set(inspect.signature(getattr(of, name)).parameters)

    calls = {
        name
        for name, one in vars(Consumer).items()
        if inspect.isfunction(one) and not name.startswith("_")
    }
    not_theirs = {"take_ready", "close_as"}
    for name in sorted(calls - not_theirs):
        assert arguments(AsyncConsumer, name) == arguments(Consumer, name), name

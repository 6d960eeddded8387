"""The asyncio consumer, over real gRPC to an in-memory gateway."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Iterator

import pytest

from mainstem.client import OFFSET_BEGINNING, AsyncConsumer, TopicPartition
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

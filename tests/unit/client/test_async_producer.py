"""The asyncio producer: futures of records, and a loop that is never blocked."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pyarrow as pa
import pytest

from mainstem.client import AsyncProducer
from mainstem.errors import InvalidRecordError, QueueFullError, UnknownTopicError
from mainstem.testing import FakeGateway


async def reached(condition: Callable[[], bool]) -> None:
    """Waits, in the loop, until the gateway's threads have got there."""
    while not condition():  # noqa: ASYNC110 - what is waited for happens in another thread
        await asyncio.sleep(0.001)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def test_send_returns_a_future_of_the_records_own_offset(gateway: FakeGateway) -> None:
    async def work() -> None:
        async with AsyncProducer({"bootstrap.servers": gateway.address}) as producer:
            futures = [
                await producer.send("t", b"%d" % number, key=b"%d" % (number % 5))
                for number in range(3_000)
            ]
            found = await asyncio.gather(*futures)
            assert await producer.flush() == 0
            assert len(producer) == 0
        stored = gateway.values("t")
        for number, where in enumerate(found):
            assert stored[where.partition][where.offset] == b"%d" % number

    run(work())


def test_send_and_wait_flush_and_batches_work(gateway: FakeGateway) -> None:
    async def work() -> None:
        async with AsyncProducer({"bootstrap.servers": gateway.address}) as producer:
            where = await producer.send_and_wait("one", "a", headers={"h": "1"}, timestamp_ms=5)
            assert (where.offset, where.timestamp) == (0, 5)
            future = await producer.send("one", b"b")
            assert await producer.flush() == 0
            assert (await future).offset == 1
            batch = await producer.send_batch("one", pa.record_batch({"value": [b"c"]}))
            assert (await batch).offsets == ((0, 2, 1),)
            assert await producer.partitions_for("t") == 3
            assert sorted(await producer.list_topics()) == ["one", "t"]

    run(work())


def test_errors_come_out_of_send_or_of_its_future(gateway: FakeGateway) -> None:
    async def work() -> None:
        async with AsyncProducer({"bootstrap.servers": gateway.address}) as producer:
            with pytest.raises(UnknownTopicError):
                await producer.send("nowhere", b"")
            with pytest.raises(TypeError):
                await producer.send("one", 7)  # type: ignore[arg-type]
            gateway.on_produce = lambda request: InvalidRecordError("bad")
            with pytest.raises(InvalidRecordError):
                await producer.send_and_wait("one", b"")

    run(work())


def test_the_loop_runs_on_while_send_waits_for_metadata(gateway: FakeGateway) -> None:
    answer = threading.Event()

    def wait(request: object) -> None:
        assert answer.wait(60)

    gateway.on_metadata = wait

    async def work() -> None:
        async with AsyncProducer({"bootstrap.servers": gateway.address}) as producer:
            sending = asyncio.create_task(producer.send("one", b"a"))
            await reached(lambda: gateway.metadata_count > 0)
            assert not sending.done()
            # Only because this line is reached does the gateway ever answer.
            answer.set()
            assert (await (await sending)).offset == 0

    run(work())


def test_the_loop_runs_on_while_the_buffer_is_full_and_order_is_kept(gateway: FakeGateway) -> None:
    answer = threading.Event()

    def wait(request: object) -> None:
        assert answer.wait(60)

    gateway.on_produce = wait

    async def work() -> None:
        config = {"bootstrap.servers": gateway.address, "buffer.memory": 3_000}
        async with AsyncProducer(config) as producer:
            sending = [
                asyncio.create_task(producer.send("one", b"%04d" % number * 200))
                for number in range(20)
            ]
            await reached(lambda: bool(gateway.requests))
            assert not sending[-1].done()
            answer.set()
            futures = await asyncio.gather(*sending)
            found = await asyncio.gather(*futures)
        assert [where.offset for where in found] == list(range(20))

    run(work())


def test_a_buffer_that_stays_full_is_an_error(gateway: FakeGateway) -> None:
    answer = threading.Event()

    def wait(request: object) -> None:
        assert answer.wait(60)

    gateway.on_produce = wait

    async def work() -> None:
        config = {
            "bootstrap.servers": gateway.address,
            "buffer.memory": 1_000,
            "max.block.ms": 500,
        }
        async with AsyncProducer(config) as producer:
            await producer.send("one", bytes(900))
            with pytest.raises(QueueFullError):
                await producer.send("one", bytes(900))
            answer.set()

    run(work())


def test_a_future_that_was_cancelled_does_not_disturb_the_others(gateway: FakeGateway) -> None:
    async def work() -> None:
        async with AsyncProducer({"bootstrap.servers": gateway.address}) as producer:
            first = await producer.send("one", b"a")
            second = await producer.send("one", b"b")
            first.cancel()
            assert (await second).offset == 1

    run(work())


# ------------------------------------------------------------------------------------ cancellation


def threads() -> list[str]:
    names = [one.name for one in threading.enumerate()]
    return [name for name in names if name == "mainstem-async-producer"]


def silent_until(answer: threading.Event) -> Callable[[object], None]:
    def wait(request: object) -> None:
        assert answer.wait(60)

    return wait


async def cancelled(task: asyncio.Task[Any], times: int = 2) -> None:
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_send_that_is_cancelled_while_it_waits_for_room_queues_nothing(
    gateway: FakeGateway,
) -> None:
    answer = threading.Event()
    gateway.on_produce = silent_until(answer)

    async def work() -> None:
        config = {"bootstrap.servers": gateway.address, "buffer.memory": 1_000}
        async with AsyncProducer(config) as producer:
            first = await producer.send("one", bytes(900))
            second = asyncio.create_task(producer.send("one", b"x" * 900))
            third = asyncio.create_task(producer.send("one", b"y" * 900))
            fourth = asyncio.create_task(producer.send("one", b"z" * 900))
            await reached(lambda: bool(threads()))
            await cancelled(second)
            await cancelled(third)
            assert not fourth.done()
            answer.set()
            assert (await first).offset == 0
            assert (await (await fourth)).offset == 1
        await reached(lambda: not threads())

    run(work())
    assert gateway.values("one") == [[bytes(900), b"z" * 900]]


def test_sends_that_are_cancelled_while_no_gateway_tells_of_their_topic_leave_one_thread(
    gateway: FakeGateway,
) -> None:
    answer = threading.Event()
    gateway.on_metadata = silent_until(answer)

    async def work() -> None:
        async with AsyncProducer({"bootstrap.servers": gateway.address}) as producer:
            for _ in range(50):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(producer.send("one", b"x"), 0.002)
            assert len(threads()) == 1
            answer.set()
            assert (await producer.send_and_wait("one", b"y")).offset == 0

    run(work())
    assert gateway.values("one") == [[b"y"]]


def test_a_batch_whose_caller_is_cancelled_is_not_overtaken(gateway: FakeGateway) -> None:
    answer = threading.Event()
    gateway.on_metadata = silent_until(answer)

    async def work() -> None:
        async with AsyncProducer({"bootstrap.servers": gateway.address}) as producer:
            batch = pa.record_batch({"value": [b"a", b"b"]})
            sending = asyncio.create_task(producer.send_batch("one", batch))
            await reached(lambda: bool(threads()))
            await cancelled(sending)
            later = asyncio.create_task(producer.send_and_wait("one", b"c"))
            answer.set()
            assert (await later).offset == 2

    run(work())


@pytest.mark.parametrize("call", ["send", "send_batch"])
def test_what_a_cancelled_call_raises_is_no_news_to_the_loop(
    gateway: FakeGateway, call: str
) -> None:
    answer = threading.Event()
    gateway.on_metadata = silent_until(answer)
    reported: list[object] = []

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: reported.append(told))
        config = {"bootstrap.servers": gateway.address, "topic.metadata.propagation.max.ms": 0}
        async with AsyncProducer(config) as producer:
            value = b"x" if call == "send" else pa.record_batch({"value": [b"a"]})
            sending = asyncio.ensure_future(getattr(producer, call)("none", value))
            await reached(lambda: bool(threads()))
            await cancelled(sending)
            answer.set()
            await reached(lambda: not threads())
            gc.collect()

    run(work())
    assert reported == []


def test_a_close_that_is_cancelled_twice_goes_on_and_another_waits_for_its_end(
    gateway: FakeGateway,
) -> None:
    answer = threading.Event()
    gateway.on_produce = silent_until(answer)

    async def work() -> None:
        producer = AsyncProducer({"bootstrap.servers": gateway.address})
        future = await producer.send("one", b"x")
        closing = asyncio.create_task(producer.close())
        await reached(lambda: bool(threads()))
        await cancelled(closing)
        again = asyncio.create_task(producer.close())
        await asyncio.sleep(0.01)
        assert not again.done()
        answer.set()
        await again
        assert (await future).offset == 0
        await producer.close()
        await reached(lambda: not threads())

    run(work())


def test_a_task_that_is_cancelled_in_the_block_of_a_producer_sends_what_it_has_queued(
    gateway: FakeGateway,
) -> None:
    async def work() -> None:
        async with AsyncProducer({"bootstrap.servers": gateway.address}) as producer:
            await producer.send("one", b"x")
            await asyncio.sleep(60)

    async def cancel() -> None:
        task = asyncio.create_task(work())
        await reached(lambda: bool(gateway.requests))
        await cancelled(task, times=1)

    run(cancel())
    assert gateway.values("one") == [[b"x"]]


def test_records_that_end_after_their_loop_are_stored_and_disturb_nobody(
    gateway: FakeGateway, caplog: pytest.LogCaptureFixture
) -> None:
    answer = threading.Event()
    gateway.on_produce = silent_until(answer)

    async def begin() -> AsyncProducer:
        producer = AsyncProducer({"bootstrap.servers": gateway.address})
        await producer.send("one", b"x")
        await producer.send_batch("one", pa.record_batch({"value": [b"y"]}))
        closing = asyncio.create_task(producer.close(30))
        await reached(lambda: bool(threads()))
        await cancelled(closing)
        return producer

    with caplog.at_level(logging.ERROR):
        producer = asyncio.run(begin())
        answer.set()
        ends_at = time.monotonic() + 60
        while threads():
            assert time.monotonic() < ends_at
            time.sleep(0.001)
        asyncio.run(producer.close())
    assert gateway.values("one") == [[b"x", b"y"]]
    said = [record.getMessage() for record in caplog.records]
    assert said == ["1 records ended after their event loop was closed"]

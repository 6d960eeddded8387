"""Transactions of AsyncProducer: the same, awaited and cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from tests.unit.client.transactional import count, held, stored
from tests.unit.client.waiting import wait_until

from mainstem.client import AsyncProducer, ConsumerGroupMetadata, TopicPartition, TransactionPlace
from mainstem.errors import ConfigError, InvalidTxnStateError, TransactionAbortedError
from mainstem.testing import FakeGateway


def in_loop(
    test: Callable[[FakeGateway], Coroutine[Any, Any, None]],
) -> Callable[[FakeGateway], None]:
    """Runs a test in an event loop of its own."""

    @functools.wraps(test)
    def run(gateway: FakeGateway) -> None:
        asyncio.run(test(gateway))

    return run


@contextlib.asynccontextmanager
async def transactional(gateway: FakeGateway, **settings: object) -> AsyncIterator[AsyncProducer]:
    config = {name.replace("_", "."): value for name, value in settings.items()}
    config |= {"bootstrap.servers": gateway.address, "transactional.id": "x"}
    async with AsyncProducer(config) as producer:
        await producer.init_transactions()
        yield producer


async def called(gateway: FakeGateway, method: str) -> None:
    """Returns when the coordinator was called so."""
    await asyncio.to_thread(wait_until, lambda: count(gateway, method))


@in_loop
async def test_a_transaction_with_awaited_records_and_offsets(gateway: FakeGateway) -> None:
    async with transactional(gateway) as producer:
        await producer.begin_transaction()
        where = await producer.send_and_wait("one", b"a")
        assert where.offset == -1
        await producer.send_offsets_to_transaction(
            [TopicPartition("in", 0, 7)], ConsumerGroupMetadata("g")
        )
        assert stored(gateway, "one") == []
        places = await producer.commit_transaction()
    assert places == {("one", 0): TransactionPlace(0, 1, 1)}
    assert gateway.transactions.commits == {("g", "in", 0): 7}


@in_loop
async def test_a_block_commits_or_aborts(gateway: FakeGateway) -> None:
    async with transactional(gateway) as producer:
        async with producer.transaction():
            await producer.send("one", b"a")

        async def fail() -> None:
            async with producer.transaction():
                await producer.send("one", b"b")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        async with producer.transaction():
            await producer.send("one", b"c")
    assert stored(gateway, "one") == [b"a", b"c"]


@in_loop
async def test_two_phases(gateway: FakeGateway) -> None:
    async with transactional(gateway) as producer:
        await producer.begin_transaction()
        await producer.send("one", b"a")
        token = await producer.prepare_transaction()
        assert stored(gateway, "one") == []
        await producer.complete_transaction(token)
    assert stored(gateway, "one") == [b"a"]


@in_loop
async def test_a_record_outside_of_a_transaction_is_refused(gateway: FakeGateway) -> None:
    async with transactional(gateway) as producer:
        with pytest.raises(InvalidTxnStateError, match="no transaction is open"):
            await producer.send("one", b"a")
        assert await producer.partitions_for("t") == 3
    async with AsyncProducer({"bootstrap.servers": gateway.address}) as plain:
        with pytest.raises(ConfigError):
            await plain.begin_transaction()
        with pytest.raises(ConfigError):
            async with plain.transaction():
                raise AssertionError


@in_loop
async def test_a_commit_that_is_cancelled_goes_on_and_the_next_call_joins_it(
    gateway: FakeGateway,
) -> None:
    go_on = threading.Event()
    gateway.transactions.on_call = held(go_on, "EndTransaction")
    async with transactional(gateway) as producer:
        await producer.begin_transaction()
        await producer.send("one", b"a")
        commit = asyncio.ensure_future(producer.commit_transaction())
        await called(gateway, "EndTransaction")
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        again = asyncio.ensure_future(producer.commit_transaction())
        await asyncio.sleep(0.01)
        go_on.set()
        assert (await again)["one", 0].record_count == 1
        async with producer.transaction():
            await producer.send("one", b"b")
    assert stored(gateway, "one") == [b"a", b"b"]
    assert count(gateway, "EndTransaction") == 2


@in_loop
async def test_another_call_waits_for_a_commit_that_was_cancelled(gateway: FakeGateway) -> None:
    go_on = threading.Event()
    gateway.transactions.on_call = held(go_on, "EndTransaction")
    async with transactional(gateway) as producer:
        await producer.begin_transaction()
        await producer.send("one", b"a")
        commit = asyncio.ensure_future(producer.commit_transaction())
        await called(gateway, "EndTransaction")
        commit.cancel()
        abort = asyncio.ensure_future(producer.abort_transaction())
        await asyncio.sleep(0.01)
        assert not abort.done()
        go_on.set()
        with pytest.raises(InvalidTxnStateError, match="the last one was committed"):
            await abort
    assert stored(gateway, "one") == [b"a"]


@in_loop
async def test_a_task_that_is_cancelled_in_a_block_aborts(gateway: FakeGateway) -> None:
    async with transactional(gateway) as producer:
        inside = asyncio.Event()

        async def run() -> None:
            async with producer.transaction():
                await producer.send_and_wait("one", b"a")
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(run())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert gateway.transactions.open_count() == 0
        async with producer.transaction():
            await producer.send("one", b"b")
    assert stored(gateway, "one") == [b"b"]


@in_loop
async def test_a_block_that_is_cancelled_as_it_begins_leaves_no_transaction_open(
    gateway: FakeGateway,
) -> None:
    """Nobody would end it, and the next block would be refused."""

    async def run(producer: AsyncProducer) -> None:
        async with producer.transaction():
            await producer.send("one", b"a")

    async with transactional(gateway) as producer:
        for again in (False, True):
            task = asyncio.ensure_future(run(producer))
            await asyncio.sleep(0)
            task.cancel()
            if again:
                await asyncio.sleep(0)
                task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
            async with producer.transaction():
                await producer.send("one", b"b")
    assert stored(gateway, "one") == [b"b", b"b"]


@in_loop
async def test_a_block_that_is_cancelled_twice_while_its_offsets_are_sent_is_rolled_back(
    gateway: FakeGateway,
) -> None:
    go_on = threading.Event()
    gateway.transactions.on_call = held(go_on, "AddOffsets")

    async def run(producer: AsyncProducer) -> None:
        async with producer.transaction():
            await producer.send("one", b"a")
            await producer.send_offsets_to_transaction(
                [TopicPartition("in", 0, 7)], ConsumerGroupMetadata("g")
            )

    async with transactional(gateway) as producer:
        task = asyncio.ensure_future(run(producer))
        await called(gateway, "AddOffsets")
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.wait({task})
        go_on.set()
        async with producer.transaction():
            await producer.send("one", b"b")
    assert stored(gateway, "one") == [b"b"]
    assert gateway.transactions.commits == {}


@in_loop
async def test_close_waits_for_a_commit_that_was_cancelled(gateway: FakeGateway) -> None:
    go_on = threading.Event()
    gateway.transactions.on_call = held(go_on, "EndTransaction")
    async with transactional(gateway) as producer:
        await producer.begin_transaction()
        await producer.send("one", b"a")
        commit = asyncio.ensure_future(producer.commit_transaction())
        await called(gateway, "EndTransaction")
        commit.cancel()
        asyncio.get_running_loop().call_later(0.05, go_on.set)
    assert stored(gateway, "one") == [b"a"]


@in_loop
async def test_close_in_an_open_transaction_aborts_it(gateway: FakeGateway) -> None:
    async with transactional(gateway, linger_ms=60_000, delivery_timeout_ms=200_000) as producer:
        await producer.begin_transaction()
        waiting = await producer.send("one", b"a")
    with pytest.raises(TransactionAbortedError):
        await waiting
    assert gateway.transactions.open_count() == 0


@in_loop
async def test_the_loop_is_not_held_up_by_the_coordinator(gateway: FakeGateway) -> None:
    go_on = threading.Event()
    gateway.transactions.on_call = held(go_on, "BeginTransaction")
    async with transactional(gateway) as producer:
        await producer.begin_transaction()
        sending = [asyncio.ensure_future(producer.send("one", b"%d" % n)) for n in range(3)]
        await called(gateway, "BeginTransaction")
        go_on.set()
        await asyncio.gather(*sending)
        await producer.commit_transaction()
    assert stored(gateway, "one") == [b"0", b"1", b"2"]
    assert count(gateway, "BeginTransaction") == 1

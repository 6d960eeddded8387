"""Transactions as programs for confluent-kafka and aiokafka write them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.unit.client.transactional import at, stored

from mainstem.compat import confluent
from mainstem.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from mainstem.compat.aiokafka.errors import (
    IllegalOperation,
    InvalidTxnState,
    ProducerFenced,
)
from mainstem.compat.aiokafka.structs import OffsetAndMetadata
from mainstem.compat.confluent import KafkaError, KafkaException
from mainstem.errors import ConcurrentTransactionsError, NotAssignedError
from mainstem.protocol.v1 import groups_pb2
from mainstem.testing import FakeGateway
from mainstem.testing._fake_fetch import FakeLogGateway

MakeProducer = Callable[..., confluent.Producer]


@pytest.fixture
def make(gateway: FakeGateway) -> Iterator[MakeProducer]:
    """Makes initialised producers."""
    made: list[confluent.Producer] = []

    def make_one(**settings: object) -> confluent.Producer:
        config = {name.replace("_", "."): value for name, value in settings.items()}
        producer = confluent.Producer(
            {"bootstrap.servers": gateway.address, "transactional.id": "x", **config}
        )
        made.append(producer)
        producer.init_transactions(10)
        return producer

    yield make_one
    for producer in made:
        producer.close()


def kafka_error(call: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        call()
    error = caught.value.args[0]
    assert isinstance(error, KafkaError)
    return error


# -------------------------------------------------------------------------------- confluent-kafka


def test_a_confluent_program_consumes_transforms_and_produces(
    gateway: FakeGateway, log: FakeLogGateway, make: MakeProducer
) -> None:
    seen: list[groups_pb2.CommitOffsetsRequest] = []
    gateway.transactions.on_offsets = seen.append
    log.append("one", 0, [b"a", b"b"])
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": log.address,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["one"])
    producer = make()
    producer.begin_transaction()
    told = []
    for _ in range(2):
        message = consumer.poll(20)
        assert message is not None
        producer.produce(
            "t", message.value().upper(), on_delivery=lambda error, sent: told.append((error, sent))
        )
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
    )
    member = consumer.memberid()
    assert stored(gateway, "t") == []
    assert producer.commit_transaction() is None  # type: ignore[func-returns-value]
    consumer.close()
    assert sorted(stored(gateway, "t"), key=str) == [b"A", b"B"]
    assert [(error, sent.offset()) for error, sent in told] == [(None, None), (None, None)]
    assert gateway.transactions.commits == {("g", "one", 0): 2}
    assert (seen[0].member_id, seen[0].member_epoch > 0) == (member, True)
    [offset] = seen[0].offsets
    assert offset.topic_id == log.topics["one"].topic_id


def test_a_confluent_error_says_which_of_three_things_to_do(
    gateway: FakeGateway, make: MakeProducer
) -> None:
    producer = make()
    error = kafka_error(producer.commit_transaction)
    assert error == KafkaError._STATE
    assert (error.retriable(), error.txn_requires_abort(), error.fatal()) == (False, False, False)
    assert kafka_error(lambda: producer.produce("one", b"a")) == KafkaError._STATE

    producer.begin_transaction()
    producer.produce("one", b"a")
    gateway.transactions.on_call = at(
        "EndTransaction", *[ConcurrentTransactionsError("busy")] * 10_000
    )
    error = kafka_error(lambda: producer.commit_transaction(0.05))
    assert (error.retriable(), error.txn_requires_abort(), error.fatal()) == (True, False, False)
    gateway.transactions.on_call = None
    producer.commit_transaction()

    producer.begin_transaction()
    producer.produce("one", b"b")
    producer.flush()
    gateway.transactions.lose_open()
    error = kafka_error(producer.commit_transaction)
    assert (error.retriable(), error.txn_requires_abort(), error.fatal()) == (False, True, False)
    error = kafka_error(lambda: producer.produce("one", b"c"))
    assert error.txn_requires_abort()
    producer.abort_transaction()

    producer.begin_transaction()
    producer.produce("one", b"d")
    producer.flush()
    make()
    error = kafka_error(producer.commit_transaction)
    assert (error.retriable(), error.txn_requires_abort(), error.fatal()) == (False, False, True)
    assert error == KafkaError._FENCED
    assert stored(gateway, "one") == [b"a"]


def test_a_confluent_producer_without_transactional_id_says_so(gateway: FakeGateway) -> None:
    producer = confluent.Producer({"bootstrap.servers": gateway.address})
    calls: list[Callable[[], object]] = [
        producer.init_transactions,
        producer.begin_transaction,
        producer.commit_transaction,
        producer.abort_transaction,
        lambda: producer.send_offsets_to_transaction([], confluent_metadata()),
    ]
    for call in calls:
        assert kafka_error(call) == KafkaError._NOT_CONFIGURED
    producer.close()


def confluent_metadata() -> Any:
    return None


def test_purge_in_a_transaction_leaves_it_to_be_aborted(
    gateway: FakeGateway, make: MakeProducer
) -> None:
    producer = make(linger_ms=50_000)
    producer.begin_transaction()
    told: list[Any] = []
    producer.produce("one", b"a", on_delivery=lambda error, _: told.append(error))
    producer.purge()
    producer.poll(0)
    assert told == [KafkaError._PURGE_QUEUE]
    assert kafka_error(producer.commit_transaction).txn_requires_abort()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.produce("one", b"b")
    producer.commit_transaction()
    assert stored(gateway, "one") == [b"b"]


def test_close_in_a_transaction_aborts_it(gateway: FakeGateway, make: MakeProducer) -> None:
    producer = make(linger_ms=50_000)
    producer.begin_transaction()
    told: list[Any] = []
    producer.produce("one", b"a", on_delivery=lambda error, _: told.append(error))
    producer.close()
    assert [error.txn_requires_abort() for error in told] == [True]
    assert gateway.transactions.open_count() == 0
    assert stored(gateway, "one") == []


# --------------------------------------------------------------------------------------- aiokafka


def run(work: Awaitable[None]) -> None:
    async def main() -> None:
        await asyncio.wait_for(asyncio.ensure_future(work), 60)

    asyncio.run(main())


def aio(gateway: FakeGateway, **settings: Any) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=gateway.address, transactional_id="x", **settings)


def test_an_aiokafka_program_commits_and_aborts(gateway: FakeGateway) -> None:
    async def work() -> None:
        async with aio(gateway, transaction_timeout_ms=30_000) as producer:
            async with producer.transaction():
                where = await producer.send_and_wait("one", b"a")
                assert where.offset == -1
                assert stored(gateway, "one") == []
            with pytest.raises(ZeroDivisionError):
                await fail(producer)
            await producer.begin_transaction()
            await producer.send("one", b"c")
            await producer.abort_transaction()
            await producer.begin_transaction()
            await producer.send("one", b"d")
            await producer.commit_transaction()
            for call in (producer.commit_transaction, producer.abort_transaction):
                with pytest.raises(InvalidTxnState):
                    await call()
            with pytest.raises(IllegalOperation, match="not in transaction"):
                await producer.send("one", b"e")

    async def fail(producer: AIOKafkaProducer) -> None:
        async with producer.transaction():
            await producer.send("one", b"b")
            raise ZeroDivisionError

    run(work())
    assert stored(gateway, "one") == [b"a", b"d"]


def test_an_aiokafka_producer_without_transactional_id_says_so(gateway: FakeGateway) -> None:
    async def work() -> None:
        async with AIOKafkaProducer(bootstrap_servers=gateway.address) as producer:
            for call in (producer.begin_transaction, producer.commit_transaction):
                with pytest.raises(IllegalOperation, match="transactional_id"):
                    await call()
            with pytest.raises(IllegalOperation):
                async with producer.transaction():
                    raise AssertionError

    run(work())


def test_the_older_of_two_aiokafka_producers_is_fenced(gateway: FakeGateway) -> None:
    async def work() -> None:
        async with aio(gateway) as older:
            await older.begin_transaction()
            await older.send_and_wait("one", b"old")
            async with aio(gateway) as newer:
                for call in (older.commit_transaction, older.begin_transaction):
                    with pytest.raises(ProducerFenced):
                        await call()
                async with newer.transaction():
                    await newer.send("one", b"new")

    run(work())
    assert stored(gateway, "one") == [b"new"]


def test_offsets_are_committed_by_the_member_that_has_the_partition(
    gateway: FakeGateway, log: FakeLogGateway
) -> None:
    seen: list[groups_pb2.CommitOffsetsRequest] = []
    gateway.transactions.on_offsets = seen.append
    log.append("one", 0, [b"a"])

    async def work() -> None:
        consumer = AIOKafkaConsumer(
            "one",
            bootstrap_servers=log.address,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        async with aio(gateway) as producer, consumer:
            record = await consumer.getone()
            place = TopicPartition(record.topic, record.partition)
            async with producer.transaction():
                await producer.send("t", record.value)
                await producer.send_offsets_to_transaction({place: record.offset + 1}, "g")
            async with producer.transaction():
                await producer.send_offsets_to_transaction(
                    {place: OffsetAndMetadata(5, "note")}, "another"
                )
        async with aio(gateway) as producer, producer.transaction():
            await producer.send_offsets_to_transaction({place: 6}, "g")

    run(work())
    assert gateway.transactions.commits == {("g", "one", 0): 6, ("another", "one", 0): 5}
    inside, outside, closed = seen[0], seen[2], seen[4]
    assert inside.member_id
    assert inside.member_epoch > 0
    for one in (outside, closed):
        assert (one.member_id, one.member_epoch) == ("", -1)
    assert outside.offsets[0].metadata == "note"


def test_offsets_that_are_refused_end_an_aiokafka_transaction(gateway: FakeGateway) -> None:
    gateway.transactions.on_offsets = lambda _: NotAssignedError("not yours")

    async def work() -> None:
        async with aio(gateway) as producer:
            with pytest.raises(InvalidTxnState, match="not yours"):
                async with producer.transaction():
                    await producer.send_offsets_to_transaction({TopicPartition("one", 0): 1}, "g")
            async with producer.transaction():
                await producer.send("one", b"a")

    run(work())
    assert stored(gateway, "one") == [b"a"]


def test_a_cancelled_task_aborts_its_aiokafka_transaction(gateway: FakeGateway) -> None:
    inside = threading.Event()

    async def hang(producer: AIOKafkaProducer) -> None:
        async with producer.transaction():
            await producer.send_and_wait("one", b"a")
            inside.set()
            await asyncio.Event().wait()

    async def work() -> None:
        async with aio(gateway) as producer:
            task = asyncio.ensure_future(hang(producer))
            await asyncio.to_thread(inside.wait, 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert gateway.transactions.open_count() == 0

    run(work())

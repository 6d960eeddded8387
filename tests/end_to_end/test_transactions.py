"""Transactions of the clients against a real gateway."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from mainstem.client import (
    OFFSET_BEGINNING,
    AdminClient,
    AsyncProducer,
    Consumer,
    Producer,
    TopicPartition,
    TransactionPlace,
)
from mainstem.compat import confluent
from mainstem.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from mainstem.errors import (
    InvalidTxnStateError,
    MainstemError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionTimedOutError,
)
from mainstem.testing import GatewayProcess

pytestmark = pytest.mark.end_to_end

WAIT_S = 60.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("transactions") / "warehouse") as process:
        yield process


@pytest.fixture
def topics(gateway: GatewayProcess, request: pytest.FixtureRequest) -> tuple[str, str]:
    """Two topics of two partitions each, of this test alone."""
    name = request.node.name.replace("[", "-").replace("]", "")[-100:]
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        for topic in (f"{name}-a", f"{name}-b"):
            admin.create_topic(topic, 2)
    return f"{name}-a", f"{name}-b"


def transactional(gateway: GatewayProcess, name: str, **settings: object) -> Producer:
    config = {key.replace("_", "."): value for key, value in settings.items()}
    return Producer({"bootstrap.servers": gateway.address, "transactional.id": name, **config})


def rows(gateway: GatewayProcess, topic: str) -> list[bytes]:
    """The values in the topic's table, in order of partition and offset."""
    table = DeltaTable(str(Path(gateway.warehouse) / "topics" / topic)).to_pyarrow_table()
    ordered = table.sort_by([("partition", "ascending"), ("offset", "ascending")])
    return ordered.column("value").to_pylist()  # type: ignore[no-any-return]


def test_records_of_two_topics_and_offsets_are_committed_together(
    gateway: GatewayProcess, topics: tuple[str, str]
) -> None:
    source, target = topics
    with Producer({"bootstrap.servers": gateway.address}) as plain:
        for number in range(10):
            plain.produce(source, b"%d" % number, partition=0)
    config = {
        "bootstrap.servers": gateway.address,
        "group.id": source,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    with Consumer(config) as consumer, transactional(gateway, source) as producer:
        assert producer.init_transactions() is None
        consumer.subscribe([source])
        records = consumer.consume(10, timeout=WAIT_S)
        while len(records) < 10:
            records += consumer.consume(10 - len(records), timeout=WAIT_S)
        producer.begin_transaction()
        for record in records:
            assert record.value is not None
            producer.produce(target, record.value * 2, partition=1)
        assert producer.send(source, b"also here", partition=1).result(WAIT_S).offset == -1
        producer.send_offsets_to_transaction(
            [TopicPartition(source, 0, 10, "note")], consumer.consumer_group_metadata()
        )
        assert rows(gateway, target) == []
        places = producer.commit_transaction()
        assert rows(gateway, target) == [b"%d" % number * 2 for number in range(10)]
        [committed] = consumer.committed([TopicPartition(source, 0)])
        assert (committed.offset, committed.metadata) == (10, "note")
    assert {place: found[:2] for place, found in places.items()} == {
        (target, 1): (0, 10),
        (source, 1): (0, 1),
    }
    assert all(found.table_version > 0 for found in places.values())


def test_an_aborted_transaction_leaves_no_gap(
    gateway: GatewayProcess, topics: tuple[str, str]
) -> None:
    one, _ = topics
    with transactional(gateway, one) as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            producer.produce(one, b"%d" % number, partition=0)
            if number % 2:
                producer.flush()
                producer.abort_transaction()
            else:
                assert producer.commit_transaction()[one, 0].base_offset == number // 2
    assert rows(gateway, one) == [b"0", b"2", b"4"]
    with Consumer({"bootstrap.servers": gateway.address}) as consumer:
        consumer.assign([TopicPartition(one, 0, OFFSET_BEGINNING)])
        assert [record.offset for record in consumer.consume(3, timeout=WAIT_S)] == [0, 1, 2]


def test_a_newer_producer_fences_the_older(
    gateway: GatewayProcess, topics: tuple[str, str]
) -> None:
    one, two = topics
    with transactional(gateway, one) as older:
        older.init_transactions()
        older.begin_transaction()
        older.send(one, b"old").result(WAIT_S)
        with transactional(gateway, one) as newer:
            newer.init_transactions()
            with pytest.raises(ProducerFencedError):
                older.commit_transaction()
            with newer.transaction():
                newer.produce(two, b"new")
    assert rows(gateway, one) == []
    assert rows(gateway, two) == [b"new"]


def test_a_transaction_that_is_open_for_too_long_is_aborted(
    gateway: GatewayProcess, topics: tuple[str, str]
) -> None:
    one, _ = topics
    with transactional(gateway, one, transaction_timeout_ms=300) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(one, b"late").result(WAIT_S)
        time.sleep(0.8)
        with pytest.raises(TransactionTimedOutError):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.produce(one, b"in time")
    assert rows(gateway, one) == [b"in time"]


def test_offsets_of_a_partition_that_is_not_the_members_are_refused(
    gateway: GatewayProcess, topics: tuple[str, str]
) -> None:
    one, two = topics
    config = {"bootstrap.servers": gateway.address, "group.id": one}
    with Consumer(config) as consumer, transactional(gateway, one) as producer:
        consumer.subscribe([one])
        while not consumer.assignment():
            consumer.poll(0.1)
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(one, b"a")
        with pytest.raises(TransactionAbortedError):
            producer.send_offsets_to_transaction(
                [TopicPartition(two, 0, 0)], consumer.consumer_group_metadata()
            )
        producer.abort_transaction()
    assert rows(gateway, one) == []


def test_the_async_producer(gateway: GatewayProcess, topics: tuple[str, str]) -> None:
    one, two = topics

    async def work() -> None:
        config = {"bootstrap.servers": gateway.address, "transactional.id": one}
        async with AsyncProducer(config) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                assert (await producer.send_and_wait(one, b"a")).offset == -1
                await producer.send(two, b"b")
            await producer.begin_transaction()
            await producer.send(one, b"c")
            await producer.abort_transaction()

    asyncio.run(work())
    assert (rows(gateway, one), rows(gateway, two)) == ([b"a"], [b"b"])


def test_a_program_for_confluent_kafka(gateway: GatewayProcess, topics: tuple[str, str]) -> None:
    one, two = topics
    producer = confluent.Producer({"bootstrap.servers": gateway.address, "transactional.id": one})
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": gateway.address,
            "group.id": one,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(one, b"a", partition=0)
    producer.commit_transaction()
    consumer.subscribe([one])
    message = consumer.poll(WAIT_S)
    assert message is not None
    producer.begin_transaction()
    producer.produce(two, message.value().upper())
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
    )
    producer.commit_transaction()
    [committed] = consumer.committed([confluent.TopicPartition(one, 0)])
    assert committed.offset == 1
    consumer.close()
    producer.close()
    assert rows(gateway, two) == [b"A"]


def test_a_program_for_aiokafka(gateway: GatewayProcess, topics: tuple[str, str]) -> None:
    one, two = topics

    async def work() -> None:
        consumer = AIOKafkaConsumer(
            one,
            bootstrap_servers=gateway.address,
            group_id=one,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        producer = AIOKafkaProducer(bootstrap_servers=gateway.address, transactional_id=one)
        async with producer, consumer:
            async with producer.transaction():
                await producer.send(one, b"a", partition=0)
            record = await consumer.getone()
            async with producer.transaction():
                assert record.value is not None
                await producer.send(two, record.value.upper())
                [place] = [tp for tp in consumer.assignment() if tp.partition == 0]
                await producer.send_offsets_to_transaction({place: record.offset + 1}, one)
            assert await consumer.committed(place) == 1

    asyncio.run(work())
    assert rows(gateway, two) == [b"A"]


def test_a_gateway_that_is_killed_aborts_what_is_open_and_keeps_what_is_prepared(
    tmp_path: Path,
) -> None:
    with GatewayProcess(tmp_path / "warehouse") as gateway:
        with AdminClient({"bootstrap.servers": gateway.address}) as admin:
            for topic in ("a", "b"):
                admin.create_topic(topic, 1)
        with transactional(gateway, "x") as producer, transactional(gateway, "y") as other:
            for one in (producer, other):
                one.init_transactions()
            other.begin_transaction()
            other.produce("a", b"prepared")
            other.produce("b", b"prepared")
            token = other.prepare_transaction()
            with producer.transaction():
                producer.produce("a", b"committed")
                producer.produce("b", b"committed")
            producer.begin_transaction()
            producer.send("a", b"open").result(WAIT_S)
            gateway.kill()
            gateway.start()
            with pytest.raises(MainstemError) as caught:
                producer.commit_transaction(WAIT_S)
            assert caught.value.abortable
            producer.abort_transaction(WAIT_S)
            with producer.transaction():
                producer.produce("a", b"after")
            with pytest.raises(InvalidTxnStateError):
                other.begin_transaction()
            with AdminClient({"bootstrap.servers": gateway.address}) as admin:
                places = admin.complete_transaction(token)
                assert set(admin.complete_transaction(token)) <= set(places)
            assert places["b", 0] == TransactionPlace(1, 1, places["b", 0].table_version)
        assert rows(gateway, "a") == [b"committed", b"after", b"prepared"]
        assert rows(gateway, "b") == [b"committed", b"prepared"]

"""aiokafka's AIOKafkaProducer, against a gateway in memory."""

from __future__ import annotations

import asyncio
import json
import pickle
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mainstem.cli.cert.development import new_authority
from mainstem.compat import aiokafka
from mainstem.compat.aiokafka import AIOKafkaProducer, RecordMetadata, TopicPartition, errors
from mainstem.compat.aiokafka.errors import (
    CLASSES,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerClosed,
    UnknownTopicOrPartitionError,
    UnsupportedFeatureError,
)
from mainstem.compat.aiokafka.helpers import create_ssl_context
from mainstem.compat.aiokafka.partitioner import DefaultPartitioner
from mainstem.errors import error_classes
from mainstem.testing import FakeGateway


def with_producer(
    gateway: FakeGateway, work: Callable[[AIOKafkaProducer], Awaitable[Any]], **keywords: Any
) -> Any:
    async def main() -> Any:
        async with AIOKafkaProducer(bootstrap_servers=gateway.address, **keywords) as producer:
            return await work(producer)

    return asyncio.run(main())


def test_of_two_starts_at_once_one_is_refused_and_none_is_left_open(
    gateway: FakeGateway,
) -> None:
    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=gateway.address)
        first, second = await asyncio.gather(
            producer.start(), producer.start(), return_exceptions=True
        )
        assert first is None
        assert isinstance(second, AssertionError)
        await producer.stop()

    asyncio.run(main())


def test_every_name_that_the_package_promises_is_there() -> None:
    assert [name for name in aiokafka.__all__ if not hasattr(aiokafka, name)] == []


def test_each_of_our_errors_is_one_of_aiokafkas() -> None:
    assert error_classes().keys() - CLASSES.keys() == set()
    assert KafkaConnectionError.retriable
    assert issubclass(UnknownTopicOrPartitionError, KafkaError)
    assert UnknownTopicOrPartitionError.errno == 3


def test_errors_that_are_never_raised_may_be_named() -> None:
    assert issubclass(errors.LeaderNotAvailableError, errors.BrokerResponseError)
    assert (errors.LeaderNotAvailableError.errno, errors.LeaderNotAvailableError.retriable) == (
        5,
        True,
    )
    assert issubclass(errors.NoBrokersAvailable, KafkaError)
    with pytest.raises(AttributeError):
        errors.Nonsense  # noqa: B018


def test_errors_have_kafkas_number_name_and_description() -> None:
    error = errors.UnknownTopicOrPartitionError("there is no topic 't'")
    assert str(error) == "[Error 3] UnknownTopicOrPartitionError: there is no topic 't'"
    assert error.message == "UNKNOWN_TOPIC_OR_PARTITION"
    assert error.description
    assert error.invalid_metadata is False
    assert errors.for_code(3) is errors.UnknownTopicOrPartitionError
    assert errors.for_code(5) is errors.LeaderNotAvailableError
    assert errors.for_code(9999) is errors.UnknownError
    assert errors.kafka_errors[36] is errors.TopicAlreadyExistsError


@pytest.mark.parametrize(
    ("module", "name"),
    [(module, name) for module in (aiokafka,) for name in module.REFUSED],
)
def test_a_name_that_cannot_be_is_refused_when_it_is_imported(module: Any, name: str) -> None:
    with pytest.raises(ImportError, match=f"{name} does not exist here: "):
        getattr(module, name)


def test_a_context_for_tls_has_the_names_of_pem_files(tmp_path: Path) -> None:
    authority = new_authority(days=1)
    (tmp_path / "ca.pem").write_bytes(authority.certificate_pem())
    context = create_ssl_context(cafile=str(tmp_path / "ca.pem"))
    AIOKafkaProducer(bootstrap_servers="127.0.0.1:1", security_protocol="SSL", ssl_context=context)
    with pytest.raises(UnsupportedFeatureError, match="password is not supported"):
        create_ssl_context(cafile="ca.pem", password="secret")
    with pytest.raises(TypeError, match="create_ssl_context returns"):
        AIOKafkaProducer(
            bootstrap_servers="127.0.0.1:1",
            security_protocol="SSL",
            ssl_context=ssl.create_default_context(),
        )


def test_the_default_partitioner_places_keys_as_kafka_does() -> None:
    place = DefaultPartitioner()
    assert place(b"foobar", list(range(1000)), [1]) == 166
    assert place(None, [0, 1, 2], [2]) == 2


def test_send_and_wait_tells_where_the_record_is(gateway: FakeGateway) -> None:
    async def work(producer: AIOKafkaProducer) -> RecordMetadata:
        return await producer.send_and_wait(
            "t", b"value", key=b"key", partition=1, timestamp_ms=1234, headers=[("h", b"x")]
        )

    found = with_producer(gateway, work)
    assert found == RecordMetadata("t", 1, TopicPartition("t", 1), 0, 1234, 0, None)
    (record,) = gateway.records("t")[1]
    assert (record.key, record.value, record.timestamp_ms) == (b"key", b"value", 1234)


def test_send_gives_a_future_and_flush_or_stop_waits_for_it(gateway: FakeGateway) -> None:
    async def work(producer: AIOKafkaProducer) -> list[asyncio.Future[RecordMetadata]]:
        futures = [await producer.send("one", b"%d" % number) for number in range(3)]
        await producer.flush()
        assert all(future.done() for future in futures)
        futures.append(await producer.send("one", b"last"))
        return futures

    futures = with_producer(gateway, work)
    assert [future.result().offset for future in futures] == [0, 1, 2, 3]


def test_serializers_make_the_bytes(gateway: FakeGateway) -> None:
    async def work(producer: AIOKafkaProducer) -> None:
        await producer.send_and_wait("one", {"a": 1}, key="k")

    with_producer(
        gateway, work, key_serializer=str.encode, value_serializer=lambda v: json.dumps(v).encode()
    )
    (record,) = gateway.records("one")[0]
    assert (record.key, record.value) == (b"k", b'{"a": 1}')


def test_a_batch_takes_records_until_it_is_full_and_goes_to_one_partition(
    gateway: FakeGateway,
) -> None:
    async def work(producer: AIOKafkaProducer) -> None:
        batch = producer.create_batch()
        numbers = []
        while (number := batch.append(timestamp=5, key=None, value=bytes(100))) is not None:
            numbers.append(number)
        assert numbers == list(range(batch.record_count()))
        assert 800 <= batch.size() <= 1_000
        place = await (await producer.send_batch(batch, "t", partition=2))
        assert (place.partition, place.offset) == (2, 0)
        assert batch.closed()
        assert batch.append(timestamp=None, key=b"k", value=b"v") is None
        again = producer.create_batch()
        assert again.append(timestamp=None, key=b"k", value=b"v", headers=[("h", b"x")]) == 0
        assert (await (await producer.send_batch(again, "t", partition=2))).offset == len(numbers)

    with_producer(gateway, work, max_batch_size=1_000)
    last = gateway.records("t")[2][-1]
    assert (last.key, last.value) == (b"k", b"v")


def test_a_partitioner_gets_the_partitions_as_lists(gateway: FakeGateway) -> None:
    def last(key: bytes | None, partitions: list[int], available: list[int]) -> int:
        assert partitions == available == [0, 1, 2]
        return partitions[-1]

    async def work(producer: AIOKafkaProducer) -> RecordMetadata:
        assert await producer.partitions_for("t") == {0, 1, 2}
        return await producer.send_and_wait("t", b"a", key=b"k")

    assert with_producer(gateway, work, partitioner=last).partition == 2


def test_errors_are_aiokafkas(gateway: FakeGateway) -> None:
    async def work(producer: AIOKafkaProducer) -> None:
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send("nowhere", b"a")
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send("one", b"a", partition=9)
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send("one", bytes(2_000))
        with pytest.raises(AssertionError):
            await producer.send("one")

    with_producer(gateway, work, max_request_size=1_000)


def test_a_record_that_is_not_acknowledged_within_request_timeout_fails(
    gateway: FakeGateway,
) -> None:
    async def work(producer: AIOKafkaProducer) -> None:
        await producer.send_and_wait("one", b"a")
        await asyncio.to_thread(gateway.stop)
        with pytest.raises(KafkaTimeoutError):
            await producer.send_and_wait("one", b"b")

    with_producer(gateway, work, request_timeout_ms=300)


def test_a_producer_that_is_not_started_or_was_stopped_is_closed(gateway: FakeGateway) -> None:
    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=[gateway.address])
        with pytest.raises(ProducerClosed):
            await producer.send("one", b"a")
        await producer.start()
        await producer.stop()
        await producer.stop()
        with pytest.raises(ProducerClosed):
            await producer.send("one", b"a")

    asyncio.run(main())


def test_start_says_that_no_gateway_can_be_reached(no_leaks: None) -> None:
    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
        with pytest.raises(KafkaConnectionError):
            await producer.start()

    asyncio.run(main())


def test_a_producer_starts_once_and_is_stopped_by_its_block(gateway: FakeGateway) -> None:
    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=gateway.address)
        async with producer as entered:
            assert entered is producer
            with pytest.raises(AssertionError, match="twice"):
                await producer.start()
        await producer.stop()
        with pytest.raises(ProducerClosed):
            await producer.send("one", b"a")
        with pytest.raises(TypeError, match="make one in each process"):
            pickle.dumps(producer)

    asyncio.run(main())


def test_wrong_settings_are_told_together_and_unknown_arguments_are_type_errors() -> None:
    with pytest.raises(
        ValueError, match=r"compression\.type(.|\n)*delivery\.timeout\.ms"
    ) as caught:
        AIOKafkaProducer(
            bootstrap_servers="127.0.0.1:1",
            compression_type="snappy",
            linger_ms=50_000,
            sasl_plain_username="me",
        )
    assert "sasl.username" in str(caught.value)
    with pytest.raises(TypeError, match="group_id"):
        AIOKafkaProducer(bootstrap_servers="127.0.0.1:1", group_id="g")


def test_what_an_aiokafka_program_sets_by_habit_is_taken() -> None:
    AIOKafkaProducer(
        loop=None,
        bootstrap_servers=["127.0.0.1:1", "127.0.0.1:2"],
        client_id="x",
        api_version="auto",
        acks=1,
        linger_ms=0,
        security_protocol="PLAINTEXT",
        ssl_context=None,
        sasl_mechanism="PLAIN",
        connections_max_idle_ms=540_000,
        enable_idempotence=False,
        transactional_id=None,
    )

"""aiokafka's AIOKafkaConsumer, against a gateway in memory with the real coordinator."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from mainstem.compat.aiokafka import (
    AIOKafkaConsumer,
    ConsumerRebalanceListener,
    ConsumerStoppedError,
    IllegalOperation,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from mainstem.compat.aiokafka.errors import (
    IllegalStateError,
    KafkaConnectionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from mainstem.testing._fake_fetch import FakeLogGateway

ONE = TopicPartition("one", 0)
DEADLINE_S = 20.0

Work = Callable[[AIOKafkaConsumer], Awaitable[Any]]


def with_consumer(log: FakeLogGateway, work: Work, *topics: str, **keywords: Any) -> Any:
    async def main() -> Any:
        settings = {"auto_offset_reset": "earliest", "retry_backoff_ms": 5, **keywords}
        consumer = AIOKafkaConsumer(*topics, bootstrap_servers=log.address, **settings)
        async with consumer:
            return await asyncio.wait_for(work(consumer), DEADLINE_S)

    return asyncio.run(main())


def test_a_record_has_aiokafkas_attributes(log: FakeLogGateway) -> None:
    log.append("one", 0, [b"7"], timestamp_ms=1234, key=b"key", headers=(("h", b"x"),))
    log.append("one", 0, [None])

    async def work(consumer: AIOKafkaConsumer) -> None:
        record = await consumer.getone()
        assert (record.topic, record.partition, record.offset) == ("one", 0, 0)
        assert (record.timestamp, record.timestamp_type) == (1234, 0)
        assert (record.key, record.value) == ("key", 7)
        assert (record.serialized_key_size, record.serialized_value_size) == (3, 1)
        assert list(record.headers) == [("h", b"x")]
        assert record.checksum is None
        empty = await consumer.getone()
        assert (empty.value, empty.serialized_value_size) == (None, -1)

    with_consumer(
        log,
        work,
        "one",
        group_id="g",
        key_deserializer=lambda data: data and data.decode(),
        value_deserializer=lambda data: data and int(data),
    )


def test_without_a_group_all_partitions_of_the_topics_are_read(log: FakeLogGateway) -> None:
    for partition in range(3):
        log.append("t", partition, [b"%d" % partition])

    async def work(consumer: AIOKafkaConsumer) -> None:
        assert consumer.subscription() == {"t"}
        assert consumer.assignment() == {TopicPartition("t", number) for number in range(3)}
        assert {(await consumer.getone()).value for _ in range(3)} == {b"0", b"1", b"2"}
        with pytest.raises(IllegalOperation):
            await consumer.commit()
        with pytest.raises(IllegalOperation):
            await consumer.committed(ONE)

    with_consumer(log, work, "t")


def test_getmany_gives_lists_by_partition_and_waits_for_the_first(log: FakeLogGateway) -> None:
    log.append("one", 0, [b"a", b"b", b"c"])

    async def work(consumer: AIOKafkaConsumer) -> None:
        found = await consumer.getmany(timeout_ms=10_000, max_records=2)
        assert {tp: [one.value for one in records] for tp, records in found.items()} == {
            ONE: [b"a", b"b"]
        }
        assert [one.value for one in (await consumer.getmany(timeout_ms=10_000))[ONE]] == [b"c"]
        assert await consumer.getmany() == {}
        assert await consumer.getmany(timeout_ms=150) == {}
        with pytest.raises(ValueError, match="max_records"):
            await consumer.getmany(max_records=0)

    with_consumer(log, work, "one")


def test_records_of_some_partitions_only(log: FakeLogGateway) -> None:
    for partition in range(3):
        log.append("t", partition, [b"%d" % partition])

    async def work(consumer: AIOKafkaConsumer) -> None:
        last = TopicPartition("t", 2)
        assert (await consumer.getone(last)).value == b"2"
        assert await consumer.getmany(last, timeout_ms=150) == {}
        assert consumer.paused() == set()
        assert {(await consumer.getone()).value for _ in range(2)} == {b"0", b"1"}
        with pytest.raises(IllegalStateError):
            await consumer.getone(ONE)

    with_consumer(log, work, "t")


def test_async_for_ends_when_the_consumer_is_stopped(log: FakeLogGateway) -> None:
    log.append("one", 0, [b"a", b"b"])

    async def work(consumer: AIOKafkaConsumer) -> None:
        seen = []
        async for record in consumer:
            seen.append(record.value)
            if len(seen) == 2:
                await consumer.stop()
        assert seen == [b"a", b"b"]
        with pytest.raises(ConsumerStoppedError):
            await consumer.getone()
        with pytest.raises(ConsumerStoppedError):
            await consumer.getmany()
        with pytest.raises(ConsumerStoppedError):
            aiter(consumer)

    with_consumer(log, work, "one", group_id="g")


def test_a_getone_that_waits_ends_when_another_task_stops_the_consumer(
    log: FakeLogGateway,
) -> None:
    async def work(consumer: AIOKafkaConsumer) -> None:
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0.05)
        await consumer.stop()
        with pytest.raises(ConsumerStoppedError):
            await waiting

    with_consumer(log, work, "one")


def test_seeks_count_for_the_next_record(log: FakeLogGateway) -> None:
    log.append("one", 0, [b"a", b"b", b"c"])

    async def work(consumer: AIOKafkaConsumer) -> None:
        consumer.seek(ONE, 2)
        assert await consumer.position(ONE) == 2
        assert (await consumer.getone()).value == b"c"
        assert await consumer.seek_to_beginning()
        assert (await consumer.getone()).value == b"a"
        await consumer.seek_to_end(ONE)
        assert await consumer.position(ONE) == 3
        log.append("one", 0, [b"d"])
        assert (await consumer.getone()).value == b"d"
        with pytest.raises(ValueError, match="must be an int from 0"):
            consumer.seek(ONE, -1)
        with pytest.raises(IllegalStateError):
            consumer.seek(TopicPartition("t", 0), 1)
        with pytest.raises(TypeError):
            consumer.seek(("one", 0), 1)  # type: ignore[arg-type]

    with_consumer(log, work, "one")


def test_a_seek_during_a_getone_that_waits_is_followed(log: FakeLogGateway) -> None:
    log.append("one", 0, [b"a"])

    async def work(consumer: AIOKafkaConsumer) -> None:
        await consumer.getone()
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0.05)
        consumer.seek(ONE, 0)
        assert (await waiting).value == b"a"

    with_consumer(log, work, "one")


def test_a_seek_is_done_when_the_call_that_was_to_do_it_is_cancelled(log: FakeLogGateway) -> None:
    log.append("one", 0, [b"0", b"1"])

    async def work(consumer: AIOKafkaConsumer) -> None:
        consumer.assign([ONE])
        await consumer.getone()
        await consumer.getone()
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0.01)
        consumer.seek(ONE, 1)
        getting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0)
        getting.cancel()
        await asyncio.wait({getting})
        assert getting.cancelled()
        assert (await asyncio.wait_for(waiting, 5)).offset == 1

    with_consumer(log, work)


def test_what_a_cancelled_getmany_has_taken_comes_again(
    log: FakeLogGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is cancelled as it goes back to a record that cannot be deserialized."""
    good = True

    def deserialize(data: bytes) -> bytes:
        if data == b"bad" and not good:
            raise ValueError(data)
        return data

    for partition in range(3):
        log.append("t", partition, [b"good"] if partition else [b"good", b"bad"])

    async def work(consumer: AIOKafkaConsumer) -> None:
        nonlocal good
        good = False
        go_back = consumer._go_back_to

        async def cancelled(*arguments: Any) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await go_back(*arguments)

        monkeypatch.setattr(consumer, "_go_back_to", cancelled)
        while True:  # until one takes the bad record
            getting = asyncio.create_task(consumer.getmany(max_records=4))
            await asyncio.wait({getting})
            if getting.cancelled():
                break
            await consumer.seek_to_beginning()
            await asyncio.sleep(0.05)
        good = True
        found: list[Any] = []
        while len(found) < 4:
            for records in (await consumer.getmany(timeout_ms=100)).values():
                found += [record.value for record in records]
        assert sorted(found) == [b"bad", b"good", b"good", b"good"]

    with_consumer(log, work, "t", value_deserializer=deserialize)


def test_offsets_are_committed_found_and_gone_back_to(log: FakeLogGateway) -> None:
    log.append("one", 0, [b"a", b"b", b"c"])

    async def work(consumer: AIOKafkaConsumer) -> None:
        await consumer.getmany(timeout_ms=10_000, max_records=2)
        assert await consumer.committed(ONE) is None
        await consumer.commit()
        assert await consumer.committed(ONE) == 2
        await consumer.commit({ONE: 1})
        assert await consumer.committed(ONE) == 1
        await consumer.commit({ONE: OffsetAndMetadata(3, "note")})
        assert await consumer.committed(ONE) == 3
        await consumer.commit({ONE: (1, "note")})
        assert await consumer.seek_to_committed() == {ONE: 1}
        assert (await consumer.getone()).value == b"b"
        with pytest.raises(ValueError, match="must be an int"):
            await consumer.commit({ONE: ("1", "x")})

    with_consumer(log, work, "one", group_id="g", enable_auto_commit=False)


def test_offsets_by_place_and_time(log: FakeLogGateway) -> None:
    log.append("one", 0, [b"a"], timestamp_ms=1_000)
    log.append("one", 0, [b"b"], timestamp_ms=2_000)

    async def work(consumer: AIOKafkaConsumer) -> None:
        assert await consumer.beginning_offsets([ONE]) == {ONE: 0}
        assert await consumer.end_offsets([ONE]) == {ONE: 2}
        assert await consumer.offsets_for_times({ONE: 1_500}) == {ONE: OffsetAndTimestamp(1, 1_500)}
        assert await consumer.offsets_for_times({ONE: 9_000}) == {ONE: None}
        with pytest.raises(ValueError, match="negative"):
            await consumer.offsets_for_times({ONE: -1})
        assert consumer.highwater(ONE) in (None, 2)
        await consumer.getone()
        assert consumer.highwater(ONE) == consumer.last_stable_offset(ONE) == 2

    with_consumer(log, work, "one")


def test_paused_partitions_give_nothing_until_they_are_resumed(log: FakeLogGateway) -> None:
    log.append("one", 0, [b"a"])

    async def work(consumer: AIOKafkaConsumer) -> None:
        assert consumer.last_poll_timestamp(ONE) is None
        consumer.pause(ONE)
        assert consumer.paused() == {ONE}
        assert await consumer.getmany(timeout_ms=150) == {}
        consumer.resume(ONE)
        assert consumer.paused() == set()
        assert (await consumer.getone()).value == b"a"
        assert (consumer.last_poll_timestamp(ONE) or 0) > 1_700_000_000_000

    with_consumer(log, work, "one")


class Listener(ConsumerRebalanceListener):
    """Rewinds, with coroutines and without."""

    def __init__(self) -> None:
        self.told: list[tuple[str, set[TopicPartition]]] = []
        self.consumer: AIOKafkaConsumer | None = None

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.told.append(("assigned", set(assigned)))
        assert self.consumer is not None
        for tp in assigned:
            assert await self.consumer.committed(tp) is None
            self.consumer.seek(tp, 1)

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self.told.append(("revoked", set(revoked)))


def test_a_listener_is_told_and_may_seek_and_await(log: FakeLogGateway) -> None:
    log.append("one", 0, [b"a", b"b"])
    listener = Listener()

    async def work(consumer: AIOKafkaConsumer) -> None:
        listener.consumer = consumer
        consumer.subscribe(["one"], listener=listener)
        assert (await consumer.getone()).value == b"b"
        assert consumer.assignment() == {ONE}

    with_consumer(log, work, group_id="g", enable_auto_commit=False)
    assert listener.told == [("assigned", {ONE}), ("revoked", {ONE})]


def test_a_pattern_is_matched_from_the_start_of_names(log: FakeLogGateway) -> None:
    log.append("one", 0, [b"a"])

    async def work(consumer: AIOKafkaConsumer) -> None:
        consumer.subscribe(pattern="o.*")
        assert (await consumer.getone()).value == b"a"
        assert {tp.topic for tp in consumer.assignment()} == {"one"}
        consumer.unsubscribe()
        assert consumer.assignment() == frozenset()
        assert await consumer.getmany(timeout_ms=50) == {}

    with_consumer(log, work, group_id="g")
    with_consumer(log, work)


def test_partitions_may_be_assigned_by_hand(log: FakeLogGateway) -> None:
    log.append("t", 1, [b"a"])
    chosen = TopicPartition("t", 1)

    async def work(consumer: AIOKafkaConsumer) -> None:
        consumer.assign([chosen])
        assert consumer.assignment() == {chosen}
        consumer.seek(chosen, 0)
        assert (await consumer.getone()).value == b"a"
        with pytest.raises(IllegalStateError):
            consumer.subscribe(["t"])
        consumer.unsubscribe()
        consumer.subscribe(["t"])
        with pytest.raises(IllegalStateError):
            consumer.assign([chosen])

    with_consumer(log, work)


def test_topics_and_their_partitions(log: FakeLogGateway) -> None:
    async def work(consumer: AIOKafkaConsumer) -> None:
        assert await consumer.topics() == {"t", "one"}
        assert consumer.partitions_for_topic("t") == {0, 1, 2}
        assert consumer.partitions_for_topic("nowhere") is None

    with_consumer(log, work)


def test_errors_are_aiokafkas(log: FakeLogGateway) -> None:
    async def unknown(consumer: AIOKafkaConsumer) -> None:
        consumer.assign([TopicPartition("nowhere", 0)])
        with pytest.raises(UnknownTopicOrPartitionError):
            await consumer.getone()

    async def no_offset(consumer: AIOKafkaConsumer) -> None:
        consumer.assign([ONE])
        consumer.seek(ONE, 99)
        with pytest.raises(OffsetOutOfRangeError):
            await consumer.getone()

    with_consumer(log, unknown)
    with_consumer(log, no_offset, auto_offset_reset="none")


@pytest.mark.parametrize("many", [False, True])
def test_a_record_that_cannot_be_deserialized_comes_again_and_is_not_committed(
    log: FakeLogGateway, many: bool
) -> None:
    log.append("one", 0, [b"1", b"2", b"bad", b"4"])
    broken = True

    def number(data: bytes) -> int:
        return -1 if data == b"bad" and not broken else int(data)

    async def take(consumer: AIOKafkaConsumer) -> list[Any]:
        if not many:
            return [(await consumer.getone()).value]
        found = await consumer.getmany(timeout_ms=2000)
        return [record.value for records in found.values() for record in records]

    async def work(consumer: AIOKafkaConsumer) -> None:
        nonlocal broken
        read: list[int] = []
        while len(read) < 2:
            read += await take(consumer)
        for _ in range(2):
            with pytest.raises(ValueError, match="invalid literal"):
                await take(consumer)
        assert await consumer.position(ONE) == 2
        await consumer.commit()
        assert await consumer.committed(ONE) == 2
        broken = False
        while len(read) < 4:
            read += await take(consumer)
        assert read == [1, 2, -1, 4]

    with_consumer(
        log, work, "one", group_id="g", enable_auto_commit=False, value_deserializer=number
    )


def test_a_record_that_cannot_be_deserialized_may_be_passed_by_a_seek(log: FakeLogGateway) -> None:
    log.append("one", 0, [b"bad", b"2"])

    async def work(consumer: AIOKafkaConsumer) -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            await consumer.getone()
        consumer.seek(ONE, await consumer.position(ONE) + 1)
        assert (await consumer.getone()).value == 2

    with_consumer(log, work, "one", value_deserializer=int)


def test_what_a_listener_raises_is_logged_and_the_consumer_goes_on(
    log: FakeLogGateway, caplog: pytest.LogCaptureFixture
) -> None:
    class Raising(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
            raise ArithmeticError("at assignment")

        async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
            raise ArithmeticError("at revocation")

    log.append("one", 0, [b"a"])

    async def work(consumer: AIOKafkaConsumer) -> None:
        consumer.subscribe(["one"], listener=Raising())
        assert (await consumer.getone()).value == b"a"

    with_consumer(log, work, group_id="g")
    raised = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert raised == ["at assignment", "at revocation"]


def test_a_consumer_starts_once_and_not_again_after_it_was_stopped(log: FakeLogGateway) -> None:
    async def main() -> None:
        consumer = AIOKafkaConsumer("one", bootstrap_servers=log.address)
        with pytest.raises(IllegalStateError, match="not started"):
            await consumer.getone()
        await consumer.start()
        with pytest.raises(AssertionError, match="twice"):
            await consumer.start()
        await consumer.stop()
        await consumer.stop()
        for call in (consumer.start, consumer.getone, consumer.getmany, consumer.topics):
            with pytest.raises(ConsumerStoppedError):
                await call()

    asyncio.run(main())


def test_offsets_are_committed_as_numbers_pairs_or_with_metadata(log: FakeLogGateway) -> None:
    async def work(consumer: AIOKafkaConsumer) -> None:
        await consumer.getmany()
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=50)
        at: Any
        for at in (3, (3, "why"), OffsetAndMetadata(3, "why"), OffsetAndMetadata(3, None)):  # type: ignore[arg-type]
            await consumer.commit({ONE: at})
            assert await consumer.committed(ONE) == 3
        for at in ("3", (3,), 3.0, -1):
            with pytest.raises(ValueError, match="offset of"):
                await consumer.commit({ONE: at})
        with pytest.raises(TypeError, match="offsets is a list; it must be a dict"):
            await consumer.commit([ONE])  # type: ignore[arg-type]

    with_consumer(log, work, "one", group_id="g")


def test_arguments_of_a_wrong_type_are_refused(log: FakeLogGateway) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=log.address)
    with pytest.raises(TypeError, match="topics or a pattern"):
        consumer.subscribe()
    with pytest.raises(TypeError, match="topics or a pattern"):
        consumer.subscribe(["a"], pattern="a")
    with pytest.raises(ValueError, match="not a regular expression"):
        consumer.subscribe(pattern="(")
    with pytest.raises(TypeError, match="a topic is a list; it must be a str"):
        AIOKafkaConsumer(["one"], bootstrap_servers=log.address)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="value_deserializer is a str; it must be a function"):
        AIOKafkaConsumer(bootstrap_servers=log.address, value_deserializer="x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="make one in each process"):
        pickle.dumps(consumer)
    AIOKafkaConsumer(bootstrap_servers=log.address, request_timeout_ms=None)
    with pytest.raises(TypeError):
        consumer.subscribe("one")
    with pytest.raises(TypeError):
        consumer.subscribe(["one"], listener=print)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        consumer.assign(["one"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="nosuch"):
        AIOKafkaConsumer("one", nosuch=1)
    with pytest.raises(ValueError, match=r"auto\.offset\.reset"):
        AIOKafkaConsumer("one", bootstrap_servers=log.address, auto_offset_reset="sometimes")


def test_start_says_that_no_gateway_can_be_reached(no_leaks: None) -> None:
    async def main() -> None:
        consumer = AIOKafkaConsumer("one", bootstrap_servers="127.0.0.1:1", request_timeout_ms=500)
        with pytest.raises(KafkaConnectionError):
            await consumer.start()

    asyncio.run(main())


class RoundRobinPartitionAssignor:
    """Stands for aiokafka's class of that name."""


def test_what_an_aiokafka_program_sets_by_habit_is_taken(log: FakeLogGateway) -> None:
    AIOKafkaConsumer(
        "one",
        loop=None,
        bootstrap_servers=[log.address],
        client_id="x",
        group_id="g",
        api_version="auto",
        fetch_max_bytes=52_428_800,
        check_crcs=True,
        partition_assignment_strategy=(RoundRobinPartitionAssignor,),
        rebalance_timeout_ms=None,
        session_timeout_ms=10_000,
        heartbeat_interval_ms=3_000,
        consumer_timeout_ms=200,
        security_protocol="PLAINTEXT",
        exclude_internal_topics=True,
        isolation_level="read_committed",
        sasl_mechanism="PLAIN",
    )

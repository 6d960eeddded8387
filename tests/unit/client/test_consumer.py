"""The consumer with assign(), over real gRPC to an in-memory gateway."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tests.unit.client.waiting import DEADLINE_S, wait_until

from mainstem.client import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    ConsumerRecord,
    TopicPartition,
)
from mainstem.errors import (
    BackPressureError,
    ConfigError,
    ConsumerClosedError,
    GatewayUnavailableError,
    LogDamagedError,
    MainstemError,
    OffsetOutOfRangeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from mainstem.protocol.v1 import log_pb2
from mainstem.testing._fake_fetch import FakeLogGateway

MakeConsumer = Callable[..., Consumer]


@pytest.fixture
def gateway(no_leaks: None) -> Iterator[FakeLogGateway]:
    with FakeLogGateway({"t": 3, "one": 1}) as running:
        yield running
    assert running.in_flight_max <= 8


@pytest.fixture
def make(gateway: FakeLogGateway) -> Iterator[MakeConsumer]:
    made: list[Consumer] = []

    def make_one(**settings: object) -> Consumer:
        config = {name.replace("_", "."): value for name, value in settings.items()}
        base = {"bootstrap.servers": gateway.address, "retry.backoff.ms": 5}
        made.append(Consumer({**base, "auto.offset.reset": "earliest", **config}))
        return made[-1]

    yield make_one
    for consumer in made:
        consumer.close()


def values(records: list[ConsumerRecord]) -> list[bytes | None]:
    return [record.value for record in records]


ONE = TopicPartition("one", 0)


def test_records_come_in_order_with_all_their_fields(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    headers = (("h", b"1"), ("h", None))
    gateway.append("one", 0, [b"a", None, b""], timestamp_ms=1234, key=b"k", headers=headers)
    consumer = make()
    consumer.assign([ONE])
    records = consumer.consume(3, DEADLINE_S)
    assert records[0] == ConsumerRecord("one", 0, 0, 1234, 0, b"k", b"a", headers)
    assert [(r.offset, r.value) for r in records] == [(0, b"a"), (1, None), (2, b"")]


def test_a_record_without_headers_has_an_empty_tuple_beside_one_that_has_some(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"a"])
    gateway.append("one", 0, [b"b"], headers=(("n", b"v"),))
    consumer = make()
    consumer.assign([ONE])
    assert [r.headers for r in consumer.consume(2, DEADLINE_S)] == [(), (("n", b"v"),)]


def test_every_partition_is_read_to_its_end_and_then_followed(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    for partition in range(3):
        gateway.append("t", partition, [b"%d" % partition] * 5000)
    consumer = make()
    consumer.assign([TopicPartition("t", partition) for partition in range(3)])
    records = consumer.consume(15_000, DEADLINE_S)
    for partition in range(3):
        offsets = [record.offset for record in records if record.partition == partition]
        assert offsets == list(range(5000))
    gateway.append("t", 1, [b"late"])
    late = consumer.poll(DEADLINE_S)
    assert late is not None
    assert (late.partition, late.offset, late.value) == (1, 5000, b"late")


def test_poll_gives_none_when_the_time_is_over(make: MakeConsumer) -> None:
    consumer = make()
    assert consumer.poll(0) is None
    consumer.assign([ONE])
    assert consumer.poll(0.01) is None
    assert consumer.consume(5, 0.01) == []
    assert consumer.poll_batch(0.01) == {}


def test_poll_batch_gives_arrow_and_moves_the_position(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"%d" % number for number in range(10)])
    consumer = make()
    consumer.assign([ONE])
    first = consumer.poll_batch(DEADLINE_S, 4)[ONE]
    assert first.schema.names == [
        "offset", "timestamp", "timestamp_type", "key", "value", "headers",
    ]  # fmt: skip
    assert first.column("value").to_pylist() == [b"0", b"1", b"2", b"3"]
    assert consumer.position([ONE])[0].offset == 4
    # Records and batches may be mixed.
    record = consumer.poll(DEADLINE_S)
    assert record is not None
    assert record.offset == 4
    assert consumer.poll_batch(DEADLINE_S)[ONE].column("offset").to_pylist() == [5, 6, 7, 8, 9]
    assert consumer.position([ONE])[0].offset == 10


def test_latest_is_where_the_log_ended_at_the_reset_even_if_nothing_was_read_for_a_while(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"old"])
    consumer = make(auto_offset_reset="latest")
    consumer.assign([ONE])
    wait_until(lambda: consumer.position([ONE])[0].offset == 1)
    gateway.stop()
    gateway.append("one", 0, [b"new"])
    gateway.start()
    record = consumer.poll(DEADLINE_S)
    assert record is not None
    assert record.value == b"new"
    assert [query.WhichOneof("at") for query in gateway.lists] == ["latest"]


def test_a_duration_begins_at_the_first_record_that_is_young_enough(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    now_ms = int(time.time() * 1000)
    gateway.append("one", 0, [b"old"], timestamp_ms=now_ms - 7_200_000)
    gateway.append("one", 0, [b"young"], timestamp_ms=now_ms - 60_000)
    consumer = make(auto_offset_reset="by_duration:PT1H")
    consumer.assign([ONE])
    assert values(consumer.consume(1, DEADLINE_S)) == [b"young"]


def test_none_raises_once_and_the_partition_goes_on_after_a_seek(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"a"])
    consumer = make(auto_offset_reset="none")
    consumer.assign([ONE])
    with pytest.raises(OffsetOutOfRangeError, match=r"auto\.offset\.reset is none"):
        consumer.poll(DEADLINE_S)
    assert consumer.poll(0.01) is None
    consumer.seek(TopicPartition("one", 0, 0))
    assert values(consumer.consume(1, DEADLINE_S)) == [b"a"]


@pytest.mark.parametrize(("reset", "expected"), [("earliest", b"7"), ("latest", b"new")])
def test_an_offset_that_was_trimmed_away_follows_auto_offset_reset(
    gateway: FakeLogGateway, make: MakeConsumer, reset: str, expected: bytes
) -> None:
    gateway.append("one", 0, [b"%d" % number for number in range(10)])
    gateway.trim("one", 0, 7)
    consumer = make(auto_offset_reset=reset)
    consumer.assign([TopicPartition("one", 0, 2)])
    if reset == "latest":
        wait_until(lambda: consumer.poll(0) is None and consumer.position([ONE])[0].offset == 10)
        gateway.append("one", 0, [b"new"])
    record = consumer.poll(DEADLINE_S)
    assert record is not None
    assert record.value == expected


def test_an_offset_that_was_trimmed_away_is_an_error_without_a_reset(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"a", b"b"])
    gateway.trim("one", 0, 1)
    consumer = make(auto_offset_reset="error")
    consumer.assign([TopicPartition("one", 0, 0)])
    with pytest.raises(OffsetOutOfRangeError):
        consumer.poll(DEADLINE_S)


def test_what_was_fetched_before_a_trim_is_still_handed_out(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"%d" % number for number in range(5)])
    consumer = make()
    consumer.assign([ONE])
    first = consumer.poll(DEADLINE_S)
    gateway.trim("one", 0, 5)
    gateway.append("one", 0, [b"x"] * 3)
    gateway.trim("one", 0, 7)
    rest = consumer.consume(5, DEADLINE_S)
    assert first is not None
    assert [first.offset, *(record.offset for record in rest)] == [0, 1, 2, 3, 4, 7]


def test_a_topic_that_was_created_again_is_read_from_where_the_reset_says(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"a", b"b"])
    consumer = make()
    consumer.assign([ONE])
    assert values(consumer.consume(2, DEADLINE_S)) == [b"a", b"b"]
    gateway.recreate("one", 1)
    gateway.append("one", 0, [b"x", b"y", b"z"])
    assert values(consumer.consume(3, DEADLINE_S)) == [b"x", b"y", b"z"]


def test_a_topic_that_was_gone_for_a_while_is_read_when_it_is_back(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"a", b"b"])
    consumer = make()
    consumer.assign([ONE])
    assert values(consumer.consume(2, DEADLINE_S)) == [b"a", b"b"]
    known = consumer._engine._worker.topics
    del gateway.topics["one"]
    assert consumer.poll(0.1) is None  # done with a and b
    wait_until(lambda: "one" not in known)
    assert consumer.poll(0.1) is None
    gateway.recreate("one", 1)
    gateway.append("one", 0, [b"x"])
    assert values(consumer.consume(1, DEADLINE_S)) == [b"x"]


def test_a_topic_that_was_created_again_is_an_error_without_a_reset(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"a"])
    consumer = make(auto_offset_reset="none")
    consumer.assign([TopicPartition("one", 0, 0)])
    assert values(consumer.consume(1, DEADLINE_S)) == [b"a"]
    gateway.recreate("one", 1)
    with pytest.raises(OffsetOutOfRangeError, match="created again"):
        consumer.poll(DEADLINE_S)


def test_an_unknown_topic_and_an_unknown_partition_are_told(make: MakeConsumer) -> None:
    consumer = make()
    consumer.assign([TopicPartition("nowhere", 0)])
    with pytest.raises(UnknownTopicError):
        consumer.poll(DEADLINE_S)
    consumer.assign([TopicPartition("one", 5)])
    with pytest.raises(UnknownPartitionError):
        consumer.poll(DEADLINE_S)


@pytest.mark.parametrize("group", ["", "g"])
def test_a_topic_that_is_deleted_while_it_is_read_is_told(
    gateway: FakeLogGateway, make: MakeConsumer, group: str
) -> None:
    gateway.append("one", 0, [b"a"])
    consumer = make(group_id=group, enable_auto_commit=False, topic_metadata_propagation_max_ms=200)
    consumer.assign([ONE])
    assert values(consumer.consume(1, DEADLINE_S)) == [b"a"]
    del gateway.topics["one"]
    with pytest.raises(UnknownTopicError):
        consumer.poll(DEADLINE_S)


def test_a_damaged_partition_is_told_and_the_others_go_on(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    def error(asked: log_pb2.FetchPartition) -> MainstemError | None:
        return LogDamagedError("torn") if asked.partition == 1 else None

    gateway.partition_error = error
    gateway.append("t", 0, [b"fine"])
    consumer = make()
    consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
    told = 0
    found: list[bytes | None] = []
    deadline = time.monotonic() + DEADLINE_S
    while (not told or not found) and time.monotonic() < deadline:
        try:
            found += values(consumer.consume(1, 0.5))
        except LogDamagedError:
            told += 1
    assert (told, found) == (1, [b"fine"])


def test_a_gateway_that_goes_away_and_comes_back_is_not_noticed(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"a"])
    consumer = make()
    consumer.assign([ONE])
    found = consumer.consume(1, DEADLINE_S)
    gateway.stop()
    assert consumer.poll(0.05) is None
    gateway.append("one", 0, [b"b"])
    gateway.start()
    found += consumer.consume(1, DEADLINE_S)
    assert values(found) == [b"a", b"b"]


def test_retriable_errors_of_a_call_and_of_a_partition_are_tried_again(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    calls: list[MainstemError | None] = [BackPressureError("busy"), GatewayUnavailableError("gone")]
    gateway.on_fetch = lambda _: calls.pop() if calls else None
    errors: list[MainstemError | None] = [BackPressureError("busy")]
    gateway.partition_error = lambda _: errors.pop() if errors else None
    gateway.append("one", 0, [b"a"])
    consumer = make()
    consumer.assign([ONE])
    assert values(consumer.consume(1, DEADLINE_S)) == [b"a"]
    assert not calls
    assert not errors


def test_the_new_leader_is_found_when_the_old_one_says_that_it_is_none(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    from mainstem.errors import NotLeaderError

    with FakeLogGateway() as other:
        other.topics.update(gateway.topics)
        gateway.append("one", 0, [b"a"])
        consumer = make()
        consumer.assign([ONE])
        found = consumer.consume(1, DEADLINE_S)
        gateway.partition_error = lambda _: NotLeaderError("not me")
        gateway.topics["one"].leader = other.address
        gateway.append("one", 0, [b"b"])
        found += consumer.consume(1, DEADLINE_S)
        assert values(found) == [b"a", b"b"]
        consumer.close()


def test_seek_goes_back_forward_and_to_the_ends(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"%d" % number for number in range(5)])
    consumer = make()
    consumer.assign([ONE])
    assert len(consumer.consume(2, DEADLINE_S)) == 2
    for offset, expected in ((0, b"0"), (4, b"4"), (OFFSET_BEGINNING, b"0"), (2, b"2")):
        consumer.seek(TopicPartition("one", 0, offset))
        assert values(consumer.consume(1, DEADLINE_S)) == [expected]
    consumer.seek(TopicPartition("one", 0, OFFSET_END))
    wait_until(lambda: consumer.position([ONE])[0].offset == 5)
    gateway.append("one", 0, [b"5"])
    assert values(consumer.consume(1, DEADLINE_S)) == [b"5"]
    with pytest.raises(RuntimeError, match="not assigned"):
        consumer.seek(TopicPartition("t", 0, 0))


def test_an_application_that_seeks_all_the_time_still_gets_records(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("t", 0, [b"a"])
    consumer = make()
    consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1, 0)])
    deadline = time.monotonic() + DEADLINE_S
    record = None
    while record is None and time.monotonic() < deadline:
        consumer.seek(TopicPartition("t", 1, 0))
        record = consumer.poll(0.001)
    assert record is not None


def test_a_paused_partition_gives_nothing_and_goes_on_where_it_was(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("t", 0, [b"a", b"b", b"c"])
    consumer = make()
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    consumer.assign([zero, one])
    assert values(consumer.consume(1, DEADLINE_S)) == [b"a"]
    consumer.pause([zero])
    gateway.append("t", 1, [b"x"])
    assert values(consumer.consume(2, 0.2)) == [b"x"]
    assert consumer.position([zero])[0].offset == 1
    consumer.resume([zero])
    assert values(consumer.consume(2, DEADLINE_S)) == [b"b", b"c"]


def test_what_is_fetched_ahead_is_bounded_in_bytes(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"x" * 1000] * 2000)
    consumer = make(queued_max_messages_kbytes=64, max_partition_fetch_bytes=16 * 1024)
    consumer.assign([ONE])
    wait_until(lambda: len(gateway.fetches) >= 2)
    time.sleep(0.2)
    buffered = consumer._partitions.buffered[gateway.address]
    assert buffered <= 64 * 1024 + 4 * 1024
    assert len(consumer.consume(2000, DEADLINE_S)) == 2000
    assert gateway.in_flight_max == 1


def test_one_record_that_is_larger_than_every_limit_comes_alone(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("one", 0, [b"s", b"x" * 300_000, b"e"])
    consumer = make(
        queued_max_messages_kbytes=64, max_partition_fetch_bytes=1000, fetch_max_bytes=1000
    )
    consumer.assign([ONE])
    assert [len(v or b"") for v in values(consumer.consume(3, DEADLINE_S))] == [1, 300_000, 1]


def test_assign_keeps_the_place_of_partitions_that_stay(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    gateway.append("t", 0, [b"a", b"b"])
    gateway.append("t", 1, [b"x"])
    consumer = make()
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    consumer.assign([zero])
    found = values(consumer.consume(1, DEADLINE_S))
    consumer.assign([zero, one])
    found += values(consumer.consume(2, DEADLINE_S))
    assert sorted(v or b"" for v in found) == [b"a", b"b", b"x"]
    assert consumer.assignment() == [zero, one]
    consumer.unassign()
    assert consumer.assignment() == []
    assert consumer.poll(0.01) is None


def test_watermarks_and_offsets_for_times(gateway: FakeLogGateway, make: MakeConsumer) -> None:
    for timestamp_ms in (1000, 2000, 3000):
        gateway.append("one", 0, [b"a"], timestamp_ms=timestamp_ms)
    gateway.trim("one", 0, 1)
    consumer = make()
    assert consumer.get_watermark_offsets(ONE, DEADLINE_S) == (1, 3)
    assert consumer.get_watermark_offsets(ONE, cached=True) == (OFFSET_INVALID, OFFSET_INVALID)
    found = consumer.offsets_for_times([TopicPartition("one", 0, 2500)])
    assert [tp.offset for tp in found] == [2]
    found = consumer.offsets_for_times([TopicPartition("one", 0, 9000)])
    assert [tp.offset for tp in found] == [OFFSET_END]
    consumer.assign([ONE])
    assert len(consumer.consume(2, DEADLINE_S)) == 2
    assert consumer.get_watermark_offsets(ONE, cached=True) == (1, 3)


def test_two_threads_at_once_are_an_error_and_one_after_the_other_is_not(
    gateway: FakeLogGateway, make: MakeConsumer
) -> None:
    consumer = make()
    consumer.assign([ONE])
    polled = threading.Thread(target=lambda: consumer.poll(DEADLINE_S))
    polled.start()

    def refused() -> bool:
        try:
            consumer.position([ONE])
        except RuntimeError:
            return True
        return False

    wait_until(refused)
    with pytest.raises(RuntimeError, match="two threads"):
        consumer.poll(0)
    gateway.append("one", 0, [b"a"])
    polled.join(DEADLINE_S)
    assert consumer.position([ONE])[0].offset == 1


def test_a_closed_consumer_says_so(make: MakeConsumer) -> None:
    consumer = make()
    consumer.assign([ONE])
    consumer.close()
    consumer.close()
    with pytest.raises(ConsumerClosedError):
        consumer.poll(0)
    with pytest.raises(ConsumerClosedError):
        consumer.assign([])


def test_what_needs_a_group_says_so_without_one(make: MakeConsumer) -> None:
    consumer = make()
    with pytest.raises(ConfigError, match=r"group\.id"):
        consumer.subscribe(["t"])
    with pytest.raises(ConfigError, match=r"group\.id"):
        consumer.commit(asynchronous=False)
    with pytest.raises(ConfigError, match=r"group\.id"):
        consumer.committed([ONE])


def test_a_query_that_nobody_answers_ends_with_its_timeout(
    gateway: FakeLogGateway, make: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = make()
    gateway.stop()
    with caplog.at_level(logging.CRITICAL), pytest.raises(MainstemError) as caught:
        consumer.get_watermark_offsets(ONE, timeout=0.2)
    assert caught.value.retriable
    gateway.start()

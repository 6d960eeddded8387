"""The producer against a gateway in memory: what is stored where, and what the caller is told."""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

from mainstem.client import BatchMetadata, Producer, RecordMetadata, TopicMetadata
from mainstem.errors import (
    InvalidRecordError,
    InvalidTopicError,
    MainstemError,
    ProducerClosedError,
    RecordTooLargeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from mainstem.protocol.v1 import log_pb2
from mainstem.records import partition_for_key
from mainstem.testing import FakeGateway, Fault

MakeProducer = Callable[..., Producer]
Report = tuple[MainstemError | None, RecordMetadata]


def test_records_with_keys_are_placed_as_kafka_does_and_keep_their_order(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    keys = [b"key-%d" % (number % 17) for number in range(10_000)]
    for number, key in enumerate(keys):
        producer.produce("t", b"%d" % number, key)
    assert producer.flush() == 0
    for partition, records in enumerate(gateway.records("t")):
        wanted = [
            b"%d" % number
            for number, key in enumerate(keys)
            if partition_for_key(key, 3) == partition
        ]
        assert [record.value for record in records] == wanted


def test_callbacks_and_futures_get_the_offset_of_their_own_record_when_rows_are_reordered(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    reports: dict[int, Report] = {}
    futures = {}
    for number in range(20_000):
        value, key = b"%d" % number, b"k%d" % (number % 7)
        if number % 3 == 0:
            futures[number] = producer.send("t", value, key, timestamp=1_000 + number)
        elif number % 3 == 1:

            def note(error: MainstemError | None, where: RecordMetadata, n: int = number) -> None:
                reports[n] = (error, where)

            producer.produce("t", value, key, on_delivery=note)
        else:
            producer.produce("t", value, key)
    assert producer.flush() == 0
    stored = gateway.records("t")
    for number, (error, where) in reports.items():
        assert error is None
        record = stored[where.partition][where.offset]
        assert (record.value, record.timestamp_ms) == (b"%d" % number, where.timestamp)
    for number, future in futures.items():
        where = future.result(0)
        assert stored[where.partition][where.offset].value == b"%d" % number
        assert where.timestamp == 1_000 + number
        assert where.topic == "t"
        assert where.table_version >= 1
    assert len(reports) + len(futures) == sum(number % 3 != 2 for number in range(20_000))


def test_null_and_empty_stay_apart_in_key_value_and_headers(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    rows: list[tuple[bytes | None, bytes | None]] = [
        (None, None),
        (b"", b""),
        (None, b""),
        (b"", None),
        (b"k", b"v"),
    ]
    for key, value in rows:
        producer.produce("one", value, key)
    producer.produce("one", b"h", headers=[("a", None), ("b", b""), ("a", "ü")])
    producer.produce("one", b"d", headers={"x": b"1"})
    producer.produce("one", b"none", headers=[])
    producer.flush()
    (records,) = gateway.records("one")
    assert [(record.key, record.value) for record in records[:5]] == rows
    assert records[5].headers == (("a", None), ("b", b""), ("a", "ü".encode()))
    assert records[6].headers == (("x", b"1"),)
    assert records[7].headers == ()


def test_text_becomes_utf_8_and_other_types_are_refused_by_name(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    producer.produce("one", "wört", "schlüssel")
    producer.produce("one", bytearray(b"a"), memoryview(b"b"))
    producer.flush()
    (records,) = gateway.records("one")
    assert [(r.key, r.value) for r in records] == [
        ("schlüssel".encode(), "wört".encode()),
        (b"b", b"a"),
    ]
    with pytest.raises(TypeError, match="value is a dict"):
        producer.produce("one", {"a": 1})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="key is a int"):
        producer.produce("one", b"", 7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="header"):
        producer.produce("one", b"", headers=[(b"a", b"b")])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="timestamp is a float"):
        producer.produce("one", b"", timestamp=1.5)  # type: ignore[arg-type]


def test_timestamps_are_kept_and_the_time_of_produce_stands_in(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    for timestamp in (1, 253_402_300_799_999, 0, None):
        producer.produce("one", b"", timestamp=timestamp)
    producer.flush()
    first, last, zero, none = (record.timestamp_ms for record in gateway.records("one")[0])
    assert (first, last) == (1, 253_402_300_799_999)
    assert 1_700_000_000_000 < zero <= none
    with pytest.raises(InvalidRecordError, match="-5 ms"):
        producer.produce("one", b"", timestamp=-5)


def _partitions_of_batches(producer: Producer, count: int) -> list[int]:
    """Where each of `count` batches of records without a key went; none is spread."""
    used = []
    for number in range(count):
        where = [producer.send("t", b"%d" % number) for _ in range(10)]
        producer.flush()
        (partition,) = {future.result(0).partition for future in where}
        used.append(partition)
    return used


def test_records_without_a_key_stick_to_a_partition_until_their_batch_is_over(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(
        linger_ms=60_000, delivery_timeout_ms=120_000, sticky_partitioning_linger_ms=0
    )
    used = _partitions_of_batches(producer, 4)
    assert all(before != after for before, after in itertools.pairwise(used))


def test_batches_without_keys_stick_to_a_partition_for_the_sticky_linger(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    one_batch_each = {"linger_ms": 60_000, "delivery_timeout_ms": 120_000}  # ended by flush()
    stays = make_producer(**one_batch_each, sticky_partitioning_linger_ms=60_000)
    assert len(set(_partitions_of_batches(stays, 4))) == 1
    moves = make_producer(**one_batch_each, sticky_partitioning_linger_ms=1)
    used = []
    for _ in range(4):
        used += _partitions_of_batches(moves, 1)
        time.sleep(0.002)
        # The batch that comes after the linger still goes there, and is the last.
        used += _partitions_of_batches(moves, 1)
    assert len(set(used)) > 1


def test_a_full_batch_moves_records_without_a_key_on(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(batch_size=1_000)
    for _ in range(300):
        producer.produce("t", bytes(100))
    producer.flush()
    assert all(len(records) > 0 for records in gateway.records("t"))


def test_round_robin_deals_records_out_evenly_whatever_their_key(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(partitioner="round_robin")
    for number in range(9):
        producer.produce("t", b"%d" % number, b"same")
        if number == 4:
            producer.flush()
    producer.flush()
    assert gateway.values("t") == [
        [b"0", b"3", b"6"],
        [b"1", b"4", b"7"],
        [b"2", b"5", b"8"],
    ]


def test_a_function_places_records_and_what_it_does_wrong_comes_out_of_produce(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(partitioner=lambda key, count: (len(key) if key else 0) % count)
    for key in (None, b"a", b"bb", b"ccc"):
        producer.produce("t", key, key)
    producer.produce("t", b"explicit", b"a", partition=2)
    producer.flush()
    assert gateway.values("t") == [[None, b"ccc"], [b"a"], [b"bb", b"explicit"]]
    with pytest.raises(UnknownPartitionError, match="0 to 2"):
        make_producer(partitioner=lambda key, count: 3).produce("t", b"")
    with pytest.raises(TypeError, match="must return an int"):
        make_producer(partitioner=lambda key, count: "0").produce("t", b"")


def test_an_explicit_partition_is_taken_and_one_that_is_not_there_refused(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    producer.produce("t", b"a", b"k", partition=2)
    producer.produce("t", b"b", b"k", 0)
    producer.flush()
    assert gateway.values("t") == [[b"b"], [], [b"a"]]
    for partition in (3, -2):
        with pytest.raises(UnknownPartitionError, match="partitions 0 to 2"):
            producer.produce("t", b"c", partition=partition)


def test_a_partition_that_was_added_is_found_when_it_is_named(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    producer.produce("t", b"a", partition=0)
    gateway.topics["t"].grow(5)
    producer.produce("t", b"b", partition=4)
    producer.flush()
    assert gateway.values("t")[4] == [b"b"]
    assert producer.partitions_for("t") == 5


def test_a_partition_that_was_added_is_used_after_the_metadata_aged(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(metadata_max_age_ms=20, partitioner="round_robin")
    producer.produce("one", b"a")
    gateway.topics["one"].grow(2)
    for _ in range(500):
        producer.produce("one", b"b")
        producer.flush()
        if gateway.values("one")[1]:
            break
        threading.Event().wait(0.01)
    assert gateway.values("one")[1]


def test_an_unknown_topic_is_an_error_at_once_and_a_wrong_name_too(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    with pytest.raises(UnknownTopicError, match="nowhere"):
        producer.produce("nowhere", b"")
    with pytest.raises(InvalidTopicError):
        producer.produce("no/where", b"")
    assert len(producer) == 0


def test_a_topic_that_is_deleted_fails_its_records_and_then_produce_says_so(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    assert producer.send("t", b"").result(10).offset == 0
    del gateway.topics["t"]
    assert isinstance(producer.send("t", b"").exception(10), UnknownTopicError)
    with pytest.raises(UnknownTopicError):
        producer.produce("t", b"")


def test_callbacks_run_in_poll_and_not_before_and_are_counted(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    threads = []
    for _ in range(3):
        producer.produce("one", b"", callback=lambda e, m: threads.append(threading.get_ident()))
    producer.send("one", b"").result(10)
    assert threads == []
    assert len(producer) == 3, "reports count until they are served"
    served = 0
    while served < 3:
        served += producer.poll(10)
    assert threads == [threading.get_ident()] * 3
    assert producer.poll() == 0
    assert len(producer) == 0


def test_an_exception_in_a_callback_comes_out_of_poll_and_the_others_are_kept(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(linger_ms=5)
    called = []

    def fail(error: MainstemError | None, where: RecordMetadata) -> None:
        raise ZeroDivisionError

    producer.produce("one", b"", on_delivery=fail)
    producer.produce("one", b"", on_delivery=lambda error, where: called.append(where.offset))
    producer.send("one", b"after them").result(10)
    with pytest.raises(ZeroDivisionError):
        producer.poll(10)
    assert producer.poll(10) == 1
    assert called == [1]


def test_a_callback_may_produce_again(gateway: FakeGateway, make_producer: MakeProducer) -> None:
    producer = make_producer()
    producer.produce("one", b"a", on_delivery=lambda e, m: producer.produce("one", b"b"))
    producer.flush()
    producer.flush()
    assert gateway.values("one") == [[b"a", b"b"]]


def test_a_single_record_goes_after_linger_without_flush(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    assert make_producer(linger_ms=1).send("one", b"").result(10).offset == 0
    assert make_producer(linger_ms=0).send("one", b"").result(10).offset == 1


def test_records_within_linger_share_a_request(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(linger_ms=60_000, delivery_timeout_ms=200_000)
    for topic in ("one", "t"):
        for _ in range(100):
            producer.produce(topic, b"x")
    producer.flush()
    assert Counter(request.topic for request in gateway.requests) == {"one": 1, "t": 1}


def test_a_full_batch_goes_before_linger_is_over(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(linger_ms=600_000, delivery_timeout_ms=700_000, batch_size=1_000)
    future = producer.send("one", bytes(400))
    producer.produce("one", bytes(400))
    producer.produce("one", bytes(400))
    assert future.result(10).offset == 0


def test_a_record_larger_than_a_batch_travels_alone(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(batch_size=1_000, linger_ms=60_000, delivery_timeout_ms=200_000)
    for size in (10, 5_000, 20):
        producer.produce("one", bytes(size))
    producer.flush()
    assert [len(v or b"") for v in gateway.values("one")[0]] == [10, 5_000, 20]
    assert [sum(r.row_count for r in q.arrow.ranges) for q in gateway.requests] == [1, 1, 1]


def test_a_record_larger_than_a_request_is_refused_with_size_and_limit(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(max_request_size=1_000)
    producer.produce("one", bytes(1_000))
    with pytest.raises(RecordTooLargeError, match=r"1001 bytes.*1000 bytes"):
        producer.produce("one", bytes(1_000), b"k")
    assert producer.flush() == 0


def test_while_all_slots_are_taken_the_next_request_grows(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    answer = threading.Event()

    def wait(request: object) -> None:
        assert answer.wait(60)

    producer = make_producer(batch_size=100, max_in_flight_requests_per_connection=1, linger_ms=0)
    producer.send("t", b"the first request waits for a producer id").result(10)
    gateway.on_produce = wait
    for _ in range(50):
        producer.produce("one", bytes(50))
    answer.set()
    producer.flush()
    counts = [sum(r.row_count for r in request.arrow.ranges) for request in gateway.requests[1:]]
    # The last record may still have been open when the slot became free.
    assert counts in ([1, 49], [1, 48, 1])


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd", "gzip"])
def test_every_compression_arrives_the_same(
    gateway: FakeGateway, make_producer: MakeProducer, compression: str
) -> None:
    producer = make_producer(compression_type=compression)
    for number in range(1_000):
        producer.produce("one", b"%d" % number * 20, headers={"n": str(number)})
    producer.flush()
    (records,) = gateway.records("one")
    assert [r.value for r in records] == [b"%d" % number * 20 for number in range(1_000)]
    assert records[999].headers == (("n", b"999"),)


def test_a_request_that_compresses_well_stays_small_unpacked(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    answer = threading.Event()

    def wait(request: object) -> None:
        assert answer.wait(60)

    gateway.on_produce = wait
    producer = make_producer(
        compression_type="zstd",
        batch_size=10_000,
        max_request_size=50_000,
        max_in_flight_requests_per_connection=1,
    )
    for _ in range(400):
        producer.produce("one", bytes(984))
    answer.set()
    producer.flush()
    counts = [sum(r.row_count for r in request.arrow.ranges) for request in gateway.requests]
    assert sum(counts) == 400
    assert max(counts) <= 50, "the gateway limits what a request unpacks to"


def test_records_with_and_without_headers_keep_their_order(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(batch_size=300)
    for number in range(200):
        producer.produce("one", b"%d" % number, headers={"a": "b"} if number % 20 < 3 else None)
    producer.flush()
    assert gateway.values("one") == [[b"%d" % number for number in range(200)]]


def test_acks_0_reports_no_offset(gateway: FakeGateway, make_producer: MakeProducer) -> None:
    producer = make_producer(acks=0)
    where = producer.send("one", b"").result(10)
    assert (where.offset, where.table_version) == (-1, -1)
    assert gateway.requests[0].acks == log_pb2.ACKS_NONE


def test_several_threads_share_a_producer_and_each_keeps_its_order(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(batch_size=2_000)

    def run(name: int) -> None:
        for number in range(3_000):
            producer.produce("t", b"%d:%d" % (name, number), b"%d" % name)

    threads = [threading.Thread(target=run, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush()
    everything = [value for part in gateway.values("t") for value in part]
    assert len(everything) == 12_000
    for name in range(4):
        own = [v for v in everything if v is not None and v.startswith(b"%d:" % name)]
        assert own == [b"%d:%d" % (name, number) for number in range(3_000)]


def test_close_flushes_and_may_be_called_again(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(linger_ms=60_000, delivery_timeout_ms=200_000)
    called: list[int] = []
    producer.produce("one", b"", on_delivery=lambda e, m: called.append(m.offset))
    producer.close()
    producer.close()
    assert called == [0]
    for use in (
        lambda: producer.produce("one", b""),
        lambda: producer.send("one", b""),
        lambda: producer.produce_batch("one", pa.record_batch({"value": [b""]})),
        lambda: producer.partitions_for("one"),
        producer.list_topics,
    ):
        with pytest.raises(ProducerClosedError, match="closed"):
            use()
    assert producer.flush() == 0
    assert producer.poll() == 0


def _fail_after(producer: Producer) -> None:
    producer.produce("one", b"")
    raise KeyError


def test_a_producer_closes_with_its_block_and_an_exception_of_the_block_wins(
    gateway: FakeGateway,
) -> None:
    gateway.on_produce = lambda request: InvalidRecordError("bad")
    with (
        pytest.raises(KeyError),
        Producer({"bootstrap.servers": gateway.address}) as producer,
    ):
        _fail_after(producer)


def test_a_failure_that_nobody_asked_about_is_logged_and_raised_by_the_next_flush_once(
    gateway: FakeGateway, make_producer: MakeProducer, caplog: pytest.LogCaptureFixture
) -> None:
    producer = make_producer()
    gateway.on_produce = lambda request: InvalidRecordError("record 0 is bad", record_index=0)
    for _ in range(3):
        producer.produce("one", b"")
    with (
        caplog.at_level(logging.ERROR, "mainstem.client"),
        pytest.raises(InvalidRecordError, match=r"3 records were not delivered.*record 0 is bad"),
    ):
        producer.flush()
    assert "3 records of topic one were not delivered" in caplog.text
    assert producer.flush() == 0


def test_a_failure_reaches_callback_and_future_with_the_record_that_failed(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    gateway.on_produce = lambda request: InvalidRecordError("bad")
    reports: list[Report] = []
    producer.produce("t", b"", partition=1, on_delivery=lambda e, m: reports.append((e, m)))
    future = producer.send("t", b"")
    assert producer.flush() == 0
    assert isinstance(future.exception(0), InvalidRecordError)
    ((error, where),) = reports
    assert isinstance(error, InvalidRecordError)
    assert (where.topic, where.partition, where.offset, where.table_version) == ("t", 1, -1, -1)


def test_a_batch_in_columns_is_placed_reported_and_ordered_with_single_records(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    producer.produce("t", b"before", partition=1)
    batch = pa.record_batch(
        {
            "key": pa.array([b"a", None, b"c", b"d"]),
            "value": pa.array(["0", None, "", "3"]),
            "timestamp": pa.array([7, 8, None, 10], pa.int64()),
            "headers": pa.array(
                [[{"key": "h", "value": b"1"}], None, [], []],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
            "partition": pa.array([1, 0, 1, None], pa.int32()),
        }
    )
    found = producer.produce_batch("t", batch).result(10)
    producer.produce("t", b"after", partition=1)
    producer.flush()
    assert isinstance(found, BatchMetadata)
    assert found.record_count == 4
    stored = gateway.records("t")
    placed = partition_for_key(b"d", 3)
    assert [r.value for r in stored[1] if r.value != b"3"] == [b"before", b"0", b"", b"after"]
    assert b"3" in [r.value for r in stored[placed]]
    assert stored[0][0].value is None
    assert stored[1][1].headers == (("h", b"1"),)
    assert stored[1][1].timestamp_ms == 7
    one = next(part for part in found.offsets if part.partition == 1)
    assert stored[1][one.base_offset].value == b"0"


def test_a_batch_larger_than_a_request_goes_in_parts_and_its_future_tells_all(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(max_request_size=2_000)
    values = [b"%04d" % number * 20 for number in range(100)]
    batch = pa.record_batch({"value": values, "partition": pa.array([0] * 100, pa.int32())})
    found = producer.produce_batch("t", batch).result(10)
    assert len(gateway.requests) > 3
    assert found.record_count == 100
    assert found.table_version == gateway.topics["t"].table_version
    stored = gateway.values("t")[0]
    assert stored == values
    following = 0
    for part in found.offsets:
        assert part.base_offset == following
        following += part.record_count


def test_a_wrong_batch_is_refused_and_nothing_of_it_is_queued(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(max_request_size=1_000, buffer_memory=5_000)
    with pytest.raises(InvalidRecordError, match="no column 'value'"):
        producer.produce_batch("t", pa.record_batch({"key": [b""]}))
    with pytest.raises(InvalidRecordError, match="'partition'"):
        producer.produce_batch("t", pa.record_batch({"value": [b""], "partition": ["x"]}))
    with pytest.raises(UnknownPartitionError):
        producer.produce_batch("t", pa.record_batch({"value": [b""], "partition": [9]}))
    with pytest.raises(RecordTooLargeError, match="row 1"):
        producer.produce_batch("t", pa.record_batch({"value": [b"", bytes(1_001)]}))
    with pytest.raises(BufferError, match="smaller batches"):
        producer.produce_batch("t", pa.record_batch({"value": [bytes(900)] * 6}))
    with pytest.raises(TypeError, match="to_batches"):
        producer.produce_batch("t", pa.table({"value": [b""]}))
    assert len(producer) == 0
    empty = producer.produce_batch("t", pa.record_batch({"value": pa.array([], pa.binary())}))
    assert empty.result(0).offsets == ()


def test_topics_can_be_listed(gateway: FakeGateway, make_producer: MakeProducer) -> None:
    topics = make_producer().list_topics()
    assert sorted(topics) == ["one", "t"]
    assert topics["t"] == TopicMetadata("t", gateway.topics["t"].topic_id, 3, gateway.address)


def test_a_program_that_ends_without_close_is_told_what_it_loses(gateway: FakeGateway) -> None:
    gateway.on_produce = lambda request: Fault.SILENCE
    program = (
        "from mainstem.client import Producer\n"
        f"producer = Producer({{'bootstrap.servers': '{gateway.address}'}})\n"
        "producer.produce('one', b'')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0
    assert "1 of its records were not acknowledged" in ended.stderr


def test_a_forked_child_is_refused_clearly_and_may_close(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(linger_ms=60_000, delivery_timeout_ms=200_000)
    future = producer.send("one", b"")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            producer.produce("one", b"")
        except ProducerClosedError as error:
            producer.close()
            status = 0 if "forked child" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert producer.flush() == 0
    assert future.result(0).offset == 0

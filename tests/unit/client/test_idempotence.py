"""The idempotent producer against a gateway that forgets, refuses, fences and loses answers."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable

import pyarrow as pa
import pytest

from mainstem.client import Producer
from mainstem.errors import (
    BackPressureError,
    DeliveryTimeoutError,
    InternalError,
    InvalidRecordError,
    MainstemError,
    ProducerFencedError,
    ShuttingDownError,
    StoreUnavailableError,
)
from mainstem.protocol.v1 import log_pb2
from mainstem.testing import FakeGateway, FakeRun, Fault

MakeProducer = Callable[..., Producer]
Verdict = MainstemError | Fault | None

pytestmark = pytest.mark.fault


def only(times: int, fault: Verdict, topic: str = "") -> Callable[[object], Verdict]:
    """Answers `times` requests with the fault, of one topic if it is named."""
    count = 0

    def decide(request: log_pb2.ProduceRequest) -> Verdict:
        nonlocal count
        if topic in ("", request.topic):
            count += 1
            return fault if count <= times else None
        return None

    return decide  # type: ignore[return-value]


def identities(gateway: FakeGateway, topic: str = "one") -> list[int]:
    """The producer ids of a topic's requests, each once, in order."""
    ids = [request.producer_id for request in gateway.requests if request.topic == topic]
    return [number for number, _ in itertools.groupby(ids)]


def test_all_topics_share_one_producer_id_and_count_each_partition_from_0(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(linger_ms=60_000, delivery_timeout_ms=200_000)
    for _ in range(2):
        for number in range(6):
            producer.produce("t", b"", partition=number % 2)
            producer.produce("one", b"")
        producer.flush()
    assert gateway.producer_count == 1
    assert {request.producer_id for request in gateway.requests} == {1}
    found = [
        [(r.partition, r.base_sequence, r.row_count) for r in request.arrow.ranges]
        for request in gateway.requests
        if request.topic == "t"
    ]
    assert found == [[(0, 0, 3), (1, 0, 3)], [(0, 3, 3), (1, 3, 3)]]


@pytest.mark.parametrize("settings", [{"acks": 0}, {"acks": 1}, {"enable.idempotence": False}])
def test_without_idempotence_no_producer_id_is_asked_for(
    gateway: FakeGateway, make_producer: MakeProducer, settings: dict[str, object]
) -> None:
    make_producer(**settings).send("one", b"").result(10)
    assert gateway.producer_count == 0
    assert gateway.requests[0].producer_id == 0


def test_a_producer_that_was_idle_past_expiry_goes_on_and_its_caller_notices_nothing(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(batch_size=200)
    sent = [producer.send("t", b"%d" % number, partition=number % 3) for number in range(100)]
    producer.flush()
    gateway.forget_producers()
    sent += [producer.send("t", b"%d" % number, partition=number % 3) for number in range(100, 300)]
    producer.flush()
    stored = gateway.values("t")
    for number, future in enumerate(sent):
        where = future.result(0)
        assert stored[where.partition][where.offset] == b"%d" % number
    assert sum(map(len, stored)) == 300
    assert identities(gateway, "t") == [1, 2]


def test_a_record_that_the_gateway_refuses_for_good_fails_alone_and_those_behind_it_arrive_once(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    refused = threading.Event()

    def decide(request: log_pb2.ProduceRequest) -> Verdict:
        refused.wait(10)
        bad = b"bad" in request.arrow.ipc_stream
        return InvalidRecordError("record 0 is bad") if bad else None

    gateway.on_produce = decide
    producer = make_producer(linger_ms=0, batch_size=1)
    bad = producer.send("t", b"bad", partition=0)
    good = [producer.send("t", b"%d" % number, partition=number % 3) for number in range(30)]
    other = [producer.send("one", b"%d" % number) for number in range(5)]
    refused.set()
    assert producer.flush() == 0
    assert isinstance(bad.exception(0), InvalidRecordError)
    for partition, values in enumerate(gateway.values("t")):
        assert values == [b"%d" % number for number in range(30) if number % 3 == partition]
    assert all(future.exception(0) is None for future in good + other)
    assert gateway.values("one") == [[b"%d" % number for number in range(5)]]
    assert identities(gateway, "one") == [1], "the other topic has no gap"


def test_a_second_topic_with_a_gap_takes_the_id_that_the_first_one_got(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    for topic in ("one", "t"):
        producer.send(topic, b"a", partition=0).result(10)
    gateway.forget_producers()
    for topic in ("one", "t"):
        producer.send(topic, b"b", partition=0).result(10)
    assert gateway.producer_count == 2
    assert identities(gateway, "one") == identities(gateway, "t") == [1, 2]


def test_a_place_that_the_gateway_has_forgotten_is_reported_as_offset_minus_1(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    gateway.on_produce = only(1, Fault.BREAK_AFTER)
    first = gateway.topics["t"].producers

    def lose_the_place(request: log_pb2.ProduceRequest) -> None:
        gateway.before_answer = None
        for base in range(2, 12, 2):
            first.accept(request.producer_id, 0, [FakeRun(0, base, 2)], [base])

    gateway.before_answer = lose_the_place
    batch = pa.record_batch({"value": [b"a", b"b"], "partition": pa.array([0, 0], pa.int32())})
    reports = []
    found = producer.produce_batch("t", batch).result(10)
    assert found.offsets == ((0, -1, 2),)
    assert gateway.values("t")[0] == [b"a", b"b"]
    gateway.forget_producers()
    producer.produce("t", b"c", partition=0, on_delivery=lambda e, m: reports.append((e, m.offset)))
    producer.flush()
    assert reports == [(None, 2)]


def test_an_answer_that_is_late_makes_one_copy(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    late = threading.Event()

    def wait(request: object) -> None:
        if not late.is_set():
            late.set()
            time.sleep(0.5)

    gateway.before_answer = wait
    producer = make_producer(request_timeout_ms=200)
    assert producer.send("one", b"a").result(20).offset == 0
    assert gateway.values("one") == [[b"a"]]
    assert gateway.duplicate_count >= 1


def test_a_producer_that_is_fenced_fails_what_it_has_and_every_later_call(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(linger_ms=0)
    told: list[MainstemError | None] = []
    producer.send("t", b"").result(10)
    gateway.on_produce = only(1, ProducerFencedError("epoch 1 is in force"))
    producer.produce("one", b"", on_delivery=lambda e, m: told.append(e))
    with pytest.raises(ProducerFencedError):
        producer.flush()
    for use in (
        lambda: producer.produce("one", b""),
        lambda: producer.send("t", b""),
        lambda: producer.produce_batch("t", pa.record_batch({"value": [b""]})),
        lambda: producer.partitions_for("one"),
        producer.list_topics,
        producer.flush,
    ):
        with pytest.raises(ProducerFencedError, match="epoch 1"):
            use()
    (error,) = told  # flush() served the report before it raised
    assert isinstance(error, ProducerFencedError)
    assert len(producer) == 0
    producer.close()


def test_a_thread_that_produces_while_the_producer_is_fenced_learns_it(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(linger_ms=0)
    caught: list[MainstemError] = []

    def produce() -> None:
        try:
            while True:
                producer.send("t", b"").add_done_callback(lambda future: future.exception())
        except ProducerFencedError as error:
            caught.append(error)

    thread = threading.Thread(target=produce)
    thread.start()
    producer.send("one", b"").result(10)
    gateway.on_produce = only(1, ProducerFencedError("epoch 1 is in force"))
    thread.join(30)
    assert len(caught) == 1


def test_a_producer_id_is_asked_for_until_a_gateway_gives_one(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    asked = itertools.count(1)
    gateway.on_init_producer = lambda: ShuttingDownError("draining") if next(asked) < 4 else None
    assert make_producer().send("one", b"").result(10).offset == 0
    assert next(asked) == 5


def test_a_producer_id_that_nobody_gives_in_time_is_named_by_the_timeout(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    gateway.on_init_producer = lambda: StoreUnavailableError("no store for producers")
    producer = make_producer(linger_ms=0, request_timeout_ms=300, delivery_timeout_ms=300)
    error = producer.send("one", b"").exception(10)
    assert isinstance(error, DeliveryTimeoutError)
    assert "never sent" in str(error)
    assert "no store for producers" in str(error)


def test_an_error_that_no_retry_cures_fails_the_records_that_wait_for_a_producer_id(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    asked = threading.Event()

    def refuse() -> MainstemError:
        asked.set()
        return InternalError("broken")

    gateway.on_init_producer = refuse
    producer = make_producer()
    producer.partitions_for("one")
    assert asked.wait(10), "an id is asked for before there is a record"
    assert isinstance(producer.send("one", b"a").exception(10), InternalError)
    gateway.on_init_producer = None
    assert producer.send("one", b"b").result(10).offset == 0
    assert gateway.values("one") == [[b"b"]]


def test_records_that_time_out_are_stored_at_most_once_and_the_others_once_and_in_order(
    gateway: FakeGateway, make_producer: MakeProducer, rng: random.Random
) -> None:
    lock = threading.Lock()

    def decide(request: log_pb2.ProduceRequest) -> Verdict:
        with lock:
            draw = rng.random()
        if draw < 0.1:
            return Fault.BREAK_AFTER
        if draw < 0.2:
            return Fault.BREAK
        if draw < 0.35:
            return BackPressureError("full", retry_delay_ms=rng.randrange(60))
        if draw < 0.38:
            return InvalidRecordError("no")
        return None

    gateway.on_produce = decide
    producer = make_producer(
        linger_ms=0, batch_size=500, request_timeout_ms=100, delivery_timeout_ms=100
    )
    sent = []
    for number in range(2_000):
        sent.append(producer.send("t", b"%d" % number, partition=number % 3))
        if number % 20 == 0:
            time.sleep(0.001)
    producer.flush()
    gateway.on_produce = None
    stored = gateway.values("t")
    for values in stored:
        assert len(set(values)) == len(values), "none is stored twice"
        assert values == sorted(values, key=lambda value: int(value or b"0"))
    for number, future in enumerate(sent):
        error = future.exception(0)
        if error is None:
            where = future.result(0)
            assert b"%d" % number in stored[where.partition]
            assert where.offset == -1 or stored[where.partition][where.offset] == b"%d" % number
        else:
            assert isinstance(error, (DeliveryTimeoutError, InvalidRecordError))


@pytest.mark.parametrize("forgets", [False, True])
def test_whatever_the_gateway_does_each_record_is_stored_once_and_in_order(
    gateway: FakeGateway, make_producer: MakeProducer, rng: random.Random, forgets: bool
) -> None:
    def decide(request: log_pb2.ProduceRequest) -> Verdict:
        draw = rng.random()
        if draw < 0.1 and not forgets:
            return Fault.BREAK_AFTER
        if draw < 0.2 and not forgets:
            return Fault.BREAK
        if draw < 0.3:
            return BackPressureError("full", retry_delay_ms=1)
        if draw < 0.4 and forgets:
            gateway.forget_producers()
        return None

    producer = make_producer(batch_size=500)
    producer.partitions_for("t")
    gateway.on_produce = decide
    sent = []
    for number in range(3_000):
        sent.append(producer.send("t", b"%d" % number, partition=number % 3))
        if number % 100 == 0:
            time.sleep(0.002)
    producer.flush()
    stored = gateway.values("t")
    for partition, values in enumerate(stored):
        assert values == [b"%d" % number for number in range(3_000) if number % 3 == partition]
    for number, future in enumerate(sent):
        where = future.result(0)
        assert where.offset == -1 or stored[where.partition][where.offset] == b"%d" % number

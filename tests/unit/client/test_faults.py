"""The producer while the gateway refuses, breaks, forgets to answer, or is away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import pyarrow as pa
import pytest

from mainstem.client import Producer, RecordMetadata
from mainstem.errors import (
    BackPressureError,
    DeliveryTimeoutError,
    GatewayUnavailableError,
    MainstemError,
    NotLeaderError,
    ProducerClosedError,
    QueueFullError,
    ShuttingDownError,
    StoreUnavailableError,
)
from mainstem.protocol.v1 import log_pb2
from mainstem.testing import FakeGateway, Fault

MakeProducer = Callable[..., Producer]
Verdict = MainstemError | Fault | None

pytestmark = pytest.mark.fault


DEADLINE_S = 60.0


def first_copies(values: list[bytes | None]) -> list[bytes | None]:
    return list(dict.fromkeys(values))


def failing(times: int, fault: Verdict, after: int = 0) -> Callable[[object], Verdict]:
    """Lets `after` requests pass, then answers `times` with the fault."""
    count = 0

    def decide(request: object) -> Verdict:
        nonlocal count
        count += 1
        return fault if after < count <= after + times else None

    return decide


def test_order_is_kept_and_nothing_lost_over_restarts_of_the_gateway(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(batch_size=2_000)
    stop = threading.Event()

    def restart() -> None:
        while not stop.wait(0.1):
            gateway.stop()
            gateway.start()

    restarts = threading.Thread(target=restart)
    restarts.start()
    streams_before = gateway.stream_count
    futures: list[Future[RecordMetadata]] = []
    deadline = time.monotonic() + DEADLINE_S
    try:
        # On a busy machine it takes longer until the gateway was restarted under way.
        while len(futures) < 5_000 or gateway.stream_count - streams_before <= 2:
            assert time.monotonic() < deadline
            number = len(futures)
            futures.append(producer.send("t", b"%d" % number, partition=number % 3))
            if number % 100 == 0:
                time.sleep(0.01)
    finally:
        stop.set()
        restarts.join()
    assert producer.flush() == 0
    stored = gateway.values("t")
    for partition in range(3):
        wanted = [b"%d" % number for number in range(partition, len(futures), 3)]
        assert stored[partition] == wanted
    for number, future in enumerate(futures):
        where = future.result(0)
        assert stored[where.partition][where.offset] == b"%d" % number


@pytest.mark.parametrize(
    "error",
    [
        BackPressureError("full", retry_delay_ms=1),
        ShuttingDownError("draining"),
        StoreUnavailableError("no store"),
        NotLeaderError("elsewhere"),
    ],
    ids=lambda error: str(error.code),
)
def test_a_retriable_refusal_is_tried_again_in_order_and_stored_once(
    gateway: FakeGateway, make_producer: MakeProducer, error: MainstemError
) -> None:
    producer = make_producer(batch_size=200)
    producer.send("one", b"the first request waits for a producer id").result(10)
    gateway.on_produce = failing(3, error, after=2)
    for number in range(500):
        producer.produce("t", b"%d" % number, partition=number % 3)
    assert producer.flush() == 0
    for partition, values in enumerate(gateway.values("t")):
        assert values == [b"%d" % number for number in range(500) if number % 3 == partition]
    assert sum(request.resume for request in gateway.requests) == 3


def test_another_topic_goes_on_while_one_is_refused(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    refuse = threading.Event()
    refuse.set()

    def decide(request: log_pb2.ProduceRequest) -> Verdict:
        full = BackPressureError("full", retry_delay_ms=10)
        return full if request.topic == "t" and refuse.is_set() else None

    gateway.on_produce = decide
    producer = make_producer()
    held = producer.send("t", b"")
    for number in range(5):
        assert producer.send("one", b"").result(10).offset == number
    assert not held.done()
    refuse.clear()
    assert held.result(10).offset == 0


@pytest.mark.parametrize("fault", [Fault.BREAK, Fault.BREAK_AFTER])
def test_a_broken_stream_is_opened_again_and_order_is_kept(
    gateway: FakeGateway, make_producer: MakeProducer, fault: Fault
) -> None:
    producer = make_producer(batch_size=200)
    producer.send("t", b"the first request waits for a producer id").result(10)
    gateway.on_produce = failing(3, fault, after=2)
    for number in range(300):
        producer.produce("one", b"%d" % number)
    assert producer.flush() == 0
    (values,) = gateway.values("one")
    assert values == [b"%d" % number for number in range(300)]
    assert (gateway.duplicate_count > 0) == (fault is Fault.BREAK_AFTER)


def test_without_idempotence_an_answer_that_is_lost_means_a_second_copy_in_order(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    gateway.on_produce = failing(3, Fault.BREAK_AFTER, after=2)
    producer = make_producer(batch_size=200, enable_idempotence=False)
    for number in range(300):
        producer.produce("one", b"%d" % number)
    assert producer.flush() == 0
    (values,) = gateway.values("one")
    assert first_copies(values) == [b"%d" % number for number in range(300)]
    assert len(values) > 300
    assert not any(request.producer_id for request in gateway.requests)


def test_a_request_without_an_answer_is_sent_again_on_a_new_stream(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    gateway.on_produce = failing(1, Fault.SILENCE)
    producer = make_producer(request_timeout_ms=300)
    assert producer.send("one", b"a").result(20).offset == 0
    assert gateway.stream_count >= 2
    assert gateway.values("one") == [[b"a"]]


def test_a_topic_that_gets_no_answers_holds_up_no_other(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    arrived = threading.Event()

    def never_answer(request: log_pb2.ProduceRequest) -> Fault | None:
        if request.topic != "one":
            return None
        arrived.set()
        return Fault.SILENCE

    gateway.on_produce = never_answer
    producer = make_producer(
        linger_ms=0, max_in_flight_requests_per_connection=1, delivery_timeout_ms=30_000
    )
    unanswered = producer.send("one", b"a")
    assert arrived.wait(20)
    assert producer.send("t", b"b", partition=0).result(20).offset == 0
    assert not unanswered.done()
    gateway.on_produce = None
    gateway.stop()
    gateway.start()
    assert unanswered.result(20).offset == 0


def test_the_leader_that_the_metadata_names_gets_the_records_after_not_leader(
    no_leaks: None,
) -> None:
    with FakeGateway({"one": 1}) as old, FakeGateway({"one": 1}) as new:
        old.on_produce = lambda request: NotLeaderError("moved", leader=new.address)
        with Producer({"bootstrap.servers": old.address, "retry.backoff.ms": 5}) as producer:
            first = producer.send("one", b"a")
            old.topics["one"].leader = new.address
            assert first.result(20).offset == 0
            assert producer.send("one", b"b").result(20).offset == 1
        assert new.values("one") == [[b"a", b"b"]]
        assert old.values("one") == [[]]
        assert old.violations + new.violations == []


def test_retries_exhausted_fail_the_record_with_the_last_error(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    gateway.on_produce = failing(2, StoreUnavailableError("no store"))
    producer = make_producer(retries=1)
    assert isinstance(producer.send("one", b"a").exception(10), StoreUnavailableError)
    assert producer.send("one", b"b").result(10).offset == 0


def test_a_record_that_nobody_acknowledges_fails_and_says_whether_it_was_sent(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(
        linger_ms=0,
        request_timeout_ms=400,
        delivery_timeout_ms=400,
        max_in_flight_requests_per_connection=1,
    )
    producer.partitions_for("one")
    gateway.on_produce = lambda request: Fault.SILENCE
    reports: list[tuple[MainstemError | None, RecordMetadata]] = []
    producer.produce("one", b"a", on_delivery=lambda e, m: reports.append((e, m)))
    queued = producer.send("one", b"b")
    assert producer.flush() == 0
    ((sent, where),) = reports
    assert isinstance(sent, DeliveryTimeoutError)
    assert "may still be in the log" in str(sent)
    assert where.offset == -1
    assert isinstance(queued.exception(0), DeliveryTimeoutError)
    gateway.on_produce = None


def test_records_expire_while_the_gateway_is_away_and_flush_raises(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(request_timeout_ms=100, delivery_timeout_ms=150)
    producer.partitions_for("one")
    gateway.stop()
    producer.produce("one", b"a")
    batch = producer.produce_batch("one", pa.record_batch({"value": [b"b"]}))
    with pytest.raises(DeliveryTimeoutError, match="1 records were not delivered"):
        producer.flush()
    assert isinstance(batch.exception(0), DeliveryTimeoutError)


def test_a_flush_with_a_timeout_says_how_many_are_left(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    producer.partitions_for("one")
    gateway.stop()
    for _ in range(3):
        producer.produce("one", b"")
    assert producer.flush(0.05) == 3
    assert len(producer) == 3
    gateway.start()
    assert producer.flush() == 0


def test_close_with_a_timeout_fails_what_is_left(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    producer.partitions_for("one")
    gateway.stop()
    future = producer.send("one", b"")
    producer.produce("one", b"")
    with pytest.raises(ProducerClosedError, match="1 records were not delivered"):
        producer.close(0.05)
    assert isinstance(future.exception(0), ProducerClosedError)
    producer.close()


def test_produce_waits_for_metadata_until_max_block_ms_and_says_what_to_check(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(max_block_ms=50)
    gateway.stop()
    with pytest.raises(GatewayUnavailableError, match=r"max\.block\.ms.*bootstrap\.servers"):
        producer.produce("one", b"")


def test_produce_finds_its_topic_when_the_gateway_comes_up_in_time(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    gateway.stop()
    later = threading.Timer(0.2, gateway.start)
    later.start()
    assert producer.send("one", b"").result(20).offset == 0
    later.join()


def test_the_second_bootstrap_server_serves_when_the_first_is_away(
    gateway: FakeGateway,
) -> None:
    away = FakeGateway().start()
    away.stop()
    with Producer({"bootstrap.servers": f"{away.address},{gateway.address}"}) as producer:
        assert producer.send("one", b"").result(20).offset == 0


def test_a_full_buffer_blocks_and_then_refuses_and_nothing_queued_is_lost(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    answer = threading.Event()

    def wait(request: object) -> Verdict:
        assert answer.wait(60)
        return None

    gateway.on_produce = wait
    producer = make_producer(buffer_memory=10_000, max_block_ms=500)
    for _ in range(10):
        producer.produce("one", bytes(984))
    with pytest.raises(QueueFullError, match=r"10000 bytes\) stayed full.*500 ms"):
        producer.produce("one", bytes(984))
    with pytest.raises(BufferError):
        producer.produce_batch("one", pa.record_batch({"value": [bytes(984)]}))
    answer.set()
    assert producer.flush() == 0
    assert len(gateway.values("one")[0]) == 10


def test_a_blocked_produce_goes_on_when_memory_becomes_free(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    gateway.on_produce = lambda request: time.sleep(0.01)
    producer = make_producer(buffer_memory=5_000)
    for _ in range(200):
        producer.produce("one", bytes(984))
    producer.flush()
    assert len(gateway.values("one")[0]) == 200


def test_reports_that_nobody_polls_fill_the_buffer_and_the_error_says_so_at_once(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(buffer_memory=5_000, max_block_ms=600_000, linger_ms=0)
    for _ in range(5):
        producer.produce("one", bytes(984), on_delivery=lambda e, m: None)
    with pytest.raises(QueueFullError, match=r"poll\(\)"):
        producer.produce("one", bytes(984))
    assert producer.poll() == 5
    producer.produce("one", bytes(984))
    producer.flush()


def test_close_ends_a_produce_that_is_blocked(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    producer = make_producer(buffer_memory=2_000)
    producer.partitions_for("one")
    gateway.stop()
    producer.send("one", bytes(1_900))
    caught: list[BaseException] = []
    waiting = threading.Event()

    def blocked() -> None:
        waiting.set()
        try:
            producer.produce("one", bytes(1_900))
        except ProducerClosedError as error:
            caught.append(error)

    thread = threading.Thread(target=blocked)
    thread.start()
    waiting.wait(10)
    producer.close(0.05)
    thread.join(20)
    assert not thread.is_alive()
    assert len(caught) == 1


def test_an_answer_without_an_offset_is_told_as_an_error_not_guessed(
    gateway: FakeGateway, make_producer: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = gateway.store

    def forget(request: log_pb2.ProduceRequest) -> log_pb2.ProduceResponse:
        answer = store(request)
        del answer.results[:]
        return answer

    monkeypatch.setattr(gateway, "store", forget)
    error = make_producer().send("one", b"").exception(10)
    assert error is not None
    assert "without an offset for partition 0" in str(error)


def test_the_background_thread_sleeps_while_a_refused_request_waits_and_more_records_come(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    refusal = BackPressureError("full", retry_delay_ms=60_000)
    gateway.on_produce = lambda _: refusal
    producer = make_producer(linger_ms=5)
    producer.send("t", b"refused", partition=0)
    sender = producer._engine.sender
    deadline = time.monotonic() + DEADLINE_S
    while not [one for one in sender.topics() if one.queue.retrying]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    producer.send("t", b"waits", partition=0)
    with sender._lock:
        later = sender._topics["t"].created_at + 0.5
        assert sender._next_look(later) > later + 0.1
    producer.close(0.1)

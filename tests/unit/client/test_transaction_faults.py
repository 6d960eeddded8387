"""Transactions when answers are lost, coordinators change, callbacks call back and threads meet."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pyarrow as pa
import pytest
from tests.unit.client.transactional import at, count, held, stored, transactional
from tests.unit.client.waiting import DEADLINE_S, wait_until

from mainstem.client import ConsumerGroupMetadata, Producer, TopicPartition
from mainstem.client.producer.transactions.calls import transaction_id
from mainstem.errors import (
    BackPressureError,
    ConcurrentTransactionsError,
    GatewayUnavailableError,
    InternalError,
    InvalidTxnStateError,
    MainstemError,
    OutcomeUnknownError,
    ProducerClosedError,
    ShuttingDownError,
    StoreUnavailableError,
    TransactionAbortedError,
)
from mainstem.protocol.v1 import log_pb2, transactions_pb2, transactions_pb2_grpc
from mainstem.testing import FakeGateway, Fault

pytestmark = pytest.mark.fault

MEMBER = ConsumerGroupMetadata("g")


@pytest.fixture
def producer(gateway: FakeGateway) -> Iterator[Producer]:
    with transactional(gateway) as made:
        yield made


# ------------------------------------------------------------------------- answers that are lost


@pytest.mark.parametrize(
    "verdicts",
    [
        [Fault.BREAK, Fault.BREAK_AFTER],
        [ShuttingDownError("ends"), StoreUnavailableError("fails")],
        [ConcurrentTransactionsError("the one before", retry_delay_ms=1)],
    ],
    ids=["lost", "refused", "busy"],
)
@pytest.mark.parametrize(
    "method", ["InitTransactions", "BeginTransaction", "AddOffsets", "EndTransaction"]
)
def test_a_call_without_an_answer_is_made_again_and_takes_effect_once(
    gateway: FakeGateway, method: str, verdicts: list[Any]
) -> None:
    gateway.transactions.on_call = at(method, *verdicts)
    with transactional(gateway) as producer:
        producer.begin_transaction()
        producer.produce("one", b"a")
        producer.send_offsets_to_transaction([TopicPartition("in", 0, 7)], MEMBER)
        producer.commit_transaction()
    assert stored(gateway, "one") == [b"a"]
    assert gateway.transactions.store_commits == 1
    assert count(gateway, method) == 1 + len(verdicts)


def test_init_that_reaches_nobody_can_be_called_again(gateway: FakeGateway) -> None:
    gateway.stop()
    config = {"bootstrap.servers": gateway.address, "transactional.id": "x"}
    with Producer(config) as producer:
        with pytest.raises(GatewayUnavailableError) as caught:
            producer.init_transactions(0.1)
        assert caught.value.retriable
        gateway.start()
        producer.init_transactions()
        with producer.transaction():
            producer.produce("one", b"a")
    assert stored(gateway, "one") == [b"a"]


def test_a_transaction_may_be_larger_than_the_buffer(gateway: FakeGateway) -> None:
    with transactional(gateway, buffer_memory=50_000, batch_size=10_000) as producer:
        with producer.transaction():
            for _ in range(200):
                producer.produce("one", bytes(5_000))
        assert len(stored(gateway, "one")) == 200


def test_a_commit_that_was_not_answered_in_time_can_be_called_again_and_nothing_else(
    gateway: FakeGateway, producer: Producer
) -> None:
    producer.begin_transaction()
    producer.produce("one", b"a")
    producer.flush()
    gateway.transactions.on_call = at("EndTransaction", *[Fault.BREAK_AFTER] * 100)
    with pytest.raises(OutcomeUnknownError, match="may be committed: call it again") as caught:
        producer.commit_transaction(0.1)
    assert caught.value.retriable
    for call in (
        producer.abort_transaction,
        producer.begin_transaction,
        producer.prepare_transaction,
        lambda: producer.produce("one", b"more"),
    ):
        with pytest.raises(InvalidTxnStateError, match="may be committed"):
            call()
    gateway.transactions.on_call = None
    producer.commit_transaction()
    with producer.transaction():
        producer.produce("one", b"b")
    assert stored(gateway, "one") == [b"a", b"b"]


def test_a_commit_that_fails_in_an_unknown_way_is_not_taken_for_an_abort(
    gateway: FakeGateway, producer: Producer
) -> None:
    producer.begin_transaction()
    producer.produce("one", b"a")
    gateway.transactions.on_call = at("EndTransaction", InternalError("a fault"))
    with pytest.raises(OutcomeUnknownError, match="a fault"):
        producer.commit_transaction()
    producer.commit_transaction()
    assert stored(gateway, "one") == [b"a"]


def test_a_block_whose_commit_has_no_answer_aborts_nothing(gateway: FakeGateway) -> None:
    with transactional(gateway, max_block_ms=1_000) as producer:

        def run() -> None:
            with producer.transaction():
                producer.send("one", b"a").result(10)
                gateway.transactions.on_call = at("EndTransaction", *[Fault.BREAK_AFTER] * 100)

        with pytest.raises(OutcomeUnknownError):
            run()
        gateway.transactions.on_call = None
        producer.commit_transaction()
    assert stored(gateway, "one") == [b"a"]


def test_an_abort_that_was_not_answered_can_be_called_again(
    gateway: FakeGateway, producer: Producer
) -> None:
    producer.begin_transaction()
    producer.send("one", b"a").result(10)
    gateway.transactions.on_call = at("EndTransaction", *[Fault.BREAK_AFTER] * 100)
    with pytest.raises(MainstemError) as caught:
        producer.abort_transaction(0.1)
    assert caught.value.retriable
    with pytest.raises(InvalidTxnStateError, match=r"abort_transaction\(\) had no answer"):
        producer.commit_transaction()
    gateway.transactions.on_call = None
    producer.abort_transaction()
    with producer.transaction():
        producer.produce("one", b"b")
    assert stored(gateway, "one") == [b"b"]


def test_a_prepare_that_was_not_answered_can_be_called_again(
    gateway: FakeGateway, producer: Producer
) -> None:
    producer.begin_transaction()
    producer.produce("one", b"a")
    producer.flush()
    gateway.transactions.on_call = at("PrepareTransaction", *[Fault.BREAK_AFTER] * 100)
    with pytest.raises(OutcomeUnknownError, match=r"prepare_transaction\(\) had no answer"):
        producer.prepare_transaction(0.1)
    gateway.transactions.on_call = None
    producer.complete_transaction(producer.prepare_transaction())
    assert stored(gateway, "one") == [b"a"]


def test_a_record_whose_transaction_cannot_be_begun_is_not_queued(gateway: FakeGateway) -> None:
    with transactional(gateway, max_block_ms=1_000) as producer:
        producer.begin_transaction()
        gateway.transactions.on_call = at("BeginTransaction", *[ShuttingDownError("ends")] * 100)
        with pytest.raises(ShuttingDownError) as caught:
            producer.produce("one", b"a")
        assert caught.value.retriable
        assert len(producer) == 0
        gateway.transactions.on_call = None
        producer.produce("one", b"b")
        producer.commit_transaction()
    assert stored(gateway, "one") == [b"b"]


@pytest.mark.parametrize("fault", [Fault.BREAK, Fault.BREAK_AFTER, BackPressureError("full")])
def test_records_are_sent_again_as_the_same_bytes_and_taken_once(
    gateway: FakeGateway, producer: Producer, fault: Any
) -> None:
    faults = [fault] * 3
    gateway.on_produce = lambda _: faults.pop() if faults else None
    with producer.transaction():
        for number in range(100):
            producer.produce("one", b"%d" % number)
            producer.produce("t", b"%d" % number, partition=number % 3)
    assert stored(gateway, "one") == [b"%d" % number for number in range(100)]
    assert len(stored(gateway, "t")) == 100


def test_a_transaction_after_one_that_was_aborted_in_the_middle_of_a_refusal(
    gateway: FakeGateway, producer: Producer
) -> None:
    """The stream holds the topic back until a resume, which the next transaction does not send."""
    refused = threading.Event()

    def refuse(_: log_pb2.ProduceRequest) -> MainstemError | None:
        refused.set()
        return BackPressureError("full", retry_delay_ms=60_000)

    gateway.on_produce = refuse
    producer.begin_transaction()
    producer.produce("one", b"a")
    assert refused.wait(DEADLINE_S)
    producer.abort_transaction()
    gateway.on_produce = None
    with producer.transaction():
        producer.produce("one", b"b")
    assert stored(gateway, "one") == [b"b"]


def test_an_abort_does_not_wait_for_answers_that_do_not_come(
    gateway: FakeGateway, producer: Producer
) -> None:
    gateway.on_produce = lambda _: Fault.SILENCE
    producer.begin_transaction()
    waiting = producer.send("one", b"a")
    wait_until(lambda: gateway.requests)
    producer.abort_transaction()
    with pytest.raises(TransactionAbortedError):
        waiting.result(10)
    gateway.on_produce = None
    with producer.transaction():
        producer.produce("one", b"b")
    assert stored(gateway, "one") == [b"b"]


def test_a_commit_whose_records_are_not_taken_in_time_leaves_the_transaction_open(
    gateway: FakeGateway, producer: Producer
) -> None:
    go_on = threading.Event()
    gateway.on_produce = held(go_on)
    producer.begin_transaction()
    producer.produce("one", b"a")
    with pytest.raises(GatewayUnavailableError, match="has not taken 1 records") as caught:
        producer.commit_transaction(0.05)
    assert caught.value.retriable
    producer.produce("one", b"b")
    go_on.set()
    producer.commit_transaction()
    assert stored(gateway, "one") == [b"a", b"b"]


# ------------------------------------------------------------------------- another coordinator


def test_a_coordinator_that_started_again_has_lost_the_open_transaction(
    gateway: FakeGateway, producer: Producer
) -> None:
    for call in (lambda: producer.send("one", b"b").result(10), producer.commit_transaction):
        producer.begin_transaction()
        producer.send("one", b"a").result(10)
        gateway.transactions.lose_open()
        with pytest.raises(TransactionAbortedError):
            call()
        producer.abort_transaction()
    with producer.transaction():
        producer.produce("one", b"c")
    assert stored(gateway, "one") == [b"c"]


@pytest.fixture
def next_one(gateway: FakeGateway) -> Iterator[FakeGateway]:
    """Another gateway, which knows the first as the coordinator."""
    with FakeGateway({"t": 3, "one": 1}) as other:
        other.transactions.leader = gateway.address
        yield other


@pytest.fixture
def between(gateway: FakeGateway, next_one: FakeGateway) -> Iterator[Producer]:
    """A producer that knows both."""
    servers = f"{gateway.address},{next_one.address}"
    with transactional(gateway, bootstrap_servers=servers) as made:
        yield made


def hand_over(gateway: FakeGateway, next_one: FakeGateway) -> None:
    next_one.transactions.take_over(gateway.transactions)
    gateway.transactions.leader = next_one.address


@pytest.mark.parametrize("call", ["produce", "offsets", "commit", "abort", "prepare"])
def test_a_transaction_does_not_go_on_at_another_coordinator(
    gateway: FakeGateway, next_one: FakeGateway, between: Producer, call: str
) -> None:
    between.begin_transaction()
    between.send("one", b"a").result(10)
    hand_over(gateway, next_one)
    calls: dict[str, Callable[[], object]] = {
        "produce": lambda: between.send("one", b"b").result(10),
        "offsets": lambda: between.send_offsets_to_transaction(
            [TopicPartition("in", 0, 7)], MEMBER
        ),
        "commit": between.commit_transaction,
        "prepare": between.prepare_transaction,
    }
    if call in calls:
        with pytest.raises(MainstemError) as caught:
            calls[call]()
        assert call == "produce" or caught.value.abortable
        with pytest.raises(TransactionAbortedError):
            between.commit_transaction()
    between.abort_transaction()
    with between.transaction():
        between.produce("one", b"c")
    assert stored(gateway, "one") == []
    assert stored(next_one, "one") == [b"c"]


@pytest.mark.parametrize("call", ["commit_transaction", "prepare_transaction"])
def test_a_begin_that_was_late_at_the_next_coordinator_does_not_make_a_commit_of_nothing(
    gateway: FakeGateway, next_one: FakeGateway, between: Producer, call: str
) -> None:
    between.begin_transaction()
    between.send("one", b"a").result(10)
    transactions = between._engine.transactions
    assert transactions is not None
    hand_over(gateway, next_one)
    with grpc.insecure_channel(next_one.address) as channel:
        transactions_pb2_grpc.TransactionsStub(channel).BeginTransaction(
            transactions_pb2.BeginTransactionRequest(
                transaction=transaction_id(transactions._state.identity)
            )
        )
    assert next_one.transactions.open_count() == 1
    with pytest.raises(TransactionAbortedError, match=f"{next_one.address} coordinates"):
        getattr(between, call)()
    between.abort_transaction()
    assert next_one.transactions.open_count() == 0


def test_a_coordinator_that_dies_is_replaced_by_the_one_that_others_name(
    gateway: FakeGateway, next_one: FakeGateway, between: Producer
) -> None:
    between.begin_transaction()
    between.send("one", b"a").result(10)
    gateway.stop()
    next_one.transactions.take_over(gateway.transactions)
    with pytest.raises(TransactionAbortedError, match=f"{next_one.address} coordinates"):
        between.send("one", b"b").result(DEADLINE_S)
    between.abort_transaction()
    with between.transaction():
        between.produce("one", b"c")
    assert stored(next_one, "one") == [b"c"]


def test_a_coordinator_that_hangs_is_left(
    gateway: FakeGateway, next_one: FakeGateway, between: Producer
) -> None:
    thawed = threading.Event()
    gateway.on_produce = held(thawed)
    between.begin_transaction()
    waiting = between.send("one", b"a")
    wait_until(lambda: gateway.requests)
    gateway.transactions.on_call = held(thawed)
    next_one.transactions.take_over(gateway.transactions)
    with pytest.raises(TransactionAbortedError):
        waiting.result(DEADLINE_S)
    between.abort_transaction()
    with between.transaction():
        between.produce("one", b"b")
    assert stored(next_one, "one") == [b"b"]
    thawed.set()


def test_a_question_that_nobody_answers_loses_nothing(
    gateway: FakeGateway, next_one: FakeGateway, between: Producer
) -> None:
    between.begin_transaction()
    between.send("one", b"a").result(10)
    gateway.transactions.on_call = at("DescribeTransaction", *[Fault.BREAK] * 10)
    transactions = between._engine.transactions
    assert transactions is not None
    transactions.look()
    assert count(gateway, "DescribeTransaction") >= 1
    between.commit_transaction()
    assert stored(gateway, "one") == [b"a"]


def test_a_commit_is_asked_for_at_the_next_coordinator_when_the_first_gave_no_answer(
    gateway: FakeGateway, next_one: FakeGateway, between: Producer
) -> None:
    between.begin_transaction()
    between.produce("one", b"a")

    def decide(method: str, _: Any) -> Fault | None:
        if method != "EndTransaction":
            return None
        threading.Timer(0.05, hand_over, [gateway, next_one]).start()
        return Fault.BREAK_AFTER

    gateway.transactions.on_call = decide
    between.commit_transaction()
    assert stored(gateway, "one") == [b"a"]
    assert stored(next_one, "one") == []


# ---------------------------------------------------------------------------- callbacks, threads


def test_a_callback_that_produces_during_the_commit_is_refused_and_nothing_is_committed(
    gateway: FakeGateway, producer: Producer
) -> None:
    producer.begin_transaction()
    producer.produce(
        "one", b"a", on_delivery=lambda *_: producer.produce("one", b"from the callback")
    )
    with pytest.raises(InvalidTxnStateError, match=r"commit_transaction\(\) is under way"):
        producer.commit_transaction()
    producer.produce("one", b"b")
    producer.commit_transaction()
    assert stored(gateway, "one") == [b"a", b"b"]


def test_a_callback_may_produce_into_the_transaction_before_its_commit(
    gateway: FakeGateway, producer: Producer
) -> None:
    producer.begin_transaction()
    producer.produce("one", b"a", on_delivery=lambda *_: producer.produce("one", b"b"))
    producer.flush()
    producer.commit_transaction()
    assert stored(gateway, "one") == [b"a", b"b"]


@pytest.mark.parametrize("call", ["commit_transaction", "prepare_transaction"])
def test_a_callback_cannot_end_the_transaction(
    gateway: FakeGateway, producer: Producer, call: str
) -> None:
    producer.begin_transaction()
    producer.produce("one", b"a", on_delivery=lambda *_: getattr(producer, call)())
    with pytest.raises(RuntimeError, match="in a delivery callback"):
        producer.flush()
    producer.commit_transaction()
    assert stored(gateway, "one") == [b"a"]


def test_a_callback_may_abort_but_not_while_the_transaction_is_being_committed(
    gateway: FakeGateway, producer: Producer
) -> None:
    producer.begin_transaction()
    producer.produce("one", b"a", on_delivery=lambda *_: producer.abort_transaction())
    producer.poll(10)
    with pytest.raises(InvalidTxnStateError, match="the last one was aborted"):
        producer.commit_transaction()
    producer.begin_transaction()
    producer.produce("one", b"b", on_delivery=lambda *_: producer.abort_transaction())
    with pytest.raises(InvalidTxnStateError, match=r"commit_transaction\(\) is under way"):
        producer.commit_transaction()
    producer.commit_transaction()
    assert stored(gateway, "one") == [b"b"]


@pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt])
def test_a_callback_that_raises_leaves_the_transaction_open(
    gateway: FakeGateway, producer: Producer, kind: type[BaseException]
) -> None:
    def fail(*_: object) -> None:
        raise kind

    producer.begin_transaction()
    producer.produce("one", b"a", on_delivery=fail)
    with pytest.raises(kind):
        producer.commit_transaction()
    assert stored(gateway, "one") == []
    producer.commit_transaction()
    assert stored(gateway, "one") == [b"a"]

    def run() -> None:
        with producer.transaction():
            producer.produce("one", b"b", on_delivery=fail)

    with pytest.raises(kind):
        run()
    assert stored(gateway, "one") == [b"a"]
    assert gateway.transactions.open_count() == 0


def test_two_threads_that_end_a_transaction_do_so_once(
    gateway: FakeGateway, producer: Producer
) -> None:
    go_on = threading.Event()
    gateway.transactions.on_call = held(go_on, "EndTransaction")
    producer.begin_transaction()
    producer.produce("one", b"a")
    first = threading.Thread(target=producer.commit_transaction)
    first.start()
    wait_until(lambda: count(gateway, "EndTransaction"))
    for call in (producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(InvalidTxnStateError, match="under way in another thread"):
            call()
    go_on.set()
    first.join()
    assert stored(gateway, "one") == [b"a"]


def test_many_threads_bring_the_first_record_and_it_begins_once(
    gateway: FakeGateway, producer: Producer
) -> None:
    for turn in range(5):
        producer.begin_transaction()
        start = threading.Barrier(8)

        def run(number: int, start: threading.Barrier = start) -> None:
            start.wait()
            for _ in range(20):
                producer.produce("t" if number % 2 else "one", b"%d" % number)

        threads = [threading.Thread(target=run, args=[number]) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.commit_transaction()
        assert count(gateway, "BeginTransaction") == turn + 1
        assert len(stored(gateway, "t")) == len(stored(gateway, "one")) == 80 * (turn + 1)


@pytest.mark.parametrize("batches", [False, True], ids=["records", "batches"])
def test_a_record_that_meets_the_commit_is_in_it_or_refused(
    gateway: FakeGateway, batches: bool
) -> None:
    with transactional(gateway, linger_ms=0) as producer:

        def bring(value: bytes) -> None:
            if batches:
                producer.produce_batch("one", pa.record_batch({"value": [value]}))
            else:
                producer.produce("one", value)

        done = threading.Event()
        accepted: list[bytes] = []

        def produce() -> None:
            number = 0
            while not done.is_set():
                value = b"%d" % number
                number += 1
                try:
                    bring(value)
                except InvalidTxnStateError:
                    continue
                accepted.append(value)

        producer.begin_transaction()
        thread = threading.Thread(target=produce)
        thread.start()
        for _ in range(20):
            time.sleep(0.002)
            producer.commit_transaction()
            producer.begin_transaction()
        done.set()
        thread.join()
        producer.commit_transaction()
    assert stored(gateway, "one") == accepted


# ------------------------------------------------------------------------------------------- ends


def test_close_aborts_an_open_transaction_and_tells_of_it(
    gateway: FakeGateway, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[MainstemError | None] = []
    producer = transactional(gateway, linger_ms=60_000, delivery_timeout_ms=200_000)
    producer.begin_transaction()
    producer.produce("t", b"taken")
    producer.flush()
    producer.produce("one", b"a", on_delivery=lambda error, _: told.append(error))
    producer.close()
    assert [type(error) for error in told] == [TransactionAbortedError]
    assert gateway.transactions.open_count() == 0
    assert stored(gateway, "one") == stored(gateway, "t") == []
    assert "was closed in an open transaction" in caplog.text
    for call in (producer.commit_transaction, producer.begin_transaction):
        with pytest.raises(ProducerClosedError):
            call()


def test_a_producer_that_is_garbage_in_an_open_transaction_aborts_it(
    gateway: FakeGateway,
) -> None:
    def forget() -> None:
        producer = transactional(gateway, linger_ms=60_000, delivery_timeout_ms=200_000)
        producer.begin_transaction()
        producer.produce("t", b"taken")
        producer.flush()
        producer.produce("one", b"waits")
        del producer
        gc.collect()

    with pytest.warns(ResourceWarning, match="unclosed Producer"):
        forget()
    wait_until(lambda: gateway.transactions.open_count() == 0)
    wait_until(lambda: not [t for t in threading.enumerate() if t.name.startswith("mainstem")])


def test_close_without_an_open_transaction_says_nothing(
    gateway: FakeGateway, caplog: pytest.LogCaptureFixture
) -> None:
    producer = transactional(gateway)
    with producer.transaction():
        producer.produce("one", b"a")
    producer.begin_transaction()  # and nothing in it
    producer.close()
    assert caplog.text == ""
    assert count(gateway, "EndTransaction") == 1


def test_close_waits_for_a_commit_in_another_thread(gateway: FakeGateway) -> None:
    go_on = threading.Event()
    gateway.transactions.on_call = held(go_on, "EndTransaction")
    producer = transactional(gateway)
    producer.begin_transaction()
    producer.produce("one", b"a")
    places: list[object] = []
    committing = threading.Thread(target=lambda: places.append(producer.commit_transaction()))
    committing.start()
    wait_until(lambda: count(gateway, "EndTransaction"))
    closing = threading.Thread(target=producer.close)
    closing.start()
    time.sleep(0.02)
    assert closing.is_alive()
    go_on.set()
    committing.join()
    closing.join()
    assert len(places) == 1
    assert stored(gateway, "one") == [b"a"]


def test_close_does_not_wait_for_ever_for_a_coordinator_that_is_gone(
    gateway: FakeGateway,
) -> None:
    producer = transactional(gateway, request_timeout_ms=100, linger_ms=0)
    producer.begin_transaction()
    producer.send("one", b"a").result(10)
    gateway.stop()
    producer.close(0.2)
    gateway.start()


def test_a_callback_may_close_in_the_middle_of_a_commit(gateway: FakeGateway) -> None:
    producer = transactional(gateway)
    producer.begin_transaction()
    producer.produce("one", b"a", on_delivery=lambda *_: producer.close())
    with pytest.raises(MainstemError):
        producer.commit_transaction()
    wait_until(lambda: stored(gateway, "one") == [])


#: In an interpreter of its own: the test's has a gateway with threads in gRPC.
_FORKS = """
import os
from mainstem.client import Producer
from mainstem.errors import ProducerClosedError

producer = Producer({{"bootstrap.servers": "{address}", "transactional.id": "x"}})
producer.init_transactions()
producer.begin_transaction()
producer.produce("one", b"a")
producer.flush()
child = os.fork()
if child == 0:
    refused = 0
    for call in (
        producer.commit_transaction,
        producer.abort_transaction,
        producer.begin_transaction,
        lambda: producer.produce("one", b"child"),
    ):
        try:
            call()
        except ProducerClosedError as error:
            refused += "forked child" in error.message
    producer.close()
    os._exit(refused)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
producer.commit_transaction()
producer.close()
"""


def test_a_forked_child_cannot_touch_the_transaction(gateway: FakeGateway) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _FORKS.format(address=gateway.address)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "4\n"), ended.stderr
    assert stored(gateway, "one") == [b"a"]


# ------------------------------------------------------------------------------------------ chaos


@pytest.mark.parametrize("seed", range(4))
def test_whatever_fails_each_transaction_is_there_once_and_whole_or_not_at_all(
    gateway: FakeGateway, seed: int
) -> None:
    rng = random.Random(seed)
    faults: list[Any] = [
        Fault.BREAK,
        Fault.BREAK_AFTER,
        BackPressureError("full", retry_delay_ms=1),
    ]
    refusals: list[Any] = [Fault.BREAK, Fault.BREAK_AFTER, StoreUnavailableError("fails")]
    gateway.on_produce = lambda _: rng.choice(faults) if rng.random() < 0.15 else None

    def on_call(method: str, _: Any) -> Any:
        if rng.random() < 0.02:
            gateway.transactions.lose_open()
        return rng.choice(refusals) if rng.random() < 0.2 else None

    committed: list[bytes] = []
    with transactional(gateway, linger_ms=0, retry_backoff_max_ms=5) as producer:
        gateway.transactions.on_call = on_call
        for number in range(25):
            values = [b"%d.%d" % (number, step) for step in range(rng.randrange(1, 30))]
            producer.begin_transaction()
            try:
                for value in values:
                    producer.produce("one", value)
                    producer.produce("t", value, partition=0)
                if rng.random() < 0.2:
                    producer.abort_transaction()
                    continue
                producer.commit_transaction()
                committed += values
            except MainstemError as error:
                if not error.abortable:
                    raise
                producer.abort_transaction()
        gateway.on_produce = gateway.transactions.on_call = None
    assert stored(gateway, "one") == committed
    assert stored(gateway, "t") == committed
    assert committed

"""The transactional producer against a fake coordinator: what is promised, call by call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from tests.unit.client.scripted_gateway import ScriptedGateway
from tests.unit.client.transactional import count, stored, transactional

from mainstem.client import (
    OFFSET_INVALID,
    AdminClient,
    ConsumerGroupMetadata,
    Producer,
    RecordMetadata,
    TopicPartition,
    TransactionPlace,
)
from mainstem.errors import (
    ConfigError,
    InvalidConfigError,
    InvalidRecordError,
    InvalidTxnStateError,
    MainstemError,
    NotAssignedError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionTimedOutError,
)
from mainstem.protocol.v1 import groups_pb2, log_pb2
from mainstem.testing import FakeGateway

MEMBER = ConsumerGroupMetadata("g", "m", 3)


@pytest.fixture
def producer(gateway: FakeGateway) -> Iterator[Producer]:
    with transactional(gateway) as made:
        yield made


# ------------------------------------------------------------------------------------ committing


def test_records_of_several_topics_are_visible_together_and_their_places_are_told(
    gateway: FakeGateway, producer: Producer
) -> None:
    producer.begin_transaction()
    for number in range(3):
        producer.produce("t", b"%d" % number, partition=1)
    producer.produce("one", b"x")
    producer.flush()
    assert stored(gateway, "t") == stored(gateway, "one") == []
    assert producer.commit_transaction() == {
        ("t", 1): TransactionPlace(0, 3, 1),
        ("one", 0): TransactionPlace(0, 1, 1),
    }
    assert gateway.values("t")[1] == [b"0", b"1", b"2"]
    assert stored(gateway, "one") == [b"x"]


def test_transactions_follow_each_other_in_order(gateway: FakeGateway, producer: Producer) -> None:
    for number in range(5):
        with producer.transaction():
            for step in range(3):
                producer.produce("one", b"%d.%d" % (number, step))
    assert stored(gateway, "one") == [b"%d.%d" % (n, s) for n in range(5) for s in range(3)]


def test_an_empty_transaction_asks_nobody(gateway: FakeGateway, producer: Producer) -> None:
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        assert not end()
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition("t", 0, OFFSET_INVALID)], MEMBER)
    producer.commit_transaction()
    assert gateway.transactions.calls == ["InitTransactions"]
    assert gateway.transactions.store_commits == 0


def test_a_record_is_reported_when_it_is_taken_and_has_no_offset_yet(
    gateway: FakeGateway, producer: Producer
) -> None:
    told: list[RecordMetadata] = []
    producer.begin_transaction()
    where = producer.send("one", b"a").result(10)
    assert (where.offset, where.table_version, where.partition) == (-1, -1, 0)
    producer.produce("one", b"b", on_delivery=lambda error, there: told.append(there))
    places = producer.commit_transaction()
    assert [one.offset for one in told] == [-1]
    assert places["one", 0].record_count == 2
    assert stored(gateway, "one") == [b"a", b"b"]


def test_a_batch_goes_into_the_transaction_too(gateway: FakeGateway, producer: Producer) -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})
    with pytest.raises(InvalidTxnStateError):
        producer.produce_batch("one", batch)
    producer.begin_transaction()
    assert producer.produce_batch("one", batch).result(10).record_count == 2
    assert stored(gateway, "one") == []
    producer.commit_transaction()
    assert stored(gateway, "one") == [b"a", b"b"]


def test_an_aborted_transaction_leaves_nothing(gateway: FakeGateway, producer: Producer) -> None:
    producer.begin_transaction()
    taken = producer.send("one", b"taken")
    producer.flush()
    producer.abort_transaction()
    assert taken.result(10).offset == -1
    with producer.transaction():
        producer.produce("one", b"next")
    assert stored(gateway, "one") == [b"next"]


def test_abort_throws_away_what_was_not_sent_and_tells_of_it(gateway: FakeGateway) -> None:
    told: list[MainstemError | None] = []
    with transactional(gateway, linger_ms=60_000, delivery_timeout_ms=200_000) as producer:
        producer.begin_transaction()
        producer.produce("one", b"a", on_delivery=lambda error, _: told.append(error))
        waiting = producer.send("t", b"b")
        producer.produce("t", b"nobody asks")
        producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            waiting.result(10)
        assert producer.poll(1) == 1
        assert [type(error) for error in told] == [TransactionAbortedError]
        assert len(producer) == 0
        assert producer.flush() == 0  # and raises nothing: abort_transaction() has told
    assert not gateway.requests


def test_a_topic_that_was_used_before_is_not_asked_for_again(
    gateway: FakeGateway, producer: Producer
) -> None:
    for _ in range(4):
        with producer.transaction():
            producer.produce("t", b"")
    assert gateway.metadata_count == 1
    assert count(gateway, "BeginTransaction") == 4
    assert gateway.stream_count == 1


def test_partitions_are_told_outside_of_transactions(producer: Producer) -> None:
    assert producer.partitions_for("t") == 3


# ------------------------------------------------------------------------------------ where they go


def test_everything_goes_to_the_coordinator_whoever_leads_the_topics(
    gateway: FakeGateway,
) -> None:
    with FakeGateway({"t": 3}) as leader:
        gateway.topics["t"].leader = leader.address
        leader.topics["t"].leader = leader.address
        leader.transactions.leader = gateway.address
        config = {"bootstrap.servers": leader.address, "transactional.id": "x"}
        with Producer(config) as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.produce("t", b"a")
        assert not leader.requests
        assert stored(gateway, "t") == [b"a"]
        with Producer({"bootstrap.servers": leader.address}) as plain:
            plain.produce("t", b"b")
        assert stored(leader, "t") == [b"b"]


def test_the_coordinator_is_called_where_it_says_that_it_is_reached(gateway: FakeGateway) -> None:
    """The name that it was found under may lead to another gateway the next time."""
    with FakeGateway({"t": 3}) as named:
        named.transactions.address = gateway.address
        config = {"bootstrap.servers": named.address, "transactional.id": "x"}
        with Producer(config) as producer:
            producer.init_transactions()
            named.transactions.leader = gateway.address
            gateway.transactions.take_over(named.transactions)
            calls = len(named.transactions.calls)
            with producer.transaction():
                producer.produce("t", b"a")
        assert len(named.transactions.calls) == calls
        assert stored(gateway, "t") == [b"a"]


@pytest.mark.parametrize("call", ["commit_transaction", "prepare_transaction"])
def test_a_transaction_of_which_the_coordinator_has_lost_records_is_aborted(
    gateway: FakeGateway, producer: Producer, call: str
) -> None:
    producer.begin_transaction()
    producer.produce("t", b"lost")
    producer.produce("one", b"kept")
    producer.flush()
    gateway.transactions.lose("t")
    with pytest.raises(TransactionAbortedError, match="2 records were sent, 1 came"):
        getattr(producer, call)()
    producer.abort_transaction()
    with producer.transaction():
        producer.produce_batch("t", pa.record_batch({"value": pa.array([b"x"] * 7, pa.binary())}))
        producer.produce("one", b"next")
    assert len(stored(gateway, "t")) == 7
    assert stored(gateway, "one") == [b"next"]


# ----------------------------------------------------------------------------------------- offsets


def test_offsets_are_committed_with_the_records(gateway: FakeGateway, producer: Producer) -> None:
    seen: list[groups_pb2.CommitOffsetsRequest] = []
    gateway.transactions.on_offsets = seen.append
    with producer.transaction():
        producer.produce("one", b"a")
        producer.send_offsets_to_transaction(
            [TopicPartition("in", 0, 7, "note"), TopicPartition("in", 1, OFFSET_INVALID)], MEMBER
        )
        assert gateway.transactions.commits == {}
    assert gateway.transactions.commits == {("g", "in", 0): 7}
    assert (seen[0].group, seen[0].member_id, seen[0].member_epoch) == ("g", "m", 3)
    assert [(one.offset, one.metadata) for one in seen[0].offsets] == [(7, "note")]


def test_offsets_alone_are_a_transaction(gateway: FakeGateway, producer: Producer) -> None:
    with producer.transaction():
        producer.send_offsets_to_transaction([TopicPartition("in", 0, 7)], MEMBER)
    assert gateway.transactions.commits == {("g", "in", 0): 7}


@pytest.mark.parametrize("when", ["at once", "at the commit"])
def test_offsets_of_a_partition_that_was_lost_take_the_transaction_along(
    gateway: FakeGateway, producer: Producer, when: str
) -> None:
    answers: list[MainstemError | None] = [NotAssignedError("not yours")]
    if when == "at the commit":
        answers.insert(0, None)
    gateway.transactions.on_offsets = lambda _: answers.pop(0) if answers else None
    producer.begin_transaction()
    producer.produce("one", b"a")

    def go_on() -> None:
        producer.send_offsets_to_transaction([TopicPartition("in", 0, 7)], MEMBER)
        producer.commit_transaction()

    with pytest.raises(TransactionAbortedError, match="not yours") as caught:
        go_on()
    assert caught.value.facts["cause"] == "NOT_ASSIGNED"
    with pytest.raises(TransactionAbortedError, match="not yours"):
        producer.commit_transaction()
    producer.abort_transaction()
    assert stored(gateway, "one") == []
    assert gateway.transactions.commits == {}
    with producer.transaction():
        producer.produce("one", b"b")
    assert stored(gateway, "one") == [b"b"]


def test_offsets_of_the_wrong_kind_are_refused_by_name(producer: Producer) -> None:
    producer.begin_transaction()
    offset = TopicPartition("in", 0, 7)
    with pytest.raises(TypeError, match=r"consumer_group_metadata\(\)"):
        producer.send_offsets_to_transaction([offset], "g")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="TopicPartition"):
        producer.send_offsets_to_transaction([("in", 0)], MEMBER)  # type: ignore[list-item]
    # As aiokafka has it: the keys alone have no offsets, and would commit none.
    with pytest.raises(TypeError, match="not a dict"):
        producer.send_offsets_to_transaction({offset: 7}, MEMBER)
    with pytest.raises(ValueError, match="in-0 is -2"):
        producer.send_offsets_to_transaction([TopicPartition("in", 0, -2)], MEMBER)
    producer.send_offsets_to_transaction([offset], MEMBER)
    producer.commit_transaction()


# --------------------------------------------------------------------------------- order of calls


def test_calls_in_the_wrong_order_say_what_to_do(gateway: FakeGateway) -> None:
    config = {"bootstrap.servers": gateway.address, "transactional.id": "x"}
    with Producer(config) as producer:
        calls: list[Callable[[], object]]
        calls = [producer.begin_transaction, lambda: producer.produce("t", b"")]
        for call in calls:
            with pytest.raises(InvalidTxnStateError, match=r"init_transactions\(\) was not called"):
                call()
        producer.init_transactions()
        calls = [
            producer.commit_transaction,
            producer.abort_transaction,
            producer.prepare_transaction,
            lambda: producer.send_offsets_to_transaction([], MEMBER),
            lambda: producer.produce("t", b""),
        ]
        for call in calls:
            with pytest.raises(InvalidTxnStateError, match=r"call begin_transaction\(\) first"):
                call()
        producer.begin_transaction()
        calls = [
            producer.begin_transaction,
            producer.init_transactions,
        ]
        for call in calls:
            with pytest.raises(InvalidTxnStateError, match=r"commit_transaction\(\) or abort"):
                call()
        producer.produce("one", b"")
        producer.commit_transaction()
        with pytest.raises(InvalidTxnStateError, match="the last one was committed"):
            producer.commit_transaction()
        with pytest.raises(InvalidTxnStateError, match="produce"):
            producer.produce("one", b"")
    assert len(stored(gateway, "one")) == 1


def test_without_a_transactional_id_the_calls_say_what_is_missing(gateway: FakeGateway) -> None:
    with Producer({"bootstrap.servers": gateway.address}) as producer:
        for call in (producer.init_transactions, producer.begin_transaction):
            with pytest.raises(ConfigError, match=r"needs transactional\.id"):
                call()
        with pytest.raises(ConfigError), producer.transaction():
            raise AssertionError


def test_a_gateway_without_transactions_is_named() -> None:
    with ScriptedGateway({}) as old:
        producer = Producer({"bootstrap.servers": old.address, "transactional.id": "x"})
        with pytest.raises(InvalidConfigError, match="older than this client and has no trans"):
            producer.init_transactions()
        producer.close()


# ------------------------------------------------------------------------------- lost transactions


def refuse(value: bytes, error: MainstemError, gateway: FakeGateway) -> None:
    """Requests with a value in them are refused."""

    def decide(request: log_pb2.ProduceRequest) -> MainstemError | None:
        return error if value in request.arrow.ipc_stream else None

    gateway.on_produce = decide


def test_a_record_that_fails_loses_the_transaction(
    gateway: FakeGateway, producer: Producer
) -> None:
    refuse(b"wrong", InvalidRecordError("malformed"), gateway)
    producer.begin_transaction()
    producer.send("one", b"good").result(10)
    wrong = producer.send("t", b"wrong")
    with pytest.raises(InvalidRecordError):
        wrong.result(10)
    with pytest.raises(TransactionAbortedError, match="malformed") as caught:
        producer.commit_transaction()
    assert caught.value.abortable
    assert not caught.value.fatal
    assert not caught.value.retriable
    for call in (
        lambda: producer.produce("one", b"more"),
        lambda: producer.send_offsets_to_transaction([TopicPartition("in", 0, 7)], MEMBER),
        producer.prepare_transaction,
    ):
        with pytest.raises(TransactionAbortedError, match="malformed"):
            call()
    producer.abort_transaction()
    with producer.transaction():
        producer.produce("one", b"next")
    assert stored(gateway, "one") == [b"next"]
    assert stored(gateway, "t") == []


def test_what_waits_behind_a_failed_record_fails_at_once(gateway: FakeGateway) -> None:
    refuse(b"wrong", InvalidRecordError("malformed"), gateway)
    with transactional(
        gateway, linger_ms=60_000, delivery_timeout_ms=200_000, batch_size=1_000
    ) as producer:
        producer.begin_transaction()
        waiting = producer.send("one", b"waits for linger.ms")
        wrong = producer.send("t", b"wrong" * 500)
        with pytest.raises(InvalidRecordError):
            wrong.result(10)
        with pytest.raises(TransactionAbortedError, match="malformed"):
            waiting.result(10)
        producer.abort_transaction()


def test_a_record_that_nobody_asked_about_is_told_by_the_commit_only(
    gateway: FakeGateway, producer: Producer
) -> None:
    refuse(b"wrong", InvalidRecordError("malformed"), gateway)
    producer.begin_transaction()
    producer.produce("one", b"wrong")
    with pytest.raises(TransactionAbortedError, match="malformed"):
        producer.commit_transaction()
    producer.abort_transaction()
    assert producer.flush() == 0


def test_a_record_that_is_refused_before_it_is_queued_does_not_lose_the_transaction(
    gateway: FakeGateway, producer: Producer
) -> None:
    with producer.transaction():
        producer.produce("one", b"a")
        with pytest.raises(MainstemError):
            producer.produce("one", b"", partition=5)
        with pytest.raises(MainstemError):
            producer.produce("missing", b"")
    assert stored(gateway, "one") == [b"a"]


def test_a_transaction_that_is_open_for_too_long_is_aborted(gateway: FakeGateway) -> None:
    with transactional(gateway, transaction_timeout_ms=30) as producer:
        producer.begin_transaction()
        producer.produce("one", b"late")
        producer.flush()
        threading.Event().wait(0.05)
        with pytest.raises(TransactionTimedOutError) as caught:
            producer.commit_transaction()
        assert caught.value.abortable
        producer.abort_transaction()
        with producer.transaction():
            producer.produce("one", b"in time")
    assert stored(gateway, "one") == [b"in time"]


@pytest.mark.parametrize("call", ["produce", "commit", "abort", "begin"])
def test_a_newer_producer_with_the_same_id_ends_the_older(gateway: FakeGateway, call: str) -> None:
    with transactional(gateway) as older, transactional(gateway, "other") as other:
        older.begin_transaction()
        older.produce("one", b"old")
        older.flush()
        if call == "begin":
            older.commit_transaction()
        with transactional(gateway) as newer:

            def go_on() -> None:
                if call == "produce":
                    older.send("one", b"old").result(10)
                elif call == "commit":
                    older.commit_transaction()
                elif call == "abort":
                    older.abort_transaction()
                else:
                    older.begin_transaction()
                    older.produce("one", b"old")

            with pytest.raises(ProducerFencedError) as caught:
                go_on()
            assert caught.value.fatal
            for after in (older.commit_transaction, older.begin_transaction, older.flush):
                with pytest.raises(ProducerFencedError):
                    after()
            with newer.transaction():
                newer.produce("one", b"new")
        with other.transaction():
            other.produce("one", b"other")
    assert stored(gateway, "one")[-2:] == [b"new", b"other"]
    assert (b"old" in stored(gateway, "one")) == (call == "begin")


# ------------------------------------------------------------------------------------ with a block


def test_a_block_that_raises_aborts_and_the_exception_goes_on(
    gateway: FakeGateway, producer: Producer
) -> None:
    def divide() -> None:
        with producer.transaction():
            producer.send("one", b"a").result(10)
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        divide()
    with producer.transaction():
        producer.produce("one", b"b")
    assert stored(gateway, "one") == [b"b"]


def test_a_block_whose_commit_is_refused_aborts(gateway: FakeGateway, producer: Producer) -> None:
    def lose() -> None:
        with producer.transaction():
            producer.send("one", b"a").result(10)
            gateway.transactions.lose_open()

    with pytest.raises(TransactionAbortedError):
        lose()
    with producer.transaction():
        producer.produce("one", b"b")
    assert stored(gateway, "one") == [b"b"]


def test_a_block_may_end_its_transaction_itself(gateway: FakeGateway, producer: Producer) -> None:
    with producer.transaction():
        producer.produce("one", b"a")
        producer.commit_transaction()
    with producer.transaction():
        producer.produce("one", b"b")
        producer.abort_transaction()
    with producer.transaction():
        producer.produce("one", b"c")
        token = producer.prepare_transaction()
    assert stored(gateway, "one") == [b"a"]
    producer.complete_transaction(token)
    assert stored(gateway, "one") == [b"a", b"c"]


# -------------------------------------------------------------------------------------- two phases


def test_a_prepared_transaction_waits_for_its_completion(
    gateway: FakeGateway, producer: Producer
) -> None:
    producer.begin_transaction()
    producer.produce("one", b"a")
    token = producer.prepare_transaction()
    assert isinstance(token, str)
    assert stored(gateway, "one") == []
    with pytest.raises(InvalidTxnStateError, match=r"complete_transaction\(\) with its token"):
        producer.begin_transaction()
    with pytest.raises(InvalidTxnStateError):
        producer.produce("one", b"more")
    assert producer.complete_transaction(token)["one", 0].base_offset == 0
    with producer.transaction():
        producer.produce("one", b"b")
    producer.begin_transaction()
    producer.produce("one", b"c")
    producer.complete_transaction(producer.prepare_transaction(), commit=False)
    assert stored(gateway, "one") == [b"a", b"b"]


def test_an_empty_transaction_can_be_prepared(gateway: FakeGateway, producer: Producer) -> None:
    producer.begin_transaction()
    assert producer.complete_transaction(producer.prepare_transaction()) == {}


@pytest.mark.parametrize("who", ["the next producer", "an administrator"])
def test_a_prepared_transaction_survives_its_producer(gateway: FakeGateway, who: str) -> None:
    with transactional(gateway) as producer:
        producer.begin_transaction()
        producer.produce("one", b"a")
        token = producer.prepare_transaction()
    config = {"bootstrap.servers": gateway.address, "transactional.id": "x"}
    with Producer(config) as following:
        assert following.init_transactions() == token
        with pytest.raises(InvalidTxnStateError, match="is prepared"):
            following.begin_transaction()
        if who == "the next producer":
            places = following.complete_transaction(token)
        else:
            with AdminClient({"bootstrap.servers": gateway.address}) as admin:
                places = admin.complete_transaction(token)
                assert admin.complete_transaction(token) == {}  # again
                with pytest.raises(InvalidTxnStateError):
                    admin.complete_transaction(token, commit=False)
            assert following.init_transactions() is None
        assert places == {("one", 0): TransactionPlace(0, 1, 1)}
        with following.transaction():
            following.produce("one", b"b")
    assert stored(gateway, "one") == [b"a", b"b"]

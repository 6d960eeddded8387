"""Records that can never be taken fail alone: their neighbours in the request are sent again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

from mainstem.client import AsyncProducer, Producer, RecordMetadata
from mainstem.errors import (
    InvalidRecordError,
    MainstemError,
    RecordTooLargeError,
    RequestTooLargeError,
)
from mainstem.protocol.v1 import log_pb2
from mainstem.testing import FakeGateway, Fault
from mainstem.testing._fake_topic import columnar_rows

MakeProducer = Callable[..., Producer]

BAD = b"bad"


def refuse_bad(request: log_pb2.ProduceRequest) -> MainstemError | None:
    """As a gateway whose topic takes no value that begins with BAD."""
    rows, _ = columnar_rows(request.arrow)
    indexes = [n for n, (_, (_, value, _, _)) in enumerate(rows) if (value or b"")[:3] == BAD]
    if not indexes:
        return None
    error = RecordTooLargeError(f"record {indexes[0]} is bad")
    error.record_indexes = indexes
    return error


def rows_max(limit: int) -> Callable[[log_pb2.ProduceRequest], MainstemError | None]:
    def refuse(request: log_pb2.ProduceRequest) -> MainstemError | None:
        count = len(columnar_rows(request.arrow)[0])
        return RequestTooLargeError(f"{count} rows") if count > limit else None

    return refuse


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_bad_records_fail_alone_and_the_others_are_stored_once_in_order(
    gateway: FakeGateway, make_producer: MakeProducer, idempotent: bool, compression: str, seed: int
) -> None:
    gateway.on_produce = refuse_bad
    producer = make_producer(
        linger_ms=1, enable_idempotence=idempotent, compression_type=compression, batch_size=2_000
    )
    rng = random.Random(seed)
    reports: dict[int, tuple[MainstemError | None, RecordMetadata]] = {}
    values = []
    for number in range(5_000):
        value = b"%s-%d" % (BAD if rng.random() < 0.01 else b"good", number)
        values.append(value)

        def note(error: MainstemError | None, where: RecordMetadata, n: int = number) -> None:
            reports[n] = (error, where)

        key = b"k%d" % rng.randrange(9)
        producer.produce("t", value, key, on_delivery=note, headers=[("n", b"%d" % number)])
    assert producer.flush() == 0
    stored = gateway.records("t")
    assert len(reports) == 5_000
    for number, (error, where) in reports.items():
        if values[number].startswith(BAD):
            assert isinstance(error, RecordTooLargeError)
            assert where.offset == -1
        else:
            assert error is None
            record = stored[where.partition][where.offset]
            assert (record.value, record.headers) == (
                values[number],
                (("n", b"%d" % number),),
            )
    good = [value for value in values if value.startswith(b"good")]
    assert sum(map(len, stored)) == len(good)
    for partition in stored:
        numbers = [int((record.value or b"").split(b"-")[1]) for record in partition]
        assert numbers == sorted(numbers)
    assert len(producer) == 0
    assert producer._engine.memory.used_bytes == 0


def test_a_record_that_is_alone_and_bad_fails_and_what_follows_goes_on(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    gateway.on_produce = refuse_bad
    producer = make_producer(linger_ms=0)
    futures = [producer.send("one", value) for value in (b"a", BAD, b"b")]
    producer.flush()
    assert [type(future.exception(10)) for future in futures] == [
        type(None),
        RecordTooLargeError,
        type(None),
    ]
    assert gateway.values("one") == [[b"a", b"b"]]


def test_a_batch_with_a_bad_record_fails_whole_and_its_neighbours_do_not(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    gateway.on_produce = refuse_bad
    producer = make_producer(linger_ms=50)
    before = producer.send("one", b"before")
    batch = producer.produce_batch("one", pa.record_batch({"value": [b"x", BAD, b"y"]}))
    after = producer.send("one", b"after")
    producer.flush()
    assert isinstance(batch.exception(10), RecordTooLargeError)
    assert (before.result(10).offset, after.result(10).offset) == (0, 1)
    assert gateway.values("one") == [[b"before", b"after"]]


def test_what_may_be_stored_already_is_not_sent_again_without_its_bad_records(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    """The topic's limit was lowered between the first attempt, which landed, and the second."""
    verdicts: list[Fault | None] = [Fault.BREAK_AFTER]

    def refuse(request: log_pb2.ProduceRequest) -> MainstemError | Fault | None:
        return verdicts.pop() if verdicts else refuse_bad(request)

    gateway.on_produce = refuse
    producer = make_producer()
    futures = [producer.send("one", value) for value in (b"a", BAD, b"b")]
    producer.flush()
    assert all(isinstance(one.exception(10), RecordTooLargeError) for one in futures)
    assert gateway.values("one") == [[b"a", BAD, b"b"]], "stored once"


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_request_that_is_too_large_is_cut_until_it_is_not(
    gateway: FakeGateway, make_producer: MakeProducer, idempotent: bool
) -> None:
    gateway.on_produce = rows_max(7)
    producer = make_producer(linger_ms=50, enable_idempotence=idempotent)
    futures = [producer.send("one", b"%d" % number) for number in range(100)]
    assert producer.flush() == 0
    assert [future.result(10).offset for future in futures] == list(range(100))
    assert gateway.values("one") == [[b"%d" % number for number in range(100)]]


def test_a_record_too_large_for_any_request_fails_alone(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    def refuse(request: log_pb2.ProduceRequest) -> MainstemError | None:
        large = any(value == b"large" for _, (_, value, _, _) in columnar_rows(request.arrow)[0])
        return RequestTooLargeError("too large") if large else None

    gateway.on_produce = refuse
    producer = make_producer(linger_ms=50)
    ends: Counter[str] = Counter()

    def note(error: MainstemError | None, where: RecordMetadata) -> None:
        ends[error.code if error else "ok"] += 1

    for number in range(100):
        producer.produce("one", b"large" if number == 37 else b"x", on_delivery=note)
    producer.flush()
    assert ends == {"ok": 99, "REQUEST_TOO_LARGE": 1}


def test_a_gateway_that_names_records_that_are_not_there_refuses_all_of_them(
    gateway: FakeGateway, make_producer: MakeProducer
) -> None:
    def refuse(request: log_pb2.ProduceRequest) -> MainstemError:
        error = InvalidRecordError("odd")
        error.record_indexes = [0, 1_000_000]
        return error

    gateway.on_produce = refuse
    producer = make_producer(linger_ms=50)
    futures = [producer.send("one", b"") for _ in range(3)]
    producer.flush()
    assert all(isinstance(one.exception(10), InvalidRecordError) for one in futures)


def test_the_pieces_of_an_asyncio_producer_are_told_apart_as_well(gateway: FakeGateway) -> None:
    import asyncio

    gateway.on_produce = refuse_bad

    async def send() -> list[object]:
        async with AsyncProducer(
            {"bootstrap.servers": gateway.address, "linger.ms": 50}
        ) as producer:
            futures = [await producer.send("one", value) for value in (b"a", BAD, b"b")]
            return list(await asyncio.gather(*futures, return_exceptions=True))

    first, second, third = asyncio.run(send())
    assert isinstance(second, RecordTooLargeError)
    assert isinstance(first, RecordMetadata)
    assert isinstance(third, RecordMetadata)

"""Produce and ProduceStream over gRPC, against a gateway and a table on disk."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pyarrow as pa
import pytest
from tests.unit.delta_log.faults import FaultyStore, times, unavailable
from tests.unit.ingest_gateway.harness import (
    Client,
    Gate,
    refused,
    run,
    running,
    soon,
    table,
    until,
    values,
)
from tests.unit.ingest_gateway.payloads import (
    arrow_request,
    batch_of,
    records_request,
    values_request,
)

from mainstem.delta_log import LocalStore
from mainstem.ingest_gateway.services.produce import stream as produce_stream_module
from mainstem.ingest_gateway.topics import gateway_topic
from mainstem.protocol.v1 import admin_pb2, log_pb2

pytestmark = pytest.mark.usefixtures("nothing_left")

MIB = 1024 * 1024


def error_codes(answers: list[log_pb2.ProduceResponse]) -> list[str]:
    return [answer.error.code for answer in answers]


# -- unary


def test_a_batch_over_several_partitions_is_one_table_version_with_a_result_for_each(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t", 3)
            batch = batch_of(value=[b"a", b"b", b"c", b"d"])
            request = arrow_request(batch, ranges=[(2, 0, 1), (0, 1, 1), (2, 2, 2)])
            request.correlation_id = 77
            first, second = [await client.produce(request) for _ in range(2)]
            assert [(r.partition, r.base_offset, r.record_count) for r in first.results] == [
                (0, 0, 1),
                (2, 0, 3),
            ]
            assert [(r.partition, r.base_offset) for r in second.results] == [(0, 1), (2, 3)]
            assert first.correlation_id == 77
            assert not first.positions
            assert second.table_version == first.table_version + 1

    run(test())
    assert values(tmp_path, "t") == {0: [b"b"] * 2, 2: [b"a", b"c", b"d"] * 2}


def test_records_that_the_gateway_places_are_answered_with_their_positions(tmp_path: Path) -> None:
    records = [log_pb2.Record(key=b"k%d" % n, value=b"%d" % n) for n in range(20)]

    async def test() -> list[tuple[int, int]]:
        async with running(tmp_path) as (_, client):
            await client.create("t", 3)
            answer = await client.produce(records_request(*records))
            return [(position.partition, position.offset) for position in answer.positions]

    positions = run(test())
    found = values(tmp_path, "t")
    assert [found[partition][offset] for partition, offset in positions] == [
        record.value for record in records
    ]


def test_acks_1_is_answered_before_the_table_has_the_batch_and_the_drain_brings_it_there(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t", 1, **{"commit.interval.ms": "60000"})
            await client.produce(values_request(b"first"))
            answer = await client.produce(values_request(b"second", acks="ACKS_LEADER"))
            assert answer.table_version == -1
            assert answer.results[0].base_offset == 1
            assert values(tmp_path, "t") == {0: [b"first"]}

    run(test())
    assert values(tmp_path, "t") == {0: [b"first", b"second"]}


@pytest.mark.parametrize("acks", ["ACKS_UNSPECIFIED", "ACKS_ALL"])
def test_an_answer_means_that_the_batch_is_in_the_table(tmp_path: Path, acks: str) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            request = values_request(b"v", acks=acks)
            answer = await client.produce(request)
            assert answer.results[0].base_offset == 0
            assert values(tmp_path, "t") == {0: [b"v"]}
            assert table(tmp_path, "t").version == answer.table_version

    run(test())


def test_acks_none_is_answered_before_the_commit_with_every_partition_and_no_offset(
    tmp_path: Path,
) -> None:
    gate = Gate("put", "topics/t/partition")

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path), before=gate)
        async with running(store=store) as (_, client):
            await client.create("t", 2)
            request = values_request(b"a", b"b", partition=1, acks=log_pb2.ACKS_NONE)
            stream = client.stream()
            await stream.send(request)
            for answer in (await client.produce(request), await stream.answer()):
                assert answer.table_version == -1
                assert [(r.partition, r.base_offset, r.record_count) for r in answer.results] == [
                    (1, -1, 2)
                ]
                assert [(p.partition, p.offset) for p in answer.positions] == [(1, -1), (1, -1)]
            gate.open()
            assert await stream.end() == []

    run(test())
    assert values(tmp_path, "t") == {1: [b"a", b"b"] * 2}


def test_each_refusal_is_a_status_with_code_and_facts_and_the_connection_lives_on(
    tmp_path: Path,
) -> None:
    not_found, invalid = grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT
    cases = [
        (values_request(b"v", topic="nosuch"), not_found, "UNKNOWN_TOPIC", {"topic": "nosuch"}),
        (values_request(b"v", topic="no/such"), invalid, "INVALID_TOPIC", {"topic": "no/such"}),
        (
            values_request(b"v", partition=9),
            not_found,
            "UNKNOWN_PARTITION",
            {"topic": "t", "partition": "9", "partition_count": "1"},
        ),
        (log_pb2.ProduceRequest(topic="t"), invalid, "INVALID_RECORD", {"topic": "t"}),
        (values_request(b"v", acks=9), invalid, "INVALID_RECORD", {"topic": "t"}),
        (records_request(), invalid, "INVALID_RECORD", {"topic": "t"}),
        (
            values_request(b"v", b"v" * (MIB + 1)),
            invalid,
            "RECORD_TOO_LARGE",
            {"record_index": "1", "record_bytes": str(MIB + 1), "limit_bytes": str(MIB)},
        ),
        (
            records_request(log_pb2.Record(timestamp_ms=-1)),
            invalid,
            "INVALID_RECORD",
            {"record_index": "0", "timestamp_ms": "-1"},
        ),
        (
            log_pb2.ProduceRequest(topic="t", arrow=log_pb2.ArrowRecords(ipc_stream=b"x")),
            invalid,
            "INVALID_RECORD",
            {"topic": "t"},
        ),
    ]

    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            stream = client.stream()
            for request, status, reason, expected in cases:
                async with refused(status, reason) as facts:
                    await client.produce(request)
                assert expected.items() <= facts.items()
                number = await stream.send(request)
                answer = await stream.answer()
                assert (answer.correlation_id, answer.error.code) == (number, reason)
                assert expected.items() <= dict(answer.error.facts).items()
                assert answer.error.message == facts["message"]
                assert not answer.error.retriable
            await stream.send(values_request(b"good"))
            assert (await stream.answer()).results[0].base_offset == 0
            assert await stream.end() == []

    run(test())
    assert values(tmp_path, "t") == {0: [b"good"]}


def test_a_message_over_the_limit_is_refused_clearly_and_the_connection_lives_on(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path, socket_request_max_bytes=MIB) as (_, client):
            await client.create("t")
            healthy = client.stream()
            await healthy.send(values_request(b"a"))
            await healthy.answer()
            too_large = values_request(*[b"v" * 1000] * 2000)
            with pytest.raises(grpc.aio.AioRpcError, match="larger than max") as caught:
                await client.produce(too_large)
            assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            broken = client.stream()
            await broken.send(too_large)
            assert await soon(broken.call.code()) == grpc.StatusCode.RESOURCE_EXHAUSTED
            await healthy.send(values_request(b"b"))
            assert [answer.error.code for answer in await healthy.end()] == [""]

    run(test())
    assert values(tmp_path, "t") == {0: [b"a", b"b"]}


# -- streams


def test_many_batches_in_flight_are_answered_in_order_with_dense_offsets(tmp_path: Path) -> None:
    count = 300

    async def test() -> list[log_pb2.ProduceResponse]:
        async with running(tmp_path) as (_, client):
            await client.create("t", commit_interval_ms="1")
            stream = client.stream()
            for number in range(count):
                await stream.send(values_request(b"%d" % number))
            return await stream.end()

    answers = run(test())
    assert [answer.correlation_id for answer in answers] == list(range(1, count + 1))
    assert [answer.results[0].base_offset for answer in answers] == list(range(count))
    versions = [answer.table_version for answer in answers]
    assert versions == sorted(versions)
    assert values(tmp_path, "t") == {0: [b"%d" % number for number in range(count)]}


def test_a_topic_whose_commits_stall_does_not_hold_up_another_on_the_same_stream(
    tmp_path: Path,
) -> None:
    gate = Gate("put", "topics/slow/partition")

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path), before=gate)
        async with running(store=store) as (_, client):
            for topic in ("slow", "fast"):
                await client.create(topic)
            stream = client.stream()
            slow = [await stream.send(values_request(b"s", topic="slow")) for _ in range(3)]
            fast = [await stream.send(values_request(b"f", topic="fast")) for _ in range(3)]
            assert [(await stream.answer()).correlation_id for _ in fast] == fast
            gate.open()
            assert [answer.correlation_id for answer in await stream.end()] == slow

    run(test())


def test_a_topic_that_is_slow_to_open_does_not_hold_up_another_on_the_same_stream(
    tmp_path: Path,
) -> None:
    gate = Gate("list_files", "topics/slow/_delta_log")

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path))
        async with running(store=store) as (_, client):
            for topic in ("slow", "fast"):
                await client.create(topic)
            store.before = gate
            stream = client.stream()
            slow = [await stream.send(values_request(b"%d" % n, topic="slow")) for n in range(3)]
            await until(lambda: gate.calls > 0)
            fast = [await stream.send(values_request(b"f", topic="fast")) for _ in range(3)]
            assert [(await stream.answer()).correlation_id for _ in fast] == fast
            gate.open()
            assert [answer.correlation_id for answer in await stream.end()] == slow

    run(test())
    assert values(tmp_path, "slow") == {0: [b"0", b"1", b"2"]}


def test_what_waits_for_a_topic_to_open_is_bounded_in_bytes_and_keeps_its_order(
    tmp_path: Path,
) -> None:
    gate = Gate("list_files", "topics/t/_delta_log")
    large = b"v" * 500

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path))
        async with running(store=store, socket_request_max_bytes=1024) as (_, client):
            await client.create("t")
            store.before = gate
            stream = client.stream()
            for _ in range(4):
                await stream.send(values_request(large))
            await client.serving()
            await until(lambda: gate.calls > 0)
            gate.open()
            answers = [await stream.answer() for _ in range(4)]
            codes = error_codes(answers)
            accepted_count = codes.count("")
            refusals = codes[accepted_count:]
            assert accepted_count in (1, 2), "one request of any size, and what fits beside it"
            assert refusals[0] == "BACK_PRESSURE"
            assert set(refusals) <= {"BACK_PRESSURE", "HELD"}
            assert answers[accepted_count].error.retry_delay_ms > 0
            for number in range(2):
                await stream.send(values_request(b"again", resume=number == 0))
            assert error_codes(await stream.end()) == ["", ""]

    run(test())


def test_the_answers_of_a_topic_come_in_the_order_of_its_requests_even_the_refusals(
    tmp_path: Path,
) -> None:
    gate = Gate("put", "topics/t/partition")

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path), before=gate)
        async with running(store=store) as (_, client):
            await client.create("t")
            stream = client.stream()
            await stream.send(values_request(b"a"))
            await stream.send(values_request(b"bad", partition=7))
            await stream.send(values_request(b"c"))
            other = await stream.send(values_request(b"x", topic="nosuch"))
            assert (await stream.answer()).correlation_id == other
            gate.open()
            answers = await stream.end()
            assert [answer.correlation_id for answer in answers] == [1, 2, 3]
            assert error_codes(answers) == ["", "UNKNOWN_PARTITION", ""]

    run(test())
    assert values(tmp_path, "t") == {0: [b"a", b"c"]}


def test_after_a_retriable_refusal_later_batches_of_the_topic_are_held_until_resume(
    tmp_path: Path,
) -> None:
    gate = Gate("put", "topics/t/partition")

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path), before=gate)
        async with running(store=store, topic_queue_bytes=1000) as (_, client):
            for topic in ("t", "other"):
                await client.create(topic)
            stream = client.stream()
            await stream.send(values_request(b"1" * 900))
            await stream.send(values_request(b"2" * 900))
            await stream.send(values_request(b"3"))
            await stream.send(values_request(b"bad", partition=7))
            await stream.send(values_request(b"other", topic="other"))
            assert (await stream.answer()).correlation_id == 5, "other topics are not held"
            await until(lambda: gate.calls > 0)
            gate.open()
            answers = [await stream.answer() for _ in range(4)]
            assert error_codes(answers) == ["", "BACK_PRESSURE", "HELD", "HELD"]
            assert [answer.error.retriable for answer in answers[1:]] == [True, True, True]
            assert answers[1].error.retry_delay_ms > 0
            assert answers[1].error.facts["limit_bytes"] == "1000"
            await stream.send(values_request(b"4"))
            assert (await stream.answer()).error.code == "HELD", "nothing passes without resume"
            await stream.send(values_request(b"2" * 900, resume=True))
            assert not (await stream.answer()).error.code
            for value in (b"3", b"4"):
                await stream.send(values_request(value))
            assert error_codes(await stream.end()) == ["", ""]

    run(test())
    assert values(tmp_path, "t") == {0: [b"1" * 900, b"2" * 900, b"3", b"4"]}


def test_another_stream_is_not_held(tmp_path: Path) -> None:
    gate = Gate("put", "topics/t/partition")

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path), before=gate)
        async with running(store=store, topic_queue_bytes=1000) as (gateway, client):
            refusals = gateway._metrics.produce_rejected.labels("BACK_PRESSURE")
            await client.create("t")
            held, free = client.stream(), client.stream()
            await held.send(values_request(b"1" * 900))
            await until(lambda: gate.calls > 0)
            await held.send(values_request(b"2" * 900))
            await until(lambda: refusals._value.get() > 0)
            await free.send(values_request(b"3"))
            gate.open()
            assert not (await free.answer()).error.code
            assert error_codes(await held.end()) == ["", "BACK_PRESSURE"]

    run(test())


def test_a_stream_may_name_any_number_of_topics_and_keeps_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams: list[produce_stream_module.ProduceStream] = []
    serve = produce_stream_module.ProduceStream.serve

    async def noted(self: produce_stream_module.ProduceStream) -> None:
        streams.append(self)
        await serve(self)

    monkeypatch.setattr(produce_stream_module.ProduceStream, "serve", noted)

    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t")
            stream = client.stream()
            for number in range(20):
                await stream.send(values_request(b"v", topic=f"nosuch-{number}"))
                await stream.send(values_request(b"v"))
            answers = [await stream.answer() for _ in range(40)]
            assert sorted(set(error_codes(answers))) == ["", "UNKNOWN_TOPIC"]
            assert not streams[0]._lanes
            assert list(gateway._topics._memory._topics) == ["t"]
            await stream.end()

    run(test())


def test_a_refused_batch_is_not_kept_in_memory_by_the_stream_that_waits_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[weakref.ref[object]] = []
    take = produce_stream_module.ProduceStream._take

    class Sentinel:
        pass

    async def noted(
        self: produce_stream_module.ProduceStream, request: log_pb2.ProduceRequest, error: None
    ) -> None:
        sentinel = Sentinel()
        held.append(weakref.ref(sentinel))
        monkeypatch.setattr(
            self._acceptance, "accept_led", lambda _: raise_with(sentinel), raising=True
        )
        await take(self, request)

    def raise_with(sentinel: Sentinel) -> None:
        kept = sentinel
        raise ValueError(f"fails with {kept!r} in its frame")

    monkeypatch.setattr(produce_stream_module.ProduceStream, "_take", noted)

    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            stream = client.stream()
            await stream.send(values_request(b"v"))
            assert (await stream.answer()).error.code == "INTERNAL"
            monkeypatch.undo()
            await client.serving()
            gc.collect()
            assert held[0]() is None
            await stream.end()
            del gateway

    # A log record that the test runner captures keeps the error, and so the frames.
    logging.disable(logging.CRITICAL)
    try:
        run(test())
    finally:
        logging.disable(logging.NOTSET)


def test_a_stream_reads_no_more_than_it_may_have_unanswered(tmp_path: Path) -> None:
    gate = Gate("put", "topics/t/partition")

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path), before=gate)
        async with running(store=store, stream_max_requests=3) as (gateway, client):
            await client.create("t")
            stream = client.stream()
            for number in range(10):
                await stream.send(values_request(b"%d" % number))
            await until(lambda: gate.calls > 0)
            for _ in range(20):
                await client.serving()
            appender = gateway._topics.leading("t")
            assert appender is not None
            assert appender.appender is not None
            assert appender.appender.log_end_offset(0) == 3
            gate.open()
            assert [answer.correlation_id for answer in await stream.end()] == list(range(1, 11))

    run(test())


@pytest.mark.slow
def test_a_client_that_never_reads_its_answers_is_not_read_from_for_ever(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, stream_max_requests=5) as (gateway, client):
            await client.create("t", commit_interval_ms="0")
            stream = client.stream()
            # Answers with many positions, so that the transport's windows are soon full.
            records = [log_pb2.Record(value=b"v") for _ in range(2_000)]

            async def send_on() -> None:
                for _ in range(2_000):
                    async with asyncio.timeout(1):
                        await stream.call.write(records_request(*records))

            with pytest.raises(TimeoutError):
                await send_on()
            known = gateway._topics.leading("t")
            assert known is not None
            assert known.appender is not None
            await until(lambda: known.appender is not None and known.appender.queued_bytes == 0)
            stream.call.cancel()
            assert (await client.produce(values_request(b"v"))).results[0].base_offset > 0

    run(test())


def test_a_client_that_vanishes_harms_nobody_and_what_was_accepted_lands(tmp_path: Path) -> None:
    gate = Gate("put", "topics/t/partition")

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path), before=gate)
        async with running(store=store) as (gateway, client):
            await client.create("t")
            async with grpc.aio.insecure_channel(gateway.address) as channel:
                vanishing = type(client)(channel)
                stream = vanishing.stream()
                for number in range(5):
                    await stream.send(values_request(b"%d" % number))
                unary = asyncio.ensure_future(vanishing.produce(values_request(b"unary")))
                await until(lambda: gate.calls > 0)
                led = gateway._topics.leading("t")
                assert led is not None
                assert led.appender is not None
                appender = led.appender
                await until(lambda: appender.log_end_offset(0) == 6)
                stream.call.cancel()
                unary.cancel()
            other = client.stream()
            await other.send(values_request(b"other"))
            gate.open()
            assert [answer.results[0].base_offset for answer in await other.end()] == [6]

    run(test())
    found = values(tmp_path, "t")[0]
    assert sorted(found[:6], key=str) == sorted([b"0", b"1", b"2", b"3", b"4", b"unary"], key=str)
    assert found[6:] == [b"other"]


@pytest.mark.parametrize("operation", ["produce", "describe"])
def test_a_client_that_goes_away_while_its_topic_is_being_opened_leaves_nothing_open(
    tmp_path: Path, operation: str
) -> None:
    gate = Gate("list_files", "topics/t/_delta_log")

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path))
        async with running(store=store) as (_, client):
            await client.create("t")
            store.before = gate
            call: asyncio.Future[Any] = asyncio.ensure_future(
                client.produce(values_request(b"lost"))
                if operation == "produce"
                else client.describe("t")
            )
            await until(lambda: gate.calls > 0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await client.serving()
            gate.open()
            await client.produce(values_request(b"v"))

    run(test())
    assert values(tmp_path, "t") == {0: [b"v"]}
    assert table(tmp_path, "t").version == 2, "the lead that was under way was used"


# -- back pressure and a store that fails


@pytest.mark.parametrize("limit", ["topic_queue_bytes", "queued_max_bytes"])
def test_a_full_queue_pushes_back_with_a_delay_and_all_that_was_accepted_is_there_once(
    tmp_path: Path, limit: str
) -> None:
    gate = Gate("put", "topics/t/partition")
    limits: dict[str, Any] = {limit: 2_000}

    async def test() -> list[bytes]:
        store = FaultyStore(LocalStore(tmp_path), before=gate)
        async with running(store=store, **limits) as (_, client):
            for topic in ("t", "other"):
                await client.create(topic)
            accepted = [
                asyncio.ensure_future(client.produce(values_request(b"%d" % n * 900)))
                for n in range(2)
            ]
            await until(lambda: gate.calls > 0)
            async with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "BACK_PRESSURE") as facts:
                # Whichever of the three comes last is refused.
                await client.produce(values_request(b"2" * 900))
            assert int(facts["retry_ms"]) > 0
            assert int(facts["queued_bytes"]) > 1_800
            assert facts["limit_bytes"] == "2000"
            if limit == "topic_queue_bytes":
                await client.produce(values_request(b"free", topic="other"))
            else:
                async with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "BACK_PRESSURE"):
                    await client.produce(values_request(b"o" * 900, topic="other"))
            gate.open()
            await asyncio.gather(*accepted)
            assert (await client.produce(values_request(b"3" * 900))).results[0].base_offset == 2
            return [b"0" * 900, b"1" * 900, b"3" * 900]

    expected = run(test())
    assert sorted(values(tmp_path, "t")[0], key=str) == expected


def test_a_store_that_fails_for_a_while_delays_answers_and_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path))
        async with running(store=store) as (_, client):
            await client.create("t")
            await client.produce(values_request(b"0"))
            store.before = times(2, "put_if_absent", unavailable(), "topics/t/")
            stream = client.stream()
            for number in range(1, 4):
                await stream.send(values_request(b"%d" % number))
            assert error_codes(await stream.end()) == ["", "", ""]

    run(test())
    assert values(tmp_path, "t") == {0: [b"0", b"1", b"2", b"3"]}


def test_a_topic_that_cannot_be_opened_is_unavailable_and_opens_when_the_store_heals(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path))
        async with running(store=store) as (_, client):
            await client.create("t")
            store.before = times(1, "list_files", unavailable(), "topics/t/")
            async with refused(grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE"):
                await client.produce(values_request(b"v"))
            await client.produce(values_request(b"v"))

    run(test())
    assert values(tmp_path, "t") == {0: [b"v"]}


def test_a_store_whose_calls_hang_does_not_stop_the_loop(tmp_path: Path) -> None:
    """Each kind of store call hangs in turn; health answers while it does."""

    async def test() -> None:
        store = FaultyStore(LocalStore(tmp_path))
        async with running(store=store) as (_, client):
            await client.create("t")
            await client.produce(values_request(b"v"))
            for call, path, operation in (
                ("put", "topics/t/partition", lambda: client.produce(values_request(b"v"))),
                ("put_if_absent", "topics/t/", lambda: client.produce(values_request(b"v"))),
                ("list_files", "topics/new", lambda: client.create("new")),
                (
                    "list_directories",
                    "topics",
                    lambda: client.admin.ListTopics(admin_pb2.ListTopicsRequest()),
                ),
                ("read", "topics/new", lambda: client.describe("new")),
                ("list_directories", "topics/new", lambda: client.delete("new")),
            ):
                gate = Gate(call, path)
                store.before = gate
                waiting = asyncio.ensure_future(operation())
                await until(lambda gate=gate: gate.calls > 0)  # type: ignore[misc]
                await client.serving()
                assert not waiting.done(), f"{call} was not waited for"
                gate.open()
                await soon(waiting)

    run(test())


async def until_answered(
    call: Callable[[], Awaitable[log_pb2.ProduceResponse]],
) -> log_pb2.ProduceResponse:
    """Repeats a call that is refused because another gateway still has the topic's lease."""
    for _ in range(500):
        try:
            return await call()
        except grpc.aio.AioRpcError as failure:
            if "leads topic" not in (failure.details() or ""):
                raise
            await asyncio.sleep(0.02)
    raise AssertionError("the lease never passed on")


def test_of_two_gateways_one_leads_and_the_other_names_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (one, first), running(tmp_path) as (_, second):
            await first.create("t")
            await first.produce(values_request(b"0"))
            stream = second.stream()
            for number in range(3):
                await stream.send(values_request(b"not here %d" % number))
            codes = error_codes(await stream.end())
            assert codes[0] == "NOT_LEADER"
            assert set(codes) <= {"NOT_LEADER", "HELD"}
            async with refused(grpc.StatusCode.FAILED_PRECONDITION, "NOT_LEADER") as error:
                await second.produce(values_request(b"nor so"))
            assert error["leader"] == one.address
            for client in (first, second):
                assert (await client.describe("t")).leader == one.address
            epoch = (await first.describe("t")).leader_epoch
            await one.drain()
            answer = await until_answered(lambda: second.produce(values_request(b"1")))
            assert answer.results[0].base_offset == 1
            assert (await second.describe("t")).leader_epoch > epoch

    run(test())
    assert values(tmp_path, "t") == {0: [b"0", b"1"]}


def test_a_gateway_that_is_not_heard_of_loses_its_topics_and_cannot_write_any_more(
    tmp_path: Path,
) -> None:
    clocks = {"gateway_heartbeat_interval_ms": 50, "gateway_session_timeout_ms": 300}

    async def test() -> None:
        async with (
            running(tmp_path, None, **clocks) as (one, first),
            running(tmp_path, None, **clocks) as (_, second),
        ):
            await first.create("t")
            await first.produce(values_request(b"0"))
            assert one._cluster is not None
            assert one._cluster._beating is not None
            await one._cluster._beating.stop()
            answer = await until_answered(lambda: second.produce(values_request(b"1")))
            assert answer.results[0].base_offset == 1
            async with refused(grpc.StatusCode.FAILED_PRECONDITION, "NOT_LEADER"):
                await first.produce(values_request(b"lost"))
            assert not list(one._topics.leaders())
            assert (await second.produce(values_request(b"2"))).results[0].base_offset == 2

    run(test())
    assert values(tmp_path, "t") == {0: [b"0", b"1", b"2"]}


def test_a_topic_that_another_gateway_leads_can_be_changed_through_any(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, first), running(tmp_path) as (_, second):
            await first.create("t", 1)
            await first.produce(values_request(b"0"))
            await second.admin.AddPartitions(
                admin_pb2.AddPartitionsRequest(topic="t", partition_count=3)
            )
            await first.produce(values_request(b"1"))
            assert len((await first.describe("t")).partitions) == 3

    run(test())
    assert values(tmp_path, "t") == {0: [b"0", b"1"]}


def test_two_gateways_that_fight_for_a_topic_lose_and_double_nothing_that_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_topic, "REOPEN_AFTER_S", 0.0)

    async def test() -> list[tuple[int, bytes]]:
        acknowledged: list[tuple[int, bytes]] = []
        async with running(tmp_path) as (_, one), running(tmp_path) as (_, two):
            await one.create("t", commit_interval_ms="0")

            async def produce(name: bytes, client: Client) -> None:
                for number in range(25):
                    value = b"%s %d" % (name, number)
                    try:
                        answer = await client.produce(values_request(value))
                    except grpc.aio.AioRpcError as failure:
                        if failure.code() != grpc.StatusCode.FAILED_PRECONDITION:
                            raise
                    else:
                        acknowledged.append((answer.results[0].base_offset, value))

            await asyncio.gather(produce(b"one", one), produce(b"two", two))
        return acknowledged

    acknowledged = run(test())
    found = values(tmp_path, "t").get(0, [])
    assert len(found) == len(set(found)), "a record is there twice"
    assert all(found[offset] == value for offset, value in acknowledged)
    assert {value for _, value in acknowledged} == set(found)


def test_compressed_arrow_and_every_kind_of_null_reach_the_table(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            for compression in ("lz4", "zstd", None):
                column = pa.array([b"", None, b"v"], pa.binary())
                batch = batch_of(key=column, value=column)
                await client.produce(
                    arrow_request(batch, ranges=[(0, 0, 3)], compression=compression)
                )

    run(test())
    assert values(tmp_path, "t") == {0: [b"", None, b"v"] * 3}

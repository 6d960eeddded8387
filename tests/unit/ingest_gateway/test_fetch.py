"""Fetch: what comes from memory and from data files, how much of it, and what is refused."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.delta_log.faults import FaultyStore
from tests.unit.ingest_gateway.fetching import (
    ARROW,
    RECORDS,
    commit,
    compacted,
    fetch,
    fetch_request,
    offsets,
    rows,
)
from tests.unit.ingest_gateway.harness import (
    WAIT_S,
    Client,
    Gate,
    refused,
    run,
    running,
    soon,
    table,
    until,
)
from tests.unit.ingest_gateway.payloads import (
    arrow_request,
    batch_of,
    records_request,
    values_request,
)

from mainstem.delta_log import LocalStore
from mainstem.delta_log.format import Register, registers
from mainstem.delta_log.store import random_access
from mainstem.errors import BackPressureError
from mainstem.ingest_gateway import reader_threads
from mainstem.ingest_gateway.caller import NOBODY
from mainstem.ingest_gateway.fetching.columns import COLUMNS
from mainstem.ingest_gateway.server import Gateway
from mainstem.protocol.v1 import log_pb2
from mainstem.records import TABLE_SCHEMA

pytestmark = pytest.mark.usefixtures("nothing_left")

#: Where records are when they are read: memory alone, data files alone, or files and then memory.
PLACES = ("tail", "history", "mixed")


@asynccontextmanager
async def holding(
    warehouse: Path, place: str, *requests: log_pb2.ProduceRequest, **config: str
) -> AsyncIterator[tuple[Gateway, Client]]:
    """A gateway with topic `t`, each request a commit of its own, and the records where they shall
    be. `mixed`: those of the last request are in memory, the others are not."""
    early = requests if place == "history" else requests[:-1] if place == "mixed" else ()
    async with running(warehouse) as (gateway, client):
        await client.create("t", 2, **config)
        for request in early:
            await client.produce(request)
        if place == "tail":
            for request in requests:
                await client.produce(request)
            yield gateway, client
            return
    async with running(warehouse) as (gateway, client):
        if place == "mixed":
            await client.produce(requests[-1])
        yield gateway, client


SPECIAL = [
    log_pb2.Record(key=b"k", value=b"v", timestamp_ms=1_000, partition=0),
    log_pb2.Record(timestamp_ms=999, partition=0),
    log_pb2.Record(key=b"", value=b"", timestamp_ms=1_001, partition=0),
    log_pb2.Record(
        value=b"h",
        timestamp_ms=1_002,
        partition=0,
        headers=[
            log_pb2.Header(key="a", value=b"1"),
            log_pb2.Header(key="a"),
            log_pb2.Header(key="ü", value=b""),
        ],
    ),
]
HEADERS = [("a", b"1"), ("a", None), ("ü", b"")]


@pytest.mark.parametrize("place", PLACES)
def test_every_field_comes_as_it_was_sent_and_null_is_not_empty(tmp_path: Path, place: str) -> None:
    async def test() -> None:
        halves = records_request(*SPECIAL[:2]), records_request(*SPECIAL[2:])
        async with holding(tmp_path, place, *halves) as (_, client):
            (found,) = await fetch(client, ("t", 0, 0))
            assert (found.log_start_offset, found.high_watermark, found.next_offset) == (0, 4, 4)
            assert found.topic_id == table(tmp_path, "t").topic_id
            with pa.ipc.open_stream(found.arrow) as reader:
                assert reader.schema == pa.schema([TABLE_SCHEMA.field(name) for name in COLUMNS])
            listed = rows(found)
            assert [row["offset"] for row in listed] == [0, 1, 2, 3]
            assert [row["timestamp"] for row in listed] == [1_000, 999, 1_001, 1_002]
            assert [row["timestamp_type"] for row in listed] == [0] * 4
            assert [row["key"] for row in listed] == [b"k", None, b"", None]
            assert [row["value"] for row in listed] == [b"v", None, b"", b"h"]
            assert [row["headers"] or None for row in listed] == [None, None, None, HEADERS]

            (found,) = await fetch(client, ("t", 0, 0), format=RECORDS)
            assert not found.arrow
            assert [record.offset for record in found.records] == [0, 1, 2, 3]
            assert [record.timestamp_ms for record in found.records] == [1_000, 999, 1_001, 1_002]
            assert [one.key if one.HasField("key") else None for one in found.records] == [
                b"k",
                None,
                b"",
                None,
            ]
            assert [one.value if one.HasField("value") else None for one in found.records] == [
                b"v",
                None,
                b"",
                b"h",
            ]
            assert [
                (header.key, header.value if header.HasField("value") else None)
                for header in found.records[3].headers
            ] == HEADERS

    run(test())


@pytest.mark.parametrize("place", PLACES)
def test_only_the_columns_that_were_asked_for_come(tmp_path: Path, place: str) -> None:
    async def test() -> None:
        halves = records_request(*SPECIAL[:2]), records_request(*SPECIAL[2:])
        async with holding(tmp_path, place, *halves) as (_, client):
            (found,) = await fetch(client, ("t", 0, 1), columns=["headers", "key"])
            assert [list(row) for row in rows(found)] == [["offset", "key", "headers"]] * 3
            assert [row["key"] for row in rows(found)] == [None, b"", None]
            (found,) = await fetch(client, ("t", 0, 1), columns=["offset"])
            assert rows(found) == [{"offset": 1}, {"offset": 2}, {"offset": 3}]
            (found,) = await fetch(client, ("t", 0, 3), columns=["timestamp"], format=RECORDS)
            assert list(found.records) == [log_pb2.FetchedRecord(offset=3, timestamp_ms=1_002)]

    run(test())


def test_log_append_time_is_told(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t", message_timestamp_type="LogAppendTime")
            await client.produce(values_request(b"v"))
            (found,) = await fetch(client, ("t", 0, 0), format=RECORDS)
            assert found.records[0].timestamp_type == 1

    run(test())


@pytest.mark.parametrize(
    "fields", [{"columns": ["value", "nosuch"]}, {"format": 17}, {"columns": ["producer_id"]}]
)
def test_a_request_for_what_there_is_not_is_refused(tmp_path: Path, fields: dict[str, Any]) -> None:
    async def test() -> None:
        async with (
            running(tmp_path) as (_, client),
            refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_RECORD"),
        ):
            await fetch(client, ("t", 0, 0), **fields)

    run(test())


def test_a_request_for_too_many_partitions_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path) as (_, client),
            refused(grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_TOO_LARGE"),
        ):
            await fetch(client, *[("t", 0, 0)] * 10_001)

    run(test())


def test_each_partition_that_cannot_be_read_has_its_error_and_the_others_are_served(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            topic_id = await client.create("t", 2)
            await client.produce(values_request(b"a", b"b"))
            found = await fetch(
                client,
                ("nosuch", 0, 0),
                ("t", 2, 0),
                ("t", -1, 0),
                ("../t", 0, 0),
                ("t", 0, 3),
                ("t", 0, -1),
                ("t", 0, 1),
                ("t", 1, 0),
                format=RECORDS,
            )
            assert [one.error.code for one in found] == [
                "UNKNOWN_TOPIC",
                "UNKNOWN_PARTITION",
                "UNKNOWN_PARTITION",
                "INVALID_TOPIC",
                "OFFSET_OUT_OF_RANGE",
                "OFFSET_OUT_OF_RANGE",
                "",
                "",
            ]
            assert [one.next_offset for one in found[4:]] == [3, -1, 2, 0]
            assert [offsets(one) for one in found[4:]] == [[], [], [1], []]

            request = fetch_request(("t", 0, 0), ("t", 0, 0))
            request.partitions[0].topic_id = "another"
            request.partitions[1].topic_id = topic_id
            answer = await client.log.Fetch(request, timeout=WAIT_S)
            first, second = answer.partitions
            assert first.error.code == "UNKNOWN_TOPIC"
            assert "created again" in first.error.message
            assert offsets(second) == [0, 1]

    run(test())


@pytest.mark.parametrize("place", PLACES)
def test_below_the_log_start_offset_is_out_of_range_with_both_bounds(
    tmp_path: Path, place: str
) -> None:
    async def test() -> None:
        requests = values_request(b"a", b"b"), values_request(b"c", b"d")
        async with holding(tmp_path, place, *requests) as (_, client):
            commit(tmp_path, "t", Register(registers.lso(0), 1))
            if place == "tail":  # the appender takes it into its state with its next commit
                await client.produce(values_request(b"e"))
            end = table(tmp_path, "t").log_end_offset(0)
            # A gateway looks at a table of nobody's at most ten times a second.
            while True:
                (found,) = await fetch(client, ("t", 0, 0), format=RECORDS)
                if found.error.code:
                    break
                await client.produce(values_request(b"x", partition=1))
            assert found.error.code == "OFFSET_OUT_OF_RANGE"
            assert dict(found.error.facts) == {
                "topic": "t",
                "partition": "0",
                "offset": "0",
                "log_start_offset": "1",
                "high_watermark": str(end),
            }
            assert (found.log_start_offset, found.high_watermark) == (1, end)
            (found,) = await fetch(client, ("t", 0, 1), format=RECORDS)
            assert offsets(found) == list(range(1, end))

    run(test())


def test_offsets_that_compaction_left_out_are_skipped_and_the_end_is_reached(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            await client.produce(values_request(*(b"%d" % number for number in range(10))))
        commit(tmp_path, "t", *compacted(tmp_path, "t", table(tmp_path, "t"), [2, 5]))
        async with running(tmp_path) as (_, client):
            for offset, expected in ((0, [2, 5]), (2, [2, 5]), (3, [5]), (5, [5]), (6, [])):
                (found,) = await fetch(
                    client, ("t", 0, offset), format=RECORDS, min_bytes=1, max_wait_ms=50
                )
                assert offsets(found) == expected
                assert found.next_offset == 10, "the lag must reach 0"
            (found,) = await fetch(client, ("t", 0, 0), format=RECORDS, partition_bytes=1)
            assert (offsets(found), found.next_offset) == ([2], 3)
            # An end without any file: a reader that waits would wait for ever.
            state = table(tmp_path, "t")
            (file,) = state.files(0).sorted()
            await client.produce(values_request(b"new"))
            (found,) = await fetch(client, ("t", 0, 6), format=RECORDS)
            assert offsets(found) == [10]
            assert file.last_offset == 9

    run(test())


def test_a_record_behind_a_long_hole_comes_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            batch = batch_of(value=[b"v"] * 20_000)
            await client.produce(arrow_request(batch, ranges=[(0, 0, 20_000)]))
        commit(tmp_path, "t", *compacted(tmp_path, "t", table(tmp_path, "t"), [0, 19_999]))
        async with running(tmp_path) as (_, client):
            (file,) = table(tmp_path, "t").files(0).sorted()
            assert file.size_bytes < 20_000, "less than a byte an offset"
            (found,) = await fetch(client, ("t", 0, 19_998), min_bytes=1, max_wait_ms=60_000)
            assert offsets(found) == [19_999]

    run(test())


def test_a_stretch_without_any_file_is_passed_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            await client.produce(values_request(b"a", b"b"))
        removes = compacted(tmp_path, "t", table(tmp_path, "t"), [])[:-1]
        commit(tmp_path, "t", *removes)
        async with running(tmp_path) as (_, client):
            (found,) = await fetch(client, ("t", 0, 0), min_bytes=1, max_wait_ms=60_000)
            assert (rows(found), found.next_offset, found.error.code) == ([], 2, "")

    run(test())


@pytest.mark.parametrize("form", [ARROW, RECORDS])
@pytest.mark.parametrize("place", PLACES)
def test_a_record_that_is_larger_than_every_limit_comes_alone_and_nobody_loops(
    tmp_path: Path, place: str, form: log_pb2.FetchFormat
) -> None:
    async def test() -> None:
        sizes = [10, 5_000, 10, 10, 9_000, 10]
        values = [b"x" * size for size in sizes]
        requests = values_request(*values[:3]), values_request(*values[3:])
        async with holding(tmp_path, place, *requests) as (_, client):
            offset, came = 0, []
            while offset < len(sizes):
                (found,) = await fetch(
                    client, ("t", 0, offset), max_bytes=200, partition_bytes=200, format=form
                )
                assert offsets(found), "an answer without progress"
                came.append(offsets(found))
                assert found.next_offset == came[-1][-1] + 1
                offset = found.next_offset
            assert came == [[0], [1], [2, 3], [4], [5]] or came == [[0], [1], [2], [3], [4], [5]]
            assert [one for batch in came for one in batch] == list(range(6))

    run(test())


def test_a_large_record_of_a_later_partition_comes_where_the_answer_has_room(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t", 2)
            await client.produce(values_request(b"small", partition=0))
            await client.produce(values_request(b"x" * 20_000, partition=1))
            both = ("t", 0, 0), ("t", 1, 0)
            found = await fetch(client, *both, partition_bytes=100, max_bytes=60_000)
            assert [offsets(one) for one in found] == [[0], [0]]
            # No room: not now, and not instead of the small one.
            found = await fetch(client, *both, partition_bytes=100, max_bytes=10_000)
            assert [offsets(one) for one in found] == [[0], []]
            assert found[1].next_offset == 0
            # First in the request, it comes, and the other waits.
            found = await fetch(client, *reversed(both), partition_bytes=100, max_bytes=10_000)
            assert [offsets(one) for one in found] == [[0], []]

    run(test())


def test_partitions_are_served_in_the_order_of_the_request(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t", 3)
            for partition in range(3):
                await client.produce(values_request(*[b"x" * 1_000] * 10, partition=partition))
            order = [("t", partition, 0) for partition in (2, 0, 1)]
            found = await fetch(client, *order, max_bytes=12_000)
            assert [len(offsets(one)) for one in found] == [10, 0, 0]
            found = await fetch(client, *order, max_bytes=25_000)
            assert [len(offsets(one)) for one in found] == [10, 10, 0]
            assert [one.next_offset for one in found] == [10, 10, 0]

    run(test())


@pytest.mark.parametrize("form", [ARROW, RECORDS])
@pytest.mark.parametrize("place", PLACES)
def test_an_answer_has_no_more_bytes_than_were_asked_for(
    tmp_path: Path, place: str, form: log_pb2.FetchFormat
) -> None:
    async def test() -> None:
        many = [b""] * 2_000  # what a record costs beside its bytes counts, too
        requests = values_request(*many), values_request(*many)
        async with holding(tmp_path, place, *requests) as (_, client):
            request = fetch_request(("t", 0, 0), max_bytes=20_000, format=form)
            answer = await client.log.Fetch(request, timeout=WAIT_S)
            assert 300 < len(offsets(answer.partitions[0])) < 1_000
            assert answer.ByteSize() <= 20_000 + 4_096

    run(test())


@pytest.mark.parametrize("place", PLACES)
def test_a_small_answer_out_of_a_large_commit_is_small(tmp_path: Path, place: str) -> None:
    async def test() -> None:
        header = log_pb2.Header(key="h" * 100, value=b"v")
        plain = [log_pb2.Record(value=b"v", partition=0)] * 5_000
        with_header = log_pb2.Record(value=b"v", partition=0, headers=[header])
        requests = records_request(*plain, with_header), records_request(with_header, *plain)
        async with holding(tmp_path, place, *requests) as (_, client):
            for offset in (0, 4_999, 5_000, 5_001, 5_002, 9_000):
                request = fetch_request(("t", 0, offset), max_bytes=1_000)
                answer = await client.log.Fetch(request, timeout=WAIT_S)
                assert offsets(answer.partitions[0])[0] == offset
                assert answer.ByteSize() < 1_000 + 4_096

    run(test())


def test_the_gateways_limit_holds_whatever_is_asked_for(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, fetch_max_bytes=10_000) as (_, client):
            await client.create("t", 2)
            for partition in range(2):
                await client.produce(values_request(*[b"x" * 100] * 500, partition=partition))
            for asked in (0, 2**40):
                request = fetch_request(
                    ("t", 0, 0), ("t", 1, 0), max_bytes=asked, partition_bytes=asked
                )
                answer = await client.log.Fetch(request, timeout=WAIT_S)
                assert answer.ByteSize() <= 10_000 + 2 * 4_096
                assert offsets(answer.partitions[0])

    run(test())


def test_many_small_files_are_read_a_bounded_number_at_a_time(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t", commit_interval_ms="0", rollup_files="0")
            for number in range(70):
                await client.produce(values_request(b"%d" % number))
        async with running(tmp_path) as (_, client):
            # Without waiting, although there are less than `min_bytes`.
            (found,) = await fetch(client, ("t", 0, 0), min_bytes=2**20, max_wait_ms=60_000)
            assert offsets(found) == list(range(64))
            assert found.next_offset == 64
            (found,) = await fetch(client, ("t", 0, 64))
            assert offsets(found) == list(range(64, 70))

    run(test())


def test_a_cache_that_was_evicted_in_the_middle_and_files_give_every_record_once(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path, fetch_cache_bytes=20_000) as (gateway, client):
            await client.create("t", commit_interval_ms="0")
            for number in range(20):
                await client.produce(values_request(*[b"%04d" % number + b"x" * 96] * 20))
            cache = gateway._fetches._planner._cache
            assert 0 < cache.used_bytes <= 20_000
            state = table(tmp_path, "t")
            start = cache.start_offset("t", state.topic_id, 0, state.log_end_offset(0))
            assert 0 < start < 400
            for offset in (0, start - 1, start, start + 1, 399):
                for limit in (1, 3_000, 2**20):
                    at, came = offset, []
                    while at < 400:
                        (found,) = await fetch(client, ("t", 0, at), partition_bytes=limit)
                        came += offsets(found)
                        at = found.next_offset
                        if limit == 1 and at > start + 25:
                            break
                    assert came == list(range(offset, at))

    run(test())


def test_a_compacted_file_that_reaches_into_the_cached_tail_repeats_nothing(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t", commit_interval_ms="0")
            await client.produce(values_request(*(b"%d" % number for number in range(10))))
        async with running(tmp_path) as (gateway, client):
            await client.produce(values_request(*(b"%d" % number for number in range(10, 20))))
            state = table(tmp_path, "t")
            commit(tmp_path, "t", *compacted(tmp_path, "t", state, range(20)))
            await client.produce(values_request(*(b"%d" % number for number in range(20, 30))))
            (first, _) = table(tmp_path, "t").files(0).sorted()
            assert (first.base_offset, first.last_offset) == (0, 19)
            cache = gateway._fetches._planner._cache
            assert cache.start_offset("t", state.topic_id, 0, 30) == 10
            for limit in (1, 100, 300, 2**20):
                at, came = 0, []
                while at < 30:
                    (found,) = await fetch(
                        client, ("t", 0, at), partition_bytes=limit, format=RECORDS
                    )
                    came += [int(record.value) for record in found.records]
                    at = found.next_offset
                assert came == list(range(30))

    run(test())


def test_what_keyed_compaction_removed_does_not_come_from_memory_either(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t", commit_interval_ms="0")
            for first in (0, 10):
                values = [b"%d" % number for number in range(first, first + 10)]
                await client.produce(values_request(*values))
            state = table(tmp_path, "t")
            # Of the second commit, which is one run in memory, compaction has seen a part.
            kept = [3, 12, *range(15, 20)]
            cleaned = Register(registers.cleaned(0), 15)
            commit(tmp_path, "t", *compacted(tmp_path, "t", state, kept), cleaned)
            await client.produce(values_request(b"20"))  # the gateway learns of it
            assert gateway._fetches._planner._cache.start_offset("t", state.topic_id, 0, 21) == 0
            for start in range(22):
                for limit in (1, 2**20):
                    at, came = start, []
                    while at < 21:
                        (found,) = await fetch(
                            client, ("t", 0, at), partition_bytes=limit, format=RECORDS
                        )
                        came += offsets(found)
                        at = found.next_offset
                    assert came == [one for one in [*kept, 20] if one >= start]

    run(test())


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    limits=st.lists(st.integers(1, 6_000), min_size=1, max_size=8),
    cache_bytes=st.sampled_from([0, 4_000, 20_000, 2**26]),
    form=st.sampled_from([ARROW, RECORDS]),
)
def test_readers_beside_appends_never_skip_and_never_repeat(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    limits: list[int],
    cache_bytes: int,
    form: log_pb2.FetchFormat,
) -> None:
    warehouse = tmp_path_factory.mktemp("warehouse")

    async def test() -> None:
        total = sum(sizes)
        async with running(warehouse, fetch_cache_bytes=cache_bytes) as (_, client):
            await client.create("t", 2, commit_interval_ms="1")

            async def append() -> None:
                number = 0
                for size in sizes:
                    numbered = [b"%d" % (number + index) for index in range(size)]
                    for partition in range(2):
                        await client.produce(values_request(*numbered, partition=partition))
                    number += size

            async def read() -> None:
                at, turn = [0, 0], 0
                came: list[list[int]] = [[], []]
                while min(at) < total:
                    limit = limits[turn % len(limits)]
                    order = (0, 1) if turn % 2 else (1, 0)
                    turn += 1
                    found = await fetch(
                        client,
                        *(("t", partition, at[partition]) for partition in order),
                        max_bytes=limit,
                        partition_bytes=limits[-turn % len(limits)],
                        min_bytes=1,
                        max_wait_ms=1_000,
                        format=form,
                    )
                    for one in found:
                        assert not one.error.code
                        listed = (
                            [int(record.value) for record in one.records]
                            if form == RECORDS
                            else [int(row["value"]) for row in rows(one)]
                        )
                        assert listed == offsets(one), "another record than that of the offset"
                        assert one.next_offset <= one.high_watermark
                        came[one.partition] += listed
                        at[one.partition] = one.next_offset
                assert came == [list(range(total))] * 2

            await asyncio.gather(append(), read(), read())

    run(test())


def test_after_a_restart_everything_is_read_from_the_files_without_leading(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            await client.produce(values_request(*[b"v"] * 100))
        version = table(tmp_path, "t").version
        async with running(tmp_path) as (_, client):
            (found,) = await fetch(client, ("t", 0, 0))
            assert offsets(found) == list(range(100))
            (found,) = await fetch(client, ("t", 0, 100))
            assert (offsets(found), found.error.code) == ([], "")
        assert table(tmp_path, "t").version == version, "reading took the lead"

    run(test())


def test_a_lost_data_file_is_damage_of_its_partition_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t", 3)
            for partition in range(3):
                await client.produce(values_request(b"v", partition=partition))
        state = table(tmp_path, "t")
        root = tmp_path / "topics" / "t"
        (root / state.files(0).sorted()[0].path).unlink()
        torn = root / state.files(1).sorted()[0].path
        torn.write_bytes(torn.read_bytes()[:-10])
        async with running(tmp_path) as (_, client):
            found = await fetch(client, *(("t", partition, 0) for partition in range(3)))
            assert [one.error.code for one in found] == ["LOG_DAMAGED", "LOG_DAMAGED", ""]
            assert [one.next_offset for one in found] == [0, 0, 1]

    run(test())


def test_a_flipped_bit_is_damage_of_its_file_alone_and_is_never_served(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t", 2)
            for partition in range(2):
                for value in (b"first", b"amount=1000 EUR", b"last"):
                    await client.produce(values_request(value, partition=partition))
        files = table(tmp_path, "t").files(0).sorted()
        damaged = tmp_path / "topics" / "t" / files[1].path
        data = damaged.read_bytes()
        place = data.index(b"1000")
        damaged.write_bytes(data[:place] + b"9" + data[place + 1 :])
        async with running(tmp_path) as (_, client):
            found = await fetch(client, ("t", 0, 0), ("t", 1, 0))
            assert [offsets(one) for one in found] == [[0], [0, 1, 2]]
            assert [one.error.code for one in found] == ["", ""]
            found = await fetch(client, ("t", 0, 1), ("t", 0, 2), ("t", 1, 1))
            assert [one.error.code for one in found] == ["LOG_DAMAGED", "", ""]
            assert files[1].path in found[0].error.message
            assert [offsets(one) for one in found] == [[], [2], [1, 2]]
            damaged.write_bytes(data)  # restored from a copy
            found = await fetch(client, ("t", 0, 0))
            assert offsets(found[0]) == [0, 1, 2]

    run(test())


def test_a_data_file_that_the_disk_cannot_read_fails_its_partition_alone_and_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t", 2)
            for partition in range(2):
                await client.produce(values_request(b"v", partition=partition))
        root = tmp_path / "topics" / "t"
        broken = (root / table(tmp_path, "t").files(0).sorted()[0].path).stat().st_ino
        pread = os.pread

        def failing(fd: int, length: int, start: int) -> bytes:
            if os.fstat(fd).st_ino == broken:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return pread(fd, length, start)

        async with running(tmp_path) as (_, client):
            with monkeypatch.context() as patch:
                patch.setattr(os, "pread", failing)
                patch.setattr(random_access, "_DESCRIPTORS", "/nowhere")
                found = await fetch(client, ("t", 0, 0), ("t", 1, 0))
                assert [one.error.code for one in found] == ["STORE_UNAVAILABLE", ""]
                assert [one.next_offset for one in found] == [0, 1]
            found = await fetch(client, ("t", 0, 0), ("t", 1, 0))
            assert [one.error.code for one in found] == ["", ""]

    run(test())


def test_a_file_that_is_compacted_away_while_it_is_read_is_looked_for_again(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            await client.produce(values_request(b"a", b"b", b"c"))
        gate = Gate("open", table(tmp_path, "t").files(0).sorted()[0].path)
        store = FaultyStore(LocalStore(tmp_path), before=gate)
        async with running(tmp_path, store) as (_, client):
            reading = asyncio.create_task(fetch(client, ("t", 0, 0)))
            await until(lambda: gate.calls == 1)
            state = table(tmp_path, "t")
            old = state.files(0).sorted()[0].path
            commit(tmp_path, "t", *compacted(tmp_path, "t", state, [0, 1, 2]))
            (tmp_path / "topics" / "t" / old).unlink()
            gate.open()
            (found,) = await soon(reading)
            assert (offsets(found), found.error.code) == ([0, 1, 2], "")

    run(test())


def test_more_fetches_than_allowed_are_refused_with_back_pressure(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, fetch_max_requests=1) as (gateway, client):
            await client.create("t")
            waits = asyncio.create_task(fetch(client, ("t", 0, 0), min_bytes=1, max_wait_ms=60_000))
            await until(lambda: gateway.fetches_waiting == 1)
            async with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "BACK_PRESSURE") as facts:
                await fetch(client, ("t", 0, 0))
            assert facts["limit_requests"] == "1"
            assert int(facts["retry_ms"]) > 0
            await client.produce(values_request(b"v"))
            assert offsets((await soon(waits))[0]) == [0]
            assert offsets((await fetch(client, ("t", 0, 0)))[0]) == [0]

    run(test())


def test_answers_that_slow_readers_do_not_take_are_bounded(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, fetch_queue_bytes=1) as (gateway, client):
            await client.create("t")
            await client.produce(values_request(*[b"x" * 100_000] * 10))
            assert offsets((await fetch(client, ("t", 0, 0)))[0]) == [0], (
                "one alone is always taken"
            )
            await until(lambda: gateway._fetches._room.unsent_bytes == 0)
            gateway._fetches._room.unsent_bytes += 1  # as of a reader that reads nothing
            async with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "BACK_PRESSURE") as facts:
                await fetch(client, ("t", 0, 0))
            assert facts["limit_bytes"] == "1"
            gateway._fetches._room.unsent_bytes -= 1

    run(test())


def test_many_fetches_whose_readers_read_nothing_have_the_bytes_of_the_queue_together(
    tmp_path: Path,
) -> None:
    class Unread:
        """A call whose client reads nothing: it never ends."""

        identity = NOBODY

        def add_done_callback(self, callback: object) -> None: ...

        def peer(self) -> str:
            return "ipv4:127.0.0.1:1"

    async def test() -> None:
        async with running(tmp_path) as (_, client):
            await client.create("t")
            await client.produce(values_request(*[b"x" * 100_000] * 40))
            limit = 1_000_000
        async with running(tmp_path, fetch_queue_bytes=limit) as (gateway, client):
            await fetch(client, ("t", 0, 0), max_bytes=1)
            await until(lambda: gateway._fetches._room.unsent_bytes == 0)
            request = log_pb2.FetchRequest(
                partitions=[log_pb2.FetchPartition(topic="t")], max_bytes=300_000
            )
            call: Any = Unread()
            outcomes = await asyncio.gather(
                *(gateway._fetches.Fetch(request, call) for _ in range(50)), return_exceptions=True
            )
            answers = [outcome for outcome in outcomes if isinstance(outcome, bytes)]
            assert 3 <= len(answers) <= 5
            assert sum(map(len, answers)) == gateway._fetches._room.unsent_bytes <= limit
            assert {type(outcome) for outcome in outcomes} == {bytes, BackPressureError}
            assert gateway._fetches._room.reserved_bytes == 0
            gateway._fetches._room.unsent_bytes = 0

    run(test())


def test_a_topic_whose_store_hangs_holds_up_no_fetch_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_threads, "SLOW_S", 0.1)
    hanging = threading.Event()

    def hang(call: str, path: str) -> None:
        if "topics/hung/partition" in path and not call.startswith("put"):
            assert hanging.wait(60)

    async def test() -> None:
        async with running(tmp_path, fetch_threads=2) as (_, client):
            for topic in ("hung", "t"):
                await client.create(topic)
                await client.produce(values_request(b"v", topic=topic))
        store = FaultyStore(LocalStore(tmp_path), before=hang)
        async with running(store=store, fetch_threads=2) as (gateway, client):
            waiting = [asyncio.create_task(fetch(client, ("hung", 0, 0))) for _ in range(4)]
            try:
                assert offsets((await fetch(client, ("t", 0, 0)))[0]) == [0]
                await until(lambda: gateway._fetches._threads.refusal("hung") is not None)
                hung, served = await fetch(client, ("hung", 0, 0), ("t", 0, 0))
                assert hung.error.code == "STORE_UNAVAILABLE"
                assert hung.error.retriable
                assert offsets(served) == [0]
            finally:
                hanging.set()
            outcomes = [(await soon(one))[0] for one in waiting]
            assert any(offsets(one) == [0] for one in outcomes if not one.error.code)
            assert offsets((await fetch(client, ("hung", 0, 0)))[0]) == [0]

    run(test())


def test_fetched_records_are_counted_by_topic(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (gateway, client):
            await client.create("t")
            await client.produce(values_request(b"a" * 10, b"b" * 10))
            await fetch(client, ("t", 0, 0))
            await fetch(client, ("t", 0, 1))
            read = gateway._metrics.registry.get_sample_value
            assert read("mainstem_fetch_records_total", {"topic": "t"}) == 3
            assert (read("mainstem_fetch_bytes_total", {"topic": "t"}) or 0) >= 30

    run(test())
